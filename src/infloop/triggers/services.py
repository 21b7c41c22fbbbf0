"""What the source of a trigger kind is given: its triggers, and a way to start runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from infloop.errors import InfloopError, Overloaded, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from pathlib import Path

    from infloop.model.clock import Clock
    from infloop.model.trigger import Trigger
    from infloop.triggers.payload import Values


class Source(Protocol):
    """Waits for what fires the triggers of one kind: a time, a change."""

    async def run(self) -> None:
        """Start runs until the task is cancelled, or until there is nothing to wait for.

        An error ends the whole server, so a source starts runs with `try_start`.
        """


class StartRun(Protocol):
    """Starts a run of a trigger; returns False while the queue is full."""

    def __call__(
        self, trigger: Trigger, values: Values, key: str = "", correlation_id: str = ""
    ) -> Awaitable[bool]:
        """Queue the run durably; `values` are what the trigger's templates can refer to.

        Two starts with the same `key` are one run. Without a `correlation_id` the run gets a new
        one. Raises StoreError or Overloaded if the run cannot be queued now and must be tried
        again, and another InfloopError if it is refused.
        """


class Notify(Protocol):
    """Tells a person about a problem of a trigger."""

    def __call__(self, trigger: Trigger, message: str) -> None: ...


async def try_start(trigger: Trigger, attempt: Awaitable[bool], notify: Notify) -> bool:
    """Await the start of a run and report its errors; return False if it must be tried again."""
    try:
        return await attempt
    except (OSError, Overloaded, StoreError) as error:
        notify(trigger, f"cannot be started now: {error}")
        return False
    except InfloopError as error:
        notify(trigger, f"cannot be started: {error}")
        return True


class IsOwnWrite(Protocol):
    """Tells whether a run of the trigger itself made a change that was just noticed."""

    def __call__(self, trigger_id: str, path: str, now_ms: int) -> bool: ...


class SourceServices(msgspec.Struct, frozen=True):
    """What a source can use.

    - `triggers` returns the present triggers of its kind, including disabled ones.
    - `state_dir` is a directory for state that must survive a restart.
    """

    triggers: Callable[[], Iterable[Trigger]]
    start: StartRun
    notify: Notify
    is_own_write: IsOwnWrite
    clock: Clock
    state_dir: Path
