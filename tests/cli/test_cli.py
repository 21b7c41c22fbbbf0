"""The command line, through the real command: processes, signals, terminals, a data directory."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from infloop.cli import COMMANDS
from support import forkserver
from support.eventually import eventually
from support.paths import ROOT
from support.terminal import on_terminal
from support.workflows import edges, node, workflow

TIMEOUT = 30.0
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
Process = forkserver.Command


@dataclass
class World:
    """A user's machine: a home, a data directory, and somewhere to work."""

    home: Path
    variables: dict[str, str] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def env(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "INFLOOP_DATA_DIR": str(self.data),
            "INFLOOP_ISOLATION": "host",
            **self.variables,
        }

    def infloop(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; it must end as expected."""
        done = forkserver.run(arguments, self.home, self.env, TIMEOUT * 2)
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done

    def start(self, *arguments: str) -> Process:
        """Start a command and let it go on."""
        process = forkserver.Command(arguments, self.home, self.env)
        self.processes.append(process)
        return process

    def file(self, id: str, nodes: list[Any], *chains: str, **more: Any) -> str:
        """Write a workflow; return its name."""
        made = workflow(
            [node("start", "start"), *nodes], edges(*chains), id, **{"strict": True} | more
        )
        (self.home / f"{id}.workflow.json").write_text(json.dumps(made))
        return f"./{id}.workflow.json"

    def bot(self, *turns: list[dict[str, Any]]) -> None:
        """Put a scripted agent called `bot` into the providers folder."""
        folder = self.data / "providers"
        folder.mkdir(parents=True)
        manifest = {"id": "bot", "label": "Bot", "description": "scripted"}
        manifest |= {"transport": "scripted", "script": "bot.turns"}
        (folder / "bot.json").write_text(json.dumps(manifest))
        (folder / "bot.turns").write_text(json.dumps({"turns": [{"do": do} for do in turns]}))

    def runs(self, *arguments: str) -> list[dict[str, Any]]:
        return [
            json.loads(line)
            for line in self.infloop("runs", "--json", *arguments).stdout.splitlines()
        ]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    for process in made.processes:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=TIMEOUT)


def ask(id: str = "ask") -> dict[str, Any]:
    return node(id, "agent", providerId="bot", prompt="go")


def command(id: str, cmd: str) -> dict[str, Any]:
    return node(id, "condition", kind="command", command={"cmd": cmd, "timeoutMs": 0})


def waiting(world: World, id: str = "wait", *, name: str = "waiting", **more: Any) -> str:
    """A workflow whose last step says it has started, and ends when the file `go` appears."""
    line = "touch started; echo waiting for go; while [ ! -e go ]; do sleep 0.05; done"
    first = command("first", "echo x >> first-ran")
    return world.file(
        name,
        [first, command(id, line), node("end", "end")],
        f"start next first met {id} met end",
        **more,
    )


def has_started(world: World) -> bool:
    return (world.home / "started").exists()


def finish(process: Process) -> tuple[str, str, int]:
    out, err = process.communicate(timeout=TIMEOUT)
    return out, err, process.wait()


def alive(token: str) -> list[str]:
    """The processes that have `token` in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if token.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


# -- run -------------------------------------------------------------------------------------


@pytest.mark.claim("I6", "I77")
def test_a_run_that_succeeds_exits_with_0_and_says_what_each_step_did(world: World) -> None:
    world.bot([{"text": "on it\n"}, {"cost": 0.02}], [{"text": "DONE"}, {"cost": 0.01}])
    done = node("done", "condition", kind="sentinel", sentinel={"pattern": "DONE"})
    file = world.file(
        "w",
        [node("l", "loop", [ask(), done], maxIterations=5), node("end", "end")],
        "start next l next end",
        "ask next done",
        inputs=[{"name": "task", "type": "string", "default": "x"}],
    )
    out = world.infloop("run", file, "--input", "task=tidy up").stdout
    lines = [line.split("s  ", 1)[1] for line in out.splitlines()[:-1]]
    assert lines[0].startswith("run ")
    assert [line for line in lines if "l[1]" in line] == [
        "l[1]/ask  agent began",
        "l[1]/ask | on it",
        next(line for line in lines if line.startswith("l[1]/ask  next")),
        "l[1]/done  not_met: pattern not found",
    ]
    assert "l[2]/done  met: matched at index 0" in lines
    assert lines[-1] == "run succeeded"
    assert out.splitlines()[-1] == "7 steps, cost $0.03"
    (run,) = world.runs()
    assert (run["status"], run["workflowId"], run["steps"]) == ("succeeded", "w", 7)


def test_a_run_that_fails_exits_with_1_and_names_the_next_commands(world: World) -> None:
    world.bot([{"text": "hm\n"}, {"stderr": "no such key\n"}, {"exit": 3}])
    file = world.file("w", [ask(), node("end", "end")], "start next ask next end")
    out = world.infloop("run", file, code=1).stdout
    (run,) = world.runs("--status", "failed")
    short = run["runId"][:8]
    assert f"infloop why {short}" in out
    assert f"infloop rewind {short} --to ask" in out
    assert "no such key" in out
    why = world.infloop("why", short).stdout
    assert f"run {short} of w: failed" in why
    assert "step ask (agent) did not succeed: the agent left with exit code 3" in why
    assert "it left by 'error'" in why
    assert "and nothing followed it" in why
    assert "| no such key" in why
    assert f"infloop rewind {short} --to ask" in why


def test_a_run_that_goes_to_a_failed_end_blames_the_step_that_led_there(world: World) -> None:
    world.bot([{"exit": 1}])
    file = world.file(
        "w", [ask(), node("red", "end", outcome="failed")], "start next ask error red"
    )
    world.infloop("run", file, code=1)
    why = world.infloop("why", "last").stdout
    assert "whose outcome is failed" in why
    assert "and the run went on to red" in why
    assert "--to ask" in why


OLD_FILE: dict[str, Any] = {
    "id": "old",
    "name": "An old file",
    "viewport": {"x": 0, "zoom": 0.75},
    "tags": ["a", 1.5, None],
    "inputs": [
        {"name": "n", "type": "number", "default": "many", "widget": "slider"},
        {"name": "not reachable", "type": "string", "default": ""},
        {"name": "n", "type": "number", "default": 1.0},
    ],
    "nodes": [
        {"id": "start", "type": "start", "config": {"colour": "blue"}},
        {
            "id": "compare",
            "type": "branch",
            "parentId": "lane-1",
            "config": {
                "lhs": "{{nobody.stdout}}|{{inputs.n}}", "op": "==", "rhs": "|1",
                "note": {"by": "me"},
            },
        },
        {
            "id": "look",
            "type": "condition",
            "config": {"kind": "sentinel", "sentinel": {"flags": "g"}},
        },
        {
            "id": "shell",
            "type": "condition",
            "config": {"kind": "command", "command": {"cmd": "echo {{nobody.x}}"}},
        },
        {"id": "alone", "type": "claude", "config": {"prompt": "", "cwd": "/nowhere"}},
        {"id": "empty", "type": "script", "config": {"code": "", "outputs": ["result"]}},
        {"id": "end", "type": "end", "config": {"outcome": "succeeded"}},
    ],
    "edges": [
        {"id": "e", "source": "start", "sourceHandle": "next", "target": "compare", "animated": 1},
        {"id": "e", "source": "compare", "sourceHandle": "true", "target": "look"},
        {"id": "f", "source": "look", "sourceHandle": "met", "target": "end", "style": {"w": 1}},
        {"id": "h", "source": "compare", "sourceHandle": "false", "target": "shell"},
    ],
    "triggers": [{"id": "legacyTrigger000000001", "name": "old", "enabled": True}],
}  # fmt: skip


def test_a_file_of_infinite_loop_runs_as_it_is_and_says_what_is_odd(world: World) -> None:
    unused = [
        {"id": "x", "source": "end", "sourceHandle": "next", "target": "compare"},
        {"id": "y", "source": "look", "sourceHandle": "done", "target": "end"},
    ]
    content = {**OLD_FILE, "edges": [*OLD_FILE["edges"], *unused]}
    (world.home / "old.json").write_text(json.dumps(content))
    checked = world.infloop("check", "./old.json").stdout
    for odd in (
        *("'viewport'", "'tags'", "'widget'", "'colour'", "'parentId'", "'note'", "'flags'"),
        *("'animated'", "'style'", "'not reachable'", "declared twice", "is not a number"),
        *("{{nobody.stdout}} can never resolve", "{{nobody.x}}", "no handle 'done'", "used twice"),
        *("nothing follows", "'alone'", "'result' is already an output", "config.prompt: is empty"),
    ):
        assert odd in checked
    world.infloop("run", "./old.json", "--input", "n=1")
    (run,) = world.runs()
    assert run["status"] == "succeeded"
    assert "references to nothing: 1, first 'nobody.stdout'" in world.infloop("show", "last").stdout
    why = world.infloop("why", "last").stdout
    assert "warning: {{nobody.stdout}} in the lhs of compare does not exist" in why
    record = json.loads(world.infloop("export", run["runId"]).stdout)
    warned = [each for each in record["events"] if each["type"] == "template_warning"]
    assert [each["missingKey"] for each in warned] == ["nobody.stdout"]
    world.infloop("run", "./old.json", "--input", "n=2", code=1)
    assert (
        "the command was not run: {{nobody.x}} has no value" in world.infloop("why", "last").stdout
    )


def test_what_infloop_does_not_know_is_kept_by_convert(world: World) -> None:
    (world.home / "old.json").write_text(
        json.dumps({**OLD_FILE, "inputs": [{"name": "n", "type": "number", "widget": [1]}]})
    )
    told = world.infloop("convert", "./old.json", "-o", "old.loop.yaml")
    assert "its triggers are left out" in told.stdout + told.stderr
    world.infloop("check", "./old.loop.yaml")
    world.infloop("convert", "./old.loop.yaml", "-o", "new.json")
    made = json.loads((world.home / "new.json").read_text())
    nodes = {each["id"]: each for each in made["nodes"]}
    edges_by_id = {each.get("id"): each for each in made["edges"]}
    assert (made["viewport"], made["tags"]) == (OLD_FILE["viewport"], OLD_FILE["tags"])
    assert made["inputs"][0]["widget"] == [1]
    assert nodes["start"]["config"] == {"colour": "blue"}
    assert nodes["compare"]["parentId"] == "lane-1"
    assert nodes["compare"]["config"]["note"] == {"by": "me"}
    assert nodes["look"]["config"]["sentinel"]["flags"] == "g"
    assert edges_by_id["f"]["style"] == {"w": 1}
    assert [each["animated"] for each in made["edges"] if "animated" in each] == [1]
    hidden = "unknown: {nodes: {agent: {config: {skipPermissions: true}}}}"
    (world.home / "bad.loop.yaml").write_text(
        f"steps:\n  - agent: claude\n    prompt: x\n{hidden}\n"
    )
    refused = world.infloop("check", "./bad.loop.yaml", code=2)
    assert "a key that infloop knows" in refused.stdout + refused.stderr


USAGE = {
    "no command": ([], "usage: infloop"),
    "unknown command": (["rn"], "did you mean 'run'?"),
    "unknown option": (["runs", "--all"], "unrecognized arguments: --all\n"),
    "mistyped option": (["runs", "--serach=x"], "arguments: --serach=x; did you mean '--search'?"),
    "mistyped action": (["triggers", "lst"], "did you mean 'list'?"),
    "no such file": (["run", "./nothing.json"], "there is no workflow file './nothing.json'"),
    "no such id": (["run", "nothing"], "there is no workflow 'nothing'"),
    "unknown input": (
        ["run", "./w.workflow.json", "--input", "x=1"],
        "takes no input 'x'; it takes: n",
    ),
    "input without a value": (["run", "./w.workflow.json", "--input", "n"], "is not NAME=VALUE"),
    "required input": (["run", "./w.workflow.json"], "input 'n' is required"),
    "input of another type": (
        ["run", "./w.workflow.json", "--input", "n=many"],
        "input 'n' must be a number, not string",
    ),
    "no such directory": (
        ["run", "./w.workflow.json", "--input", "n=1", "--cwd", "nowhere"],
        "--cwd 'nowhere' is not a directory",
    ),
    "no such run": (["show", "abcdef"], "there is no run 'abcdef'"),
    "no run yet": (["why", "last"], "there are no runs yet"),
    "short id": (["logs", "abc"], "too short for a run's id"),
    "output of what": (["show", "last", "--output", "x"], "--output needs --step"),
    "bad number": (["runs", "--limit", "-1"], "is not a number from 1 to"),
    "unknown schema": (["schema", "run"], "invalid choice: 'run'"),
    "not text": (["show", "\udcff\udcfe\udcfd\udcfc"], "not valid UTF-8"),
    "no record": (["import", "./w.workflow.json"], "this is not a run record"),
}


@pytest.mark.parametrize(("arguments", "said"), USAGE.values(), ids=USAGE)
def test_bad_usage_exits_with_2_and_says_what_is_wrong(
    world: World, arguments: list[str], said: str
) -> None:
    world.file("w", [], inputs=[{"name": "n", "type": "number"}])
    done = world.infloop(*arguments, code=2)
    assert said in done.stdout + done.stderr


def test_all_that_is_wrong_with_a_workflow_is_said_before_anything_runs(world: World) -> None:
    bad = world.file(
        "bad",
        [node("a", "agnt"), command("b", "true"), node("b", "end")],
        "start next a next nowhere",
    )
    err = world.infloop("run", bad, code=2).stderr
    for said in ("unknown node type 'agnt'", "did you mean 'agent'?", "'b'", "nowhere"):
        assert said in err
    assert world.runs() == []
    good = world.file("good", [node("end", "end")], "start next end")
    out = world.infloop("check", bad, good, "./missing.json", code=2).stdout
    assert re.search(r"bad\.workflow\.json: \d+ errors", out)
    assert f"{good}: ok" in out
    assert "./missing.json: 1 error" in out
    assert world.infloop("check", good).stdout == f"{good}: ok\n"


def test_a_warning_is_printed_and_the_run_goes_on(world: World) -> None:
    asking = node("b", "branch", lhs="{{inputs.colour}}", op="==", rhs="red")
    file = world.file("w", [asking], "start next b")
    done = world.infloop("run", file, "--input", "colour=red")
    assert "warning: inputs: none are declared" in done.stderr
    assert "b  true" in done.stdout
    assert "run succeeded" in done.stdout


def test_a_loop_that_stays_red_is_seen_although_the_run_succeeded(world: World) -> None:
    red = node("red", "condition", kind="command", command={"cmd": "false"})
    rounds = node("rounds", "loop", [red], maxIterations=2)
    file = world.file("w", [rounds], "start next rounds", strict=False)
    said = "used up its 2 rounds, and its condition was not met: exit 1"
    assert said in world.infloop("run", file).stdout
    shown = world.infloop("show", "last").stdout
    assert f"warnings     rounds: it {said}\n" in shown
    assert "✓ rounds  loop  used up its 2 rounds" in shown
    report = json.loads(world.infloop("show", "last", "--json").stdout)
    assert report["warnings"] == [f"it {said}"]
    assert report["scope"]["rounds"]["exhausted"] is True


def test_a_run_shows_what_confines_it(world: World) -> None:
    file = world.file("w", [node("end", "end")], "start next end")
    first = json.loads(world.infloop("run", file, "--json").stdout.splitlines()[0])
    assert (first["isolation"], first["egress"]) == ("host", "open")
    line = "isolation    host, so its children run as you; egress open\n"
    assert line in world.infloop("show", "last").stdout
    shown = json.loads(world.infloop("show", "last", "--json").stdout)
    assert (shown["isolation"], shown["egress"]) == ("host", "open")


def test_json_lines_carry_run_sequence_time_and_correlation(world: World) -> None:
    world.bot([{"text": "1"}, {"text": "2\n"}])
    file = world.file("w", [ask(), node("end", "end")], "start next ask next end")
    done = world.infloop("run", file, "--json")
    assert done.stderr == ""
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    assert messages[0]["type"] == "run_started"
    assert messages[-1] == {**messages[-1], "type": "run_finished", "status": "succeeded"}
    for message in messages:
        assert message["runId"] == messages[0]["runId"]
        assert message["correlationId"] == messages[0]["correlationId"]
        assert isinstance(message["time"], int)
    assert [m["seq"] for m in messages] == sorted(m["seq"] for m in messages)
    chunks = [m for m in messages if m["type"] == "stdout_chunk"]
    assert [(m["stepPath"], m["line"]) for m in chunks] == [("ask", "1"), ("ask", "2\n")]


@pytest.mark.claim("I4")
def test_cwd_is_where_the_steps_work(world: World) -> None:
    (world.home / "there").mkdir()
    file = world.file("w", [command("c", "touch here")], "start next c")
    world.infloop("run", file, "--cwd", "there")
    assert (world.home / "there" / "here").exists()


def test_a_run_whose_output_nobody_reads_any_more_is_cancelled(world: World) -> None:
    file = world.file(
        "w",
        [node("l", "loop", [command("say", "echo hello; false")], infinite=True)],
        "start next l",
    )
    process = world.start("run", file)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    assert finish(process)[2] == 1
    assert world.runs()[0]["status"] == "cancelled"


# -- stopping --------------------------------------------------------------------------------


@pytest.mark.claim("I58")
@pytest.mark.parametrize(
    ("number", "reason"),
    [(signal.SIGINT, "stopped at the terminal"), (signal.SIGTERM, "asked to end (SIGTERM)")],
)
def test_a_signal_cancels_the_run_and_leaves_no_child(
    world: World, number: int, reason: str
) -> None:
    token = f"token-{os.getpid()}-{number}"
    line = f"touch started; sh -c 'sleep 300; true' {token}"
    process = world.start("run", world.file("w", [command("c", line)], "start next c"))
    eventually(lambda: has_started(world) and alive(token), "the child runs")
    process.send_signal(number)
    out, err, code = finish(process)
    assert code == 130
    assert alive(token) == []
    assert "stopping; press Ctrl+C again to exit without waiting" in err
    assert "run cancelled" in out
    why = world.infloop("why", "last").stdout
    assert ": cancelled" in why
    assert "asked to stop at" in why
    assert reason in why
    assert "step c (condition) did not succeed: cancelled" in why


def test_a_second_interrupt_gives_up_waiting_and_the_child_goes_all_the_same(world: World) -> None:
    token = f"token-{os.getpid()}-stubborn"
    line = f"trap '' TERM; touch started; while :; do sleep 0.1; done; : {token}"
    process = world.start("run", world.file("w", [command("c", line)], "start next c"))
    assert process.stderr is not None
    eventually(lambda: has_started(world), "the child runs")
    process.send_signal(signal.SIGINT)
    assert "stopping" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err, code = finish(process)
    assert code == 130
    assert "stopped waiting for" in err
    eventually(lambda: not alive(token), "the child is gone")
    assert world.runs()[0]["status"] == "interrupted"


def test_another_process_can_cancel_a_run(world: World) -> None:
    process = world.start("run", waiting(world))
    eventually(lambda: has_started(world), "the run waits")
    eventually(
        lambda: "| waiting for go" in world.infloop("why", "last").stdout, "its words are kept"
    )
    why = world.infloop("why", "last").stdout
    assert ": running" in why
    assert "now at wait (condition), for " in why
    short = world.runs()[0]["runId"][:8]
    assert world.infloop("cancel", short).stdout == f"{short}  cancelled\n"
    out, _, code = finish(process)
    assert code == 130
    assert "stopped by `infloop cancel`" in out
    assert "is over (cancelled)" in world.infloop("cancel", short, code=2).stderr


# -- after a crash ---------------------------------------------------------------------------


def crashed(world: World, **more: Any) -> str:
    """A run whose process was killed in the middle of its second step; return its short id."""
    process = world.start("run", waiting(world, **more))
    eventually(lambda: has_started(world), "the run waits")
    process.kill()
    finish(process)
    (world.home / "started").unlink()
    run_id: str = world.runs()[0]["runId"]
    return run_id[:8]


def test_a_killed_run_is_interrupted_and_resumes_without_repeating_a_step(world: World) -> None:
    short = crashed(world)
    assert [run["status"] for run in world.runs("--status", "interrupted")] == ["interrupted"]
    assert world.runs("--status", "running") == []
    why = world.infloop("why", short).stdout
    assert f"run {short} of waiting: interrupted" in why
    assert "ended without recording how the run ended" in why
    assert "it was at wait (condition)" in why
    assert f"infloop resume {short}" in why
    assert "running" not in why
    assert "◌ wait" in world.infloop("show", short).stdout
    (world.home / "go").touch()
    resumed = world.infloop("resume", short)
    out = resumed.stdout
    assert f"run {short} continues after 2 steps" in resumed.stderr
    assert "wait  condition began again (attempt 2)" in out
    assert "first  condition began" not in out
    assert "run succeeded" in out
    assert (world.home / "first-ran").read_text() == "x\n"
    assert "its process had died; it was resumed" in world.infloop("why", short).stdout
    assert "is over (succeeded)" in world.infloop("resume", short, code=2).stderr


@pytest.mark.claim("I57")
def test_the_next_run_records_an_interrupted_one_as_failed_and_it_can_still_go_on(
    world: World,
) -> None:
    short = crashed(world)
    other = world.file("other", [node("end", "end")], "start next end")
    err = world.infloop("run", other).stderr
    assert "found runs whose process had died: 1 recorded as failed" in err
    assert f"infloop resume {short}" in err
    assert len(err.splitlines()) == 1
    assert [run["runId"][:8] for run in world.runs("--status", "failed")] == [short]
    why = world.infloop("why", short).stdout
    assert "its process ended without finishing it" in why
    assert "it was at wait (condition)" in why
    (world.home / "go").touch()
    assert "run succeeded" in world.infloop("resume", short).stdout


def test_resume_without_a_run_goes_on_with_all_that_ask_for_it(world: World) -> None:
    resumable = [crashed(world, name=name, onCrash="resume") for name in ("one", "two")]
    failing = crashed(world, name="three")
    (world.home / "go").touch()
    out = world.infloop("resume").stdout
    for short in resumable:
        assert re.search(rf"^{short} .* run succeeded$", out, re.MULTILINE)
    assert failing not in out
    assert {run["runId"][:8]: run["status"] for run in world.runs()} == {
        **dict.fromkeys(resumable, "succeeded"),
        failing: "failed",
    }
    assert "no interrupted run" in world.infloop("resume").stderr


def test_an_interrupted_run_can_be_cancelled_without_running_anything(world: World) -> None:
    short = crashed(world, onCrash="resume")
    assert "cancelled" in world.infloop("cancel", short).stdout
    assert world.runs()[0]["status"] == "cancelled"
    assert not has_started(world)


# -- reading ---------------------------------------------------------------------------------


def test_logs_follow_a_run_that_another_process_drives(world: World) -> None:
    driving = world.start("run", waiting(world))
    eventually(lambda: has_started(world), "the run waits")
    following = world.start("logs", "last", "--follow", "--json")
    assert following.stdout is not None
    seen = [json.loads(following.stdout.readline())]
    while seen[-1].get("line") != "waiting for go\n":
        seen.append(json.loads(following.stdout.readline()))
    assert seen[0]["type"] == "run_started"
    (world.home / "go").touch()
    out, _, code = finish(following)
    assert code == 0
    assert json.loads(out.splitlines()[-1])["type"] == "run_finished"
    assert finish(driving)[2] == 0
    lines = world.infloop("logs", "last", "--step", "wait").stdout.splitlines()
    assert [line.split("s  ", 1)[1].split("  ")[0] for line in lines] == [
        "wait",
        "wait | waiting for go",
        "wait",
    ]


def test_following_ends_quietly_when_interrupted(world: World) -> None:
    world.start("run", waiting(world))
    eventually(lambda: has_started(world), "the run waits")
    following = world.start("logs", "last", "--follow")
    assert following.stdout is not None
    assert "began" in following.stdout.readline()
    following.send_signal(signal.SIGINT)
    _, err, code = finish(following)
    assert (err, code) == ("", 130)
    assert world.runs()[0]["status"] == "running"


def test_rewind_begins_a_new_run_at_the_step_and_why_tells_the_chain(world: World) -> None:
    file = world.file(
        "w",
        [
            command("first", "echo x >> first-ran"),
            command("check", "test -e fixed"),
            node("red", "end", outcome="failed"),
            node("end", "end"),
        ],
        "start next first met check met end",
        "check not_met red",
    )
    world.infloop("run", file, code=1)
    old = world.runs()[0]["runId"]
    (world.home / "fixed").touch()
    preview = world.infloop("rewind", old[:8], "--to", "check", "--preview").stdout
    assert preview.startswith("kept: 2 steps\n  start\n  first\nrun again: 2 steps\n  check\n")
    assert len(world.runs()) == 1
    out = world.infloop("rewind", old[:8], "--to", "check").stdout
    assert "run succeeded" in out
    assert "first" not in out
    new = world.runs()[0]["runId"]
    assert new != old
    assert (world.home / "first-ran").read_text() == "x\n"
    why = world.infloop("why", new).stdout
    assert f"started by `infloop rewind {old[:8]} --to check`" in why
    assert f"run {old[:8]} was started by `infloop run`" in why
    assert "✓ first" in world.infloop("show", new).stdout
    err = world.infloop("rewind", old, "--to", "chek", code=2).stderr
    assert "has no step 'chek'; its last steps are: start, first, check, red" in err


@pytest.mark.claim("I46", "I53")
def test_a_run_out_of_budget_says_so(world: World) -> None:
    file = world.file(
        "w",
        [node("l", "loop", [node("b", "branch", lhs="", op="==", rhs="")], infinite=True)],
        "start next l",
        limits={"maxNodeExecutions": 100},
    )
    world.infloop("run", file, code=1)
    why = world.infloop("why", "last").stdout
    assert "its budget ran out: the run reached its limit of 100 node executions" in why
    shown = world.infloop("show", "last").stdout
    assert "round 1\n" in shown
    assert "… 92 more rounds" in shown
    assert "round 98\n" in shown
    assert "round 50" not in shown


def test_show_gives_the_evidence_and_pages_through_a_long_output(world: World) -> None:
    world.bot([{"text": "0123456789", "times": 1000}, {"cost": 0.5}])
    file = world.file(
        "w",
        [ask(), node("end", "end")],
        "start next ask next end",
        inputs=[{"name": "who", "type": "string", "default": "me"}],
    )
    world.infloop("run", file)
    out = world.infloop("show", "last").stdout
    (run,) = world.runs()
    for said in (run["runId"], "status       succeeded", "by `infloop run`", "cost         $0.50"):
        assert said in out
    for said in ("inputs       who=me", run["correlationId"], "epoch        1"):
        assert said in out
    assert "0123456789" in out
    assert "(9.8 Ki characters)" in out
    assert f"infloop show {run['runId'][:8]} --step ask --output stdout --offset 0" in out
    page = world.infloop(
        *("show", "last", "--step", "ask", "--output", "stdout", "--offset", "9995")
    )
    assert page.stdout == "56789\n"
    assert "characters 9995 to 10000 of 10000" in page.stderr
    page = world.infloop(
        *("show", "last", "--step", "ask", "--output", "stdout", "--limit", "4", "--json")
    )
    assert json.loads(page.stdout) == {"text": "0123", "offset": 0, "total": 10000}
    step = world.infloop("show", "last", "--step", "ask").stdout
    assert "node_started" in step
    assert "prompt: go" in step
    assert "(9.8 Ki characters)" in step
    whole = json.loads(world.infloop("show", "last", "--json").stdout)
    assert whole["stepList"][1]["outputs"]["stdout"]["size"] == 10000
    for arguments in (["--step", "nope"], ["--step", "ask", "--output", "nope"]):
        assert "nope" in world.infloop("show", "last", *arguments, code=2).stderr


def test_runs_are_found_by_what_they_said_and_by_the_beginning_of_their_id(world: World) -> None:
    for name, said in (("one", "the quick brown fox"), ("two", "a lazy dog")):
        world.infloop("run", world.file(name, [command("c", f"echo {said}")], "start next c"))
    out = world.infloop("runs", "--search", "quick bro").stdout
    assert "one" in out.splitlines()[1]
    assert "c log: the quick brown fox" in " ".join(out.split())
    assert "two" not in out
    assert [run["workflowId"] for run in world.runs("--search", "lazy")] == ["two"]
    assert world.runs("--search", "lazy", "--workflow", "one") == []
    assert "no run was found" in world.infloop("runs", "--search", "unicorn").stderr
    assert [run["workflowId"] for run in world.runs("--limit", "1")] == ["two"]
    assert [run["workflowId"] for run in world.runs("--workflow", "one")] == ["one"]
    one = world.runs("--workflow", "one")[0]["runId"]
    assert one in world.infloop("show", one[:4]).stdout
    why = world.infloop("why", one[:6]).stdout
    assert f"run {one[:8]} of one: succeeded" in why
    assert "without inputs" in why
    assert "it reached c, and nothing follows" in why


def test_a_run_exported_here_imports_elsewhere(world: World, tmp_path: Path) -> None:
    file = world.file("w", [command("c", "echo hello there; false")], "start next c", strict=False)
    world.infloop("run", file)
    world.infloop("export", "last", "-o", "run.json")
    record = json.loads((world.home / "run.json").read_text())
    assert json.loads(world.infloop("export", "last").stdout) == record
    other = World(tmp_path, {"INFLOOP_DATA_DIR": str(tmp_path / "elsewhere")})
    other.infloop("import", "run.json")
    (run,) = other.runs("--search", "hello there")
    assert (run["runId"], run["status"]) == (record["runId"], "succeeded")
    assert "its record was imported" in other.infloop("why", "last").stdout
    assert "hello there" in other.infloop("logs", "last").stdout
    assert "c" in other.infloop("show", "last").stdout
    err = other.infloop("rewind", "last", "--to", "c", code=2).stderr
    assert "was imported" in err
    assert "exists already" in other.infloop("import", "run.json", code=2).stderr


# -- help ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, _ in COMMANDS])
def test_every_command_explains_itself_with_an_example(world: World, name: str) -> None:
    out = world.infloop(name, "--help").stdout
    assert f"usage: infloop {name}" in out
    assert f"\n  infloop {name}" in out
    assert max(map(len, out.splitlines())) <= 100


def loaded_by(world: World, *arguments: str) -> tuple[set[str], str]:
    """The modules that a command imports in a process of its own, and what it prints."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "infloop", *arguments],
        env=world.env,
        cwd=world.home,
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT,
    )
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}, done.stdout


def test_help_and_version_load_nothing_heavy(world: World) -> None:
    for option, said in (("--help", "explains one of them"), ("--version", "infloop 0.")):
        loaded, out = loaded_by(world, option)
        assert said in out
        assert "infloop.cli" in loaded
        assert not loaded & {"asyncio", "msgspec", "pydantic", "re2", "rich", "sqlite3", "uvloop"}


# What a server needs, and what a command needs that runs something.
SERVING = {"anyio", "fastapi", "mcp", "pydantic", "starlette", "uvicorn", "infloop.web"}
RUNNING = {"re2", "tomllib", "infloop.nodes", "infloop.sandbox"}
RUNNING |= {"infloop.egress", "infloop.providers", "infloop.runtime.runs.service"}


def test_a_command_loads_only_what_it_needs(world: World) -> None:
    file = world.file("w", [])
    loaded, _ = loaded_by(world, "run", file)
    assert "infloop.nodes" in loaded
    assert not loaded & {*SERVING, "infloop.triggers", "infloop.supervisor", "rich", "yaml"}
    for arguments in (["runs"], ["show", "last"]):
        loaded, out = loaded_by(world, *arguments)
        assert "w" in out
        assert "infloop.store" in loaded
        assert not loaded & {*SERVING, *RUNNING, "infloop.workspace", "rich"}


def test_schemas_are_json_schema(world: World) -> None:
    schema = json.loads(world.infloop("schema", "workflow").stdout)
    assert schema["title"] == "Workflow"
    assert "loop" in json.dumps(schema)
    assert "scripted" in world.infloop("schema", "provider").stdout
    for name in ("trigger", "plugin", "connection"):
        schema = json.loads(world.infloop("schema", name).stdout)
        assert schema["$id"] == f"urn:infloop:schema:{name}"
    assert "max_run_duration_ms" in world.infloop("schema", "settings").stdout


def test_docs_are_read_from_the_source_tree(world: World) -> None:
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
    listed = world.infloop("docs").stdout.splitlines()
    assert {line.split()[0] for line in listed} == pages
    assert world.infloop("docs", "workflow-format").stdout.startswith("# Workflow files\n")


def test_docs_are_read_from_the_installed_package(world: World, tmp_path: Path) -> None:
    import infloop

    package = tmp_path / "site" / "infloop"
    (package / "docs").mkdir(parents=True)
    for part in Path(infloop.__file__).parent.iterdir():
        if part.name != "__pycache__":
            (package / part.name).symlink_to(part)
    (package / "docs" / "loops.md").write_text("# How loops end\n\nBy a condition.\n")
    (package / "docs" / "budgets.md").write_text("# Budgets\n")
    world.variables["PYTHONPATH"] = str(package.parent)
    assert world.infloop("docs").stdout == "budgets  Budgets\nloops    How loops end\n"
    assert world.infloop("docs", "loops").stdout == "# How loops end\n\nBy a condition.\n"
    assert "did you mean 'loops'?" in world.infloop("docs", "loop", code=2).stderr


# -- on a terminal ---------------------------------------------------------------------------


def on_a_terminal(
    world: World, *arguments: str, code: int = 0, once: dict[str, str] | None = None
) -> str:
    """Run a command on a terminal of 80 columns; return everything it wrote to it.

    `once` names files that appear as soon as a text has been seen.
    """
    with on_terminal(arguments, world.home, world.env) as terminal:
        while terminal.read():
            seen = ANSI.sub("", terminal.shown)
            for text, name in (once or {}).items():
                if text in seen:
                    (world.home / name).touch()
        assert terminal.end() == code, terminal.shown
    return terminal.shown


def cells(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in line)


def drawn_lines(written: str) -> list[str]:
    return [line for line in re.split(r"[\r\n]+", ANSI.sub("", written)) if line.strip()]


def test_the_live_view_is_readable_at_80_columns(world: World) -> None:
    wait = "while [ ! -e {} ]; do sleep 0.05; done"
    world.bot(
        [{"text": "looking " * 30 + "世界" * 60}, {"cost": 0.25}, {"shell": wait.format("one")}],
        [{"text": "DONE"}, {"shell": wait.format("two")}, {"cost": 0.25}],
    )
    labelled = {**ask(), "label": "Ask the bot"}
    done = node("done", "condition", kind="sentinel", sentinel={"pattern": "DONE"})
    inner = node("inner", "loop", [labelled, done], maxIterations=4)
    file = world.file(
        "w",
        [node("outer", "loop", [inner], maxIterations=1), node("end", "end")],
        "start next outer next end",
        "ask next done",
        name="A rather long name for a workflow that is only here to be cut " * 2,
    )
    seen_first, seen_second = "世界世界", "round 1 of 1, round 2 of 4"
    written = on_a_terminal(world, "run", file, once={seen_first: "one", seen_second: "two"})
    lines = drawn_lines(written)
    assert max(map(cells, lines)) <= 80
    short = world.runs()[0]["runId"][:8]
    assert any(f"{short}  running" in line for line in lines)
    position = next(line for line in lines if "● Ask the bot" in line)
    assert "agent  round 1 of 1, round 1 of 4" in position
    assert re.search(r"\d\.\ds", position)
    assert any("cost $0.25" in line for line in lines)
    summary = lines[-next(i for i, line in enumerate(lines[::-1], 1) if "succeeded in" in line) :]
    assert any("inner  loop  2 rounds, ended by its condition" in line for line in summary)
    assert summary[-1].strip() == "8 steps, cost $0.50"
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h") == 1


def test_the_summary_of_a_failed_run_stays_with_the_commands_to_type(world: World) -> None:
    world.bot([{"stderr": "out of credit\n"}, {"exit": 2}])
    file = world.file("w", [ask()], "start next ask")
    lines = drawn_lines(on_a_terminal(world, "run", file, code=1))
    text = "\n".join(line.rstrip() for line in lines)
    short = world.runs()[0]["runId"][:8]
    assert "✗ ask  agent  error: the agent left with exit code 2: out of credit" in text
    assert "failed: step 'ask' failed" in text
    assert f"infloop why {short}" in text
    assert f"infloop rewind {short} --to ask" in text


def test_a_dumb_terminal_gets_plain_lines(world: World) -> None:
    world.variables["TERM"] = "dumb"
    file = world.file("w", [node("end", "end")], "start next end")
    written = on_a_terminal(world, "run", file)
    assert "\x1b" not in written
    assert "run succeeded" in written


def test_a_hostile_run_cannot_reach_the_terminal_through_any_command(world: World) -> None:
    evil = "\x1b]52;c;ZXZpbA==\x07\x9b31m\r\u202e"
    world.bot([{"text": f"{evil}\nsaid {evil}"}, {"stderr": evil}, {"exit": 1}])
    file = world.file(
        "w",
        [{**ask(), "label": evil}],
        "start next ask",
        name=f"nice {evil}",
        inputs=[{"name": "task", "type": "string", "default": evil}],
    )
    world.infloop("run", file, code=1)
    world.infloop("run", file, "--json", code=1)
    for arguments in (
        ["runs"],
        ["runs", "--search", "said"],
        ["show", "last"],
        ["show", "last", "--step", "ask"],
        ["show", "last", "--step", "ask", "--output", "stdout"],
        ["why", "last"],
        ["logs", "last"],
        ["logs", "last", "--json"],
        ["check", file],
    ):
        done = world.infloop(*arguments)
        assert not re.search(
            r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", done.stdout + done.stderr
        )
    drawn = on_a_terminal(world, "run", file, code=1)
    assert "\x1b]" not in drawn
    assert "\x9b" not in drawn
    assert "\u202e" not in drawn
    assert "\\x1b]52" in drawn
