"""Names for the tools of workflows.

A name is the workflow's id in lower case; every character that is not a letter, digit or `_`
becomes `_`, and it is cut to the length that clients accept. When two names are equal:

- A workflow whose id is exactly the name keeps it, so a later workflow cannot take it away.
- Then the first by id has it; the others get `_2`, `_3` and so on.
- The names of our own tools are reserved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

MAX_CHARACTERS = 64
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
    return "".join(char if char in _KEPT else "_" for char in workflow_id.lower())[:MAX_CHARACTERS]


def _free(name: str, taken: Collection[str]) -> str:
    """Return the name, or the first free numbered one."""
    found, number = name, 1
    while found in taken:
        number += 1
        end = f"_{number}"
        found = name[: MAX_CHARACTERS - len(end)] + end
    return found
