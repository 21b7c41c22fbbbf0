"""The rule for calls: the workflow exists, gets its inputs, and the calls have no cycle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.model.check.references import resolvable
from infloop.model.names import FILE_NAME_RULE, is_file_name
from infloop.model.nodes import SubworkflowNode
from infloop.model.problems import short_repr
from infloop.model.references import called_workflows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infloop.model.check.context import CheckContext, KnownWorkflows


def check_calls(check: CheckContext) -> None:
    """Report calls that cannot be made, and cycles of calls."""
    for placed in check.graph.nodes:
        if isinstance(placed.node, SubworkflowNode):
            _call(check, placed.place, placed.node)
    _cycles(check)


def _call(check: CheckContext, place: str, node: SubworkflowNode) -> None:
    name, report = node.config.workflow_id, check.report
    where = f"{place} config.workflowId"
    if not name:
        report.error(where, "is empty", "name the workflow to call")
        return
    if not is_file_name(name):
        report.error(where, f"{short_repr(name)} is not a plain file name", FILE_NAME_RULE)
        return
    called = check.library.find(name)
    if called is None:
        if check.library.open:
            hint = report.guess(name, check.library.names())
            is_caught = "error" in check.graph.followed.get(node.id, {})
            complain = check.mistake if is_caught else report.error
            complain(where, f"there is no workflow {name!r}", hint or f"add {name}.json")
        return
    for spec in called.inputs or ():
        if spec.default is None and spec.name not in node.config.inputs:
            check.mistake(
                f"{place} config.inputs",
                f"{name!r} needs the input {spec.name!r}",
                "pass it, or give it a default there",
            )
    graph = check.library.graph(called)
    for output, path in node.config.outputs.items():
        resolvable(check, graph, f"{place} config.outputs.{output}", path.split("."))


def _cycles(check: CheckContext) -> None:
    """Report calls that lead back to a workflow that is still being called."""
    root = check.graph.workflow
    calls = called_workflows(root)
    finished: set[str] = set()
    for first, place in calls.items():
        if not first:
            continue
        cycle = _cycle(check.library, [root.id, first], finished)
        if cycle:
            check.report.error(
                f"{place} config.workflowId",
                f"workflows call each other in a circle: {' → '.join(cycle)}",
                "repeat with a loop instead",
            )


def _cycle(library: KnownWorkflows, path: list[str], finished: set[str]) -> list[str]:
    """Return the first cycle that begins with the calls in `path`, or an empty list."""
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
