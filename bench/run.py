"""Runs the benchmarks and prints what they found: `make bench`, or `bench/run.py --help`.

It prints one page: our figures beside those of Infinite Loop and of the other peers, how costs
grow, and which aims were missed. Every figure and aim is in a file, and printed too where only some
benchmarks were asked for.

Nothing here fails because something is slow: the outcome is 0 unless something breaks. Figures and
ratios come from one run on one machine; the load before and after is printed with them, for on a
busy machine only the ratios and the CPU times mean much.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import sqlite3
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import original
import page
import picture
import report
from benchmark import Benchmark, Contender, Rounds, Sample

NAMES = (
    "control",
    "effects",
    "postgresql",
    "workers",
    "commands",
    "steps",
    "spawn",
    "memory",
    "worktrees",
    "deltas",
    "start",
    "first_call",
    "history",
    "check",
    "proxy",
    "server",
    "busy",
    "dev_change",
    "leaks",
    "tool_calls",
)
PEERS = ("langgraph", "langgraph-checkpoint-sqlite", "dbos", "prefect")
OUT = Path(__file__).parent / "out"
PATIENCE_SECONDS = 600
PREPARE = "prepare"


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description="Measure infloop beside its peers.")
    parser.add_argument("--only", action="append", choices=NAMES, help="may be given repeatedly")
    parser.add_argument("--quick", action="store_true", help="less work and fewer rounds")
    parser.add_argument("--markdown", action="store_true", help="print Markdown tables")
    parser.add_argument("--details", action="store_true", help="print every figure and aim")
    parser.add_argument("--picture", type=Path, help="draw the first table into this SVG file")
    parser.add_argument("--one", nargs=5, metavar="X", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        measure_one(*args.one)
        return 0
    machine = describe_machine()
    if args.quick:
        machine["size"] = "quick: fewer rounds, and less work than some titles say"
    found: page.Found = {}
    speeds: page.Speeds = {}
    failures: list[str] = []
    for name in args.only or NAMES:
        before = original.machine_speed()
        found[name] = run_benchmark(name, page.load(name), failures, quick=args.quick)
        speeds[name] = (before + original.machine_speed()) / 2
    machine["load after"] = load_average()
    machine["python -c pass"] = (
        f"{min(speeds.values()):.0f} to {max(speeds.values()):.0f} ms of CPU time"
        f" (when Infinite Loop was recorded: {original.RECORDED_SPEED_MS:.0f} ms)"
    )
    saved = save(machine, found, speeds)
    table = report.markdown_table if args.markdown else report.text_table
    details = page.details(found, table, judged=not args.quick)
    saved.with_suffix(".txt").write_text(f"{details}\n")
    if args.only or args.details:
        print(f"{details}\n")
    print(page.summary(found, speeds, table, judged=not args.quick))
    for key, value in machine.items():
        print(f"{'- ' if args.markdown else ''}{key}: {value}")
    if args.picture:
        args.picture.write_text(picture.draw(page.original_rows(found, speeds)))
    print(f"\nsamples and details: {saved.with_suffix('')}.*", file=sys.stderr)
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


def run_benchmark(name: str, benchmark: Benchmark, failures: list[str], *, quick: bool) -> Rounds:
    """Let the contenders take turns; note what broke in `failures`."""
    size = benchmark.quick_size if quick else benchmark.size
    rounds = benchmark.quick_rounds if quick else benchmark.rounds
    found: Rounds = {}
    broken: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="infloop-bench-") as folder:
        if benchmark.prepare:
            print(f"{name}: preparing", file=sys.stderr)
            in_a_process(name, PREPARE, size, Path(folder))
        for number in range(rounds):
            print(f"{name}: round {number + 1} of {rounds}", file=sys.stderr)
            for contender in turns(benchmark, number):
                if contender.name in broken or number >= contender.most_rounds:
                    continue
                try:
                    sample = in_a_process(name, contender.name, size, Path(folder))
                except RuntimeError as error:
                    broken.add(contender.name)
                    note = f"{name}: {contender.name} could not run: {error}"
                    print(note, file=sys.stderr)
                    if not contender.optional:
                        failures.append(note.partition("\n")[0])
                else:
                    found.setdefault(contender.name, []).append(sample)
    return found


def turns(benchmark: Benchmark, number: int) -> tuple[Contender, ...]:
    """Return who goes when: the order is turned round each time."""
    return benchmark.contenders if number % 2 == 0 else benchmark.contenders[::-1]


def in_a_process(name: str, contender: str, size: int, folder: Path) -> Sample:
    """Measure once in a fresh process; raise RuntimeError with the end of what it said."""
    answer = folder / "answer.json"
    answer.unlink(missing_ok=True)
    argv = [sys.executable, __file__, "--one", name, contender, str(size), str(folder), str(answer)]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=PATIENCE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"it took more than {PATIENCE_SECONDS} s") from None
    if done.returncode or not answer.exists():
        said = done.stderr.decode(errors="replace").strip()
        raise RuntimeError(said[-2000:] or f"exit code {done.returncode}")
    return Sample(**json.loads(answer.read_text()))


def measure_one(name: str, contender: str, size: str, folder: str, answer: str) -> None:
    """Measure in this process and leave the sample in a file."""
    benchmark = page.load(name)
    sample = Sample(1)
    if contender == PREPARE:
        assert benchmark.prepare
        benchmark.prepare(int(size), Path(folder))
    else:
        (chosen,) = (each for each in benchmark.contenders if each.name == contender)
        sample = chosen.measure(int(size), Path(folder))
    Path(answer).write_text(json.dumps(asdict(sample)))


def describe_machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "peers": ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PEERS),
        "load before": load_average(),
    }


def load_average() -> str:
    """Return the load of the last one, five and fifteen minutes."""
    return " ".join(f"{load:.2f}" for load in os.getloadavg())


def save(machine: dict[str, Any], found: page.Found, speeds: page.Speeds) -> Path:
    """Write every sample to a file named after the time."""
    OUT.mkdir(exist_ok=True)
    path = OUT / f"{machine['date'].replace(':', '').split('+')[0]}.json"
    samples = {
        name: {who: [asdict(sample) for sample in samples] for who, samples in rounds.items()}
        for name, rounds in found.items()
    }
    path.write_text(
        json.dumps({"machine": machine, "speeds": speeds, "samples": samples}, indent=1)
    )
    return path


if __name__ == "__main__":
    sys.exit(main())
