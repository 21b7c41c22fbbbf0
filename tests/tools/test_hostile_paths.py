"""No path leads a file tool out of its workspace, whoever changes what is at the path."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from infloop.lowlevel.link_free import open_beneath, walk_beneath
from infloop.tools.base import ToolError
from infloop.tools.workspace import open_workspace
from support.parts import ruled_out_if
from support.paths import ROOT
from support.repositories import contents
from support.thorough import amount
from support.tools import Person, file_bench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from infloop.lowlevel.link_free import OpenBeneath
    from support.tools import FileBench

SECRET = "the-canary-outside"
RACES = amount(150, thorough=1_000)

openers = pytest.mark.parametrize("opener", [open_beneath, walk_beneath])

WRITTEN_WRONG = {
    "path-is-empty": ("", " ", "   \t"),
    "path-is-absolute": ("/", "/etc/passwd", "//etc/passwd", "/proc/self/environ", "/./a.txt"),
    "path-has-parent": (
        *("..", "../x", "../../etc/passwd", "sub/..", "sub/../a.txt", "sub/../../x", "./../x"),
        *("a.txt/../../x", "sub//../x", "missing/../a.txt"),
    ),
    "path-invalid": (
        *("C:\\x", "C:/x", "c:x", "Z:", "\\\\server\\share", "..\\x", "sub\\..\\..\\x", "\\etc"),
        *(
            "a\0b",
            "a.txt\0",
            "a\nb",
            "\x1b[2J",
            "x\x7f",
            "x" * 5_000,
            "n" * 300,
            f"sub/{'n' * 256}",
        ),
    ),
}
"""Paths that are refused for how they are written, by the code."""

PROTECTED = (
    *(".git", ".git/config", ".git/hooks/pre-commit", "sub/.git/config", ".GIT/config"),
    *(".git /config", ".git./config", "git~1/config", ".g\u200cit/config", ".infloop/state"),
    *(".infloop-new-x", "infloop.toml", "sub/INFLOOP.toml"),
)


def patch_of(*lines: str) -> dict[str, str]:
    return {"patch": "\n".join(("*** Begin Patch", *lines, "*** End Patch"))}


READING: dict[str, Callable[[str], tuple[str, dict[str, Any]]]] = {
    "read": lambda path: ("fs_read", {"path": path}),
    "edit": lambda path: ("fs_edit", {"path": path, "old": "c", "new": "changed"}),
    "update": lambda path: (
        "apply_patch",
        patch_of(f"*** Update File: {path}", "@@", f"-{SECRET}", "+changed"),
    ),
    "delete": lambda path: ("apply_patch", patch_of(f"*** Delete File: {path}")),
}
WRITING: dict[str, Callable[[str], tuple[str, dict[str, Any]]]] = {
    "write": lambda path: ("fs_write", {"path": path, "content": "changed"}),
    "add": lambda path: ("apply_patch", patch_of(f"*** Add File: {path}", "+changed")),
    "move": lambda path: (
        "apply_patch",
        patch_of("*** Update File: a.txt", f"*** Move to: {path}"),
    ),
}
DIRECTORIES: dict[str, Callable[[str], tuple[str, dict[str, Any]]]] = {
    "list": lambda path: ("fs_list", {"path": path}),
    "search": lambda path: ("fs_search", {"path": path, "pattern": "canary"}),
}
FILE_CALLS = READING | WRITING


class Scene:
    """A workspace with everything that is refused, and a secret beside it."""

    def __init__(self, bench: FileBench, top: Path) -> None:
        self.bench = bench
        self.work, self.outside = bench.directory, top / "outside"
        self.outside.mkdir()
        (self.outside / "secret.txt").write_text(f"{SECRET}\n")
        (self.work / "sub").mkdir()
        (self.work / "a.txt").write_text("inside\n")
        (self.work / "link").symlink_to(self.outside / "secret.txt")
        (self.work / "inner-link").symlink_to("a.txt")
        (self.work / "chain").symlink_to("link")
        (self.work / "dangling").symlink_to(self.outside / "new.txt")
        (self.work / "folder-link").symlink_to(self.outside)
        (self.work / "sub/up").symlink_to("..")
        (self.work / "proc").symlink_to("/proc/self")
        os.link(self.outside / "secret.txt", self.work / "hard")
        os.mkfifo(self.work / "pipe")
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(self.work / "socket"))
        self.before = contents(self.outside)
        self.work_before = contents(self.work)

    async def refused(self, tool: str, arguments: dict[str, Any]) -> str:
        """Return the code of a refusal, which changed and told nothing."""
        result = await self.bench.gate.call(tool, arguments)
        assert SECRET not in result.text
        assert str(self.outside.parent) not in result.text
        assert contents(self.outside) == self.before
        assert contents(self.work) == self.work_before
        assert self.bench.audit.entries[-1].outcome == result.code
        return result.code


@pytest.mark.claim("L2", "L3")
async def test_a_path_is_refused_for_how_it_is_written(tmp_path: Path) -> None:
    async with file_bench(tmp_path / "work") as bench:
        scene = Scene(bench, tmp_path)
        for code, paths in WRITTEN_WRONG.items():
            for path in paths:
                for call in (FILE_CALLS | DIRECTORIES).values():
                    got = await scene.refused(*call(path))
                    in_patch = call("x")[0] == "apply_patch" and (not path.strip() or "\n" in path)
                    assert got in ({code, "patch-invalid"} if in_patch else {code}), call(path)
        for path in (".", "./", "././/"):
            for call in FILE_CALLS.values():
                assert await scene.refused(*call(path)) == "path-invalid"
            assert "a.txt" in await bench.text("fs_list", path=path)


REFUSED = {
    "link": "path-is-link",
    "inner-link": "path-is-link",
    "chain": "path-is-link",
    "dangling": "path-is-link",
    "folder-link": "path-is-link",
    "folder-link/secret.txt": "path-is-link",
    "folder-link/new/deep.txt": "path-is-link",
    "sub/up/a.txt": "path-is-link",
    "sub/up/sub/new.txt": "path-is-link",
    "proc/environ": "path-is-link",
    "proc/fd/0": "path-is-link",
    "pipe": "not-a-file",
    "socket": "not-a-file",
    "sub": "not-a-file",
    "a.txt/x": "not-a-directory",
}
"""What the file system has at a path, by the code."""


@pytest.mark.claim("L4")
@openers
async def test_what_is_at_a_path_is_not_reached(tmp_path: Path, opener: OpenBeneath) -> None:
    async with file_bench(tmp_path / "work", opener=opener) as bench:
        scene = Scene(bench, tmp_path)
        for path, code in REFUSED.items():
            for call in FILE_CALLS.values():
                assert await scene.refused(*call(path)) == code, call(path)
        for path in ("link", "folder-link", "dangling", "sub/up", "proc", "folder-link/x"):
            for call in DIRECTORIES.values():
                assert await scene.refused(*call(path)) == "path-is-link"
        for path in ("pipe", "a.txt", "socket"):
            for call in DIRECTORIES.values():
                assert await scene.refused(*call(path)) == "not-a-directory"


async def test_a_link_is_listed_and_not_followed_by_a_search(tmp_path: Path) -> None:
    async with file_bench(tmp_path / "work") as bench:
        scene = Scene(bench, tmp_path)
        (scene.work / "hard").unlink()
        assert "folder-link@" in await bench.text("fs_list")
        assert await bench.text("fs_search", pattern="canary") == "[nothing found]"
        assert await bench.text("fs_search", pattern="inside") == "a.txt:1: inside"


async def test_a_hard_link_is_not_written(tmp_path: Path) -> None:
    async with file_bench(tmp_path / "work") as bench:
        scene = Scene(bench, tmp_path)
        for name in ("write", "edit", "update", "delete"):
            assert await scene.refused(*FILE_CALLS[name]("hard")) == "hard-linked"


@ruled_out_if(os.geteuid() != 0, "only root can give a file to somebody else")
async def test_a_hard_link_to_a_file_of_somebody_else_is_not_read(tmp_path: Path) -> None:
    async with file_bench(tmp_path / "work") as bench:
        scene = Scene(bench, tmp_path)
        assert SECRET in await bench.text("fs_read", path="hard")
        os.chown(scene.outside / "secret.txt", 12345, 12345)
        scene.work_before = contents(scene.work)
        assert await scene.refused("fs_read", {"path": "hard"}) == "hard-linked"
        assert await bench.text("fs_search", pattern="canary") == "[nothing found]"


@ruled_out_if(os.geteuid() != 0, "only root can make a device")
async def test_a_device_is_not_opened(tmp_path: Path) -> None:
    async with file_bench(tmp_path / "work") as bench:
        os.mknod(bench.directory / "zero", 0o020666, os.makedev(1, 5))
        for call in FILE_CALLS.values():
            tool, arguments = call("zero")
            assert await bench.code(tool, **arguments) in ("not-a-file", "not-found")


@openers
def test_another_mount_is_not_entered(opener: OpenBeneath) -> None:
    with open_workspace("/", opener=opener) as workspace:
        for path in ("proc/self/environ", "proc/1/root/etc/passwd", "proc"):
            with pytest.raises(ToolError) as caught:
                workspace.read(path)
            assert caught.value.code in ("path-crosses-mount", "not-a-file"), path
        with pytest.raises(ToolError) as caught:
            workspace.entries("proc")
        assert caught.value.code == "path-crosses-mount"


async def test_what_git_and_infloop_act_on_is_not_written(tmp_path: Path) -> None:
    person = Person(allows=True)
    async with file_bench(tmp_path / "work", ask=person) as bench:
        scene = Scene(bench, tmp_path)
        for path in PROTECTED:
            for name, call in FILE_CALLS.items():
                if name != "read":
                    assert await scene.refused(*call(path)) == "protected-path", call(path)
        assert not person.questions
        with pytest.raises(ToolError, match="acts on it"):
            bench.workspace.write_bytes(".git/hooks/pre-commit", b"")


@pytest.mark.claim("L3", "L4")
def test_other_parts_write_files_by_the_same_rules(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/dangling").symlink_to(tmp_path / "new")
    with open_workspace(tmp_path / "work") as workspace:
        workspace.write_bytes("shots/page.png", b"\x89PNG")
        assert (tmp_path / "work/shots/page.png").read_bytes() == b"\x89PNG"
        for path in ("../x", "/tmp/x", "shots/../../x", "dangling", "", ".", "shots"):
            with pytest.raises(ToolError):
                workspace.write_bytes(path, b"")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["work"]


# -- races -----------------------------------------------------------------------------------------


@contextmanager
def swapping(first: Path, second: Path, swaps: list[int]) -> Iterator[None]:
    """Exchange two paths in another process as fast as it can; note how often."""
    script = ROOT / "tests/support/children/swap.py"
    with subprocess.Popen(
        [sys.executable, str(script), str(first), str(second)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout
        assert process.stdin
        assert process.stdout.readline() == b"begun\n"
        try:
            yield
        finally:
            process.stdin.close()
            swaps.append(int(process.stdout.readline()))


@pytest.mark.claim("L4")
@openers
@pytest.mark.thorough
@pytest.mark.parametrize("exchanged", ["a directory", "the file"])
async def test_what_is_exchanged_during_a_call_leads_nowhere(
    tmp_path: Path, opener: OpenBeneath, exchanged: str
) -> None:
    async with file_bench(tmp_path / "work", opener=opener) as bench:
        work, outside = bench.directory, tmp_path / "outside"
        (work / "sub/deep").mkdir(parents=True)
        (outside / "deep").mkdir(parents=True)
        for directory, text in ((work / "sub", "inside"), (outside, SECRET)):
            (directory / "deep/file").write_text(text)
        (work / "link").symlink_to(outside)
        (work / "file-link").symlink_to(outside / "deep/file")
        is_file = exchanged == "the file"
        pair = ("sub/deep/file", "file-link") if is_file else ("sub", "link")
        calls: list[tuple[str, dict[str, Any]]]
        calls = [("fs_read", {"path": "sub/deep/file"}), ("fs_search", {"pattern": "canary"})]
        if not is_file:
            calls += [
                ("fs_write", {"path": "sub/deep/new/planted", "content": "x"}),
                ("fs_write", {"path": "sub/deep/file", "content": "inside"}),
                ("apply_patch", patch_of("*** Add File: sub/deep/planted", "+x")),
                ("apply_patch", patch_of("*** Delete File: sub/deep/planted")),
                ("fs_list", {"path": "sub/deep"}),
            ]
        before, seen = contents(outside), set[str]()
        swaps: list[int] = []
        with swapping(work / pair[0], work / pair[1], swaps):
            for number in range(RACES):
                tool, arguments = calls[number % len(calls)]
                result = await bench.gate.call(tool, arguments)
                assert SECRET not in result.text
                seen.add(result.code)
        assert {"", "path-is-link"} <= seen
        assert contents(outside) == before
        assert swaps[0] >= 10 * RACES
