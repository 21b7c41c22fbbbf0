"""A server with something to look at: runs that succeeded, failed, wait and run."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = "a-token-for-pictures-0123456789"
PATIENCE_SECONDS = 60

WORKFLOWS = {
    "fix-until-green": """\
name: fix-until-green
limits: {cost: $5}
inputs:
  goal: make the tests pass
steps:
  - loop: fix
    max: 20
    until: test $(wc -l < mended.txt) -ge 4
    steps:
      - agent: mender
        id: mend
        cwd: PROJECT
        prompt: "{{inputs.goal}}"
      - command: sh check.sh
        id: tests
        cwd: PROJECT
        useWorktree: true
        worktree: mend
  - command: echo all green
    id: report
    label: Report
""",
    "deploy": """\
name: deploy
steps:
  - command: echo built
    id: build
  - command: echo "2 failed, 40 passed" >&2; exit 1
    id: check
""",
    "triage": """\
name: triage
steps:
  - agent: mender
    id: sort
    cwd: PROJECT
    prompt: sort the new issues
""",
    "tidy": """\
name: tidy
steps:
  - approval: tidy wants to delete build/
    id: clean
    details: |
      rm -rf build/
      412 files, 38 MB; nothing of it is in git
  - command: echo deleted
""",
    "ship": """\
name: ship
requires: [macos]
steps:
  - command: echo signed
""",
    "nightly": """\
name: nightly
limits: {cost: $3}
steps:
  - loop: watch
    max: 50
    until: test -e never
    steps:
      - agent: slow
        id: improve
        cwd: PROJECT
        prompt: improve one thing
""",
}

MENDER = {
    "turns": [
        {
            "do": [
                {"text": "I read the failing test first.\n"},
                {"shell": "cat check.sh"},
                {"delayMs": 60, "text": "One case is not handled. I mend that one only.\n"},
                {"shell": "echo a case >> mended.txt"},
                {"tokens": {"input": 2100, "output": 180}},
                {"cost": 0.21},
                {"text": "Done; the next round shows what is left.\n"},
            ]
        }
    ]
}
SLOW = {
    "turns": [
        {
            "do": [
                {"text": "Looking for the slowest function.\n"},
                {"tokens": {"input": 1200, "output": 90}},
                {"cost": 0.42},
                {"delayMs": 300, "text": "It is parse(). Measuring it.\n"},
            ]
        },
        {"do": [{"text": "Measuring parse() again.\n"}, {"cost": 0.1}]},
        {"do": [{"text": "Now the long one.\n"}, {"delayMs": 600_000, "text": "never\n"}]},
    ]
}

DEV = """\
root = "."
startup_workflows = ["startup"]
[watch.sources]
paths = ["*.py"]
[process.api]
command = ["sh", "-c", "echo listening on 8000; while true; do echo GET /health 200; sleep 2; done"]
restart = "always"
[process.web]
command = ["sh", "-c", "echo EADDRINUSE 5173 >&2; exit 1"]
restart = "always"
[workflow.sources]
steps = [{action = "restart_process", process = "api"}]
[workflow.startup]
steps = [
    {action = "start_process", process = "api"},
    {action = "start_process", process = "web"},
]
"""


@dataclass
class Prepared:
    """A running server and what can be looked at."""

    address: str
    runs: dict[str, str] = field(default_factory=dict)
    approval: str = ""
    mark: str = ""

    def ask(self, method: str, path: str, content: Any = None) -> Any:
        body = None if content is None else json.dumps(content).encode()
        headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        request = Request(self.address + path, body, headers, method=method)
        with urlopen(request) as answer:
            return json.loads(answer.read() or b"null")

    def start(self, workflow: str, **inputs: str) -> str:
        made = self.ask("POST", "/api/run", {"workflowId": workflow, "inputs": inputs})
        return str(made["runId"])

    def until(self, run: str, *states: str) -> str:
        """Wait until a run is in one of these states."""
        for _ in range(PATIENCE_SECONDS * 10):
            with contextlib.suppress(HTTPError):
                if self.ask("GET", f"/api/runs/{run}")["run"]["status"] in states:
                    return run
            time.sleep(0.1)
        raise TimeoutError(f"run {run} is not {states}")

    def wait(self, path: str, name: str) -> list[dict[str, Any]]:
        """Wait until a list has something in it."""
        for _ in range(PATIENCE_SECONDS * 10):
            found: list[dict[str, Any]] = self.ask("GET", path)[name]
            if found:
                return found
            time.sleep(0.1)
        raise TimeoutError(f"{path} stays empty")


@contextmanager
def prepared() -> Iterator[Prepared]:
    """Yield a server with runs; everything ends with it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        project = folder / "project"
        environment = _write(folder, project)
        with contextlib.ExitStack() as stack:
            work = folder / "work"
            work.mkdir()
            server = _program(stack, environment, work, "serve")
            assert server.stdout is not None
            data = Prepared(server.stdout.readline().split()[-1])
            (project / "devloop.toml").write_text(DEV)
            _program(stack, environment, project, "dev")
            _run_everything(data)
            _program(stack, environment, work, "worker", "--label", "gpu", "--label", "repo:web")
            yield data


