"""Watching for development loops: patterns, targets, contents, causes, both backends."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from msgspec.structs import replace

from infloop.runtime.clock import SetClock
from infloop.watch.causes import Link, Started, Writer, decide
from infloop.watch.content_watch import open_watch
from infloop.watch.contents import Change, Contents
from infloop.watch.globs import GlobSet
from infloop.watch.inotify import InotifyWatch
from infloop.watch.patterns import BadGlob
from infloop.watch.polling import PollWatch
from infloop.watch.targets import Scope, Target, merged, target_of
from support.eventually import eventually_async

MATCHES = {
    "src/**/*.rs": (["src/a.rs", "src/x/y/a.rs"], ["a.rs", "srcs/a.rs", "src/a.rsx"]),
    "**/*.py": (["a.py", "x/y.py"], ["a.pyc"]),
    "*.md": (["a.md", "deep/er/a.md"], ["a.mdx"]),
    "a?c": (["abc", "a/c"], ["ac", "abbc"]),
    "{a,b}.{x,y}": (["a.x", "b.y"], ["c.x", "a.z"]),
    "[a-c][!x]": (["ab", "cy"], ["ax", "dz"]),
    "content/": (["content/a", "content/x/y"], ["content", "contents/a"]),
    "./src/**": (["src/x", "src/y/z"], ["x"]),
    "Cargo.toml": (["Cargo.toml"], ["x/Cargo.toml", "cargo.toml", "Cargo_toml"]),
    r"a\*b": (["a*b"], ["axb"]),
    "a/**/b": (["a/b", "a/x/b", "a/x/y/b"], ["ab", "a/xb"]),
    "a/**": (["a/b", "a/b/c"], ["a", "b/a"]),
    ".": (["anything", "at/all"], []),
}


@pytest.mark.parametrize("glob", MATCHES)
def test_a_pattern_matches_whole_paths_as_globset_does(glob: str) -> None:
    matching, others = MATCHES[glob]
    files = GlobSet([glob])
    assert [path for path in matching if not files.matches(path)] == []
    assert [path for path in others if files.matches(path)] == []


@pytest.mark.parametrize("glob", ["a[b", "{a", "a}", "[z-a]", "x\\", "", "{" * 20 + "}" * 20])
def test_a_broken_pattern_is_refused(glob: str) -> None:
    with pytest.raises(BadGlob):
        GlobSet([glob])


def test_targets_are_the_leading_directories() -> None:
    assert target_of("src/**/*.rs") == Target("src", recursive=True)
    assert target_of("Cargo.toml") == Target("Cargo.toml", recursive=False)
    assert target_of("content/") == Target("content", recursive=True)
    for everywhere in ("*.md", "**/x", "."):
        assert target_of(everywhere) == Target("", recursive=True)
    assert merged(["a/b", "a/b/"]) == [Target("a/b", recursive=True)]


def test_version_control_and_caches_are_left_out_unless_they_are_named() -> None:
    scope = Scope(["**/*.py"])
    assert scope.wants_directory("deep/er")
    assert not scope.wants_directory(".git/objects")
    assert not scope.wants_directory("x/node_modules")
    assert Scope(["node_modules/mine/**"]).wants_directory("node_modules/mine/src")
    assert Scope(["**/*.py"], exclude=frozenset()).wants_directory(".git")
    assert not Scope(["src/**"]).wants_directory("docs")


# -- causes ----------------------------------------------------------------------------------------


def test_a_write_of_a_workflow_starts_others_and_not_itself() -> None:
    fmt = Writer("fmt", frozenset({"fmt", "reload"}))
    found = decide({"a.py": fmt}, {"a.py": {"fmt", "test", "reload"}})
    assert found.starts == (Started("test", ("a.py",), (Link("fmt", "a.py"),)),)
    assert decide({"a.py": None}, {"a.py": {"fmt"}}).starts == (Started("fmt", ("a.py",)),)


def test_a_cycle_is_stopped_and_named() -> None:
    test = Writer("test", frozenset({"test"}), (Link("fmt", "a.py"),))
    found = decide({"a.py": test}, {"a.py": {"fmt", "test"}})
    assert found.starts == ()
    assert found.cycles == ("`fmt` wrote `a.py`, which triggers `test`, which rewrites `a.py`",)


def test_a_change_that_may_be_anybodys_starts_the_workflow_once_more() -> None:
    fmt = Writer("fmt", frozenset({"fmt"}), unclear=True)
    again = Started("fmt", ("a.py",), (Link("fmt", "a.py"),))
    assert decide({"a.py": fmt}, {"a.py": {"fmt"}}).starts == (again,)
    found = decide({"a.py": replace(fmt, chain=again.chain)}, {"a.py": {"fmt"}})
    assert found.starts == ()
    assert found.cycles == ("`fmt` wrote `a.py`, which triggers `fmt`, which rewrites `a.py`",)


# -- the disk --------------------------------------------------------------------------------------

Start = Callable[[Path, Scope, Callable[[set[str]], None]], InotifyWatch | PollWatch]
BACKENDS: dict[str, Start] = {
    "native": lambda root, scope, report: InotifyWatch(str(root), scope, report),
    "poll": lambda root, scope, report: PollWatch(str(root), scope, report, 20),
}


@pytest.mark.parametrize("start", BACKENDS.values(), ids=BACKENDS)
async def test_every_kind_of_change_is_reported(start: Start, tmp_path: Path) -> None:
    (tmp_path / "src/old").mkdir(parents=True)
    (tmp_path / "src/old/moved.py").write_text("x")
    (tmp_path / "src/kept.py").write_text("x")
    scope, seen = Scope(["src/**/*.py", "late/**"]), set[str]()
    contents = Contents(str(tmp_path), scope, lambda path: path.endswith(".py"))
    contents.learn(2**63)

    def report(paths: set[str]) -> None:
        seen.update(change.path for change in contents.changed(paths))

    watch = start(tmp_path, scope, report)
    watch.start()
    try:
        (tmp_path / "src/new/deep").mkdir(parents=True)
        (tmp_path / "src/new/deep/made.py").write_text("x")
        (tmp_path / "src/kept.py").write_text("y")
        (tmp_path / "late/x").mkdir(parents=True)
        (tmp_path / "late/x/first.py").write_text("x")
        shutil.move(tmp_path / "src/old", tmp_path / "gone")
        expected = {"src/new/deep/made.py", "src/kept.py", "late/x/first.py", "src/old/moved.py"}
        await eventually_async(lambda: seen == expected, lambda: f"{seen}")
        seen.clear()
        (tmp_path / "src/kept.py").write_text("y")  # the same content
        (tmp_path / "late/x/first.py").touch()
        (tmp_path / "src/new/deep/made.py").replace(tmp_path / "src/new/named.py")
        await eventually_async(lambda: len(seen) == 2)
        assert seen == {"src/new/deep/made.py", "src/new/named.py"}
    finally:
        watch.close()


async def test_bursts_among_20_000_files_lose_nothing() -> None:
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        files = [f"d{number // 100}/f{number}" for number in range(20_000)]
        for number in range(200):
            Path(folder, f"d{number}").mkdir()
        write(folder, files, b"a")
        noticed, later = set[str](), SetClock(2**41)  # so that all files are old, and known
        watch = await open_watch(
            folder, Scope(["**"]), lambda _: True, noticed.update, fail, later, poll_ms=1
        )
        try:
            burst = files[::4]
            assert await watch.changed([]) == []
            write(folder, burst, b"b")
            watch.drain()
            assert len(burst) == 5_000
            assert [change.path for change in await watch.changed(noticed)] == sorted(burst)
            # More events than the kernel keeps: it says that some are lost, and all are compared.
            noticed.clear()
            write(folder, files, b"c")
            watch.drain()
            assert "" in noticed
            assert [change.path for change in await watch.changed(noticed)] == sorted(files)
        finally:
            watch.close()


def write(folder: str, paths: Iterable[str], content: bytes) -> None:
    for path in paths:
        with open(f"{folder}/{path}", "wb", buffering=0) as file:  # noqa: PTH123  (20,000 times)
            file.write(content)


def fail(message: str) -> None:
    raise AssertionError(message)


def test_how_much_a_change_needed_is_its_size_or_what_was_appended(tmp_path: Path) -> None:
    contents = Contents(str(tmp_path), Scope(["**"]), lambda _: True)
    file = tmp_path / "f"
    steps = {
        "": Change("f"),
        "abc": Change("f", 3),
        "abcde": Change("f", 2),
        "Abcdef": Change("f", 6),
        "Abc": Change("f", 3),
    }
    for text, expected in steps.items():
        file.write_text(text)
        assert contents.changed(["f"]) == [expected]
        assert contents.changed(["f"]) == []
    file.unlink()
    assert contents.changed([""]) == [Change("f")]
    assert contents.changed(["f", ""]) == []
