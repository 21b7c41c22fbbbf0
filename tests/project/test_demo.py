"""The demo is the first thing anybody runs: it must work, say what happened, and leave nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.paths import ROOT

DEMO = ROOT / "src/infloop/demo"


def run(
    tmp_path: Path, *arguments: str, code: int = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    (tmp_path / "tmp").mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "infloop", *arguments],
        cwd=tmp_path,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path / "home"),
            "TMPDIR": str(tmp_path / "tmp"),
            "LANG": "C.UTF-8",
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def kept(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "tmp").glob("infloop-demo-*"))


def test_the_demo_goes_green_in_the_third_round_and_says_what_each_changed(tmp_path: Path) -> None:
    out = run(tmp_path, "demo").stdout
    assert "rounds[1]/tests  not_met: exit 1" in out
    assert "rounds[2]/tests  not_met: exit 1" in out
    assert "rounds[3]/tests  met: exit 0" in out
    told = out[out.index("what happened") :]
    assert "3 rounds, cost $0.064" in told
    for number in (1, 2, 3):
        assert f"\n  round {number}  " in told
    assert told.count("slugs.py | ") == 3
    assert "infloop demo --keep" in told
    assert kept(tmp_path) == []
    assert not (tmp_path / "home").exists(), "the user's own data must stay untouched"


def test_a_kept_demo_can_be_looked_at_and_rewound(tmp_path: Path) -> None:
    told = run(tmp_path, "demo", "--keep", "--json").stdout
    messages: list[dict[str, Any]] = [json.loads(line) for line in told.splitlines()]
    assert messages[-1]["status"] == "succeeded"
    failing = [
        m["outputs"]["stderr"]
        for m in messages
        if m["type"] == "node_finished" and m["nodeId"] == "tests"
    ]
    assert ["failures=2" in failing[0], "failures=1" in failing[1], "OK" in failing[2]] == [
        True
    ] * 3
    (folder,) = kept(tmp_path)
    data = str(folder / "data")
    assert (
        "3 rounds, ended by its condition"
        in run(tmp_path, "show", "last", INFLOOP_DATA_DIR=data).stdout
    )
    again = run(tmp_path, "rewind", "last", "--to", "rounds[3]/tests", INFLOOP_DATA_DIR=data).stdout
    assert "rounds[3]/tests  met: exit 0" in again
    assert "rounds[3]/fix" not in again


def test_without_git_the_demo_says_what_to_install(tmp_path: Path) -> None:
    bare = tmp_path / "bin"
    bare.mkdir()
    err = run(tmp_path, "demo", code=2, PATH=str(bare)).stderr
    assert "the demo needs 'git'" in err
    assert "install it" in err
    assert kept(tmp_path) == []


def test_the_shipped_workflow_is_without_fault(tmp_path: Path) -> None:
    data = tmp_path / "data" / "providers"
    data.mkdir(parents=True)
    (data / "scripted.json").write_bytes((DEMO / "provider.json").read_bytes())
    file = str(DEMO / "fix-tests.workflow.json")
    out = run(tmp_path, "check", file, INFLOOP_DATA_DIR=str(data.parent)).stdout
    assert out == f"{file}: ok\n"
