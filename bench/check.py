"""`infloop check` of a file with 10,000 nodes, as large as a workflow may be.

The whole process is measured. "Sound" has nothing to complain about. "Faulty" has a reference that
cannot resolve in every node, so it has more problems than are printed. The floor is Python reading
and parsing the same file as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from application import line, node
from benchmark import Benchmark, Contender, Sample, Target, each, wall
from program import INFLOOP, measure_program


def write_files(nodes: int, folder: Path) -> None:
    """Write the files once for all rounds."""
    for name, reference in (("sound", "inputs.mode"), ("faulty", "nobody.said")):
        steps = [
            node(f"n{number}", "branch", lhs=f"{{{{{reference}}}}}", op="==", rhs="fast")
            for number in range(nodes - 2)  # the start and the end are nodes too
        ]
        text = json.dumps(line(steps, "true"))
        (folder / f"{name}.workflow.json").write_text(text)


def measure_sound(nodes: int, folder: Path) -> Sample:
    """Check the file that is well."""
    return measure_program([INFLOOP, "check", "sound.workflow.json"], folder)


def measure_faulty(nodes: int, folder: Path) -> Sample:
    """Check the file that is not."""
    return measure_program([INFLOOP, "check", "faulty.workflow.json"], folder, expect=2)


def measure_json(nodes: int, folder: Path) -> Sample:
    """Parse the file and no more."""
    read = "import json; json.load(open('sound.workflow.json'))"
    return measure_program([sys.executable, "-c", read], folder)


SOUND, FAULTY = "infloop check, sound", "infloop check, faulty"

BENCHMARK = Benchmark(
    title="Check of a 10,000-node file",
    unit="file",
    contenders=(
        Contender(SOUND, measure_sound),
        Contender(FAULTY, measure_faulty),
        Contender("python, json.load", measure_json),
    ),
    targets=(
        Target("infloop check, sound", each(SOUND, wall), 2, "s"),
        Target("infloop check, faulty", each(FAULTY, wall), 2, "s"),
    ),
    size=10_000,
    quick_size=10_000,
    prepare=write_files,
)
