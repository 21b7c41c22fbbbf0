"""Workflows in Python: they mean what the loop file means, and mypy knows their arguments."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import assume, given, settings

from infloop.model.loop_file.built import parse_built
from infloop.model.loop_file.comparing import meaning_of
from infloop.model.loop_file.reading import parse_loop_file
from infloop.model.loop_file.writing import write_loop_file
from infloop.model.workflow import Workflow
from support.drawn_workflows import drawn_workflows
from support.paths import ROOT
from support.python_workflows import built, python_text, sent
from support.thorough import amount

EXAMPLES = re.findall(
    r"^```yaml workflow \S+\n(.*?)^```$",
    (ROOT / "docs/loop-files.md").read_text(encoding="utf-8"),
    re.MULTILINE | re.DOTALL,
)


def from_yaml(text: str) -> Workflow:
    workflow = parse_loop_file(text.encode(), "drawn", str).workflow
    assert workflow is not None
    return workflow


def from_python(text: str) -> Workflow:
    result = json.dumps({"names": ["flow"], "tree": sent(built(text))})
    parsed = parse_built(result.encode(), text, "flow.py", "", "drawn", str)
    assert parsed.workflow is not None, (parsed.problems, text)
    assert parsed.usable, (parsed.problems, text)
    return parsed.workflow


@pytest.mark.parametrize("text", EXAMPLES, ids=lambda text: text.partition("\n")[0])
def test_an_example_of_a_loop_file_means_the_same_in_python(text: str) -> None:
    assert meaning_of(from_python(python_text(text))) == meaning_of(from_yaml(text))


@settings(max_examples=amount(20, thorough=60))
@given(drawn_workflows())
def test_any_workflow_can_be_written_in_python(workflow: Workflow) -> None:
    undrawn = workflow.model_copy(
        update={"version": 1, "created_at": None, "updated_at": None}
    ).to_json()
    text = write_loop_file(_without_layout(Workflow.model_validate(undrawn)), "drawn")
    written = python_text(text)
    assume(not re.search("_ms=|_usd=|(maxDurationMs|maxCostUsd)'", written))  # below 0
    assert meaning_of(from_python(written)) == meaning_of(from_yaml(text)), written


def _without_layout(workflow: Workflow) -> Workflow:
    """Leave out what only a console draws: a loop file has it under `layout`."""
    text = write_loop_file(workflow, "drawn").partition("\nlayout:\n")[0] + "\n"
    return from_yaml(text)


RIGHT = """\
from infloop import Step, agent, check, command, if_, loop, parallel, script, workflow


def fix(what: str) -> Step:
    return agent("claude", prompt=f"Fix {what}.", timeout="10m", on_error=[command("true")])


flow = workflow(
    "Right",
    limits={"cost": "$5", "time": "2h"},
    inputs={"word": "x", "times": 3, "level": {"type": "number", "default": 2}},
    steps=[
        loop("rounds", max=3, until={"command": "make", "env": {"CI": 1}}, steps=[fix("it")]),
        script("py", code="def run(): return {}", outputs=["a"], inputs={"b": [1, {"c": None}]}),
        parallel("both", branches={"a": [fix("a")], "b": (fix(x) for x in "b")}),
        check({"contains": "x", "in": "{{agent.result}}"}, not_met="rounds", met=None),
        if_({"left": "a", "is": "b"}, else_=[]),
        if_("a == b", then=...),
    ],
)
"""
WRONG = """\
from infloop import agent, agnt, command, if_, loop, parallel, script, workflow

agent("claude", promt="Fix it.")
command("true", timeout=10)
loop("rounds", until={"comand": "make"}, steps=[])
loop("rounds", steps=[agent])
script("python", code="")
parallel("both", mode="first", branches={})
command("true", use_worktree="yes")
agent("claude", worktree_include=".env")
if_("a == b", else_=5)
workflow("No steps")
workflow("Limits", limits={"costs": "$5"}, steps=[])
command("true", on_error=command("false"))
"""


def test_mypy_finds_what_is_wrong_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = True\nfollow_imports = silent\n")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), "."],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    found = re.findall(r"^(\w+)\.py:(\d+): error", checked.stdout, re.MULTILINE)
    wrong = {("wrong", str(number)) for number in (1, *range(3, WRONG.count("\n") + 1))}
    assert set(found) == wrong, checked.stdout + checked.stderr
    built(RIGHT.replace(RIGHT.partition("\n")[0], "from infloop import *"))


def test_the_functions_are_those_of_the_node_types() -> None:
    tool = [sys.executable, str(ROOT / "tools/gen_builder.py"), "--check"]
    checked = subprocess.run(tool, capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode == 0, checked.stderr


def test_importing_the_functions_imports_nothing_else_of_the_package() -> None:
    program = (
        "import sys; from infloop import agent, workflow; import infloop; "
        "print(sorted(name for name in sys.modules if name.startswith('infloop')))\n"
        "try: infloop.nothing\nexcept AttributeError as error: print(error)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout.splitlines() == [
        "['infloop', 'infloop.builder']",
        "module 'infloop' has no attribute 'nothing'",
    ]
