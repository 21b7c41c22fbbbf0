"""An agent that executes its prompt as Python, and runs as the children's user."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.service_user import SERVICE_USER, folder_for_children, give
from support.workflows import edges, node, workflow

if TYPE_CHECKING:
    from collections.abc import Iterator

AGENT = """#!/usr/bin/python3
import json, os, pathlib, subprocess, sys, urllib.error, urllib.request
home = pathlib.Path.home()
def call(path, key):
    request = urllib.request.Request(os.environ["BASE"] + path, b"{}", {"x-api-key": key})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        return opener.open(request, timeout=10).status
    except urllib.error.HTTPError as error:
        return error.code
def listing():
    return sorted(str(p.relative_to(home)) for p in home.rglob("*") if p.is_file())
exec(sys.stdin.read())
"""


@contextmanager
def agent_folder() -> Iterator[Path]:
    """Make a folder with the agent; its `work` and its `home` belong to the children's user."""
    with folder_for_children("work", "home") as made:
        (made / "agent").write_text(AGENT)
        (made / "agent").chmod(0o755)
        yield made


def theirs(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    give(path.parent, path)
    return path


def manifest(top: Path, **more: Any) -> None:
    folder = top / "data/providers"
    folder.mkdir(parents=True, exist_ok=True)
    fixed = {"id": "it", "label": "It", "description": "runs its prompt", "promptVia": "stdin"}
    (folder / "it.json").write_text(json.dumps({**fixed, "bin": str(top / "agent"), **more}))


def settings(level: str) -> dict[str, Any]:
    return {"isolation": level, "service_user": SERVICE_USER, "snapshots": False}


def asking(code: str, **config: Any) -> dict[str, Any]:
    agent = node("a", "agent", providerId="it", prompt=code, **config)
    return workflow([node("s", "start"), agent], edges("s next a"))
