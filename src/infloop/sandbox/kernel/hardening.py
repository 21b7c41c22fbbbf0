"""What the server hides of itself."""

from __future__ import annotations

from infloop.sandbox.keepers.keeper import PR_SET_DUMPABLE, prctl


def hide_from_children() -> None:
    """Keep other processes of the same user out of this one's memory and environment.

    Children run as the server's user; without this they could read its secrets from
    `/proc/<pid>/environ` and `/proc/<pid>/mem`. Does not bind root. Call once, at start-up.
    """
    prctl(PR_SET_DUMPABLE, 0)
