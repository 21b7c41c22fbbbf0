"""Who changed a file while a workflow ran: its children, a person, or nobody knows."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from infloop.supervisor.written import Moment, Verdict, Written


class Seen(NamedTuple):
    """A child as it was at a look."""

    name: str = "hook 1"
    is_hook: bool = True
    written: int | None = 0
    to_disk: int = 0
    ended: bool = False


SERVER = Seen("process 9", is_hook=False, written=500)
BEGIN = 100_000


def log(*looks: tuple[int, list[Seen]], running: tuple[Seen, ...] = ()) -> Written:
    """A workflow that begins at 0, and what was seen at some times after that."""
    written = Written()
    written.begin(running, BEGIN)
    for at, children in looks:
        written.look(children, BEGIN + at)
    return written


def hook(*totals: int | None, every: int = 20) -> Written:
    """A hook of which these totals were seen; then it ended."""
    looks = [(every * at, [Seen(written=total)]) for at, total in enumerate(totals, 1)]
    return log(*looks, (every * len(looks) + every, []))


def server(*totals: tuple[int, int]) -> Written:
    """A server that wrote so much, of which so much went to a disk."""
    looks = [
        (20 * at, [SERVER._replace(written=500 + total, to_disk=to_disk)])
        for at, (total, to_disk) in enumerate(totals, 1)
    ]
    return log(*looks, running=(SERVER,))


# What was seen, when the content was written, how much it needed -> who did it
CASES: dict[str, tuple[Written, list[int], int, Verdict]] = {
    "nothing runs": (log((20, []), (40, [])), [30], 100, "person"),
    "a hook that writes nothing": (hook(0, 0, 0, 0, 0, 0), [50], 100, "person"),
    "a hook that wrote before": (hook(400, 400, 400, 400, 400, 400), [90], 100, "person"),
    "a hook that writes later": (hook(0, 0, 0, 0, 0, 400), [50], 100, "person"),
    "a hook that writes it": (hook(0, 0, 400, 400, 400), [50], 400, "child"),
    "a hook that writes less": (hook(0, 0, 30, 30, 30), [50], 400, "unclear"),
    "a hook that appends": (hook(0, 0, 1, 1, 1), [50], 1, "child"),
    "a hook that prints": (hook(0, 0, 400, 0, 0, 0), [50], 400, "person"),
    "a hook that is about to end": (hook(0, 0, 0), [70], 400, "child"),
    "a hook that has ended": (log((20, [Seen()]), (40, []), (80, [])), [60], 4, "person"),
    "a hook whose last numbers are known": (log((20, [Seen(ended=True)])), [15], 4, "person"),
    "a hook that wrote at its end": (log((20, [Seen(written=9, ended=True)])), [15], 9, "child"),
    "a hook that is not known yet": (hook(None, None, 900, 900, 900), [30], 900, "child"),
    "a hook that is never known": (log((20, [Seen(written=None)])), [30], 900, "child"),
    "a hook that writes in steps": (hook(100, 200, 300, 400, 400, 400), [15, 35, 75], 400, "child"),
    "first a person, then a hook": (hook(0, 0, 0, 0, 0, 400, 400), [30, 110], 400, "person"),
    "first a hook, then a person": (hook(400, 400, 400, 400, 400, 400), [10, 90], 400, "person"),
    "a server that answers": (server((0, 0), (0, 0), (5_000, 0)), [50], 400, "unclear"),
    "a server that writes files": (server((0, 0), (0, 0), (5_000, 4_096)), [50], 400, "child"),
    "a server that is quiet": (server((0, 0), (0, 0), (0, 0), (9, 0)), [30], 400, "person"),
    "a server that maps files": (server((0, 0), (0, 0), (0, 4_096)), [50], 400, "child"),
    "moved here by a hook": (hook(0, 0, 0), [-5_000], 400, "child"),
    "a time of the future": (hook(0, 0, 0), [90_000], 400, "child"),
    "moved here, only a server runs": (server((0, 0), (9_000, 0)), [-5_000], 400, "person"),
    "emptied by a hook": (hook(0, 0, 0), [50], 0, "child"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_change_is_attributed(case: str) -> None:
    written, times, needed, verdict = CASES[case]
    moments = [Moment(BEGIN + (at if 0 < at < 1_000 else 25), BEGIN + at) for at in times]
    assert written.verdict(moments, needed) == verdict


def test_a_file_that_is_gone_was_removed_by_the_hook_that_runs() -> None:
    written = hook(0, 0, 0)
    assert written.verdict([Moment(BEGIN + 50)], 0) == "child"
    assert written.verdict([Moment(BEGIN + 500)], 0) == "person"


def test_what_a_child_wrote_before_the_workflow_began_does_not_count() -> None:
    written = server((0, 0), (0, 0))
    assert written.verdict([Moment(BEGIN + 10, BEGIN + 10)], 1) == "person"
    written.begin([SERVER], BEGIN + 1_000)
    written.look([SERVER._replace(written=10**6, to_disk=10**6)], BEGIN + 1_020)
    assert written.verdict([Moment(BEGIN + 1_010, BEGIN + 1_010)], 1) == "child"
