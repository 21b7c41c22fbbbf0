"""Asks the person at the terminal what a run waits for.

Only `y` and `yes` allow something. A question that is answered elsewhere, or expires, is not asked
any longer.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from infloop.cli.view.terminal import INDENT, json_line, note, one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from infloop.application.application import Application
    from infloop.application.runs.followed_run import FollowedRun
    from infloop.application.runs.watched_run import WatchedRun
    from infloop.model.approval import AllowOrDeny, Approval

POLL_SECONDS = 0.2
MAX_DETAIL = 2_000


async def answer_questions(application: Application, run: WatchedRun | FollowedRun) -> None:
    """Ask each open question of a run, one after the other, until this is cancelled."""
    asked: set[str] = set()
    while True:
        waiting = [each for each in run.open_approvals() if each.id not in asked]
        for approval in waiting:
            asked.add(approval.id)
            await _ask(application, run, approval)
        await asyncio.sleep(POLL_SECONDS)


async def _ask(application: Application, run: WatchedRun | FollowedRun, approval: Approval) -> None:
    from infloop.application.caller import COMMAND_LINE
    from infloop.errors import UsageError

    for key, value in approval.details.items():
        text = value if isinstance(value, str) else json_line(value)
        note(f"{INDENT}{one_line(key)}: {one_line(text, MAX_DETAIL)}")
    print(f"allow {one_line(approval.title)}? [y/N] ", end="", file=sys.stderr, flush=True)
    line = await _read_line(lambda: any(each.id == approval.id for each in run.open_approvals()))
    if line is None:
        note("\nthe question was answered elsewhere, or nobody answered in time")
        return
    answer: AllowOrDeny = "allow" if line.strip().lower() in ("y", "yes") else "deny"
    try:
        await application.approvals.answer(approval.id, answer, COMMAND_LINE, "")
    except UsageError as error:
        note(str(error))


async def _read_line(still_open: Callable[[], bool]) -> str | None:
    """Return the next line of standard input; None if the question is not open any more."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(sys.stdin, ready.set)
    try:
        while still_open():
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    await ready.wait()
            except TimeoutError:
                continue
            return sys.stdin.readline()
    finally:
        loop.remove_reader(sys.stdin)
    return None
