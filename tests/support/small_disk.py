"""A real disk of a few megabytes, and one that never answers."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.canaries import PYTHON
from support.confinement import need_bubblewrap, need_guard
from support.parts import ruled_out

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 65534


@contextmanager
def small_disk(folder: Path, *, megabytes: int = 256, files: int = 100_000) -> Iterator[Path]:
    """Mount a disk of this size at a new folder, which everybody may enter."""
    if os.geteuid() != 0:
        ruled_out("only root can mount a disk")
    folder.mkdir()
    options = f"size={megabytes}m,nr_inodes={files},mode=755"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "infloop-test", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        ruled_out(f"no disk can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def deaf_disk(folder: Path) -> Iterator[Path]:
    """Mount a disk at a new folder that never answers a request."""
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        ruled_out("only root can mount a disk, and only where programs can be disks")
    folder.mkdir()
    silence = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={silence},rootmode=40000,user_id=0,group_id=0"
    mounted = subprocess.run(
        ["mount", "-i", "-t", "fuse", "-o", options, "infloop-test", folder],
        pass_fds=[silence],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        if mounted.returncode:
            ruled_out(f"no disk can be mounted here: {mounted.stderr.strip()}")
        yield folder
    finally:
        os.close(silence)
        subprocess.run(["umount", "--lazy", folder], check=not mounted.returncode)


def left(folder: Path) -> int:
    """The bytes that are left on a disk."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def workplace(folder: Path) -> Path:
    """Make a directory that children can write to, under any user."""
    folder.mkdir()
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    return folder


def settings_at(level: str) -> dict[str, Any]:
    """The settings of a level, with children that are not root; skips where it is not to be had."""
    if level == "sandbox":
        need_bubblewrap()
    elif level == "guard":
        need_guard()
    user = "nobody" if os.geteuid() == 0 else ""
    return {"isolation": level, "service_user": user, "python_bin": PYTHON}
