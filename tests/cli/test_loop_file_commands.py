"""Loop files through the real command: run, check, convert, schema."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from support.paths import ROOT
from support.user_machine import Machine, machine

LOOP = """\
# Until there is a file.
name: Until done
inputs:
  word: hello
steps:
  - loop: rounds
    max: 3
    until: test -e done.txt
    steps:
      - script: py
        inputs: {word: "{{inputs.word}}"}
        codeFile: code/make.py
  - command: cat done.txt
  - if: "{{command.stdout}} contains {{inputs.word}}"
    else:
      - end: failed
"""
CODE = """\
def run(word):
    with open("done.txt", "w") as file:
        file.write(word)
    return {}
"""
RED = """\
steps:
  - loop: rounds
    max: 2
    until: "false"
    steps:
      - command: "true"
"""


@pytest.fixture
def user(tmp_path: Path) -> Machine:
    made = machine(tmp_path)
    (made.repo / "code").mkdir()
    (made.repo / "code/make.py").write_text(CODE)
    (made.repo / "done.loop.yaml").write_text(LOOP)
    return made


def test_a_loop_file_runs_like_any_workflow(user: Machine) -> None:
    user.infloop("run", "done.loop.yaml", "--input", "word=ahoy")
    shown = user.infloop("show", "last").stdout
    assert "rounds-check" in shown
    assert "stdout: ahoy" in shown
    assert "Until done" in user.infloop("why", "last").stdout


def test_the_text_of_a_named_file_is_stored_with_the_run(user: Machine) -> None:
    user.infloop("run", "done.loop.yaml")
    (user.repo / "done.txt").unlink()
    (user.repo / "code/make.py").write_text("def run(word):\n    raise ValueError\n")
    user.infloop("rewind", "last", "--to", "rounds[1]/script", "--yes")
    assert (user.repo / "done.txt").read_text() == "hello"


def test_a_loop_that_stays_red_fails_the_run(user: Machine) -> None:
    (user.repo / "red.loop.yaml").write_text(RED)
    done = user.infloop("run", "red.loop.yaml", code=1)
    assert "used up its 2 rounds" in done.stdout + done.stderr


def test_until_runs_in_the_worktree_of_its_agent(user: Machine) -> None:
    user.bot([{"write": "fixed.txt", "content": "x"}])
    (user.repo / "fix.loop.yaml").write_text(
        "steps:\n  - loop: rounds\n    until: test -e fixed.txt\n    steps:\n"
        "      - agent: bot\n        prompt: 'Fix it. {{rounds.check.exitCode}}'\n"
    )
    user.infloop("run", "fix.loop.yaml")
    asked = [m for m in user.messages() if m["type"] == "condition_checked"]
    assert [m["met"] for m in asked] == [False, True]
    assert not (user.repo / "fixed.txt").exists()


def test_check_prints_file_line_and_column(user: Machine) -> None:
    bad = LOOP.replace("max: 3", "max: many").replace("{{command.", "{{comand.")
    (user.repo / "bad.loop.yaml").write_text(bad)
    said = user.infloop("check", "bad.loop.yaml", code=2).stdout
    assert "bad.loop.yaml:7:10: " in said
    assert "bad.loop.yaml:14:10: " in said
    assert "did you mean 'command'" in said
    refused = user.infloop("run", "bad.loop.yaml", code=2).stderr
    assert "bad.loop.yaml:7:10: " in refused


def test_convert_goes_both_ways_and_overwrites_nothing(user: Machine) -> None:
    def convert(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        return user.infloop("convert", *arguments, code=code)

    there = convert("done.loop.yaml", "-o", "done.workflow.json")
    assert "comments" in there.stderr
    content = json.loads((user.repo / "done.workflow.json").read_text())
    assert content["id"] == "done"
    assert content["strict"] is True
    assert CODE in json.dumps(content, ensure_ascii=False).encode().decode("unicode_escape")
    convert("done.workflow.json", "-o", "back.loop.yaml")
    text = (user.repo / "back.loop.yaml").read_text()
    assert text.startswith("id: done\n")
    assert "until: test -e done.txt" in text
    assert convert("back.loop.yaml").stdout == (user.repo / "done.workflow.json").read_text()
    assert "exists already" in convert("done.workflow.json", "-o", "back.loop.yaml", code=2).stderr
    convert("done.workflow.json", "-o", "back.loop.yaml", "--force")
    assert "does not end in" in convert("done.loop.yaml", "-o", "x.yaml", code=2).stderr
    assert "does not end in" in convert("done.workflow.json", "-o", "x.json", code=2).stderr
    user.infloop("run", "back.loop.yaml")


def test_an_edge_that_no_run_follows_is_left_out_and_named(user: Machine) -> None:
    nodes = [{"id": "start", "type": "start"}, {"id": "go", "type": "command"}]
    nodes[1]["config"] = {"cmd": "true"}  # type: ignore[assignment]
    edges = [{"source": "start", "target": "go"}]
    edges += [{"source": "go", "sourceHandle": "all_done", "target": "start"}]
    file = {"id": "old", "name": "old", "nodes": nodes, "edges": edges}
    (user.repo / "old.json").write_text(json.dumps(file))
    done = user.infloop("convert", "old.json")
    assert done.stderr == "edges[1] has no effect and is left out\n"
    assert done.stdout.endswith('steps:\n  - command: "true"\n    id: go\n')


def test_the_schema_of_loop_files_is_printed(user: Machine) -> None:
    schema = json.loads(user.infloop("schema", "loop").stdout)
    assert "step-agent" in schema["$defs"]


def test_yaml_is_read_only_when_a_loop_file_is(user: Machine) -> None:
    """A short command must not pay for a library that it does not use."""
    program = (
        "import sys; from infloop.catalog import WorkflowCatalog; "
        f"WorkflowCatalog(__import__('pathlib').Path({str(user.repo)!r})).load_bundle('team'); "
        "sys.exit('yaml' in sys.modules)"
    )
    python = ROOT / ".venv/bin/python"
    subprocess.run([python, "-c", program], check=True, timeout=60)
