"""Change notification: tells readers that something was committed.

What is committed belongs to a subject, and who waits names one, so that nobody is woken for what
does not concern it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

QUEUE = "queue"
"""There may be something to take from the queue."""

STOPS = "stops"
"""Somebody asked for a run to be stopped."""

RUNS = "runs"
"""Something happened in any run."""


def run_subject(run_id: str) -> str:
    """Return the subject of what happens in one run."""
    return f"run:{run_id}"


class Changes(ABC):
    """A version number for each subject, which changes with every commit of any process about it.

    It may also change without one. A commit of a process that dies at that moment may stay
    unannounced: who waits looks again when the time of the wait is up.
    """

    @abstractmethod
    def version(self, subject: str) -> int:
        """Return the current version; takes microseconds.

        A reader remembers it and queries again only when it has changed.
        """

    @abstractmethod
    async def wait(self, subject: str, version: int, seconds: float) -> None:
        """Return when the version is no longer `version`, or after `seconds`."""
