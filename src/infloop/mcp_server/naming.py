"""What the tool of a workflow is called.

Its id in small letters, with `_` in place of everything that is no letter, digit or `_`, and cut to
what clients accept. Of those that would be called the same, the one whose id is the name has it,
then the first by id; the others get `_2`, `_3` and so on. So a workflow that is added later takes
no name from one whose id it is. The names of our own tools are taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

MOST_CHARACTERS = 64
_KEPT = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_")


def tool_names(workflow_ids: Iterable[str], reserved: Collection[str]) -> dict[str, str]:
    """Return the workflow of each tool name, in the order of the ids."""
    wanted = {workflow_id: _plain(workflow_id) for workflow_id in sorted(workflow_ids)}
    exact_first = sorted(wanted, key=lambda workflow_id: workflow_id != wanted[workflow_id])
    names: dict[str, str] = {}
    for workflow_id in exact_first:
        names[_free(wanted[workflow_id], {*reserved, *names})] = workflow_id
    return dict(sorted(names.items(), key=lambda item: item[1]))


def _plain(workflow_id: str) -> str:
    return "".join(char if char in _KEPT else "_" for char in workflow_id.lower())[:MOST_CHARACTERS]


def _free(name: str, taken: Collection[str]) -> str:
    """Return the name, or the first numbered one that nobody has."""
    found, number = name, 1
    while found in taken:
        number += 1
        end = f"_{number}"
        found = name[: MOST_CHARACTERS - len(end)] + end
    return found
