"""infloop as a user has it: the built wheel in a new environment, and a project to try it on."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path

from support.paths import ROOT
from support.repositories import git

CODE = """def total(prices, discount=0):
    return sum(prices) - discount
"""
FIXED = CODE.replace("sum(prices) - discount", "sum(prices) * (100 - discount) // 100")
TEST = """import unittest

from prices import total


class Prices(unittest.TestCase):
    def test_a_discount_is_a_percentage(self):
        self.assertEqual(total([1000, 500], discount=10), 1350)
"""
CHECK = "python3 -B -m unittest -q"


class Installed:
    """The wheel of this tree in an environment of its own; other packages are this test's."""

    def __init__(self, folder: Path) -> None:
        """Build and install it; nothing is fetched."""
        wheels, home = folder / "wheels", folder / "environment"
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
        subprocess.run(build, cwd=ROOT, capture_output=True, timeout=120, check=True)
        (self.wheel,) = wheels.iterdir()
        venv.create(home, with_pip=False, symlinks=True)
        self.python = home / "bin/python"
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "--quiet"]
        offline = ["--no-index", "--no-deps", "--disable-pip-version-check"]
        subprocess.run([*pip, *offline, str(self.wheel)], timeout=120, check=True)
        packages = next(home.glob("lib/python3*/site-packages"))
        (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
        self.programs = home / "bin"

    def run(self, *arguments: str, cwd: Path, env: Mapping[str, str], code: int = 0) -> str:
        """Run a command of the installed program to its end; return all that it prints."""
        done = subprocess.run(
            [str(self.programs / "infloop"), *arguments],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == code, f"$ infloop {' '.join(arguments)}\n{done.stdout}"
        return done.stdout


def failing_project(folder: Path) -> Path:
    """Make a repository whose test fails, and whose fix is one line."""
    folder.mkdir(exist_ok=True)
    git("init", cwd=folder)
    (folder / "prices.py").write_text(CODE)
    (folder / "test_prices.py").write_text(TEST)
    git("add", ".", cwd=folder)
    git("commit", "-m", "first version", cwd=folder)
    return folder


def is_green(project: Path) -> bool:
    checked = subprocess.run(
        ["/bin/sh", "-c", CHECK], cwd=project, capture_output=True, check=False
    )
    return checked.returncode == 0
