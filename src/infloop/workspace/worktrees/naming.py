"""Names made of what others chose: safe as a file name and in a ref, and still recognisable."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infloop.workspace.worktrees.records import Record

_LONGEST = 48


def plain(text: str) -> str:
    """Return `text` with nothing in it but letters, digits, `_` and `-`."""
    kept = [c if c.isascii() and (c.isalnum() or c == "_") else "-" for c in text[:_LONGEST]]
    return "".join(kept).strip("-") or "x"


def new_name(run_id: str, node: str) -> str:
    """Return a name for a new worktree of a run's node."""
    return f"{plain(run_id)[:8]}-{plain(node)}-{secrets.token_hex(3)}"


def ref_name(record: Record) -> str:
    """Return the ref under which the commits of a worktree are kept."""
    return f"refs/infloop/{plain(record.run_id)}/{plain(record.node)}-{record.name[-6:]}"
