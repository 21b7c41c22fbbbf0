"""Change notification: tells readers that something was committed."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Changes(ABC):
    """A version number that changes with every commit of any process."""

    @abstractmethod
    def version(self) -> int:
        """Return the current version; takes microseconds.

        A reader remembers it and queries again only when it has changed.
        """

    @abstractmethod
    async def wait(self, version: int, seconds: float) -> None:
        """Return when the version is no longer `version`, or after `seconds`."""
