"""The two halves together: workflows of infloop in a development loop, and checks that ask it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from support.dev_loop import dev_loop
from support.eventually import eventually
from support.server import infloop
from support.workflows import edges, node, workflow

START = node("s", "start")

RUNS_LOOP = """
root = "."
[watch.src]
paths = ["src/**"]
workflow = "fix"
[workflow.fix]
steps = [
  { action = "write_state", key = "who", value = "$(id) {{x}}" },
  { action = "run_loop", loop = "flows/fix.json", inputs = { who = "{{who}}", how = "well" } },
  { action = "log", message = "after the run" },
]
[watch.bad]
paths = ["bad"]
workflow = "bad"
[workflow.bad]
steps = [{ action = "run_loop", loop = "flows/fail.json" }, { action = "log", message = "never" }]
[watch.slow]
paths = ["slow"]
workflow = "slow"
[workflow.slow]
steps = [{ action = "run_loop", loop = "flows/slow.json" }]
"""


def save(folder: Path, name: str, *steps: dict[str, Any], **more: Any) -> None:
    path = folder / "project/flows" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    order = edges(*(f"{a} next {b}" for a, b in zip("sab", "abc"[: len(steps)], strict=False)))
    path.write_text(json.dumps(workflow([START, *steps], order, id=name, **more)))


def shell(name: str, cmd: str) -> dict[str, Any]:
    return node(name, "command", cmd=cmd, env={"WHO": "{{inputs.who}}", "HOW": "{{inputs.how}}"})


def runs(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in infloop(folder, "runs", "--json").stdout.splitlines()]


def test_a_workflow_of_infloop_is_a_step_of_a_development_loop(tmp_path: Path) -> None:
    allowed = {"inputs": [{"name": n, "type": "text"} for n in ("who", "how")]}
    line = 'echo "$WHO|$HOW" > told; echo fixed > src/b.py'
    save(tmp_path, "fix", shell("a", line), **allowed)
    save(tmp_path, "fail", node("a", "command", cmd="echo no luck >&2; exit 3"))
    save(tmp_path, "slow", node("a", "command", cmd="echo $$ > started; sleep 600"))
    (tmp_path / "project/src").mkdir()
    with dev_loop(tmp_path, RUNS_LOOP) as loop:
        loop.ready()
        (loop.root / "src/a.py").write_text("broken")
        loop.logged("after the run")
        assert (loop.root / "told").read_text() == "$(id) |well\n"
        (loop.root / "bad").write_text("now")
        loop.logged("of flows/fail.json failed")
        assert "no luck" in loop.log
        assert "never" not in loop.log
        # What the run wrote belongs to its workflow, so it was not started again.
        assert loop.log.count("workflow fix starts") == 1
        (loop.root / "slow").write_text("now")
        eventually((loop.root / "started").exists)
        assert loop.end() == 0
    found = {run["workflowId"]: run for run in runs(tmp_path)}
    assert {name: run["status"] for name, run in found.items()} == {
        "fix": "succeeded",
        "fail": "failed",
        "slow": "cancelled",
    }
    assert found["fix"]["cause"]["untrusted"] == ["who"]  # `how` is a constant of the file


ASKED = """
root = "."
[watch.src]
paths = ["src/**"]
workflow = "again"
[workflow.again]
steps = [{ action = "restart_process", process = "web" }]
[process.web]
command = ["sh", "-c", "sh src/web.sh; exit 4"]
restart = "on_failure"
restart_delay_ms = 10
readiness = { kind = "state_key", key = "url" }
[[process.web.output.rules]]
state_key = "url"
pattern = "at (.*)$"
[process.off]
command = ["sleep", "600"]
autostart = false
"""


def up(**config: Any) -> dict[str, Any]:
    return node("c", "condition", kind="dev", dev={"settleMs": 200, **config})


def test_a_condition_asks_the_development_loop_and_gives_its_log_to_the_agent(
    tmp_path: Path,
) -> None:
    web = tmp_path / "project/src/web.sh"
    web.parent.mkdir(parents=True)
    web.write_text("echo line 7 is wrong >&2")
    key = {"stateKey": "url", "pattern": "^http://"}
    mend = 'echo "$TAIL" > told; cp right src/web.sh'
    body = [
        node("b", "command", cmd=mend, env={"TAIL": "{{a.tail}}"}),
        {**up(**key, timeoutMs=20_000), "id": "d"},
    ]
    first = {**up(timeoutMs=0), "id": "a"}
    rounds = node("r", "loop", body, maxIterations=1)
    made = workflow(
        [START, first, rounds], edges("s next a not_met r", "b next d"), id="mend", strict=True
    )
    flow = tmp_path / "mend.json"
    flow.write_text(json.dumps(made))
    (tmp_path / "project/right").write_text("echo at http://here; exec sleep 600")

    def run(code: int, *nodes: dict[str, Any]) -> str:
        if nodes:
            links = edges("s next c")
            flow.write_text(json.dumps(workflow([START, *nodes], links, strict=True)))
        done = infloop(tmp_path, "run", str(flow), "--cwd", str(tmp_path / "project"), code=code)
        return done.stdout + done.stderr

    with dev_loop(tmp_path, ASKED) as loop:
        loop.ready()
        loop.logged("crash loop")
        assert "succeeded" in run(0)
        told_text = (loop.root / "told").read_text()
        # It may have been looked at while it was tried again.
        assert re.match(
            r"process 'web' is (crash-loop \(exit status: 4; |running \(|starting \()"
            r"restarted \d+ times in a row\)\. Its last output:\n",
            told_text,
        ), told_text
        assert "line 7 is wrong" in told_text
        run(0, up(processes=["web"], **key))
        assert "'off' is stopped" in run(1, up(processes=["off"], timeoutMs=0))
        assert "the loop has no process 'wbe'" in run(1, up(processes=["wbe"], timeoutMs=0))
        # An agent can write the state file, which is in the project: it is not what is asked.
        (loop.root / ".devloop/state.json").write_text('{"other": "http://x"}')
        assert "'other' holds no text" in run(1, up(stateKey="other", timeoutMs=0))
        wrong = up(stateKey="url", pattern="^https://", timeoutMs=0)
        assert "does not match" in run(1, wrong)
    assert "no development loop runs in" in run(1, up(timeoutMs=0))
