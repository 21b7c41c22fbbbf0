"""The rule about calls: the workflow exists, is given its inputs, and does not call back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.model.check.references import resolvable
from infloop.model.names import FILE_NAME_RULE, is_file_name
from infloop.model.nodes import SubworkflowNode
from infloop.model.problems import short_repr
from infloop.model.references import called_workflows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infloop.model.check.case import CheckContext, KnownWorkflows


def check_calls(case: CheckContext) -> None:
    """Report calls that cannot be made, and calls in a circle."""
    for seat in case.graph.seats:
        if isinstance(seat.node, SubworkflowNode):
            _call(case, seat.place, seat.node)
    _circles(case)


def _call(case: CheckContext, place: str, node: SubworkflowNode) -> None:
    name, report = node.config.workflow_id, case.report
    where = f"{place} config.workflowId"
    if not name:
        report.error(where, "is empty", "name the workflow to call")
        return
    if not is_file_name(name):
        report.error(where, f"{short_repr(name)} is not a plain file name", FILE_NAME_RULE)
        return
    called = case.library.find(name)
    if called is None:
        if case.library.open:
            hint = report.guess(name, case.library.names())
            report.error(where, f"there is no workflow {name!r}", hint or f"add {name}.json")
        return
    for spec in called.inputs or ():
        if spec.default is None and spec.name not in node.config.inputs:
            report.error(
                f"{place} config.inputs",
                f"{name!r} needs the input {spec.name!r}",
                "pass it, or give it a default there",
            )
    graph = case.library.graph(called)
    for output, path in node.config.outputs.items():
        resolvable(case, graph, f"{place} config.outputs.{output}", path.split("."))


def _circles(case: CheckContext) -> None:
    """Report calls that lead back to a workflow that is still being called."""
    root = case.graph.workflow
    calls = called_workflows(root)
    finished: set[str] = set()
    for first, place in calls.items():
        if not first:
            continue
        circle = _circle(case.library, [root.id, first], finished)
        if circle:
            case.report.error(
                f"{place} config.workflowId",
                f"workflows call each other in a circle: {' → '.join(circle)}",
                "repeat with a loop instead",
            )


def _circle(library: KnownWorkflows, path: list[str], finished: set[str]) -> list[str]:
    """Return the first circle that begins with the calls in `path`, or nothing."""
    open_calls: list[Iterator[str]] = []
    while True:
        last = path[-1]
        if last in path[:-1]:
            return path[path.index(last) :]
        called = None if last in finished else library.find(last)
        open_calls.append(iter(called_workflows(called)) if called is not None else iter(()))
        while open_calls:
            following = next(open_calls[-1], None)
            if following is not None:
                path.append(following)
                break
            open_calls.pop()
            finished.add(path.pop())
        else:
            return []
