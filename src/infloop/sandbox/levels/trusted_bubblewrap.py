"""Finds a bubblewrap that only root can have installed."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.errors import MissingPart

if TYPE_CHECKING:
    from collections.abc import Sequence

BUBBLEWRAP_PATHS = ("/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap")
"""Where it may be. PATH is not used: it may contain a workspace."""


def find_bubblewrap(paths: Sequence[str] = BUBBLEWRAP_PATHS) -> str:
    """Return the path of the first one that can be trusted; raise MissingPart if there is none."""
    found = [path for path in paths if Path(path).exists()]
    if not found:
        raise MissingPart(
            "level 'sandbox' needs bubblewrap; install it (Debian: apt-get install bubblewrap)"
        )
    reasons = {path: _reason_for_distrust(Path(path).resolve()) for path in found}
    for path, reason in reasons.items():
        if not reason:
            return path
    listed = "; ".join(reasons.values())
    raise MissingPart(f"level 'sandbox' needs a bubblewrap that can be trusted: {listed}")


def _reason_for_distrust(path: Path) -> str:
    if path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID):
        return f"{str(path)!r} is setuid and not a plain program (chmod u-s,g-s)"
    for part in (path, *path.parents):
        status = part.stat()
        if status.st_uid != 0 or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"{str(part)!r} can be changed by other users than root"
    return ""
