"""A patch changes all of its files, or none."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infloop.tools.base import ToolError
from infloop.tools.workspace import open_workspace
from infloop.tools.workspace.files import Change
from infloop.tools.workspace.patch import UpdateFile, parse_patch, patched
from support.repositories import contents
from support.tools import file_bench

if TYPE_CHECKING:
    from pathlib import Path


def patch(*lines: str) -> str:
    return "\n".join(("*** Begin Patch", *lines, "*** End Patch"))


async def test_files_are_added_changed_moved_and_deleted_together(tmp_path: Path) -> None:
    async with file_bench(tmp_path / "work") as bench:
        (bench.directory / "a.py").write_text("def f():\n    return 1\n")
        (bench.directory / "old.txt").write_text("gone")
        (bench.directory / "b.py").write_text("x = 1\n")
        (bench.directory / "b.py").chmod(0o755)
        text = await bench.text(
            "apply_patch",
            patch=patch(
                *("*** Add File: new/deep/c.txt", "+one", "+", "+two"),
                *("*** Update File: a.py", "@@ def f():", "-    return 1", "+    return 2"),
                *("*** Update File: b.py", "*** Move to: lib/b.py", "@@", "-x = 1", "+x = 2"),
                "*** Delete File: old.txt",
            ),
        )
        assert text == (
            "added new/deep/c.txt\nchanged a.py\nmoved b.py to lib/b.py\ndeleted old.txt"
        )
        files = [path for path in bench.directory.rglob("*") if path.is_file()]
        assert {str(path.relative_to(bench.directory)): path.read_text() for path in files} == {
            "new/deep/c.txt": "one\n\ntwo\n",
            "a.py": "def f():\n    return 2\n",
            "lib/b.py": "x = 2\n",
        }
        assert (bench.directory / "lib/b.py").stat().st_mode & 0o777 == 0o755


WRONG = {
    "not a patch": ("patch-invalid", "hello"),
    "nothing": ("patch-invalid", ""),
    "no end": ("patch-invalid", "*** Begin Patch\n*** Delete File: a"),
    "no file": ("patch-invalid", patch()),
    "text after the end": ("patch-invalid", patch("*** Delete File: a") + "\nmore"),
    "an unknown operation": ("patch-invalid", patch("*** Rename File: a")),
    "an added line without its sign": ("patch-invalid", patch("*** Add File: n", "x")),
    "an update of nothing": ("patch-invalid", patch("*** Update File: a")),
    "a hunk that changes nothing": ("patch-invalid", patch("*** Update File: a", "@@", " 1")),
    "a file twice": ("patch-invalid", patch("*** Delete File: a", "*** Delete File: ./a")),
    "adding what is there": ("already-exists", patch("*** Add File: a", "+x")),
    "moving onto what is there": (
        "already-exists",
        patch("*** Update File: a", "*** Move to: b", "@@", "-1", "+9"),
    ),
    "deleting what is not there": ("not-found", patch("*** Delete File: none")),
    "deleting a directory": ("not-a-file", patch("*** Delete File: dir")),
    "more lines than the file": (
        "hunk-not-found",
        patch("*** Update File: b", "@@", "-1", *(f" {n}" for n in range(2, 99)), "+x"),
    ),
    "other lines": ("hunk-not-found", patch("*** Update File: a", "@@", " 1", "-9", "+x")),
    "other blanks": ("hunk-not-found", patch("*** Update File: a", "@@", "-1 ", "+x")),
    "no such line above": ("hunk-not-found", patch("*** Update File: a", "@@ 7", "-2", "+x")),
    "only above": ("hunk-not-found", patch("*** Update File: a", "@@ 3", "-1", "+x")),
    "hunks in the wrong order": (
        "hunk-not-found",
        patch("*** Update File: a", "@@", "-3", "+x", "@@", "-1", "+y"),
    ),
    "two places": ("hunk-not-unique", patch("*** Update File: twice", "@@", "-x", "+y")),
    "not at the end": (
        "hunk-not-found",
        patch("*** Update File: a", "@@", "-1", "+x", "*** End of File"),
    ),
    "a way out": ("path-has-parent", patch("*** Add File: a/../../x", "+x")),
    "an absolute way out": ("path-is-absolute", patch("*** Add File: /tmp/x", "+x")),
    "a move out": ("path-has-parent", patch("*** Update File: a", "*** Move to: ../x")),
    "a hook": ("protected-path", patch("*** Add File: .git/hooks/pre-commit", "+x")),
    "behind a file": ("not-a-directory", patch("*** Add File: a/x", "+x")),
}


@pytest.mark.parametrize(("code", "text"), WRONG.values(), ids=WRONG)
async def test_a_patch_that_does_not_fit_changes_nothing(
    tmp_path: Path, code: str, text: str
) -> None:
    async with file_bench(tmp_path / "work") as bench:
        (bench.directory / "dir").mkdir()
        (bench.directory / "a").write_text("1\n2\n3\n")
        (bench.directory / "b").write_text("1\n")
        (bench.directory / "c").write_text("1\n")
        (bench.directory / "twice").write_text("x\nx\n")
        before = contents(tmp_path)
        assert await bench.code("apply_patch", patch=text) == code
        fits = ["*** Add File: deep/first", "+x", "*** Update File: c", "@@", "-1", "+2"]
        if code != "patch-invalid":
            after_one = text.replace("*** Begin Patch", "\n".join(("*** Begin Patch", *fits)))
            assert await bench.code("apply_patch", patch=after_one) == code
        assert contents(tmp_path) == before
        assert not (bench.directory / "deep").exists()


def test_files_that_were_changed_are_put_back_when_a_later_one_fails(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("1\n")
    (tmp_path / "run.sh").chmod(0o750)
    (tmp_path / "gone").write_text("still here")
    before = contents(tmp_path)
    with open_workspace(tmp_path) as workspace:
        changes = [
            Change("run.sh", b"2\n", workspace.read("run.sh")),
            Change("gone", None, workspace.read("gone")),
            Change("deep/new", b"1"),
            Change("deep/new", b"2"),  # the one before is in its way
        ]
        with pytest.raises(ToolError, match="exists already"):
            workspace.change(changes)
    assert contents(tmp_path) == before


def test_a_file_that_changes_after_it_was_read_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    with open_workspace(tmp_path) as workspace:
        read = workspace.read("a")
        (tmp_path / "a").write_text("somebody else's")
        with pytest.raises(ToolError, match="has changed since"):
            workspace.change([Change("a", b"2", read)])
    assert (tmp_path / "a").read_text() == "somebody else's"


def updated(text: str, *lines: str) -> str:
    (operation,) = parse_patch(patch("*** Update File: f", *lines))
    assert isinstance(operation, UpdateFile)
    return patched(text, operation.hunks, "f")


FITTING = {
    "first line": ("1\n2\n", ("@@", "-1", "+x"), "x\n2\n"),
    "without @@": ("1\n2\n", ("-1", "+x"), "x\n2\n"),
    "last line without its end": ("1\n2", ("@@", "-2", "+x"), "1\nx"),
    "all lines": ("1\n2\n", ("@@", "-1", "-2"), ""),
    "into an empty file": ("", ("@@", "+x"), "x\n"),
    "at the end": ("1\n", ("@@", "+x", "+y"), "1\nx\ny\n"),
    "after a line": ("1\n2\n", ("@@ 1", "+x"), "1\nx\n2\n"),
    "the second of two": ("x\na\nx\n", ("@@ a", "-x", "+y"), "x\na\ny\n"),
    "the last of two": ("x\na\nx\n", ("@@", "-x", "+y", "*** End of File"), "x\na\ny\n"),
    "narrowed twice": (
        "class A:\n def f():\n  x\nclass B:\n def f():\n  x\n",
        ("@@ class B:", "@@ def f():", "-  x", "+  y"),
        "class A:\n def f():\n  x\nclass B:\n def f():\n  y\n",
    ),
    "two hunks": ("1\n2\n3\n4\n", ("@@", "-1", "+x", "@@", " 3", "-4"), "x\n2\n3\n"),
    "neighbours": ("1\n2\n", ("@@", "-1", "+x", "@@", "-2", "+y"), "x\ny\n"),
    "Windows line ends": ("1\r\n2\r\n", ("@@", " 1", "-2", "+x"), "1\r\nx\r\n"),
    "numbers of a unified diff": ("1\n2\n", ("@@ -1,2 +1,2 @@", "-1", "+x", " 2"), "x\n2\n"),
    "an empty line without its blank": ("1\n\n2\n", ("@@", " 1", "", "-2", "+x"), "1\n\nx\n"),
    "a blank line before the end": ("1\n", ("@@", "-1", "+x", ""), "x\n"),
    "form feeds and separators": ("a\fb\u2028c\n", ("@@", "-a\fb\u2028c", "+d"), "d\n"),
}


@pytest.mark.parametrize(("before", "lines", "after"), FITTING.values(), ids=FITTING)
def test_a_hunk_replaces_exactly_its_lines(before: str, lines: tuple[str, ...], after: str) -> None:
    assert updated(before, *lines) == after


SMALL_LINES = st.lists(st.sampled_from(["", "a", "b", "a b", "@@", "*** x"]), max_size=6)


@given(SMALL_LINES, SMALL_LINES, SMALL_LINES, SMALL_LINES)
def test_a_hunk_with_all_its_context_gives_the_new_text(
    head: list[str], old: list[str], new: list[str], tail: list[str]
) -> None:
    lines = [*(f" {x}" for x in head), *(f"-{x}" for x in old), *(f"+{x}" for x in new)]
    lines += [f" {x}" for x in tail]
    if old != new and (head or old or tail):
        text = "".join(f"{x}\n" for x in (*head, *old, *tail))
        assert updated(text, "@@", *lines) == "".join(f"{x}\n" for x in (*head, *new, *tail))


@given(
    st.lists(
        st.sampled_from(
            [
                *("*** Begin Patch", "*** End Patch", "*** Update File: f", "*** Move to: g"),
                *("*** Add File: f", "*** End of File", "@@", "@@ a"),
                *("-a", "+b", " a", "", "a", "\r"),
            ]
        ),
        max_size=12,
    ),
    st.text(st.sampled_from("ab\r\n"), max_size=12),
)
def test_any_text_is_a_patch_or_is_refused(lines: list[str], text: str) -> None:
    with suppress(ToolError):
        for operation in parse_patch("\n".join(lines)):
            if isinstance(operation, UpdateFile):
                patched(text, operation.hunks, "f")


def test_a_hostile_patch_takes_no_long_time() -> None:
    many = ["-\n" * 100_000, *(["@@ a\n-a\n+b\n"] * 499)]
    text = patch("*** Update File: f", "@@", *"".join(many).split("\n")[:-1])
    (operation,) = parse_patch(text)
    assert isinstance(operation, UpdateFile)
    with pytest.raises(ToolError, match="does not fit"):
        patched("\n" * 1_000_000 + "a\n", operation.hunks, "f")
