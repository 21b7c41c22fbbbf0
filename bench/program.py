"""Runs a program to its end and measures all of it, from before it exists until it is gone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from benchmark import Sample, children_cpu

INFLOOP = str(Path(sys.executable).parent / "infloop")


def measure_program(
    argv: list[str], folder: Path, *, data_dir: Path | None = None, expect: int = 0
) -> Sample:
    """Run `argv` once, with none of our own settings; raise if its exit code is not `expect`."""
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "LANG": "C.UTF-8",
    }
    environment["INFLOOP_DATA_DIR"] = str(data_dir or folder / "data")
    environment["INFLOOP_MAX_RUN_NODE_EXECUTIONS"] = "0"
    before = children_cpu()
    started = time.perf_counter()
    done = subprocess.run(
        argv, env=environment, cwd=folder, capture_output=True, timeout=120, check=False
    )
    sample = Sample(1, time.perf_counter() - started, children_cpu() - before)
    if done.returncode != expect:
        said = (done.stderr or done.stdout).decode(errors="replace")[-2000:]
        raise RuntimeError(f"{argv} left with exit code {done.returncode}: {said}")
    return sample
