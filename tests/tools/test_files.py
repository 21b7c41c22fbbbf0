"""Tools for files: reading, writing, listing, editing."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from infloop.model.capabilities import ToolRule
from infloop.tools.gate import MAX_TEXT_CHARS
from infloop.tools.workspace import open_workspace
from infloop.tools.workspace.files import MAX_FILE_BYTES
from support.parts import ruled_out_if
from support.tools import Person, file_bench

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_file_is_written_read_edited_and_listed(tmp_path: Path) -> None:
    async with file_bench(tmp_path / "work") as bench:
        await bench.text("fs_write", path="src/a.py", content="one\ntwo\n")
        await bench.text("file_write", path="b.txt", content="")
        assert await bench.text("fs_read", path="./src//a.py") == "one\ntwo\n"
        assert await bench.text("file_read", path="b.txt") == ""
        await bench.text("fs_edit", path="src/a.py", old="two", new="zwei")
        assert await bench.text("fs_read", path="src/a.py") == "one\nzwei\n"
        assert await bench.text("fs_list") == "b.txt\nsrc/"
        assert await bench.text("file_list", path=".") == "b.txt\nsrc/"
        assert await bench.text("fs_list", path="src") == "a.py"
        assert not list(bench.directory.rglob(".infloop-new-*"))


async def test_a_written_file_keeps_its_mode(tmp_path: Path) -> None:
    async with file_bench(tmp_path / "work") as bench:
        script = bench.directory / "run.sh"
        script.write_text("old")
        script.chmod(0o4750)
        await bench.text("fs_write", path="run.sh", content="new")
        assert script.read_text() == "new"
        assert stat.S_IMODE(script.stat().st_mode) == 0o750


async def test_a_long_file_is_read_in_parts_that_join(tmp_path: Path) -> None:
    async with file_bench(tmp_path / "work") as bench:
        text = "".join(f"line {number} with some words\n" for number in range(1, 3_001))
        (bench.directory / "long.txt").write_text(text)
        got, offset = "", 1
        while True:
            answer = await bench.text("fs_read", path="long.txt", offset=offset)
            assert len(answer) <= MAX_TEXT_CHARS
            body, _, note = answer.rpartition("\n[")
            got += body + "\n"
            if "go on with offset" not in note:
                break
            offset = int(note.rstrip("]").rpartition(" ")[2])
        assert got == text


async def test_lines_are_chosen_by_offset_and_limit(tmp_path: Path) -> None:
    async with file_bench(tmp_path / "work") as bench:
        (bench.directory / "a").write_text("1\n2\n3\n4")
        two = await bench.text("fs_read", path="a", offset=2, limit=2)
        assert two == "2\n3\n[lines 2 to 3 of 4; go on with offset 4]"
        assert await bench.text("fs_read", path="a", offset=4) == "4\n[lines 4 to 4 of 4]"
        assert await bench.text("fs_read", path="a", offset=9) == "[a has 4 lines]"
        assert await bench.code("fs_read", path="a", offset=0) == "bad-arguments"
        (bench.directory / "wide").write_text("x" * 100_000)
        assert len(await bench.text("fs_read", path="wide")) <= MAX_TEXT_CHARS


async def test_an_edit_needs_its_text_exactly_once(tmp_path: Path) -> None:
    async with file_bench(tmp_path / "work") as bench:
        (bench.directory / "a").write_text("x x\r\n")
        assert await bench.code("fs_edit", path="a", old="y", new="z") == "text-not-found"
        assert await bench.code("fs_edit", path="a", old="x", new="z") == "text-not-unique"
        assert await bench.code("fs_edit", path="a", old="", new="z") == "bad-arguments"
        assert (bench.directory / "a").read_bytes() == b"x x\r\n"
        await bench.text("fs_edit", path="a", old="x", new="z", all=True)
        assert (bench.directory / "a").read_bytes() == b"z z\r\n"


async def test_what_is_not_text_or_too_large_is_not_read(tmp_path: Path) -> None:
    async with file_bench(tmp_path / "work") as bench:
        (bench.directory / "binary").write_bytes(b"a\0b")
        (bench.directory / "latin").write_bytes("Größe".encode("latin-1"))
        with (bench.directory / "large").open("wb") as file:
            file.truncate(MAX_FILE_BYTES + 1)
        for tool, extra in (("fs_read", {}), ("fs_edit", {"old": "a", "new": "b"})):
            assert await bench.code(tool, path="binary", **extra) == "not-text"
            assert await bench.code(tool, path="latin", **extra) == "not-text"
            assert await bench.code(tool, path="large", **extra) == "file-too-large"
            assert await bench.code(tool, path="missing", **extra) == "not-found"


async def test_a_file_on_which_other_programs_act_needs_a_person(tmp_path: Path) -> None:
    person = Person(allows=True)
    async with file_bench(tmp_path / "work", ask=person) as bench:
        await bench.text("fs_write", path="src/main.py", content="")
        assert not person.questions
        await bench.text("fs_write", path="AGENTS.md", content="")
        await bench.text("fs_write", path=".github/workflows/ci.yml", content="")
        assert [each.title for each in person.questions] == [
            "fs_write: AGENTS.md",
            "fs_write: .github/workflows/ci.yml",
        ]
    async with file_bench(tmp_path / "work") as bench:
        assert await bench.code("fs_write", path=".envrc", content="") == "denied"


async def test_a_rule_sees_a_path_in_one_spelling(tmp_path: Path) -> None:
    rules = [ToolRule("read", "deny", "secrets/*")]
    async with file_bench(tmp_path / "work", rules=rules) as bench:
        (bench.directory / "secrets").mkdir()
        (bench.directory / "secrets/key").write_text("x")
        for path in ("secrets/key", "./secrets/key", "secrets//key", "secrets/./key"):
            assert await bench.code("fs_read", path=path) == "denied"


def test_private_paths_are_neither_read_nor_written(tmp_path: Path) -> None:
    (tmp_path / "data/deep").mkdir(parents=True)
    (tmp_path / "data/token").write_text("x")
    (tmp_path / "data/deep/token").write_text("x")
    with open_workspace(tmp_path, private=[tmp_path / "data"]) as workspace:
        assert [entry.name for entry in workspace.entries()] == []
        for act in (
            lambda: workspace.read("data/token"),
            lambda: workspace.read("data/deep/token"),
            lambda: workspace.entries("data"),
            lambda: workspace.entries("data/deep"),
            lambda: workspace.write_bytes("data/token", b""),
            lambda: workspace.write_bytes("data", b""),
        ):
            with pytest.raises(Exception, match="belongs to infloop"):
                act()


@ruled_out_if(os.geteuid() != 0, "only root can write for another user")
async def test_what_root_writes_belongs_to_the_owner_of_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    os.chown(tmp_path / "work", 12345, 12346)
    async with file_bench(tmp_path / "work") as bench:
        await bench.text("fs_write", path="new/file", content="1")
        await bench.text("fs_edit", path="new/file", old="1", new="2")
        for path in ("new", "new/file"):
            status = (bench.directory / path).stat()
            assert (status.st_uid, status.st_gid) == (12345, 12346)
