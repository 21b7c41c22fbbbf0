"""Asks the development loop of the run's directory whether the application is up.

It is met when all of this holds for the settle time, within the time limit:

- the processes are ready, or run without a readiness probe, and are not restarted meanwhile;
- the state key holds a text, which matches the pattern if there is one;
- no workflow of the loop runs, except the one that waits for this very run.

Then the page is opened, if there is one: its console must have no errors.

The answer has the last lines of the processes for the agent that has to mend it: of those that are
not up, or else of all that were asked for.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from infloop.errors import EgressError
from infloop.model.dev.up import describe, not_up
from infloop.model.hosts import authority, parse_url
from infloop.model.patterns import BadPattern, compile_pattern
from infloop.model.values import as_text
from infloop.nodes.base import tail, whole_number
from infloop.nodes.command import TAIL_CHARS
from infloop.store.dev_loops import read_log, read_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.model.dev.status import ProcessStatus
    from infloop.model.values import JsonObject
    from infloop.nodes.base import StepContext
    from infloop.store.dev_loops import RunningLoop

TIMEOUT_MS = 30_000
SETTLE_MS = 1_000
_LOOK_INTERVAL_S = 0.1


class DevAnswer(NamedTuple):
    """What the loop says; `broken` means that it could not be asked."""

    met: bool
    detail: str
    tail: str = ""
    broken: bool = False


class _Look(NamedTuple):
    """One look at the loop: what is wrong, and what must stay the same while it settles."""

    wrong: str = ""
    broken: bool = False
    down: tuple[ProcessStatus, ...] = ()
    loop: RunningLoop | None = None
    same: tuple[object, ...] = ()
    page: str = ""


async def check_dev_loop(step: StepContext, config: JsonObject) -> DevAnswer:
    """Wait until the conditions hold, for the time limit at most."""
    given = config.get("dev")
    dev = given if isinstance(given, dict) else {}
    clock = asyncio.get_running_loop().time
    limit = min(whole_number(dev.get("timeoutMs"), TIMEOUT_MS), step.max_command_ms) / 1000
    settle = whole_number(dev.get("settleMs"), SETTLE_MS) / 1000
    deadline = clock() + limit
    since, same = clock(), None
    while True:
        look = await asyncio.to_thread(_look, step, dev)
        if look.wrong or look.same != same:
            since, same = clock(), None if look.wrong else look.same
        if not look.wrong and clock() - since >= settle:
            if not look.page:
                return DevAnswer(met=True, detail="up")
            from infloop.nodes.page_check import check_page

            page = await check_page(step, look.page, round(max(deadline - clock(), 0) * 1000))
            if page.broken:
                return DevAnswer(met=False, detail=page.broken, broken=True)
            if not page.errors:
                return DevAnswer(met=True, detail="up, and the page has no errors")
            look = look._replace(wrong=_page_errors(look.page, page.errors))
            since = clock()
        # A check that holds may settle; nothing new counts after the deadline.
        if clock() >= deadline and (look.wrong or clock() >= deadline + settle):
            wrong = look.wrong or "processes are restarted again and again"
            said = "\n\n".join(filter(None, (look.page and look.wrong, _last_lines(look))))
            return DevAnswer(met=False, detail=wrong, tail=said, broken=look.broken)
        await asyncio.sleep(_LOOK_INTERVAL_S)


def _look(step: StepContext, dev: JsonObject) -> _Look:
    loops = _of_directory(step.dev_loops(), step.workdir)
    if len(loops) != 1:
        many = f"{len(loops)} development loops run" if loops else "no development loop runs"
        return _Look(f"{many} in {step.workdir!r}; start one with `infloop dev`", broken=True)
    [loop] = loops
    status = loop.status
    listed = dev.get("processes")
    names = [as_text(name) for name in listed] if isinstance(listed, list) else []
    known = {process.name for process in status.processes}
    if unknown := [name for name in names if name not in known]:
        there = f"it has: {', '.join(sorted(known))}" if known else "it has none"
        return _Look(f"the loop has no process {unknown[0]!r}; {there}", broken=True)
    down = tuple(not_up(status, names))
    if down:
        return _Look("; ".join(map(describe, down)), down=down, loop=loop)
    asked = tuple(
        process
        for process in status.processes
        if (process.name in names if names else process.state != "stopped")
    )
    key = as_text(dev.get("stateKey"))
    found = read_state(loop.folder).get(key) if key else ""
    value = found.strip() if isinstance(found, str) else ""
    if key and (wrong := _wrong_state(key, value, as_text(dev.get("pattern")))):
        return _Look(wrong, down=asked, loop=loop)
    if status.workflow and status.run_id != step.run_id:
        return _Look(f"workflow {status.workflow!r} of the loop is running", down=asked, loop=loop)
    pids = tuple((process.name, process.pid) for process in status.processes)
    page = as_text(dev.get("page"))
    try:
        url = _page_url(page, value) if page else ""
    except EgressError as error:
        return _Look(f"{page!r} is not the URL of a page: {error}", broken=True)
    return _Look(down=asked, loop=loop, same=(loop.folder, pids), page=url)


def _of_directory(loops: Sequence[RunningLoop], workdir: str) -> list[RunningLoop]:
    """Return the loops of a directory: with this root, or else around or below it."""
    here = Path(workdir).resolve()
    roots = [(Path(loop.status.root).resolve(), loop) for loop in loops]
    exact = [loop for root, loop in roots if root == here]
    near = [loop for root, loop in roots if root in here.parents or here in root.parents]
    return exact or near


def _wrong_state(key: str, value: str, pattern: str) -> str:
    if not value:
        return f"the state key {key!r} holds no text"
    try:
        if pattern and not compile_pattern(pattern).search(value):
            return f"the state key {key!r} does not match {pattern!r}: {tail(value, 100)}"
    except BadPattern as error:
        return f"the pattern {pattern!r} is not valid: {error}"
    return ""


def _page_url(page: str, base: str) -> str:
    """Return the URL of a page, which may be a path on another URL; raise EgressError."""
    if page.startswith("/"):
        place = parse_url(base)
        page = f"{place.scheme}://{authority(place.host, place.port)}{page}"
    parse_url(page)
    return page


def _page_errors(url: str, errors: Sequence[str]) -> str:
    lines = "\n".join(f"- {error}" for error in errors)
    return f"the page {url} has errors on its console:\n{lines}"


def _last_lines(look: _Look) -> str:
    if look.loop is None or not look.down:
        return ""
    share = TAIL_CHARS // len(look.down)
    logs = {
        describe(process): tail(read_log(look.loop.folder, process.name), share)
        for process in look.down
    }
    return "\n\n".join(f"{state}. Its last output:\n{log}" for state, log in logs.items())
