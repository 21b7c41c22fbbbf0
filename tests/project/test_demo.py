"""The demo is the first thing anybody runs: it must work, say what happened, and leave nothing."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from infloop.application.demo import CHECK, NEXT, TASK
from support import forkserver


def run(
    tmp_path: Path, *arguments: str, code: int = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    (tmp_path / "tmp").mkdir(exist_ok=True)
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path / "tmp"),
        "LANG": "C.UTF-8",
        **variables,
    }
    done = forkserver.run(arguments, tmp_path, env, 120)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def kept(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "tmp").glob("infloop-demo-*"))


def test_the_demo_plays_a_loop_and_applies_its_changes(tmp_path: Path) -> None:
    out = run(tmp_path, "demo", PATH="/usr/bin:/bin").stdout
    assert f'$ infloop loop "{TASK}" --check "{CHECK}" --agent scripted\n' in out
    for number, verdict in enumerate(("not_met: exit 1",) * 3 + ("met: exit 0",)):
        assert f"rounds[{number}]/check  {verdict}" in out
    assert "cost $0.064" in out
    applied = out[out.index("$ infloop apply last") :].splitlines()
    assert applied[2] == "  slugs.py  +5 -2"
    assert "npm install -g @anthropic-ai/claude-code" in applied[4]
    assert applied[-1] == f"  {NEXT}"
    assert "fatal" not in out, "the agent may do all that it does, confined or not"
    assert kept(tmp_path) == []
    assert not (tmp_path / "home").exists(), "the user's own data must stay untouched"


def test_a_kept_demo_can_be_looked_at_and_rewound(tmp_path: Path) -> None:
    told = run(tmp_path, "demo", "--keep", "--json").stdout
    messages: list[dict[str, Any]] = [json.loads(line) for line in told.splitlines()]
    assert messages[-1]["status"] == "succeeded"
    failing = [
        m["outputs"]["stderr"]
        for m in messages
        if m["type"] == "node_finished" and m["nodeId"] == "check"
    ]
    assert ["failures=4" in failing[0], "failures=2" in failing[1], "OK" in failing[3]] == [
        True
    ] * 3
    (folder,) = kept(tmp_path)
    data = str(folder / "data")
    assert (
        "3 rounds, ended by its condition"
        in run(tmp_path, "show", "last", INFLOOP_DATA_DIR=data).stdout
    )
    again = run(tmp_path, "rewind", "last", "--to", "rounds[3]/check", INFLOOP_DATA_DIR=data).stdout
    assert "rounds[3]/check  met: exit 0" in again
    assert "rounds[3]/work" not in again


def test_without_git_the_demo_says_what_to_install(tmp_path: Path) -> None:
    bare = tmp_path / "bin"
    bare.mkdir()
    err = run(tmp_path, "demo", code=2, PATH=str(bare)).stderr
    assert "the demo needs 'git'" in err
    assert "install it" in err
    assert kept(tmp_path) == []
