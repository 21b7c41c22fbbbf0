"""What an append must fulfil: order, no gap after a failure, the output limit."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from infloop.errors import Fenced, NotFound, StoreError
from infloop.model.events import RunStarted
from infloop.store.encoding.batches import MAX_SEQ, Batch, dropped_marker, encode_separately
from infloop.store.interfaces.run_log import definition_hash

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.model.events import Recorded
    from infloop.store.interfaces.run_log import NewRun

ERROR_CHARACTERS = 4096
"""How much of a run's error is in its row; the event has all of it."""


class FailedAppends:
    """Prevents gaps in a run's sequence after a failed append.

    Only the writer uses it, except for `first_error`.
    """

    def __init__(self) -> None:
        self._failures: dict[tuple[str, int], tuple[int, Exception]] = {}
        self.first_error: Exception | None = None

    def add(self, run_id: str, epoch: int, seq: int, error: Exception) -> None:
        """Note that the append that begins with `seq` failed."""
        self._failures.setdefault((run_id, epoch), (seq, error))
        if self.first_error is None:
            self.first_error = error

    def check(self, run_id: str, epoch: int, seq: int) -> None:
        """Raise the error of an earlier failed append, unless `seq` repeats it."""
        failure = self._failures.get((run_id, epoch))
        if failure is None:
            return
        failed_seq, error = failure
        if seq > failed_seq:
            raise error
        del self._failures[run_id, epoch]


def check_first(run: NewRun, first: Recorded) -> str:
    """Return the hash of a run's definition, which its first event must name."""
    event, name = first.event, definition_hash(run.definition)
    if type(event) is not RunStarted or event.definition != name:
        raise StoreError(
            f"run {run.id!r} must begin with the RunStarted event that names its definition "
            f"{name!r}, not with {event!r:.200}"
        )
    return name


def check_order(items: Sequence[Recorded]) -> None:
    """Refuse items whose sequence numbers do not grow or exceed the maximum."""
    if items[-1].seq > MAX_SEQ:
        raise StoreError(
            f"run {items[-1].run_id!r} is full: the largest sequence number is {MAX_SEQ}"
        )
    for before, after in pairwise(items):
        if after.seq <= before.seq:
            raise StoreError(
                f"run {after.run_id!r}: sequence {after.seq} cannot follow {before.seq}; "
                "append events in the order of their sequence numbers"
            )


def write_refusal(
    run_id: str, epoch: int, seq: int, found: tuple[int, str, int] | None
) -> StoreError:
    """Return the error for a write under `epoch` that was refused.

    `found` is what the run's row has: epoch, owner, last sequence.
    """
    if found is None:
        return NotFound(f"there is no run {run_id!r}; it may have been pruned")
    current, owner, last_seq = found
    if current != epoch:
        return Fenced(
            f"run {run_id!r} belongs to {owner!r} since epoch {current}; this process still had "
            f"epoch {epoch} and must stop working on it"
        )
    return StoreError(
        f"run {run_id!r}: sequence {seq} cannot follow {last_seq}; sequence numbers only grow"
    )


def capped(items: Sequence[Recorded], stored: int, cap: int) -> list[Batch]:
    """Return the rows for `items` without output beyond `cap`, of which `stored` bytes are used.

    A marker replaces the first dropped batch of the run.
    """
    kept = []
    for batch in encode_separately(items):
        if batch.kind != "output" or stored + batch.output_bytes <= cap:
            stored += batch.output_bytes
            kept.append(batch)
        elif stored <= cap:
            first = next(item for item in items if item.seq == batch.first_seq)
            kept.append(dropped_marker(first, cap + 1 - stored))
            stored = cap + 1
    return kept
