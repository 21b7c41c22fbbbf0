"""The extensions that the documents show: each diff applies, and its example runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import ROOT

PAGE = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
SECTIONS = {match[1]: match[2] for match in SECTION.finditer(PAGE)}
SEVEN = [
    "A node type",
    "A provider transport",
    "A trigger kind",
    "An isolation level",
    "A setting",
    "A metric",
    "An event type",
]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source with all diffs of the page applied, in its order."""
    copy = tmp_path_factory.mktemp("extended")
    left_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", copy / "src", ignore=left_out)
    shutil.copytree(ROOT / "docs", copy / "docs")
    for number, patch in enumerate(blocks(PAGE, "diff")):
        file = copy / f"{number}.diff"
        file.write_text(patch, encoding="utf-8")
        applied = subprocess.run(
            ["git", "apply", "-p1", "--whitespace=nowarn", str(file)],
            cwd=copy,
            env={"PATH": os.environ["PATH"], "GIT_CEILING_DIRECTORIES": str(copy.parent)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert applied.returncode == 0, f"diff {number} does not apply:\n{applied.stderr}"
    return copy


def test_the_page_shows_all_seven() -> None:
    assert list(SECTIONS) == SEVEN
    for text in SECTIONS.values():
        assert blocks(text, "diff")
        assert blocks(text, "py")


@pytest.mark.parametrize("name", SEVEN)
def test_the_example_runs_with_the_extension(name: str, extended: Path, tmp_path: Path) -> None:
    (example,) = blocks(SECTIONS[name], "py")
    ran = subprocess.run(
        [sys.executable, "-c", example],
        cwd=tmp_path,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "PYTHONPATH": str(extended / "src"),
            "INFLOOP_DATA_DIR": str(tmp_path / "data"),
            "INFLOOP_ISOLATION": "host",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
