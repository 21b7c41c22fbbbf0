"""What each problem of a workflow is about: a node, an edge, or a field of one of them.

A problem names its place as text (`nodes[3] 'fix' config.prompt`). An editor needs the id of the
node instead, and the field, also if the field is missing in the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from infloop.model.problems import short_repr

if TYPE_CHECKING:
    from collections.abc import Iterable

    from infloop.errors import Problem
    from infloop.model.values import JsonValue


def with_subjects(problems: Iterable[Problem], content: JsonValue) -> list[Problem]:
    """Return the problems of a workflow with their node, edge and field.

    A problem that has a position was given its subject before: its place may be in the words of
    another language.
    """
    return [one if one.line else _with_subject(one, content) for one in problems]


def _with_subject(problem: Problem, content: JsonValue) -> Problem:
    rest = "" if problem.place == "file" else problem.place
    here = content
    edge = None
    is_part = False
    for key in ("nodes", "edges"):
        found = _item(rest, key, here)
        if found is not None:
            index, here, rest = found
            edge = index if key == "edges" else None
            is_part = True
    if not is_part:
        return replace(problem, field=_header_field(rest, content))
    while (found := _item(rest, ".children", here)) is not None:
        _, here, rest = found
    name = here.get("id") if isinstance(here, dict) else None
    if isinstance(name, str) and name:
        rest = rest.strip().removeprefix(short_repr(name))
    node_id = name if edge is None and isinstance(name, str) else None
    return replace(problem, node_id=node_id, edge=edge, field=rest.strip(" ."))


def _header_field(rest: str, content: JsonValue) -> str:
    """Return a field of the workflow itself; the name of an input is left out."""
    found = _item(rest, "inputs", content)
    if found is None:
        return rest
    index, here, rest = found
    name = here.get("name") if isinstance(here, dict) else None
    inside = rest.strip().removeprefix(short_repr(name)).strip(" .")
    return f"inputs[{index}].{inside}".rstrip(".")


def _item(rest: str, key: str, here: JsonValue) -> tuple[int, JsonValue, str] | None:
    """Return the item that `rest` names in the list at `key`, and what follows its number."""
    held = here.get(key.strip(".")) if isinstance(here, dict) else None
    if not isinstance(held, list) or not rest.startswith(f"{key}["):
        return None
    number, closed, after = rest[len(key) + 1 :].partition("]")
    if not closed or not number.isdecimal() or len(number) > 9 or int(number) >= len(held):
        return None
    return int(number), held[int(number)], after
