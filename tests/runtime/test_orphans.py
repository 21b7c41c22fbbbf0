"""kill -9 at any moment: no child lives on, and every interrupted run is recorded once."""

from __future__ import annotations

import itertools
import json
import os
import random
import secrets
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from infloop.model.events import RunFinished
from infloop.sandbox.keepers.keeper import (
    Process,
    all_processes,
    descendants,
    read_process,
    send_signal,
)
from support.canaries import place
from support.confinement import need_bubblewrap
from support.eventually import eventually
from support.forking import Forker, forker
from support.runs import world
from support.thorough import amount, some

if TYPE_CHECKING:
    from collections.abc import Iterator

KILLS = amount(2, thorough=12)
TIMEOUT_S = 240 * max(1, KILLS // 12)
LANES = amount(1, thorough=2)
PATIENCE_S = 3.0
USER = "nobody" if os.geteuid() == 0 else ""


def marked(numbers: range) -> list[int]:
    """The living processes that have one of the numbers among their arguments."""
    found = []
    for process in all_processes():
        _, mark, rest = command_line(process.pid).partition(b"300.")
        number = rest[:10]
        if mark and number.isdigit() and int(number) in numbers:
            found.append(process.pid)
    return found


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def gone(numbers: range, others: list[Process]) -> None:
    """Wait until none of them lives."""

    def left() -> list[int]:
        return [*marked(numbers), *(each.pid for each in others if lives(each))]

    def what() -> str:
        return f"all are gone: {[(pid, command_line(pid)) for pid in left()]}"

    eventually(lambda: not left(), what, within_s=PATIENCE_S)


def end_all(numbers: range) -> None:
    """End what a failed test leaves behind: some of it starts more processes for ever."""

    def none_is_left() -> bool:
        for pid in (found := marked(numbers)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not found

    eventually(none_is_left)


def lives(process: Process) -> bool:
    now = read_process(process.pid)
    return now is not None and now.start == process.start and now.alive


def is_keeper(process: Process) -> bool:
    return b"keeper.py" in command_line(process.pid)


@contextmanager
def bystander() -> Iterator[Process]:
    sleeper = subprocess.Popen(
        ["/bin/sleep", "600"], start_new_session=True, stdin=subprocess.DEVNULL
    )
    try:
        found = read_process(sleeper.pid)
        assert found is not None
        yield found
    finally:
        sleeper.kill()
        sleeper.wait(30)


@dataclass
class Lane:
    """Processes on one data directory, one after the other, each killed at some moment."""

    folder: Path
    keepers_too: bool
    at_once: bool
    at_launch: bool
    chance: random.Random
    innocent: Process
    first: int = field(default_factory=lambda: secrets.randbelow(900_000) * 1000 + 10**9)
    number: int = 0
    process: int = 0
    lines: int = 0
    kill_after: int = 0
    kills: int = 0
    tree: list[Process] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    killed_with_children: int = 0

    @property
    def numbers(self) -> range:
        """The numbers of all processes that it has begun."""
        return range(self.first, self.first + self.number + 1)

    @property
    def is_enough(self) -> bool:
        """Whether it has been killed often, and often enough while it had children."""
        with_children = self.at_launch or self.killed_with_children > KILLS // LANES // 4
        return with_children and self.kills >= KILLS // LANES

    def kill(self, children: Forker) -> None:
        """Let one more process begin, and kill it."""
        self.number += 1
        self.lines = 0
        self.kill_after = 0 if self.at_launch else self.chance.randint(2, 140)
        children.run(self.first + self.number, None, self.hear)
        if self.at_once:
            gone(self.numbers, self.tree)
        self.pretend_that_ids_were_given_out_again()

    def hear(self, words: list[str]) -> None:
        match words:
            case ["process", pid]:
                self.process = int(pid)
            case ["recovered", *_]:
                # Nothing of those before; what this one starts has a higher number.
                gone(range(self.first, self.first + self.number), self.tree)
            case ["began", *runs]:
                self.begun += runs
                if self.at_launch:
                    self.kill_after = self.lines + self.chance.randint(1, 30)
        self.lines += 1
        if self.lines == self.kill_after:
            with suppress(ProcessLookupError):  # it may just have ended by itself
                os.kill(self.process, signal.SIGSTOP)
                self.kill_what_is_stopped()
                self.kills += 1

    def kill_what_is_stopped(self) -> None:
        """Note what is below the process, and kill it, with its keepers if they are to go too."""
        self.tree = descendants({self.process}, all_processes())
        own = range(self.first + self.number, self.first + self.number + 1)
        self.killed_with_children += bool(marked(own))
        keepers = [each for each in self.tree if self.keepers_too and is_keeper(each)]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for each in keepers:
                send_signal(each, number)
        os.kill(self.process, signal.SIGKILL)

    def pretend_that_ids_were_given_out_again(self) -> None:
        for record in (self.folder / "data/pids").glob("i-*"):
            first, *more = record.read_text().rstrip().splitlines()[:2] or [""]
            if more:
                known = {**json.loads(more[0]), "pid": self.innocent.pid}
                record.write_text(f"{first}\n{json.dumps(known)}\n")

    async def check(self, settings: dict[str, Any]) -> None:
        """See what is left when all is over."""
        gone(self.numbers, self.tree)
        async with world(self.folder, **settings) as here:
            for run_id in self.begun:
                recorded = await here.service.store.run_log.events(run_id, include_output=False)
                ends = [each.event for each in recorded if isinstance(each.event, RunFinished)]
                assert len(ends) == 1, (run_id, ends)
                assert ends[0].interrupted or ends[0].status in ("succeeded", "failed")
        for name in ("data/pids", "data/active-runs", "tmp"):
            assert list((self.folder / name).iterdir()) == []


LEVELS = ("host", "guard", "sandbox")
SERVER, KEEPERS_TOO = ("the server", "its keepers too")
KILLED = [
    ("host", SERVER), ("host", KEEPERS_TOO), ("guard", KEEPERS_TOO), ("guard", SERVER),
    ("sandbox", SERVER), ("sandbox", KEEPERS_TOO),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.claim("I56", "I57", "I59")
@pytest.mark.parametrize(("level", "who"), some(KILLED, one_in=2))
async def test_killed_at_any_moment_nothing_lives_on_and_each_run_is_recorded_once(
    level: str, who: str
) -> None:
    await killed(level, keepers_too=who == KEEPERS_TOO, at_launch=False)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.claim("I56", "I57")
@pytest.mark.parametrize("level", LEVELS)
async def test_killed_with_its_keepers_while_children_are_launched_nothing_lives_on(
    level: str,
) -> None:
    await killed(level, keepers_too=True, at_launch=True)


async def killed(level: str, *, keepers_too: bool, at_launch: bool) -> None:
    """Kill processes again and again, and see that nothing is left each time."""
    if level == "sandbox":
        need_bubblewrap()
    settings = {"isolation": level, "service_user": USER, "snapshots": False}
    settings["run_history_limit"] = KILLS * 10

    def lane(top: Path, number: int) -> Lane:
        folder = top / str(number)
        for name in ("work", "tmp"):
            (folder / name).mkdir(parents=True)
        if USER:
            shutil.chown(folder / "work", USER)
        (folder / "settings.json").write_text(json.dumps(settings))
        chance = random.Random(f"{level} {keepers_too} {number}")
        with bystander() as innocent, forker("orphan_starter.py", folder) as children:
            made = Lane(folder, keepers_too, level == "sandbox", at_launch, chance, innocent)
            try:
                assert children.run(0, None, made.hear)  # it proves the level, once
                while not made.is_enough:
                    assert made.kills < 10 * KILLS, "hardly any had a child when it was killed"
                    made.kill(children)
                assert children.run(0, None, made.hear)  # it takes up what is left, and ends
                assert lives(innocent)
            except BaseException:
                end_all(made.numbers)
                raise
            return made

    with place() as top, ThreadPoolExecutor(LANES) as threads:
        lanes = list(threads.map(lane, itertools.repeat(top), range(LANES)))
        for each in lanes:
            await each.check(settings)
