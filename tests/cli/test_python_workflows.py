"""Workflows in Python through the real command: run, check, convert, and what never builds them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.canaries import PATH, place
from support.confinement import need_level
from support.service_user import SERVICE_USER, give
from support.user_machine import Machine, machine

FLOW = """\
from infloop import command, if_, loop, script, workflow

MAKE = '''
def run(word):
    with open("done.txt", "w") as file:
        file.write(word)
    return {}
'''

flow = workflow(
    "Until done",
    inputs={"word": "hello"},
    steps=[
        loop("rounds", max=3, until="test -e done.txt", steps=[
            script("py", inputs={"word": "{{inputs.word}}"}, code=MAKE),
        ]),
        command("cat done.txt"),
        if_("{{command.stdout}} contains {{inputs.word}}", else_=[command("false")]),
    ],
)
"""


@pytest.fixture
def user(tmp_path: Path) -> Machine:
    made = machine(tmp_path)
    (made.repo / "flow.py").write_text(FLOW)
    return made


def test_a_workflow_in_python_runs_and_is_stored_with_its_run(user: Machine) -> None:
    done = user.infloop("run", "flow.py", "--input", "word=ahoy")
    assert "flow.py: built without a sandbox, as you (level 'host')" in done.stderr
    shown = user.infloop("show", "last").stdout
    assert "rounds-check" in shown
    assert "stdout: ahoy" in shown
    (user.repo / "done.txt").unlink()
    (user.repo / "flow.py").write_text("raise SystemExit('built again')\n")
    again = user.infloop("rewind", "last", "--to", "rounds[1]/script", "--yes")
    assert "built again" not in again.stdout + again.stderr
    assert (user.repo / "done.txt").read_text() == "ahoy"


def test_check_and_convert_build_it_and_nothing_else_does(user: Machine) -> None:
    assert user.infloop("check", "flow.py").stdout == "flow.py: ok\n"
    user.infloop("convert", "flow.py", "-o", "flow.loop.yaml")
    user.infloop("convert", "flow.py", "-o", "flow.workflow.json")
    content = json.loads((user.repo / "flow.workflow.json").read_text())
    assert (content["id"], content["strict"]) == ("flow", True)
    loop_file = (user.repo / "flow.loop.yaml").read_text()
    assert user.infloop("convert", "flow.py").stdout == loop_file
    assert user.infloop("convert", "flow.workflow.json").stdout == loop_file
    assert "does not end in" in user.infloop("convert", "flow.py", "-o", "x.py", code=2).stderr
    # In the folder of workflows it is no workflow, and no other one calls it.
    folder = user.data / "workflows"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "built.py").write_text("open('built', 'w')\n")
    calls = "steps:\n  - call: built\n"
    (user.repo / "calls.loop.yaml").write_text(calls)
    assert "there is no workflow 'built'" in user.infloop("run", "built", code=2).stderr
    assert "built" in user.infloop("check", "calls.loop.yaml", code=2).stdout
    assert not list(user.folder.rglob("built"))


def test_a_mistake_is_printed_with_file_line_and_column(user: Machine) -> None:
    bad = FLOW.replace("max=3", "max='many'").replace("{{command.", "{{comand.")
    (user.repo / "bad.py").write_text(bad + "print('\\x1b[31mred')\n")
    checked = user.infloop("check", "bad.py", code=2)
    assert "bad.py:14:28: steps[0] 'rounds' max: " in checked.stdout
    assert "bad.py:18:14: " in checked.stdout
    assert "did you mean 'command'" in checked.stdout
    assert "bad.py printed: \\x1b[31mred" in checked.stderr
    assert "bad.py:14:28: " in user.infloop("run", "bad.py", code=2).stderr
    (user.repo / "two.py").write_text(FLOW + "other = workflow(steps=[])\n")
    assert "makes 2 workflows" in user.infloop("run", "two.py", code=2).stderr
    user.infloop("check", "two.py:other")
    assert "there is no workflow file 'no.py'" in user.infloop("check", "no.py", code=2).stdout


@pytest.mark.parametrize("level", ["auto", "guard", "sandbox"])
def test_a_strangers_file_runs_nothing_unconfined(level: str) -> None:
    """Where nothing confines it, it is not run at all: `auto` as root."""
    if level != "auto":
        need_level(level)
    with place() as top:
        for name in ("project", "elsewhere"):
            (top / name).mkdir()
            give(top / name)
        (top / "project/flow.py").write_text(
            "from infloop import command, workflow\n"
            f"for path in ('here', '{top}/elsewhere/there'):\n"
            "    try: open(path, 'w')\n    except OSError: pass\n"
            "flow = workflow(steps=[command('true')])\n"
        )
        checked = subprocess.run(
            [sys.executable, "-m", "infloop", "check", "flow.py"],
            cwd=top / "project",
            env={
                "PATH": PATH,
                "HOME": str(top / "home"),
                "INFLOOP_DATA_DIR": str(top / "data"),
                "INFLOOP_ISOLATION": level,
                **({"INFLOOP_SERVICE_USER": SERVICE_USER} if level != "auto" else {}),
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if level == "auto" and os.geteuid() == 0 and checked.returncode:
            assert "'flow.py' is a program, and nothing confines it here" in checked.stderr
        else:
            assert checked.stdout == "flow.py: ok\n", checked.stderr
        assert not list(top.glob("*/*here"))


def test_check_says_what_this_machine_lacks(user: Machine) -> None:
    (user.repo / "lacks.loop.yaml").write_text(
        "steps:\n"
        "  - command: no-such-program --flag\n"
        "  - command: cd sub && make\n    cwd: gone\n"
        "  - command: '{{inputs.x}}'\n    cwd: '{{inputs.y}}'\n    onError: []\n"
        "  - script: py\n    code: 'def run(:'\n"
        "  - check: true\n"
    )
    said = user.infloop("check", "lacks.loop.yaml", code=2).stdout
    assert "lacks.loop.yaml:2:14: warning: steps[0] 'command' command: there is no program" in said
    assert "lacks.loop.yaml:4:10: warning: steps[1] 'command-2' cwd: there is no directory" in said
    assert "lacks.loop.yaml:9:11: warning: steps[3] 'script' code: line 1: not Python" in said
    assert said.count("there is no ") == 2
