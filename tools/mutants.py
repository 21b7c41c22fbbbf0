"""Plants faults in a copy of the source, one at a time, and says which of them the tests notice.

    mutants.py [--only ID] [--area AREA] [--file TEXT] [--sample N] [--jobs N] [--report] [ROOT]
    mutants.py --check [ROOT]

The faults are listed in `tests/mutants/*.toml`. Each names the exact text that it replaces, so a
fault that no longer applies is an error: the list must follow the source.

    caught       a related test fails, and passes without the fault
    survived     every related test passes: a test is missing
    timed out    the related tests did not finish: infloop hangs, or the machine is busy
    stale        the text is not in the file, or is there more than once
    unreliable   a related test fails without the fault as well

The working tree is never changed. Each job has a copy of its own in `.mutants`. The exit status is
0 when every fault was caught. With `--report` the figures go into `docs/testing.md`.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import fcntl
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal, TypeAlias, cast, get_args

FAULTS = "tests/mutants"
SOURCE = "src/infloop"
COPIES = ".mutants"
LIMIT_S = 300

Area: TypeAlias = Literal["security", "durability", "money"]
Outcome: TypeAlias = Literal["caught", "survived", "timed out", "stale", "unreliable"]

AREAS: tuple[Area, ...] = get_args(Area)
_BEGIN, _END = "<!-- mutants: begin -->", "<!-- mutants: end -->"
_COPIED = ("src", "tests", "tools", "docs", "bench", "pyproject.toml", "README.md", "CHANGELOG.md")
# pytest's short summary: `FAILED tests/x.py::test_y[a b] - reason`
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - |$)", re.MULTILINE)


@dataclass(frozen=True)
class Fault:
    """One change to one file, and the tests that should notice it."""

    id: str
    area: Area
    file: str
    old: str
    new: str
    why: str
    tests: tuple[str, ...]

    def problems(self, root: Path) -> Iterator[str]:
        """Yield why this fault cannot be planted or noticed."""
        path = root / SOURCE / self.file
        found = path.read_text(encoding="utf-8").count(self.old) if path.is_file() else 0
        if found != 1:
            yield f"{self.id}: its text is {found} times in {self.file}: {self.old.strip()!r}"
        if self.old == self.new:
            yield f"{self.id}: it changes nothing"
        if self.area not in AREAS:
            yield f"{self.id}: {self.area!r} is no area; use one of {', '.join(AREAS)}"
        for test in self.tests:
            if not (root / "tests" / test.partition("::")[0]).is_file():
                yield f"{self.id}: there is no tests/{test}"
        if not self.tests or not self.why:
            yield f"{self.id}: it needs tests, and a reason why it would hurt"


@dataclass(frozen=True)
class Result:
    """What became of a fault; `detail` is the test that noticed it, or what is wrong."""

    fault: Fault
    outcome: Outcome
    detail: str = ""
    seconds: float = 0.0


def read_faults(root: Path) -> list[Fault]:
    """Return all faults in the order in which they are written down."""
    return [
        Fault(
            id=fault["id"],
            area=fault.get("area", file["area"]),
            file=file["path"],
            old=fault["old"].removeprefix("\n"),
            new=fault["new"].removeprefix("\n"),
            why=fault["why"],
            tests=tuple(fault.get("tests", file["tests"])),
        )
        for listing in sorted((root / FAULTS).glob("*.toml"))
        for file in cast(
            "list[dict[str, Any]]", tomllib.loads(listing.read_text(encoding="utf-8"))["file"]
        )
        for fault in file["fault"]
    ]


def problems(root: Path, faults: Sequence[Fault]) -> list[str]:
    """Return what is wrong with the list itself."""
    twice = [name for name, count in Counter(each.id for each in faults).items() if count > 1]
    return [
        *(f"{name}: there are two faults of this name" for name in twice),
        *(problem for each in faults for problem in each.problems(root)),
    ]


class Copy:
    """A copy of the project in which one fault at a time is planted."""

    def __init__(self, root: Path, number: int) -> None:
        self.root = root / COPIES / f"{os.getpid()}-{number}"
        self._reliable: dict[str, bool] = {}
        self.root.mkdir(parents=True)
        (self.root.parent / ".gitignore").write_text("*\n", encoding="ascii")
        for name in _COPIED:
            _copy(root / name, self.root / name)
        _copy_environment(root, root / ".venv", self.root)

    def remove(self) -> None:
        """Delete the copy."""
        shutil.rmtree(self.root, ignore_errors=True)

    def examine(self, fault: Fault, limit_s: float) -> Result:
        """Plant a fault, run its tests, and take it out again."""
        wrong = [*fault.problems(self.root)]
        if wrong:
            return Result(fault, "stale", wrong[0])
        began = datetime.datetime.now(datetime.UTC)
        path = self.root / SOURCE / fault.file
        source, times = path.read_text(encoding="utf-8"), path.stat()
        path.write_text(source.replace(fault.old, fault.new), encoding="utf-8")
        _forget_bytecode(path)
        try:
            outcome, failed = self._run_tests(fault.tests, limit_s)
        finally:
            path.write_text(source, encoding="utf-8")
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            _forget_bytecode(path)
        if outcome == "caught" and not self._is_reliable(failed, limit_s):
            outcome = "unreliable"
        seconds = (datetime.datetime.now(datetime.UTC) - began).total_seconds()
        return Result(fault, outcome, failed, seconds)

    def _is_reliable(self, test: str, limit_s: float) -> bool:
        """Say whether a test passes without any fault; a failure to import counts as noticed."""
        if "::" not in test:
            return True
        if test not in self._reliable:
            tried = [self._pytest([test], limit_s)[0] for _ in range(2)]
            self._reliable[test] = 0 in tried
        return self._reliable[test]

    def _run_tests(self, tests: Sequence[str], limit_s: float) -> tuple[Outcome, str]:
        code, output = self._pytest([f"tests/{test}" for test in tests], limit_s)
        if code is None:
            return "timed out", ""
        if code == 0:
            return "survived", ""
        failed = _FAILED.search(output)
        if failed is None:
            raise SystemExit(f"pytest ended with {code} and names no test:\n{output[-2000:]}")
        return "caught", failed[1]

    def _pytest(self, tests: Sequence[str], limit_s: float) -> tuple[int | None, str]:
        """Return the exit status of pytest, or None if it took too long; and its output."""
        # Without a choice by marks: what `make test` leaves out may be what notices the fault.
        options = ("-m", "", "-x", "-q", "-p", "no:cacheprovider", "--no-header", "--timeout=120")
        # A fault can make a child survive, so the tests have a session that ends as a whole.
        with subprocess.Popen(
            [self.root / ".venv/bin/python", "-m", "pytest", *options, *tests],
            cwd=self.root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": ""},
        ) as running:
            try:
                output, _ = running.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                _end_session(running.pid)
                running.communicate()
                return None, ""
            _end_session(running.pid)
            return running.returncode, output


def _end_session(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        left_out = shutil.ignore_patterns("__pycache__", "out")
        shutil.copytree(source, target, symlinks=True, ignore=left_out)
    elif source.exists():
        shutil.copy2(source, target)


def _copy_environment(root: Path, environment: Path, target: Path) -> None:
    """Copy the Python environment by hard links, and let it use the copy of the source."""

    def link(source: str, copy: str) -> None:
        try:
            os.link(source, copy, follow_symlinks=False)
        except OSError:
            shutil.copy2(source, copy, follow_symlinks=False)

    shutil.copytree(environment, target / ".venv", symlinks=True, copy_function=link)
    own = [*(target / ".venv/bin").iterdir(), *(target / ".venv").glob("lib/*/site-packages/*.pth")]
    for file in own:
        text = file.read_bytes() if file.is_file() and not file.is_symlink() else b""
        if os.fsencode(root) in text[:4096]:
            mode = file.stat().st_mode
            file.unlink()
            file.write_bytes(text.replace(os.fsencode(root), os.fsencode(target)))
            file.chmod(mode)


def _forget_bytecode(path: Path) -> None:
    """Remove the compiled form: it is recognised by size and time, and both can be the same."""
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink(missing_ok=True)


def examine_all(root: Path, faults: Sequence[Fault], jobs: int, limit_s: float) -> Iterator[Result]:
    """Yield what becomes of each fault, `jobs` at a time."""
    (root / COPIES).mkdir(exist_ok=True)
    all_copies = [Copy(root, number) for number in range(min(jobs, len(faults)))]
    copies: SimpleQueue[Copy] = SimpleQueue()
    for copy in all_copies:
        copies.put(copy)
    printing = threading.Lock()

    def examine(fault: Fault) -> Result:
        copy = copies.get()
        try:
            result = copy.examine(fault, limit_s)
        finally:
            copies.put(copy)
        with printing:
            remember(root, [result])
            print(line(result), flush=True)
        return result

    try:
        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(examine, faults)
    finally:
        for copy in all_copies:
            copy.remove()


def line(result: Result) -> str:
    """Return a result for people."""
    fault = result.fault
    text = f"{result.outcome:10}  {fault.area:10}  {fault.id}  ({result.seconds:.0f} s)"
    if result.outcome == "caught":
        return f"{text}  {result.detail}"
    return f"{text}  {result.detail}\n    {fault.file}: {fault.why}"


def summary(results: Collection[Result]) -> Iterator[str]:
    """Yield the figures as a table, and the faults that no test noticed."""
    yield "| area | faults | caught | timed out | survived | share |"
    yield "|---|---|---|---|---|---|"
    for area in (*AREAS, "all"):
        mine = [each for each in results if area in (each.fault.area, "all")]
        counts = Counter(each.outcome for each in mine)
        noticed = counts["caught"]
        share = f"{100 * noticed / len(mine):.0f} %" if mine else "-"
        yield (
            f"| {area} | {len(mine)} | {counts['caught']} | {counts['timed out']} | "
            f"{counts['survived']} | {share} |"
        )
    others = [each for each in results if each.outcome != "caught"]
    if others:
        yield ""
        yield "Not caught:"
        yield ""
        yield from (
            f"- `{each.fault.id}` ({each.outcome}): {each.fault.why}"
            for each in sorted(others, key=lambda each: each.fault.id)
        )


def write_report(root: Path, results: Collection[Result]) -> None:
    """Replace the figures in `docs/testing.md`."""
    page = root / "docs/testing.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    faults = read_faults(root)
    measured = {each.fault.id for each in results}
    left = Counter(each.file.partition("/")[0] for each in faults if each.id not in measured)
    said = f"Measured on {today}: {len(results)} of {len(faults)} faults."
    if left:
        said += f" Not measured: {', '.join(f'{n} in `{part}`' for part, n in left.most_common())}."
    made = "\n".join(["", said, "", *summary(results)])
    after = rest.partition(_END)[2]
    page.write_text(f"{before}{_BEGIN}\n{made}\n\n{_END}{after}", encoding="utf-8")


def remember(root: Path, results: Collection[Result]) -> dict[str, Result]:
    """Add results to those of earlier runs; return the latest of each fault that still exists."""
    faults = {each.id: each for each in read_faults(root)}
    with (root / COPIES / "results.json").open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # another run may examine other faults
        file.seek(0)
        known: dict[str, Any] = json.loads(file.read() or "{}")
        known |= {each.fault.id: [each.outcome, each.detail, each.seconds] for each in results}
        file.truncate(0)
        file.write(json.dumps(known, indent=1))
    return {name: Result(faults[name], *known[name]) for name in faults if name in known}


def counted(faults: Sequence[Fault]) -> list[str]:
    """Return how many faults there are in each area."""
    counts = Counter(each.area for each in faults)
    return [f"{counts[area]} {area}" for area in AREAS]


def chosen(faults: Sequence[Fault], options: argparse.Namespace) -> list[Fault]:
    """Return the faults that the options ask for."""
    found = [
        each
        for each in faults
        if (not options.only or each.id in options.only)
        and (not options.area or each.area in options.area)
        and (not options.file or any(part in each.file for part in options.file))
    ]
    if options.sample and options.sample < len(found):
        found = random.sample(found, options.sample)
    return found


def main() -> int:
    """Examine the chosen faults and print what became of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", metavar="ID", help="only this fault")
    parser.add_argument("--area", action="append", choices=AREAS, help="only faults of this area")
    parser.add_argument("--file", action="append", help="only faults in files named like this")
    parser.add_argument("--sample", type=int, metavar="N", help="only some, chosen at random")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="how many at a time")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for one fault")
    parser.add_argument("--report", action="store_true", help="write docs/testing.md")
    parser.add_argument("--check", action="store_true", help="only check that each still applies")
    here = Path(__file__).resolve().parent.parent
    parser.add_argument("root", nargs="?", type=Path, default=here, metavar="ROOT")
    options = parser.parse_args()
    root: Path = options.root.resolve()
    faults = read_faults(root)
    wrong = problems(root, faults)
    for each in wrong:
        print(each, file=sys.stderr)
    if options.check:
        print(f"{len(faults)} faults: {', '.join(counted(faults))}")
        return 1 if wrong else 0
    results = [*examine_all(root, chosen(faults, options), options.jobs, options.limit)]
    print("", *summary(results), sep="\n")
    if options.report:
        write_report(root, remember(root, []).values())
    return 0 if all(each.outcome == "caught" for each in results) else 1


if __name__ == "__main__":
    sys.exit(main())
