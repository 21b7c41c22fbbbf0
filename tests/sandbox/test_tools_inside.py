"""The tools that agents use work where children are confined, in whole runs and as another user."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from infloop.sandbox.view.path_permissions import can_reach
from support.confinement import need_bubblewrap, need_guard
from support.parts import missing, need_program
from support.runs import world
from support.thorough import FACTOR
from support.workflows import edges, node, workflow

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = (65534, 65534)
SYSTEM = "/usr/local/bin:/usr/bin:/bin"
VENV_PROGRAMS = Path(sys.executable).parent
PURE_PYTHON = ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments")

RUN = """
import subprocess
def run(script):
    done = subprocess.run(["sh", "-euc", script], text=True, capture_output=True)
    return {"code": done.returncode, "said": done.stdout + done.stderr}
"""

TOOLS = {
    "git": """
        git init -q . && git config user.name a && git config user.email a@example.org
        echo one > f && git add f && git commit -qm first && git checkout -qb other
        echo two > f && git commit -qam second && git gc -q
        test "$(git log --oneline | wc -l)" = 2
    """,
    "python3": """
        python3 -m venv --without-pip v
        v/bin/python -c 'import tempfile, sqlite3, ssl, threading; tempfile.TemporaryFile()'
    """,
    "pip": """
        python3 -m venv v && v/bin/pip --version
        v/bin/pip install -q --no-index ../given/greeting-1.0-py3-none-any.whl
        test "$(v/bin/python -c 'import greeting; print(greeting.WORD)')" = hello
    """,
    "pytest": """
        echo 'def test_it(tmp_path): (tmp_path / "f").write_text("x")' > test_one.py
        PYTHONPATH=../given/site python3 -m pytest -q -p no:cacheprovider test_one.py
    """,
    "node": """
        echo "const {Worker} = require('worker_threads')
        const done = require('child_process').execFileSync('echo', ['hi'])
        new Worker('process.exit(0)', {eval: true}).on('exit', () => console.log(String(done)))
        " > a.js
        test "$(node a.js)" = hi
    """,
    "npm": "npm --version && npm init -y && test -f package.json",
    "deno": """
        echo 'console.log([1, 2].map((n: number) => n + 1).join())' > a.ts
        test "$(deno run --quiet --no-lock a.ts)" = 2,3
    """,
    "gcc": """
        printf '#include <stdio.h>\\nint main(void) { return puts("hi") < 0; }\\n' > a.c
        gcc -O1 -o a a.c && test "$(./a)" = hi
    """,
    "rg": 'echo needle > f && test "$(rg -l needle .)" = ./f',
    "make": "printf 'all: b\\n\\nb:\\n\\ttouch b\\n' > Makefile && make -s -j2 && test -f b",
}


@pytest.fixture(scope="module")
def workshop() -> Iterator[Path]:
    """Give a place that the children's user can enter, with things for their tools to work on."""
    folder = Path(tempfile.mkdtemp(prefix="infloop-tools-", dir="/var/tmp"))
    folder.chmod(0o755)
    given = folder / "work/given"
    given.mkdir(parents=True)
    with zipfile.ZipFile(given / "greeting-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("greeting.py", "WORD = 'hello'\n")
        about = "greeting-1.0.dist-info"
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    site = given / "site"
    site.mkdir()
    for name in PURE_PYTHON:
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.origin is not None
        if found.submodule_search_locations is None:
            shutil.copy(found.origin, site)
        else:
            shutil.copytree(Path(found.origin).parent, site / name)
    yield folder
    shutil.rmtree(folder)


def path_of(tool: str) -> str:
    """The PATH on which a tool is found; the tests' own programs come last."""
    if tool != "deno":
        return SYSTEM
    return f"{SYSTEM}:{VENV_PROGRAMS}"


LEVELS = ("guard", "sandbox")
LONG = ("pip", "npm")  # test_bubblewrap tries these two
CASES = [
    (tool, level)
    for number, tool in enumerate(TOOLS)
    for level in LEVELS
    if FACTOR or (tool not in LONG and level == LEVELS[number % 2])
]
"""In `make test` a tool is tried at one level, in `make test-thorough` at both."""


@pytest.mark.thorough
@pytest.mark.parametrize(("tool", "level"), CASES)
async def test_a_tool_works_inside(
    workshop: Path, monkeypatch: pytest.MonkeyPatch, tool: str, level: str
) -> None:
    if level == "sandbox":
        need_bubblewrap()
    else:
        need_guard()
    program = need_program("python3" if tool in ("pip", "pytest") else tool, path_of(tool))
    if os.geteuid() == 0 and not can_reach(program, NOBODY):
        missing(f"{program} cannot be run by another user: install {tool} in /usr/bin")
    monkeypatch.setenv("PATH", path_of(tool))
    monkeypatch.setenv("HOME", str(workshop / "home"))
    bench = Path(tempfile.mkdtemp(prefix=f"{tool}-", dir=workshop / "work"))
    settings: dict[str, Any] = {"isolation": level, "snapshots": False}
    settings |= {"python_bin": "/usr/bin/python3", "service_user": ""}
    if os.geteuid() == 0:
        os.chown(bench, *NOBODY)
        settings["service_user"] = "nobody"
    asked = {"script": f"cd {bench}\n{TOOLS[tool]}"}
    step = node("t", "script", language="py", code=RUN, inputs=asked, outputs=["code", "said"])
    step["config"] |= {"cwd": str(bench), "timeoutMs": 180_000}
    root = workflow([node("s", "start"), step], edges("s next t"))
    root["readPaths"] = [str(workshop / "work/given")]
    async with world(workshop, **settings) as here:
        ended = await here.run(root)
    assert ended.status == "succeeded", ended.result
    assert ended.scope["t"]["code"] == "0", ended.scope["t"]["said"]
