"""Which processes can run a workflow: those that have all labels it requires."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


def why_nobody_takes(requires: Sequence[str], takers: Sequence[Collection[str]]) -> str:
    """Return why no process takes a run; empty if one does. `takers` are the labels of each."""
    if not takers:
        return "no server or worker takes runs; start one with `infloop worker`"
    if any(set(requires).issubset(labels) for labels in takers):
        return ""
    missing = [label for label in requires if not any(label in labels for labels in takers)]
    if missing:
        return f"no worker has the label{'s' * (len(missing) > 1)} {', '.join(missing)}"
    return f"no worker has all of the labels {', '.join(requires)}"
