"""An agent whose API key is brokered: it executes its prompt, which is Python."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from support.workflows import edges, node, workflow

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

KEY = "sk-the-real-key-of-the-operator"

AGENT = """#!/usr/bin/python3
import json, os, sys, time, urllib.error, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
def call(path="/v1/messages", times=1):
    for _ in range(times):
        fields = {"x-api-key": os.environ["THE_KEY"]}
        request = urllib.request.Request(os.environ["BASE"] + path, b"{}", fields)
        try:
            with opener.open(request, timeout=20) as answer:
                answer.read()
                status = answer.status
        except urllib.error.HTTPError as error:
            status = error.code
        with open("statuses", "a") as file:
            file.write(f"{status}\\n")
    return status
def say(**frame):
    print(json.dumps(frame), flush=True)
def report(calls, usd):
    used = {"m": {"inputTokens": 1000 * calls, "outputTokens": 1000 * calls}}
    say(type="result", subtype="success", is_error=False, result="ok", modelUsage=used,
        **({} if usd is None else {"total_cost_usd": usd}))
exec(sys.stdin.read())
"""


def asking(code: str, **config: Any) -> dict[str, Any]:
    """A workflow whose agent executes its prompt; it would go on although the agent failed."""
    agent = node("a", "agent", providerId="it", prompt=code, **config)
    end = node("e", "end")
    return workflow(
        [node("s", "start"), agent, end], edges("s next a next e", "a error e", "a timeout e")
    )


def install_agent(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    dialect: str = "anthropic",
    output_format: str = "claude-stream-json",
) -> None:
    """Make it the provider `it`, with a key for the API at `url`."""
    (tmp_path / "agent").write_text(AGENT)
    (tmp_path / "agent").chmod(0o755)
    folder = tmp_path / "data/providers"
    folder.mkdir(parents=True)
    broker = {"dialect": dialect, "keyVariable": "THE_KEY", "baseUrl": url}
    manifest = {
        "id": "it",
        "label": "It",
        "description": "runs its prompt",
        "promptVia": "stdin",
        "bin": str(tmp_path / "agent"),
        "outputFormat": output_format,
        "broker": {**broker, "baseUrlVariable": "BASE"},
    }
    (folder / "it.json").write_text(json.dumps(manifest))
    monkeypatch.setenv("THE_KEY", KEY)


def statuses(tmp_path: Path) -> list[int]:
    return [int(line) for line in (tmp_path / "work/statuses").read_text().split()]
