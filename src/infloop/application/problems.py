"""What is wrong with a file, as every surface shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from infloop.application.models import Model

if TYPE_CHECKING:
    from collections.abc import Iterable

    from infloop.errors import Problem


class ShownProblem(Model, kw_only=True):
    """One thing that is wrong with a file, where, and what to do.

    In a workflow, `nodeId` or `edge` (a number in `edges`) say what it is about, and `field` which
    part of that: `config.prompt`. A problem of a called workflow has none of them.
    """

    place: str
    message: str
    hint: str
    severity: Literal["error", "warning"]
    line: int | None = None
    column: int | None = None
    node_id: str | None = None
    edge: int | None = None
    field: str = ""


def shown_problems(problems: Iterable[Problem]) -> list[ShownProblem]:
    """Return problems for another program."""
    return [
        ShownProblem(
            place=problem.place,
            message=problem.message,
            hint=problem.hint,
            severity=problem.severity,
            line=problem.line,
            column=problem.column,
            node_id=problem.node_id,
            edge=problem.edge,
            field=problem.field,
        )
        for problem in problems
    ]
