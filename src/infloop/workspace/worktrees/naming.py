"""Makes names from untrusted text that are safe in file names and refs, and still recognizable."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infloop.workspace.worktrees.records import Record

_LONGEST = 48


def plain(text: str) -> str:
    """Return `text` reduced to ASCII letters, digits, `_` and `-`."""
    characters = [c if c.isascii() and (c.isalnum() or c == "_") else "-" for c in text[:_LONGEST]]
    return "".join(characters).strip("-") or "x"


def new_name(run_id: str, node: str) -> str:
    """Return a name for a new worktree."""
    return f"{plain(run_id)[:8]}-{plain(node)}-{secrets.token_hex(3)}"


def ref_name(record: Record) -> str:
    """Return the ref that keeps the commits of a worktree."""
    return f"refs/infloop/{plain(record.run_id)}/{plain(record.node)}-{record.name[-6:]}"
