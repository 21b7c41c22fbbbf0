"""When a process that ended is started again. Pure.

Rules
  * The policy decides whether it is: `never`, `on_failure`, `always`.
  * The delay doubles with each restart in a row, up to a maximum.
  * A process that ran for a while ends the row.
  * After a few restarts in a row the state is `crash-loop`, and restarts go on at their delay.
  * With `max_restarts` the process has `failed` after so many in a row, and stays down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from infloop.model.dev.config import Process
    from infloop.model.dev.status import ProcessState

STABLE_MS = 10_000
"""A process that ran this long was not in a crash loop."""

CRASH_LOOP = 5
"""So many restarts in a row are a crash loop."""


class Ended(msgspec.Struct, frozen=True):
    """How a process ended. `unhealthy` means that its liveness probe failed and we ended it."""

    ok: bool
    ran_ms: int
    unhealthy: bool = False


class Next(msgspec.Struct, frozen=True):
    """What follows: the state, the restarts in a row, and the delay of the next; None: no next."""

    state: ProcessState
    restarts: int
    delay_ms: int | None = None


def after_end(process: Process, restarts: int, ended: Ended) -> Next:
    """Return what follows the end of a process that nobody asked to stop."""
    if ended.ran_ms >= STABLE_MS:
        restarts = 0
    wanted = process.restart == "always" or (
        process.restart == "on_failure" and (not ended.ok or ended.unhealthy)
    )
    if not wanted:
        return Next("stopped" if ended.ok else "failed", restarts)
    if process.max_restarts and restarts >= process.max_restarts:
        return Next("failed", restarts)
    delay = min(process.restart_delay_ms << min(restarts, 20), process.max_restart_delay_ms)
    state: ProcessState = "crash-loop" if restarts + 1 >= CRASH_LOOP else "restarting"
    return Next(state, restarts + 1, delay)
