"""Runs to look at in the console: loop files, scripted agents, and gates that hold a step back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from support.runs import scripted

if TYPE_CHECKING:
    from support.server import Client, Process


def put_loop(server: Process, name: str, text: str) -> None:
    """Write a loop file into the server's workflows."""
    folder = server.data / "workflows"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.loop.yaml").write_text(text)


def put_agent(server: Process, *turns: list[dict[str, Any]], provider: str = "fake") -> None:
    """Make an agent that plays turns, one for each round."""
    scripted(server.data / "providers", provider, *({"do": turn} for turn in turns))


def start(client: Client, workflow: str, cwd: Path | None = None, **inputs: Any) -> str:
    """Start a run, in a directory of its own; return its id."""
    body: dict[str, Any] = {"workflowId": workflow, "inputs": inputs}
    if cwd is not None:
        cwd.mkdir(parents=True, exist_ok=True)
        body["cwd"] = str(cwd)
    asked = client.post("/api/run", body)
    assert asked.status == 202, asked.body
    return str(asked.json()["runId"])


def finish(client: Client, workflow: str, cwd: Path | None = None, **inputs: Any) -> str:
    """Run a workflow to its end; return the run's id."""
    run_id = start(client, workflow, cwd, **inputs)
    client.finished(run_id)
    return run_id


def page_of(run_id: str, **query: str) -> str:
    """Return the address of a run's page."""
    search = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
    return f"/r/{run_id}?{search}" if search else f"/r/{run_id}"


def gated(before: str, after: str) -> str:
    """Return a shell line that waits for the file `go` between two parts."""
    return f"{before}; until [ -e go ]; do sleep 0.05; done; {after}"


def step(command: str, name: str) -> str:
    """Return a step of a loop file that runs a shell line."""
    return f"  - command: {json.dumps(command)}\n    id: {name}\n"
