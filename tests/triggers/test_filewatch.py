"""Files: which changes count, when a run is started, and that a run does not start itself."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from infloop.errors import StoreError, UsageError
from infloop.model.trigger import Trigger, Watch
from infloop.model.workflow import InputSpec, Workflow
from infloop.runtime.clock import SystemClock
from infloop.triggers.firing import prepare
from infloop.triggers.watcher import Watcher, changed_values
from infloop.watch.debounce import MAX_DEBOUNCES, MAX_PATHS, RETRY_MS, Changes, Debounce
from infloop.watch.own_writes import OwnWrites
from infloop.watch.patterns import BadGlob, FileFilter
from support.eventually import eventually_async

ID = "Mp3bBKPc04r3UQGQt71Dsw"


def watch(*globs: str, ignore: tuple[str, ...] = (), directory: str = "/src") -> Watch:
    return Watch(directory=directory, globs=globs, ignore=ignore, debounce_ms=50)


# glob, path -> whether it counts
GLOBS: list[tuple[str, str, bool]] = [
    ("*.py", "a.py", True),
    ("*.py", "src/a.py", False),
    ("*.py", "a.pyc", False),
    ("*.py", ".py", True),
    ("**/*.py", "a.py", True),
    ("**/*.py", "src/deep/a.py", True),
    ("src/**/*.py", "src/a.py", True),
    ("src/**/*.py", "src/x/y/a.py", True),
    ("src/**/*.py", "lib/a.py", False),
    ("src/**", "src/a", True),
    ("src/**", "src/x/a", True),
    ("src/**", "src", False),
    ("src/**", "srcs/a", False),
    ("**", "a", True),
    ("**", "x/y/a", True),
    ("src/*", "src/a", True),
    ("src/*", "src/x/a", False),
    ("a?.md", "ab.md", True),
    ("a?.md", "a/.md", False),
    ("[ab].md", "a.md", True),
    ("[!ab].md", "c.md", True),
    ("[!ab].md", "a.md", False),
    ("[!ab].md", "/.md", False),
    ("[a-c].md", "b.md", True),
    ("a.b", "axb", False),
    ("a+(b)|c^$", "a+(b)|c^$", True),
    ("ä/*.md", "ä/ö.md", True),
    ("*", "a\nb", True),
    ("**/*", ".git/config", False),
    ("**", "sub/.git/hooks/x", False),
    ("**", ".gitignore", True),
    ("**", ".infloop-worktrees/1/a", False),
    ("**", "a.py~", False),
    ("**", ".a.py.swp", False),
    ("**", "x/4913", False),
    ("**", ".#lock", False),
    ("**", "a\udc80", False),
]


@pytest.mark.parametrize(("glob", "path", "counts"), GLOBS)
def test_a_file_counts_or_not(glob: str, path: str, counts: bool) -> None:
    assert FileFilter([glob]).counts(path) is counts


def test_what_is_ignored_does_not_count() -> None:
    files = FileFilter(["**/*.py", "*.md"], ["build/**", "**/test_*"])
    assert [
        path for path in ("a.py", "b.md", "build/a.py", "x/test_a.py") if files.counts(path)
    ] == [
        "a.py",
        "b.md",
    ]


@pytest.mark.parametrize(
    "glob",
    [
        *("", "/etc/*", "../x", "a/../b", "*.{py,md}", "a\\b", "a\0b", "a**", "**a/b", "x/***"),
        *("[", "[]", "[!]", "[a", "[a/b]", "[[:alpha:]]", "[^a]", "*" * 1_000),
    ],
)
def test_a_pattern_that_nobody_understands_is_refused(glob: str) -> None:
    with pytest.raises(BadGlob):
        FileFilter([glob])


def test_more_patterns_than_anybody_needs_are_refused() -> None:
    with pytest.raises(BadGlob, match="more than 100 patterns"):
        FileFilter(["a"] * 101)


def test_patterns_take_time_that_grows_with_the_path_alone() -> None:
    files = FileFilter(["/".join(["**"] * 20) + "/*a*a*a*a*a*a*b"])
    assert not files.counts("a/" * 2_000 + "a" * 2_000)


# -- quiet time ------------------------------------------------------------------------------------


def test_a_run_is_started_when_nothing_has_changed_for_a_while() -> None:
    debounce = Debounce(500)
    assert debounce.wait_ms(0) is None
    assert debounce.take(0) is None
    debounce.changed(["b"], 1_000)
    assert debounce.wait_ms(1_000) == 500
    debounce.changed(["a", "b"], 1_400)
    assert debounce.take(1_500) is None
    assert debounce.wait_ms(1_500) == 400
    assert debounce.take(1_900) == Changes(("a", "b"), 2)
    assert debounce.take(5_000) is None


def test_what_never_stops_changing_starts_a_run_all_the_same() -> None:
    debounce = Debounce(100)
    taken = []
    for now in range(0, 10_000, 50):
        debounce.changed(["log"], now)
        if debounce.take(now):
            taken.append(now)
    assert taken[0] == 100 * MAX_DEBOUNCES
    assert 4 <= len(taken) <= 5


def test_what_could_not_be_used_is_handed_out_again_after_a_while() -> None:
    debounce = Debounce(0)
    debounce.changed([f"f{number}" for number in range(MAX_PATHS + 5)], 0)
    taken = debounce.take(0)
    assert taken is not None
    debounce.put_back(taken, 0)
    assert debounce.wait_ms(0) == RETRY_MS
    assert debounce.take(RETRY_MS - 1) is None
    assert debounce.take(RETRY_MS) == taken
    assert debounce.wait_ms(RETRY_MS) is None


def test_a_flood_of_files_is_counted_and_named_in_part() -> None:
    debounce = Debounce(0)
    debounce.changed((f"{n:05}" for n in range(5_000)), 0)
    debounce.changed(["00000"], 0)
    changes = debounce.take(0)
    assert changes is not None
    assert (len(changes.paths), changes.count) == (MAX_PATHS, 5_000)


# -- a run's own writes ----------------------------------------------------------------------------


def test_a_runs_own_writes_are_its_own_while_it_is_on_and_a_moment_longer() -> None:
    own = OwnWrites(grace_ms=1_000)
    assert not own.owns(ID, "/src/a", 0)
    own.began(ID, "run-1", ["/src/"])
    assert own.owns(ID, "/src/a", 10)
    assert own.owns(ID, "/src", 10)
    assert not own.owns(ID, "/srcs/a", 10)
    assert not own.owns("other trigger", "/src/a", 10)
    own.ended("run-1", 5_000)
    assert own.owns(ID, "/src/a", 6_000)
    assert not own.owns(ID, "/src/a", 6_001)


def test_a_run_in_a_worktree_leaves_the_watched_directory_to_the_person() -> None:
    own = OwnWrites()
    own.began(ID, "run-1", ["/trees/1"])
    assert own.owns(ID, "/trees/1/a", 0)
    assert not own.owns(ID, "/src/a", 0)


def test_two_runs_of_a_trigger_are_kept_apart() -> None:
    own = OwnWrites(grace_ms=0)
    own.began(ID, "run-1", ["/a"])
    own.began(ID, "run-2", ["/b"])
    own.ended("run-1", 10)
    own.ended("never began", 10)
    assert not own.owns(ID, "/a/x", 11)
    assert own.owns(ID, "/b/x", 11)


# -- real files ------------------------------------------------------------------------------------


class Yard:
    """Triggers over real directories, and what was started."""

    def __init__(self, *triggers: Trigger) -> None:
        self.triggers = list(triggers)
        self.started: list[tuple[str, Changes]] = []
        self.told: list[str] = []
        self.own = OwnWrites()
        self.fails = False
        self.refused: list[Changes] = []
        self.refusals: list[bool | Exception] = []

    async def start(self, trigger: Trigger, changes: Changes) -> bool:
        if self.fails:
            raise UsageError("there is no workflow")
        if self.refusals:
            self.refused.append(changes)
            refusal = self.refusals.pop(0)
            if isinstance(refusal, Exception):
                raise refusal
            return refusal
        self.started.append((trigger.id, changes))
        return True

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        watcher = Watcher(
            lambda: self.triggers,
            self.start,
            lambda trigger, message: self.told.append(message),
            self.own.owns,
            SystemClock(),
        )
        task = asyncio.create_task(watcher.run())
        try:
            yield
        finally:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    def names(self, trigger_id: str = ID) -> set[str]:
        return {
            path for one, changes in self.started if one == trigger_id for path in changes.paths
        }

    async def until(
        self, is_so: Callable[[], bool], act: Callable[[], object] | None = None
    ) -> None:
        """Wait, doing something again and again: nobody says when a watch has begun."""

        def look() -> bool:
            if is_so():
                return True
            if act is not None:
                act()
            return False

        await eventually_async(look, within_s=60, every_s=0.1)


def trigger(directory: Path, *globs: str, id: str = ID, **more: object) -> Trigger:
    files = watch(*globs, directory=str(directory))
    values = {"id": id, "enabled": True, "workflow_id": "w", "kind": "file", **more}
    return Trigger(**values, files=files)


async def test_a_changed_file_starts_a_run_and_others_do_not(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    yard = Yard(trigger(tmp_path, "src/**/*.py"))
    async with yard.open():

        def write() -> None:
            (tmp_path / "notes.md").write_text("x")
            (tmp_path / "src/a.py").write_text(os.urandom(4).hex())

        await yard.until(lambda: bool(yard.started), write)
        deep = tmp_path / "src/deep"
        deep.mkdir()
        await yard.until(
            lambda: "src/deep/b.py" in yard.names(), lambda: (deep / "b.py").write_text("x")
        )
        yard.started.clear()
        (tmp_path / "src/a.py").unlink()
        await yard.until(lambda: "src/a.py" in yard.names())
    assert yard.names() <= {"src/a.py", "src/deep/b.py"}
    assert yard.told == []


async def test_a_run_does_not_start_itself_but_another_trigger_hears_it(tmp_path: Path) -> None:
    other = "O" * 20
    yard = Yard(trigger(tmp_path, "*.txt"), trigger(tmp_path, "*.txt", id=other))
    async with yard.open():
        await yard.until(
            lambda: len({one for one, _ in yard.started}) == 2,
            lambda: (tmp_path / "first.txt").write_text(os.urandom(4).hex()),
        )
        yard.own.began(ID, "run-1", [str(tmp_path.resolve())])
        (tmp_path / "own.txt").write_text("written by the run")
        await yard.until(lambda: "own.txt" in yard.names(other))
        (tmp_path / "last.txt").write_text("x")
        await yard.until(lambda: "last.txt" in yard.names(other))
    assert yard.names() == {"first.txt"}


async def test_triggers_and_directories_may_come_and_go(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    yard = Yard(trigger(folder, "*"))
    async with yard.open():
        await yard.until(lambda: bool(yard.told))
        assert "cannot watch" in yard.told[0]
        folder.mkdir()
        await yard.until(
            lambda: bool(yard.started), lambda: (folder / "a").write_text(os.urandom(4).hex())
        )
        yard.triggers = []
        second = tmp_path / "second"
        second.mkdir()
        yard.triggers = [trigger(second, "*", last_fired_at=1)]
        await yard.until(
            lambda: "b" in yard.names(), lambda: (second / "b").write_text(os.urandom(4).hex())
        )
    assert len(yard.told) == 1


async def test_what_is_wrong_with_one_trigger_is_told_and_keeps_no_other_from_starting(
    tmp_path: Path,
) -> None:
    yard = Yard(trigger(tmp_path, "{a,b}", id="O" * 20), trigger(tmp_path, "*"))
    yard.fails = True
    async with yard.open():
        await yard.until(
            lambda: len(yard.told) >= 2, lambda: (tmp_path / "a").write_text(os.urandom(4).hex())
        )
        assert "no '..', braces" in yard.told[0]
        assert yard.told[1] == "cannot be started: there is no workflow"
        yard.fails = False
        await yard.until(
            lambda: bool(yard.started), lambda: (tmp_path / "a").write_text(os.urandom(4).hex())
        )


@pytest.mark.parametrize("refusal", [False, StoreError("the disk is full")], ids=str)
async def test_changes_that_there_is_no_room_for_are_kept(
    tmp_path: Path, refusal: bool | Exception
) -> None:
    yard = Yard(trigger(tmp_path, "*"))
    yard.refusals = [refusal]
    names = (f"file-{number}" for number in count())
    async with yard.open():
        await yard.until(lambda: bool(yard.refused), lambda: (tmp_path / next(names)).touch())
        await yard.until(lambda: yard.names() >= set(yard.refused[0].paths))


def test_the_names_of_files_are_from_outside() -> None:
    made = trigger(Path("/src"), "*", inputs={"first": "{{files.first}}", "n": "{{files.count}}"})
    specs = (InputSpec(name="first", type="string"), InputSpec(name="n", type="number"))
    assert made.files is not None
    values = changed_values(made.files, Changes(("$(rm -rf).md", "b"), 2))
    firing = prepare(made, Workflow(id="w", name="w", inputs=specs), values)
    assert firing is not None
    assert firing.inputs == {"first": "$(rm -rf).md", "n": 2}
    assert (firing.cause.kind, firing.cause.untrusted) == ("file", ("first", "n"))
