"""The bubblewrap that is used: one that nobody but root can have put there."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.errors import MissingPart

if TYPE_CHECKING:
    from collections.abc import Sequence

PLACES = ("/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap")
"""Where it may be; no PATH is asked, as that may lead into a workspace."""


def find_bubblewrap(places: Sequence[str] = PLACES) -> str:
    """Return the path of the first one that can be trusted.

    Raises MissingPart, saying why, when there is none.
    """
    found = [place for place in places if Path(place).exists()]
    if not found:
        raise MissingPart(
            "level 'sandbox' needs bubblewrap; install it (Debian: apt-get install bubblewrap)"
        )
    reasons = {place: _distrust(Path(place).resolve()) for place in found}
    for place, reason in reasons.items():
        if not reason:
            return place
    listed = "; ".join(reasons.values())
    raise MissingPart(f"level 'sandbox' needs a bubblewrap that can be trusted: {listed}")


def _distrust(path: Path) -> str:
    if path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID):
        return f"{str(path)!r} is setuid and not a plain program (chmod u-s,g-s)"
    for part in (path, *path.parents):
        facts = part.stat()
        if facts.st_uid != 0 or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"{str(part)!r} can be changed by others than root"
    return ""
