"""The tool that searches the files of a workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.tools.workspace import WorkspaceTools, open_workspace
from support.tools import file_bench, gate_for

if TYPE_CHECKING:
    from pathlib import Path


def fill(directory: Path) -> None:
    for path, text in {
        "b.py": "def one():\n    return 1\n\ndef two():\r\n    return 2",
        "src/deep/a.py": "def three(): pass\n",
        "src/a.txt": "def not python\n",
        ".git/config": "def hidden\n",
        "node/.hidden": "def dotted\n",
    }.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(text.encode())
    (directory / "binary").write_bytes(b"def \0")
    (directory / "latin").write_bytes("def Größe\n".encode("latin-1"))


async def test_lines_are_found_with_their_places(tmp_path: Path) -> None:
    async with file_bench(tmp_path / "work") as bench:
        fill(bench.directory)
        assert await bench.text("fs_search", pattern="^def ") == (
            "b.py:1: def one():\nb.py:4: def two():\nlatin:1: def Gr\ufffd\ufffde\n"
            "node/.hidden:1: def dotted\n"
            "src/a.txt:1: def not python\nsrc/deep/a.py:1: def three(): pass"
        )
        assert await bench.text("fs_search", pattern="2$") == "b.py:5:     return 2"
        found = await bench.text("fs_search", pattern="^def ", path="src", glob="*.py")
        assert found == "src/deep/a.py:1: def three(): pass"
        assert await bench.text("fs_search", pattern="(?i)DEF THREE") == found
        assert await bench.text("fs_search", pattern="nowhere") == "[nothing found]"
        two = await bench.text("fs_search", pattern="def", limit=2)
        assert two == "b.py:1: def one():\nb.py:4: def two():\n[more than 2 lines match]"


async def test_each_line_is_found_once_also_by_a_pattern_that_matches_nothing(
    tmp_path: Path,
) -> None:
    async with file_bench(tmp_path / "work") as bench:
        (bench.directory / "a").write_text("x\n\nxx\n")
        assert await bench.text("fs_search", pattern="x*") == "a:1: x\na:2: \na:3: xx"
        assert await bench.text("fs_search", pattern="x\n\nx") == "a:1: x"


async def test_a_hostile_pattern_is_refused_or_linear(tmp_path: Path) -> None:
    async with file_bench(tmp_path / "work") as bench:
        (bench.directory / "a").write_text("a" * 100_000 + "!")
        assert await bench.text("fs_search", pattern="(a+)+$") == "[nothing found]"
        for pattern in ("(", "(?=a)", r"(a)\1", "a{100000}", "x" * 20_000):
            assert await bench.code("fs_search", pattern=pattern) == "pattern-invalid"
        for glob in ("{a", "x" * 2_000, "[a"):
            assert await bench.code("fs_search", pattern="a", glob=glob) == "pattern-invalid"
        assert await bench.code("fs_search", pattern="a", limit=10**6) == "bad-arguments"


async def test_a_search_leaves_out_what_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/key").write_text("word")
    (tmp_path / "open").write_text("word")
    with open_workspace(tmp_path) as workspace:
        tools = WorkspaceTools(workspace, may_read=lambda path: not path.startswith("secrets/"))
        async with gate_for(tools) as gate:
            assert (await gate.call("fs_search", {"pattern": "word"})).text == "open:1: word"
