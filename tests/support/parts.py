"""What a test needs of the machine, and what happens where it is not there.

- A missing part skips the test, and the reason says how to get the part. `make test` lists the
  reasons at its end. With REQUIRE_TEST_PARTS=1, as in CI, such a skip is a failure.
- A test can be ruled out by who runs it (root or not), by the kernel or by the network. That is
  never a failure.

Every skip uses one of these functions. A skip that uses none counts as a missing part.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

INSTALLED_BY_US = frozenset(
    {"bwrap", "chromium", "chromium-headless-shell", "gcc", "ip", "linux.uml", "perl", "podman"}
    | {"postgres", "rg", "runc", "ssh"}
)
"""The programs that `make test-parts` installs."""

RUNS_OF_THEIR_OWN = {
    "agents": "the real agents: `make test-agents`",
    "browser": "the console and the agent's browser in Chromium: `make test-browser`",
    "container": "the container image: `make test-container`",
}
"""What `make test` leaves out, by mark. pyproject.toml deselects these marks."""

LESS_OFTEN = {"thorough": "most repetitions and drawn examples: `make test-thorough`"}
"""What `make test` does only in part, by mark."""

_NODE = "install Node.js 20 or newer"
_RULED_OUT = "ruled out here: "


def required() -> bool:
    """Whether a missing part is a failure."""
    return os.environ.get("REQUIRE_TEST_PARTS") == "1"


# -- in a test -------------------------------------------------------------------------------------


def missing(reason: str) -> NoReturn:
    """Skip the test, or fail it where parts are required; the reason says how to get the part."""
    pytest.skip(reason)


def need_program(name: str, path: str | None = None) -> str:
    """Return where a program is."""
    found = shutil.which(name, path=path)
    if found is None:
        missing(f"{name} is missing: {how_to_get(name)}")
    return found


def how_to_get(program: str) -> str:
    if program in INSTALLED_BY_US:
        return "run `make test-parts`"
    return _NODE if program in ("node", "npm") else "install it with your package manager"


def ruled_out(why: str) -> NoReturn:
    """Skip the test: no part would make it run here."""
    pytest.skip(_RULED_OUT + why)


def ruled_out_if(condition: bool, why: str) -> pytest.MarkDecorator:
    """Skip the test, if so: no part would make it run here."""
    return pytest.mark.skipif(condition, reason=_RULED_OUT + why)


# -- in conftest -----------------------------------------------------------------------------------


def fail_for_a_missing_part(report: pytest.TestReport) -> None:
    """Turn a skip into a failure, unless the test was ruled out."""
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = _reason(report)
        if not reason.startswith(_RULED_OUT):
            report.outcome = "failed"
            report.longrepr = f"skipped, although REQUIRE_TEST_PARTS=1: {reason}"


def note_claims(report: pytest.TestReport, item: pytest.Item) -> None:
    """Note which claims a test is marked to prove; the note reaches xdist's controller."""
    claims = [claim for mark in item.iter_markers("claim") for claim in mark.args]
    if claims:
        report.user_properties.append(("claims", " ".join(claims)))


def unproved_claims(
    skipped: Iterable[pytest.TestReport], passed: Iterable[pytest.TestReport]
) -> list[str]:
    """Return the claims whose tests were all skipped."""
    return sorted({*_claims(skipped)} - {*_claims(passed)})


def _claims(reports: Iterable[pytest.TestReport]) -> Iterator[str]:
    for report in reports:
        for name, value in report.user_properties:
            if name == "claims":
                yield from str(value).split()


def summary(skipped: Iterable[pytest.TestReport], left_out: Iterable[str]) -> Iterator[str]:
    """Yield what was not tested, and how to get it tested."""
    reasons = Counter(map(_reason, skipped))
    for reason in sorted(reasons, key=lambda reason: (reason.startswith(_RULED_OUT), reason)):
        yield f"{reasons[reason]:4} skipped: {reason}"
    for mark in left_out:
        yield f"     not in this run: {(RUNS_OF_THEIR_OWN | LESS_OFTEN)[mark]}"


def _reason(report: pytest.TestReport) -> str:
    """Return why a test was skipped; pytest keeps (file, line, "Skipped: reason")."""
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return said.removeprefix("Skipped: ")
