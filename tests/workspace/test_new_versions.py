"""A run whose workflow's file has changed: it is said, and a rewind can go on with the new one."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from support.eventually import eventually
from support.user_machine import Machine, command, machine
from support.workflows import node

if TYPE_CHECKING:
    from pathlib import Path

FLOW = """\
name: Flow
steps:
  - command: echo {first} >> log.txt
    id: one
  - loop: rounds
    max: {rounds}
    steps:
      - command: echo round >> log.txt
        id: work
{more}  - command: echo {last} >> log.txt
    id: two
"""


def flow(
    here: Machine, first: str = "a", last: str = "b", rounds: int = 2, more: str = "", **kept: str
) -> str:
    path = here.folder / f"{kept.get('name', 'flow')}.loop.yaml"
    path.write_text(FLOW.format(first=first, last=last, rounds=rounds, more=more))
    return str(path)


def log(here: Machine) -> list[str]:
    return (here.repo / "log.txt").read_text().split()


def test_a_rewind_goes_on_with_a_new_version_where_the_past_is_the_same(tmp_path: Path) -> None:
    here = machine(tmp_path)
    file = flow(here)
    here.infloop("run", file)
    assert log(here) == ["a", "round", "round", "b"]
    run = here.run_ids()[0]
    flow(here, last="c", more="  - command: echo between >> log.txt\n    id: between\n")
    said = here.infloop("rewind", run, "--to", "two", "--yes").stderr
    assert f"{file} has changed since the run began; the run goes on with what it began" in said
    assert f"--to two --file {file}` uses the new one" in said
    assert log(here) == ["a", "round", "round", "b"], "the old version"
    said = here.infloop("rewind", run, "--to", "two", "--yes", "--file", file).stderr
    assert "has changed" not in said
    assert log(here) == ["a", "round", "round", "between", "c"], "the steps before did not run"
    why = here.infloop("why", "last").stdout
    assert "from that step on with another version of its workflow" in why
    assert f"--to two` ({file})" in why
    assert "--to two`" in here.infloop("show", "last").stdout
    resumed = [m for m in here.messages() if m["type"] == "run_resumed"]
    assert len(resumed) == 1
    # The new run has the new version: it is what the file is compared with, and what is rewound.
    said = here.infloop("rewind", "last", "--to", "two", "--yes").stderr
    assert "has changed" not in said
    assert log(here) == ["a", "round", "round", "between", "c"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"first": "x"}, "node 'one' is defined otherwise"),
        ({"rounds": 3}, "node 'rounds' is defined otherwise"),
        ({"name": "other"}, "it is workflow 'other', and the run is of 'flow'"),
    ],
)
def test_a_version_with_another_past_is_refused_and_nothing_changes(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    here = machine(tmp_path)
    here.infloop("run", flow(here))
    before = log(here), here.run_ids()
    changed = flow(here, **change)
    err = here.infloop("rewind", "last", "--to", "two", "--yes", "--file", changed, code=2).stderr
    assert said in err
    assert (log(here), here.run_ids()) == before
    # Before the step that differs, the past is the same.
    if "first" in change:
        here.infloop("rewind", "last", "--to", "one", "--yes", "--file", changed)
        assert log(here)[0] == "x"


def test_a_json_file_with_another_way_to_the_step_is_refused(tmp_path: Path) -> None:
    here = machine(tmp_path)
    nodes = [command("one", "true"), command("two", "echo 2"), command("three", "echo 3")]
    file = here.file("w", nodes, "start next one met two met three")
    here.infloop("run", file)
    here.file("w", nodes, "start next one met three")
    err = here.infloop("rewind", "last", "--to", "three", "--file", file, code=2).stderr
    assert "it does not lead to step 'two'" in err
    here.infloop("rewind", "last", "--to", "two", "--file", file)
    steps = [m["stepPath"] for m in here.messages() if m["type"] == "node_finished"]
    assert "two" not in steps
    assert "three" in steps


def test_resuming_says_that_the_file_has_changed(tmp_path: Path) -> None:
    here = machine(tmp_path)
    wait = f"touch {tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"
    file = here.file("w", [command("wait", wait), node("e", "end")], "start next wait met e")
    process = here.begin("run", file)
    eventually((tmp_path / "begun").exists, "it waits")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    (tmp_path / "go").touch()
    here.file("w", [command("wait", "false"), node("e", "end")], "start next wait met e")
    done = here.infloop("resume", "last")
    assert f"{file} has changed since the run began" in done.stderr
    assert "check" not in done.stderr


def test_a_rewind_says_when_it_takes_back_the_new_workflow_itself(tmp_path: Path) -> None:
    here = machine(tmp_path)
    file = here.repo / "flow.loop.yaml"
    file.write_text("steps:\n  - command: 'false'\n    id: one\n")
    here.infloop("run", str(file), code=1)
    file.write_text("steps:\n  - command: 'true'\n    id: one\n")
    said = here.infloop("rewind", "last", "--to", "one", "--yes", "--file", str(file)).stderr
    assert f"{file} is one of them: its earlier content returns, and the run uses the new" in said
