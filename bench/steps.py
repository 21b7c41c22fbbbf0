"""Steps that start a program, at the level `host`: scripts and agents, one after another.

Each step is durable, and a snapshot of its directory is taken before and after it. The directory is
a git repository of 100 files. The programs do as little as they can, so what is measured is what a
step costs beyond its work:

- a script takes one input and returns one output;
- the agent is a Python program that reads its prompt and prints one line, as a CLI agent would.

The floors start the same interpreters with nothing to do. CPU counts the children and their
keepers.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import original
from application import Node, application, line, node, run_to_end, settings
from benchmark import Benchmark, Contender, Sample, Target, children_cpu, each, stopwatch, wall
from infloop.app import run_async
from infloop.app.interpreters import find_interpreters

if TYPE_CHECKING:
    from benchmark import Rounds
    from infloop.settings import Settings

WARM_UP = 5
FILES = 100
GIT = ("git", "-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0")
PYTHON = 'def run(word):\n    return {"said": word.upper()}\n'
TYPESCRIPT = (
    "function run(word: string): { said: string } {\n  return { said: word.toUpperCase() };\n}\n"
)
AGENT = f"#!{sys.executable}\nimport sys\nsys.stdin.read()\nprint('done')\n"
RUNTIMES = ("bun", "deno", "node")


def script(name: str, language: str, code: str) -> Node:
    """Return a script step."""
    inputs = {"word": "hello"}
    return node(name, "script", language=language, code=code, inputs=inputs, outputs=["said"])


def python_step(name: str) -> Node:
    """Return a step that runs Python."""
    return script(name, "py", PYTHON)


def typescript_step(name: str) -> Node:
    """Return a step that runs TypeScript."""
    return script(name, "ts", TYPESCRIPT)


def agent_step(name: str) -> Node:
    """Return a step that asks the agent."""
    return node(name, "agent", providerId="bot", prompt="go")


def infloop(make: Callable[[str], Node], **chosen: str | bool) -> Callable[[int, Path], Sample]:
    """Return how steps of a kind are measured."""
    return lambda steps, folder: run_async(_measure(make, steps, folder, chosen))


async def _measure(
    make: Callable[[str], Node], steps: int, folder: Path, chosen: dict[str, str | bool]
) -> Sample:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        here = Path(name)
        write_project(here / "work")
        write_agent(here)
        chosen = {"isolation": "host", "python_bin": sys.executable, **chosen}
        children = children_cpu()
        async with application(here, **chosen) as service:
            warm_up = [make(f"step-{number}") for number in range(WARM_UP)]
            await run_to_end(service, line(warm_up, "next"), here)
            tree = line([make(f"step-{number}") for number in range(steps)], "next")
            with stopwatch(steps) as sample:
                await run_to_end(service, tree, here)
        # Only now are the owners of the children gone and counted; the warm-up goes out pro rata.
        sample.cpu += (children_cpu() - children) * steps / (steps + WARM_UP)
    return sample


def write_project(repository: Path) -> None:
    """Make a repository of a hundred files in ten directories."""
    for number in range(FILES):
        file = repository / f"part-{number % 10}" / f"file-{number}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"file {number}\n" * 20)
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*GIT, *command], cwd=repository, check=True)


def write_agent(folder: Path) -> None:
    """Make a program that stands for a CLI agent, and its manifest."""
    program = folder / "agent"
    program.write_text(AGENT)
    program.chmod(0o755)
    manifest = {"id": "bot", "label": "Bot", "description": "says done", "bin": str(program)}
    manifest["promptVia"] = "stdin"
    providers = folder / "data/providers"
    providers.mkdir(parents=True)
    (providers / "bot.json").write_text(json.dumps(manifest))


def typescript(runtime: str) -> Callable[[int, Path], Sample]:
    """Return how TypeScript is measured with a runtime; it fails where that is not installed."""

    def measure(steps: int, folder: Path) -> Sample:
        program = _runtime(runtime)
        if not program:
            raise RuntimeError(f"{runtime} is not installed")
        return infloop(typescript_step, **{f"{runtime}_bin": program})(steps, folder)

    return measure


def measure_start(argv: list[str], starts: int) -> Sample:
    """Start a program that does nothing, again and again."""
    children = children_cpu()
    with stopwatch(starts) as sample:
        for _ in range(starts):
            subprocess.run(argv, check=True)
    sample.cpu += children_cpu() - children
    return sample


def measure_python(starts: int, folder: Path) -> Sample:
    """Start Python."""
    return measure_start([sys.executable, "-c", "pass"], starts)


def measure_typescript(starts: int, folder: Path) -> Sample:
    """Start the runtime that is chosen here, with a file in which nothing happens."""
    file = folder / "nothing.mts"
    file.write_text("const nothing: number = 0;\n")
    command = find_interpreters(settings(folder)).typescript
    if not command:
        raise RuntimeError("no runtime is installed")
    return measure_start([*command, str(file)], starts)


def _runtime(name: str) -> str:
    """Return the path of a runtime; empty if it cannot run TypeScript or is not installed."""
    chosen: Settings = settings(Path("/nonexistent"))
    found = find_interpreters(chosen).typescript
    if found and Path(found[0]).name == name:
        return found[0]
    return "" if name == "node" else shutil.which(name) or ""


SCRIPT, AGENT_SAVED, AGENT_UNSAVED = "Python script", "agent", "agent, no snapshots"

BENCHMARK = Benchmark(
    title="Steps that start a program, level host",
    unit="step",
    contenders=(
        Contender(SCRIPT, infloop(python_step)),
        Contender(AGENT_SAVED, infloop(agent_step)),
        Contender(AGENT_UNSAVED, infloop(agent_step, snapshots=False)),
        *(Contender(f"TypeScript, {each}", typescript(each), optional=True) for each in RUNTIMES),
        Contender("python -c pass", measure_python),
        Contender("TypeScript runtime, nothing", measure_typescript, optional=True),
    ),
    targets=(
        Target(original.PYTHON_STEP.name, each(SCRIPT, wall, 1e3), 27, "ms"),
        Target(original.AGENT_STEP.name, each(AGENT_SAVED, wall, 1e3), 27.5, "ms"),
    ),
    size=20,
    quick_size=20,
    rounds=7,
    alike=False,
)


def rows(rounds: Rounds) -> list[original.Row]:
    """Return the rows of the table of Infinite Loop that are measured here."""
    found = [
        original.row(work, each(name, wall, 1e3)(rounds))
        for work, name in (
            (original.PYTHON_STEP, SCRIPT),
            (original.AGENT_STEP, AGENT_SAVED),
        )
    ]
    for runtime in RUNTIMES:
        if samples := rounds.get(f"TypeScript, {runtime}"):
            values = [wall(sample) * 1e3 for sample in samples]
            found.append(original.row(original.TYPESCRIPT_STEP, values, runtime))
    return found
