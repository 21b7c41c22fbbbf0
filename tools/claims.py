"""Which promise is proved by which test.

    claims.py [--check] [ROOT]

Reads the promises in `tests/claims.toml` and the `@pytest.mark.claim("I29")` marks of the tests
(which are parsed, never imported), and writes `docs/claims.md`. With `--check` nothing is written:
it fails when the page is stale, when a mark names an unknown promise, or when a promise is gone.

A test that is always skipped proves nothing, so its mark is an error. Whether a test is skipped on
one machine only is known when it runs: with REQUIRE_TEST_PARTS=1 the tests fail for a promise
whose tests were all skipped (`tests/conftest.py`).
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SERIES = {"I": 78, "D": 58, "L": 50}
"""How many promises there are of each kind; none of them may be dropped silently."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SKIPS = re.compile(r"(pytest\.)?(skip|xfail)\(|(parts\.)?(missing|ruled_out)\(")
_SKIPPING_MARK = re.compile(r"pytest\.mark\.(skip|xfail)\b|(parts\.)?ruled_out_if\(True\b")

ABOUT = """\
# Claims

<!-- Made by `make docs` from tests/claims.toml and the tests' marks; do not edit. -->

What infloop promises, and the tests that prove it. A promise without a test is "not yet": it may
be built in part, or not at all, and nothing should rely on it.
"""


@dataclass(frozen=True)
class Group:
    """Promises under one heading: id and sentence."""

    heading: str
    claims: Mapping[str, str]


@dataclass(frozen=True)
class Mark:
    """A test that proves a promise."""

    file: str
    test: str
    claim: str
    skipped: bool = False


class BadMark(Exception):
    """A mark that cannot be read without running the test."""


def read_groups(file: Path) -> list[Group]:
    """Return the promises in the order in which they are written down."""
    groups = tomllib.loads(file.read_text(encoding="utf-8"))["group"]
    return [Group(group["heading"], group["claims"]) for group in groups]


def read_marks(tests: Path) -> list[Mark]:
    """Return the marks of all tests, by file and in their order."""
    return [mark for file in sorted(tests.rglob("test_*.py")) for mark in marks_of(tests, file)]


def marks_of(tests: Path, file: Path) -> Iterator[Mark]:
    """Yield the marks of one file: those of its tests, and those of the whole file."""
    path = file.relative_to(tests).as_posix()
    module = ast.parse(file.read_text(encoding="utf-8"), str(file))
    for_all: list[str] = []
    for statement in module.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark":
            for_all += _claims(file, [statement.value])
    for node in ast.walk(module):
        if isinstance(node, _FUNCTIONS) and node.name.startswith("test_"):
            for claim in dict.fromkeys([*for_all, *_claims(file, node.decorator_list)]):
                yield Mark(path, node.name, claim, _is_always_skipped(node))


def _claims(file: Path, expressions: Sequence[ast.expr]) -> Iterator[str]:
    """Yield the ids in every `pytest.mark.claim(…)`, also in the marks of a parameter."""
    for expression in expressions:
        for call in ast.walk(expression):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.claim":
                for argument in call.args:
                    if not isinstance(argument, ast.Constant) or type(argument.value) is not str:
                        raise BadMark(f"{file.name}:{call.lineno}: a claim's id is not plain text")
                    yield argument.value


def _is_always_skipped(test: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Say whether a test is skipped or expected to fail wherever it runs."""
    body = test.body[1:] if ast.get_docstring(test) is not None else test.body
    first = ast.unparse(body[0]) if body else ""
    return bool(_SKIPS.match(first)) or any(
        _SKIPPING_MARK.match(ast.unparse(mark)) for mark in test.decorator_list
    )


def mistakes(groups: Sequence[Group], marks: Sequence[Mark]) -> Iterator[str]:
    """Yield what is wrong with the promises and marks themselves."""
    ids = [claim for group in groups for claim in group.claims]
    expected = {f"{kind}{number}" for kind, most in SERIES.items() for number in range(1, most + 1)}
    for claim in sorted(expected - set(ids)):
        yield f"tests/claims.toml: {claim} is missing"
    for claim in sorted(set(ids) - expected):
        yield f"tests/claims.toml: {claim} is new; count it in SERIES of tools/claims.py"
    for claim in sorted({claim for claim in ids if ids.count(claim) > 1}):
        yield f"tests/claims.toml: {claim} is written down twice"
    for mark in marks:
        if mark.claim not in ids:
            yield f"tests/{mark.file}: {mark.test} claims {mark.claim!r}, which does not exist"
        if mark.skipped:
            yield f"tests/{mark.file}: {mark.test} claims {mark.claim!r} and is always skipped"


def page(groups: Sequence[Group], marks: Sequence[Mark]) -> str:
    """Return the whole of `docs/claims.md`."""
    proofs: dict[str, list[Mark]] = defaultdict(list)
    for mark in marks:
        if not mark.skipped:
            proofs[mark.claim].append(mark)
    return "\n".join([ABOUT, *_summary(groups, proofs), *_tables(groups, proofs)])


def _summary(groups: Sequence[Group], proofs: Mapping[str, list[Mark]]) -> Iterator[str]:
    ids = [claim for group in groups for claim in group.claims]
    tests = {(mark.file, mark.test) for marks in proofs.values() for mark in marks}
    covered = [claim for claim in ids if claim in proofs]
    yield f"**{len(covered)} of {len(ids)}** claims are proved, by {len(tests)} tests.\n"
    yield "| part | proved | not yet |"
    yield "|---|---|---|"
    names = {"I": "running workflows", "D": "the development loop", "L": "guarded tools"}
    for kind, name in names.items():
        mine = [claim for claim in ids if claim.startswith(kind)]
        open_ones = [claim for claim in mine if claim not in proofs]
        listed = ", ".join(_ranges(open_ones)) or "none"
        yield f"| {name} | {len(mine) - len(open_ones)} of {len(mine)} | {listed} |"


def _ranges(ids: Sequence[str]) -> Iterator[str]:
    """Yield the ids of one kind with neighbours drawn together: I1, I7 to I12."""
    first = 0
    for index, claim in enumerate(ids):
        follows = index + 1 < len(ids) and int(ids[index + 1][1:]) == int(claim[1:]) + 1
        if not follows:
            yield claim if first == index else f"{ids[first]} to {claim}"
            first = index + 1


def _tables(groups: Sequence[Group], proofs: Mapping[str, list[Mark]]) -> Iterator[str]:
    for group in groups:
        yield f"\n## {group.heading}\n"
        yield "| id | claim | tests |"
        yield "|---|---|---|"
        for claim, sentence in group.claims.items():
            links = [f"[{mark.test}](../tests/{mark.file})" for mark in proofs.get(claim, ())]
            shown = "<br>".join(dict.fromkeys(links)) or "not yet"
            yield f"| {claim} | {sentence.replace('|', '&#124;')} | {shown} |"
    yield ""


def main() -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    here = Path(__file__).resolve().parent.parent
    parser.add_argument("root", nargs="?", type=Path, default=here, metavar="ROOT")
    chosen = parser.parse_args()
    root: Path = chosen.root
    try:
        groups, marks = read_groups(root / "tests/claims.toml"), read_marks(root / "tests")
    except BadMark as error:
        print(error, file=sys.stderr)
        return 1
    wrong = list(mistakes(groups, marks))
    made, target = page(groups, marks), root / "docs/claims.md"
    if not chosen.check:
        target.write_text(made, encoding="utf-8")
    elif not target.exists() or target.read_text(encoding="utf-8") != made:
        wrong.append("docs/claims.md is stale; `make docs` makes it anew")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
