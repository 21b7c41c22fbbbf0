"""`infloop dev`: from a change on disk to the command that it starts, among 20,000 files.

The command is a shell that becomes `date`, which writes down the time, so the start of two programs
is part of the figure. None waits for more changes. The peers are measured where they are installed:
`entr` (apt-get install entr) and `nodemon` (npm install -g nodemon). `idle` is a loop that has
nothing to do for some seconds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmark import Benchmark, Contender, Sample, Target, cpu, each, memory, slow
from program import INFLOOP

CHANGES = 20
IDLE_SECONDS = 10
PER_FOLDER = 100
TOLD = "told"
CONFIG = """
root = "project"
state_file = "state.json"
debounce_ms = 0
[watch.files]
paths = ["**/*.txt"]
workflow = "tell"
[hook.tell]
command = ["sh", "-c", "exec date +%s.%N >> ../told"]
output = { inherit = false }
[workflow.tell]
steps = [{ action = "run_hook", hook = "tell" }]
"""


def write_files(count: int, folder: Path) -> None:
    """Make a tree with so many files."""
    (folder / "devloop.toml").write_text(CONFIG)
    for number in range(count):
        file = folder / f"project/d{number // PER_FOLDER}/f{number}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{number}\n")


def measure_infloop(_: int, folder: Path) -> Sample:
    """Let `infloop dev` watch the tree."""
    return measure([INFLOOP, "dev"], folder, "watching ")


def tell(folder: Path) -> str:
    """Return the shell line that writes down when it was started."""
    return f"exec date +%s.%N >> {folder / TOLD}"


def measure_entr(_: int, folder: Path) -> Sample:
    """Let `entr` watch all files, by name; it runs the command once at the start."""
    listing = folder / "names"
    listing.write_text("\n".join(str(path) for path in (folder / "project").rglob("*.txt")))
    line = f"exec {program('entr')} -n -s '{tell(folder)}' < {listing}"
    return measure(["sh", "-c", line], folder, "")


def measure_nodemon(_: int, folder: Path) -> Sample:
    """Let `nodemon` watch it; it runs the command once at the start."""
    options = ["--quiet", "--delay", "1ms", "--ext", "txt", "--watch", "project"]
    return measure([program("nodemon"), *options, "--exec", tell(folder)], folder, "")


def measure_idle(_: int, folder: Path) -> Sample:
    """Let `infloop dev` watch the tree while nothing changes; `cpu` is a share of one core."""
    with started([INFLOOP, "dev"], folder, "watching ") as process:
        used, children = cpu_seconds(process.pid), descendants(process.pid)
        time.sleep(IDLE_SECONDS)
        share = (cpu_seconds(process.pid) - used) / IDLE_SECONDS
        if descendants(process.pid) - children:
            raise RuntimeError("a child was started while nothing happened")
        return Sample(1, IDLE_SECONDS, cpu=share, memory=resident(process.pid))


def program(name: str) -> str:
    """Return where a peer is; raise FileNotFoundError without it."""
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed")
    return found


def measure(argv: list[str], folder: Path, ready: str) -> Sample:
    """Change files one after the other; the time is the sum of all delays."""
    told, delays = folder / TOLD, []
    told.write_text("")
    with started(argv, folder, ready) as process:
        settle(told, 0 if ready else 1)
        for number in range(CHANGES):
            seen = len(told.read_text().split())
            began = change(folder / f"project/d{number}/f{number * PER_FOLDER}.txt")
            delays.append(float(settle(told, seen + 1)[-1]) - began)
            time.sleep(0.3)  # a change while the command still runs belongs to the command
        size = resident(process.pid)
    delays.sort()
    return Sample(CHANGES, sum(delays), slow=delays[int(CHANGES * 0.95) - 1], memory=size)


def change(path: Path) -> float:
    """Write new content to a file; return when it was written.

    In place: a file system may take some milliseconds to empty a file before that.
    """
    with path.open("r+b", buffering=0) as file:
        began = time.time()
        file.write(f"{began:20.6f}\n".encode())
    return began


@contextmanager
def started(argv: list[str], folder: Path, ready: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a watcher, once it has said that it is ready."""
    environment = {"PATH": os.defpath, "HOME": str(folder), "LANG": "C.UTF-8"}
    environment["INFLOOP_DATA_DIR"] = str(folder / "data")
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(argv, cwd=folder, env=environment, stdout=output, stderr=output)
    try:
        while ready not in log.read_text():
            time.sleep(0.01)
        time.sleep(2)  # both read the tree first
        yield process
    finally:
        process.terminate()
        process.wait(30)


def settle(told: Path, count: int) -> list[str]:
    """Wait until the command has run so often."""
    deadline = time.monotonic() + 30
    while len(lines := told.read_text().split()) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"only {len(lines)} of {count} changes were noticed")
        time.sleep(0.002)
    return lines


def resident(pid: int) -> float:
    """Bytes in memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return float(pages * os.sysconf("SC_PAGE_SIZE"))


def cpu_seconds(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def descendants(pid: int) -> set[int]:
    """The processes below one."""
    found, pending = set[int](), [pid]
    for process in pending:
        for task in Path(f"/proc/{process}/task").glob("*/children"):
            children = {int(child) for child in task.read_text().split()}
            found |= children
            pending += children
    return found


DEV, IDLE = "infloop dev", "infloop dev, idle"

BENCHMARK = Benchmark(
    title="From a change on disk to the command, among 20,000 files",
    unit="change",
    contenders=(
        Contender(DEV, measure_infloop),
        Contender("entr", measure_entr, optional=True),
        Contender("nodemon", measure_nodemon, optional=True),
        Contender(IDLE, measure_idle, most_rounds=1),
    ),
    targets=(
        Target("infloop dev, 19 of 20", each(DEV, slow), 0.02, "s"),
        Target("infloop dev, memory", each(DEV, memory, 1e-6), 60, "MB"),
        Target("infloop dev, idle, share of a core", each(IDLE, cpu, 100), 0.5, "%"),
        Target("infloop dev, idle, memory", each(IDLE, memory, 1e-6), 60, "MB"),
    ),
    size=20_000,
    quick_size=2_000,
    rounds=5,
    quick_rounds=1,
    alike=False,
    prepare=write_files,
)