@contextmanager
def bare_server(folder: Path) -> Iterator[str]:
    """Yield the address of a server with nothing in it."""
    with contextlib.ExitStack() as stack:
        server = _program(stack, _write(folder, folder / "project"), folder, "serve")
        assert server.stdout is not None
        yield server.stdout.readline().split()[-1]


def _write(folder: Path, project: Path) -> dict[str, str]:
    """Write projects, providers and workflows; return the server's environment."""
    data = folder / "data"
    for each in (project, data / "workflows", data / "providers", folder / "home"):
        each.mkdir(parents=True)
    data.chmod(0o700)
    (project / "check.sh").write_text('echo "$((4 - $(wc -l < mended.txt))) failed"\n')
    (project / "mended.txt").write_text("")
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "a project"]):
        author = ["-c", "user.name=somebody", "-c", "user.email=somebody@localhost"]
        subprocess.run(["git", *author, *command], cwd=project, check=True)
    for name, text in WORKFLOWS.items():
        path = data / "workflows" / f"{name}.loop.yaml"
        path.write_text(text.replace("PROJECT", str(project)))
    for name, turns in (("mender", MENDER), ("slow", SLOW)):
        manifest = {
            "id": name,
            "label": name.capitalize(),
            "description": "Plays turns",
            "transport": "scripted",
            "script": f"{name}.turns.json",
        }
        (data / "providers" / f"{name}.json").write_text(json.dumps(manifest))
        (data / "providers" / f"{name}.turns.json").write_text(json.dumps(turns))
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder / "home"),
        "INFLOOP_DATA_DIR": str(data),
        "INFLOOP_ISOLATION": "host",
        "INFLOOP_PORT": "0",
        "INFLOOP_API_TOKEN": TOKEN,
        "INFLOOP_MAX_TOTAL_COST_USD": "20",
        "INFLOOP_COST_WINDOW": "day",
        "INFLOOP_MAX_CONCURRENT_RUNS": "2",
    }


def _program(
    stack: contextlib.ExitStack, environment: dict[str, str], folder: Path, command: str, *more: str
) -> subprocess.Popen[str]:
    started = stack.enter_context(
        subprocess.Popen(
            [sys.executable, "-m", "infloop", command, *more],
            stdout=subprocess.PIPE if command == "serve" else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            cwd=folder,
        )
    )
    stack.callback(started.terminate)
    return started


def _run_everything(data: Prepared) -> None:
    data.runs["loop"] = data.until(data.start("fix-until-green"), "succeeded")
    data.runs["other"] = data.until(
        data.start("fix-until-green", goal="make the linter pass"), "succeeded"
    )
    data.runs["failed"] = data.until(data.start("deploy"), "failed")
    data.until(data.start("triage"), "succeeded")
    hook = {
        "name": "new issues",
        "enabled": True,
        "workflowId": "triage",
        "pluginId": "github",
        "eventType": "issues",
        "secret": "a-secret-for-pictures",
    }
    trigger = data.ask("POST", "/api/triggers", hook)["trigger"]
    data.mark = trigger["mark"]
    data.ask("POST", f"/api/triggers/{trigger['id']}/test", {})
    with contextlib.suppress(HTTPError):  # refused, since it is not signed
        urlopen(Request(f"{data.address}/api/webhook/{trigger['id']}", b"{}", method="POST"))
    schedule = {"cron": "30 9 * * 1-5", "timeZone": "Europe/Berlin", "misfire": "once"}
    nightly = {"name": "report", "enabled": True, "kind": "schedule", "workflowId": "deploy"}
    data.ask("POST", "/api/triggers", {**nightly, "schedule": schedule})
    asking = data.start("tidy")
    data.runs["live"] = data.until(data.start("nightly"), "running")
    data.start("ship")  # waits in the queue: nobody has its label
    data.until(asking, "running")
    data.approval = data.wait("/api/approvals", "approvals")[0]["id"]
    data.wait("/api/dev", "loops")
