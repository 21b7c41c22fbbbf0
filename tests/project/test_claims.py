"""The tool that says which promise is proved by which test, on small trees."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import ROOT

PROMISES = {"I": 78, "D": 58, "L": 50}


def a_tree(folder: Path, *tests: str, leave_out: str = "", add: str = "") -> Path:
    """A project with all promises and one file for each of `tests`."""
    (folder / "docs").mkdir()
    (folder / "tests").mkdir()
    ids = [f"{kind}{number}" for kind, most in PROMISES.items() for number in range(1, most + 1)]
    lines = [f'{name} = "It does {name}."' for name in ids if name != leave_out]
    text = "\n".join(["[[group]]", 'heading = "All"', "[group.claims]", *lines, add, ""])
    (folder / "tests/claims.toml").write_text(text)
    for number, test in enumerate(tests):
        (folder / f"tests/test_{number}.py").write_text(test)
    return folder


def claims(tree: Path, *options: str) -> subprocess.CompletedProcess[str]:
    tool = [sys.executable, str(ROOT / "tools/claims.py"), *options, str(tree)]
    return subprocess.run(tool, capture_output=True, text=True, timeout=60, check=False)


def row(tree: Path, claim: str) -> str:
    page = (tree / "docs/claims.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {claim} |")]
    return line


def test_a_claim_is_listed_with_the_tests_that_prove_it(tmp_path: Path) -> None:
    tree = a_tree(tmp_path, '@pytest.mark.claim("I2", "D3")\nasync def test_it_works(): ...\n')
    assert claims(tree).returncode == 0
    assert row(tree, "I2") == "| I2 | It does I2. | [test_it_works](../tests/test_0.py) |"
    assert "[test_it_works](../tests/test_0.py)" in row(tree, "D3")


def test_a_claim_without_a_test_is_plainly_not_yet(tmp_path: Path) -> None:
    tree = a_tree(tmp_path, '@pytest.mark.claim("L2")\ndef test_it(): ...\n')
    assert claims(tree).returncode == 0
    assert row(tree, "L3") == "| L3 | It does L3. | not yet |"
    page = (tree / "docs/claims.md").read_text()
    assert "**1 of 186** claims are proved, by 1 tests." in page
    assert "| guarded tools | 1 of 50 | L1, L3 to L50 |" in page


MARKED = {
    "a function": '@pytest.mark.claim("I5")\ndef test_a(): ...\n',
    "a coroutine": '@pytest.mark.claim("I5")\nasync def test_a(): ...\n',
    "a method": 'class Tests:\n    @pytest.mark.claim("I5")\n    def test_a(self): ...\n',
    "a file": 'pytestmark = pytest.mark.claim("I5")\ndef test_a(): ...\n',
    "a file with several marks": (
        'pytestmark = [pytest.mark.slow, pytest.mark.claim("I5")]\ndef test_a(): ...\n'
    ),
    "a parameter": (
        '@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.claim("I5"))])\n'
        "def test_a(x): ...\n"
    ),
}


@pytest.mark.parametrize("place", MARKED)
def test_a_mark_is_found_on(place: str, tmp_path: Path) -> None:
    tree = a_tree(tmp_path, MARKED[place])
    assert claims(tree).returncode == 0
    assert "[test_a](../tests/test_0.py)" in row(tree, "I5")


def test_tests_are_read_and_not_run(tmp_path: Path) -> None:
    tree = a_tree(tmp_path, 'raise SystemExit("imported")\n')
    assert claims(tree).returncode == 0


def test_a_page_that_was_just_made_is_current(tmp_path: Path) -> None:
    tree = a_tree(tmp_path, '@pytest.mark.claim("I2")\ndef test_it(): ...\n')
    claims(tree)
    assert claims(tree, "--check").returncode == 0


def test_a_stale_page_fails_the_check_and_stays_as_it_is(tmp_path: Path) -> None:
    tree = a_tree(tmp_path)
    claims(tree)
    before = (tree / "docs/claims.md").read_text()
    (tree / "tests/test_new.py").write_text('@pytest.mark.claim("I2")\ndef test_it(): ...\n')
    checked = claims(tree, "--check")
    assert checked.returncode == 1
    assert "docs/claims.md is stale" in checked.stderr
    assert (tree / "docs/claims.md").read_text() == before


def test_a_page_that_was_never_made_fails_the_check(tmp_path: Path) -> None:
    checked = claims(a_tree(tmp_path), "--check")
    assert checked.returncode == 1
    assert "stale" in checked.stderr


def test_a_mark_for_a_claim_that_does_not_exist_fails(tmp_path: Path) -> None:
    tree = a_tree(tmp_path, '@pytest.mark.claim("I79")\ndef test_it(): ...\n')
    made = claims(tree)
    assert made.returncode == 1
    assert "tests/test_0.py: test_it claims 'I79', which does not exist" in made.stderr


def test_a_claim_that_was_dropped_fails(tmp_path: Path) -> None:
    made = claims(a_tree(tmp_path, leave_out="L50"))
    assert made.returncode == 1
    assert "L50 is missing" in made.stderr


def test_a_claim_nobody_counted_fails(tmp_path: Path) -> None:
    made = claims(a_tree(tmp_path, add='L51 = "More."'))
    assert made.returncode == 1
    assert "L51 is new" in made.stderr


SKIPPED = {
    "by a call": 'def test_a():\n    "Doc."\n    pytest.skip("later")\n',
    "by our own call": 'async def test_a():\n    parts.ruled_out("never")\n',
    "by a mark": "@pytest.mark.skip\ndef test_a(): ...\n",
    "by our own mark": '@parts.ruled_out_if(True, "never")\ndef test_a(): ...\n',
    "as expected to fail": '@pytest.mark.xfail(reason="broken")\ndef test_a(): ...\n',
}


@pytest.mark.parametrize("how", SKIPPED)
def test_a_test_that_is_always_skipped_proves_nothing(how: str, tmp_path: Path) -> None:
    tree = a_tree(tmp_path, '@pytest.mark.claim("I5")\n' + SKIPPED[how])
    made = claims(tree)
    assert made.returncode == 1
    assert "tests/test_0.py: test_a claims 'I5' and is always skipped" in made.stderr
    assert row(tree, "I5") == "| I5 | It does I5. | not yet |"


def test_a_test_that_is_skipped_on_some_machines_counts_here(tmp_path: Path) -> None:
    text = '@parts.ruled_out_if(os.geteuid() == 0, "root may")\ndef test_a(): need_bubblewrap()\n'
    tree = a_tree(tmp_path, '@pytest.mark.claim("I5")\n' + text)
    assert claims(tree).returncode == 0
    assert "[test_a](../tests/test_0.py)" in row(tree, "I5")


def test_an_id_that_only_running_would_tell_is_refused(tmp_path: Path) -> None:
    made = claims(a_tree(tmp_path, "@pytest.mark.claim(WHICH)\ndef test_it(): ...\n"))
    assert made.returncode == 1
    assert "test_0.py:1" in made.stderr
