"""`infloop loop`: the time from the shell to the first call of its agent.

The agent prints when it was called, and then makes the check succeed. The check is run before the
agent, so its time is part of the figure. The floor is a shell that runs the same check and the same
agent.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path

from benchmark import Benchmark, Contender, Sample, Target, each, wall
from program import INFLOOP

CHECK = "test -e done"
AGENT = """#!/bin/sh
echo called at $(date +%s.%N)
touch done
"""
GIT = ("git", "-c", "user.name=bench", "-c", "user.email=bench@localhost")


def write_project(_: int, folder: Path) -> None:
    """Make a repository and an agent, and run a loop once, which checks the isolation level."""
    repository = folder / "project"
    repository.mkdir()
    (repository / "a.txt").write_text("a\n")
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*GIT, *command], cwd=repository, check=True)
    agent = folder / "agent"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    manifest = {"id": "bot", "label": "Bot", "description": "makes a file", "bin": str(agent)}
    manifest["promptVia"] = "stdin"
    providers = folder / "data" / "providers"
    providers.mkdir(parents=True)
    (providers / "bot.json").write_text(json.dumps(manifest))
    measure_loop(1, folder)


def measure_loop(_: int, folder: Path) -> Sample:
    """Start `infloop loop`."""
    return first_call([INFLOOP, "loop", "Work", "--check", CHECK, "--agent", "bot"], folder)


def measure_shell(_: int, folder: Path) -> Sample:
    """Run the check and the agent by hand."""
    (folder / "project" / "done").unlink(missing_ok=True)
    sample = first_call(["/bin/sh", "-c", f"{CHECK} || ../agent"], folder)
    (folder / "project" / "done").unlink()
    return sample


def first_call(command: list[str], folder: Path) -> Sample:
    """Run a command to its end; the time is the one until the agent was called."""
    settings = {"INFLOOP_DATA_DIR": str(folder / "data"), "INFLOOP_MIN_FREE_DISK_BYTES": "0"}
    began = time.time()
    done = subprocess.run(
        command,
        cwd=folder / "project",
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8", **settings},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    called = re.search(r"called at (\S+)", done.stdout)
    if done.returncode or not called:
        raise RuntimeError(f"{command} left with exit code {done.returncode}: {done.stdout}")
    return Sample(1, float(called[1]) - began)


LOOP, SHELL = "infloop loop", "sh: check || agent"

BENCHMARK = Benchmark(
    title="From the shell to the first call of the agent",
    unit="loop",
    contenders=(Contender(LOOP, measure_loop), Contender(SHELL, measure_shell)),
    targets=(Target("infloop loop", each(LOOP, wall), 0.7, "s"),),
    rounds=15,
    quick_rounds=5,
    prepare=write_project,
)
