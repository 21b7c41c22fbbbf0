"""Protects the server process from its children."""

from __future__ import annotations

from infloop.sandbox.keepers.keeper import PR_SET_DUMPABLE, prctl


def hide_from_children() -> None:
    """Deny other processes of the same user access to this one's memory and environment.

    Children run as the server's user and could otherwise read its secrets from
    `/proc/<pid>/environ` and `/proc/<pid>/mem`. This does not stop root. Call it once, at start-up.
    """
    prctl(PR_SET_DUMPABLE, 0)
