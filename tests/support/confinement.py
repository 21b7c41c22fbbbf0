"""What tests of level `sandbox` share: when they run, and directories that children can use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from infloop.errors import MissingPart
from infloop.sandbox.levels.trusted_bubblewrap import find_bubblewrap
from support.canaries import USER


def need_bubblewrap() -> None:
    """Skip where a user's machine has no bubblewrap; in CI that is a failure."""
    try:
        find_bubblewrap()
    except MissingPart as error:
        if "CI" in os.environ:
            pytest.fail(str(error))
        pytest.skip(str(error))


def give(path: Path) -> Path:
    """Give a file or directory, with all that is in it, to the children's user."""
    if USER:
        for each in (path, *path.rglob("*")):
            os.chown(each, *USER, follow_symlinks=False)
    return path


def new_directory(path: Path) -> Path:
    """Make a directory for the children's user."""
    path.mkdir(parents=True)
    return give(path)
