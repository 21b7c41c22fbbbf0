"""The list of planted faults, and the tool that plants them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from support.paths import ROOT, TESTS

PARTS = {
    *("application", "egress", "policy", "runtime", "sandbox", "settings.py", "store", "triggers"),
    *("web", "workspace"),
}


def mutants(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    tool = [sys.executable, str(ROOT / "tools/mutants.py"), *options, str(root)]
    return subprocess.run(tool, capture_output=True, text=True, timeout=240, check=False)


def test_every_fault_applies_once_and_has_its_tests() -> None:
    checked = mutants(ROOT, "--check")
    assert checked.returncode == 0, (
        f"{checked.stderr}write the fault for the new source, or remove it if it is gone for good"
    )
    found = re.match(r"(\d+) faults: (\d+) security, (\d+) durability, (\d+) money", checked.stdout)
    assert found, checked.stdout
    assert int(found[1]) >= 150
    assert min(map(int, found.groups())) >= 20


def test_every_part_has_faults_and_every_named_test_exists() -> None:
    files = [
        file
        for listing in (TESTS / "mutants").glob("*.toml")
        for file in tomllib.loads(listing.read_text())["file"]
    ]
    assert {file["path"].partition("/")[0] for file in files} >= PARTS
    named = {
        test for file in files for each in (file, *file["fault"]) for test in each.get("tests", ())
    }
    for name in named:
        path, _, test = name.partition("::")
        assert not test or f"def {test.partition('[')[0]}(" in (TESTS / path).read_text(), name


# -- the tool, on a small project ------------------------------------------------------------------

FAULT = """
[[file]]
path = "sums.py"
area = "money"
tests = ["test_sums.py"]
[[file.fault]]
id = "one"
why = "It hurts."
old = '{}'
new = '{}'
"""
SUMS = "def add(a: int, b: int) -> int:\n    return a + b\n"
TESTED = "from infloop.sums import add\n\ndef test_two(): assert add(2, 2) == 4\n"
# Of the plugins only the one whose option is used: to load them all takes ten times as long.
OPTIONS = "[tool.pytest.ini_options]\naddopts = '--disable-plugin-autoload -p timeout'\n"
PAGE = "before\n<!-- mutants: begin -->\nold\n<!-- mutants: end -->\nafter\n"


@pytest.fixture(scope="module")
def small_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of one module with one test, which uses the packages of this environment."""
    tmp_path = tmp_path_factory.mktemp("project")
    for folder in ("src/infloop", "tests/mutants", "docs"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src/infloop/sums.py").write_text(SUMS)
    (tmp_path / "pyproject.toml").write_text(OPTIONS)
    environment = tmp_path / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    packages = next(environment.glob("lib/*/site-packages"))
    own = os.path.dirname(os.path.dirname(pytest.__file__))  # noqa: PTH120
    (packages / "paths.pth").write_text(f"{tmp_path}/src\n{own}\n")
    return tmp_path


@pytest.fixture
def project(small_project: Path) -> Path:
    (small_project / "tests/test_sums.py").write_text(TESTED)
    (small_project / "docs/testing.md").write_text(PAGE)
    return small_project


CASES = {
    "caught": ("a + b", "a - b"),
    "survived": ("a + b", "a * b"),
    "stale": ("a / b", "a * b"),
    "timed out": ("return a + b", "import time; time.sleep(1000)"),
}


@pytest.mark.parametrize("outcome", CASES)
def test_a_fault_in_a_copy_is(outcome: str, project: Path) -> None:
    (project / "tests/mutants/sums.toml").write_text(FAULT.format(*CASES[outcome]))
    limit = "8" if outcome == "timed out" else "120"
    done = mutants(project, "--limit", limit)
    assert done.stdout.startswith(f"{outcome:10}  money"), done.stdout + done.stderr
    assert done.returncode == (0 if outcome == "caught" else 1)
    assert (project / "src/infloop/sums.py").read_text() == SUMS
    assert (project / "docs/testing.md").read_text() == PAGE
    assert mutants(project, "--check").returncode == (1 if outcome == "stale" else 0)


def test_a_test_that_fails_without_the_fault_notices_nothing(project: Path) -> None:
    (project / "tests/mutants/sums.toml").write_text(FAULT.format("a + b", "a - b"))
    (project / "tests/test_sums.py").write_text("def test_two(): assert False\n")
    done = mutants(project)
    assert done.stdout.startswith("unreliable  money"), done.stdout + done.stderr
    assert done.returncode == 1


def test_the_figures_go_into_the_document(project: Path) -> None:
    (project / "tests/mutants/sums.toml").write_text(FAULT.format("a + b", "a * b"))
    assert mutants(project, "--report").returncode == 1
    text = (project / "docs/testing.md").read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| money | 1 | 0 | 0 | 1 | 0 % |" in text
    assert "- `one` (survived): It hurts." in text
