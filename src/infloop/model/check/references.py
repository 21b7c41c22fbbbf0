"""The rule for references that can never resolve: the target does not exist or cannot have run."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from infloop.model.references import INPUT_ROOTS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from infloop.model.check.context import CheckContext
    from infloop.model.check.graph import Graph
    from infloop.model.nodes import Node

# (reader, source) -> the places of the references, and the references
_Reads: TypeAlias = dict[tuple[str, str], list[tuple[str, tuple[str, ...]]]]
_Reason: TypeAlias = tuple[str, str]


def check_references(check: CheckContext) -> None:
    """Report references to nodes and outputs that do not exist, or cannot have run before."""
    graph = check.graph
    reads: _Reads = {}
    for placed, path, template in graph.templates:
        place = f"{placed.place} config.{'.'.join(path)}"
        for reference in dict.fromkeys(template.references):
            if not resolvable(check, graph, place, reference):
                continue
            if reference[0] in graph.by_id and placed.node.id:
                reads.setdefault((placed.node.id, reference[0]), []).append((place, reference))
    _out_of_order(check, reads)


def resolvable(check: CheckContext, graph: Graph, place: str, reference: Sequence[str]) -> bool:
    """Report a reference whose target does not exist; return whether it can resolve."""
    head, rest = reference[0], reference[1:]
    if head == "globals":
        reason = _named_text(check, "global", rest, graph.workflow.globals)
    elif head in INPUT_ROOTS:
        known = graph.declared if graph.workflow.inputs is not None else None
        reason = _named_text(check, "input", rest, known)
    elif head in graph.unknown:
        reason = None
    elif head in graph.by_id:
        reason = _output(check, graph, graph.by_id[head].node, rest)
    else:
        reason = f"there is no node {head!r}", check.report.guess(head, graph.names)
    if reason is None:
        return True
    check.mistake(place, _never(reference, reason[0]), reason[1])
    return False


def _never(reference: Sequence[str], reason: str) -> str:
    return f"{{{{{'.'.join(reference)}}}}} can never resolve: {reason}"


def _named_text(
    check: CheckContext, kind: str, rest: Sequence[str], known: Collection[str] | None
) -> _Reason | None:
    """Return why `{{inputs.…}}` or `{{globals.…}}` can never resolve, or None."""
    if not rest:
        return None
    if known is not None and rest[0] not in known:
        hint = check.report.guess(rest[0], known) or f"declare it under {kind}s"
        return f"there is no {kind} {rest[0]!r}", hint
    if not rest[0]:
        return f"it names no {kind}", "write the name after the dot"
    if len(rest) > 1:
        return f"{kind} {rest[0]!r} is a single value", f"remove .{'.'.join(rest[1:])}"
    return None


def _output(check: CheckContext, graph: Graph, node: Node, rest: Sequence[str]) -> _Reason | None:
    """Return why a reference to a node's output can never resolve, or None."""
    if not rest:
        return None
    names = node.output_names()
    if rest[0] not in names:
        hint = check.report.guess(rest[0], names) or f"a node of type {node.type!r} has no outputs"
        return f"{node.type} {node.id!r} has no output {rest[0]!r}", hint
    if len(rest) == 1:
        return None
    if not node.is_nested(rest[0]):
        return f"{rest[0]!r} is a single value", f"remove .{'.'.join(rest[1:])}"
    if node.opens == "branch" and rest[0] == "children":
        return _branch_output(check, graph, node, rest[1:])
    return None


def _branch_output(
    check: CheckContext, graph: Graph, parallel: Node, rest: Sequence[str]
) -> _Reason | None:
    """Return why `{{parallel.children.<branch>.outputs.<node>.<output>}}` can never resolve."""
    roots = graph.roots(parallel)
    if rest[0] not in roots:
        return f"{parallel.id!r} has no branch {rest[0]!r}", check.report.guess(rest[0], roots)
    parts = ("status", "outputs", "error")
    if len(rest) > 1 and rest[1] not in parts:
        return f"a branch has no {rest[1]!r}", check.report.guess(rest[1], parts)
    if len(rest) < 3 or rest[1] != "outputs":
        return None if len(rest) < 3 else (f"{rest[1]!r} is a single value", "")
    if rest[2] in graph.unknown:
        return None
    if rest[2] not in graph.by_id:
        return f"there is no node {rest[2]!r}", check.report.guess(rest[2], graph.by_id)
    return _output(check, graph, graph.by_id[rest[2]].node, rest[3:])


def _out_of_order(check: CheckContext, reads: _Reads) -> None:
    """Report references to nodes that cannot have run before."""
    graph = check.graph
    if graph.start is None or not order_is_known(graph):
        return
    reached = check.flow.reachable(graph.start.id)
    ordered = {
        pair: places
        for pair, places in reads.items()
        if pair[0] in reached and pair[1] in reached and pair[1] not in graph.unknown
    }
    if not ordered:
        return
    never = check.flow.never_before(ordered)
    for pair, places in ordered.items():
        if pair not in never:
            continue
        reader, source = pair
        if reader == source:
            reason, hint = "the node refers to itself and runs only once", "put it into a loop"
        elif source in graph.ancestors(reader):
            reason, hint = f"{source!r} has no outputs before it is over", "refer to it after it"
        else:
            reason = f"{source!r} cannot have run before"
            hint = "parallel branches, and ways that exclude each other, do not see each other"
        for place, reference in places:
            check.mistake(place, _never(reference, reason), hint)


def order_is_known(graph: Graph) -> bool:
    """Say whether the flow graph tells what runs before what: an edge out of a container hides it.

    So does a start node without an id.
    """
    return bool(graph.start and graph.start.id) and not any(_leaves_container(graph))


def _leaves_container(graph: Graph) -> Iterator[bool]:
    for source, edges in graph.followed.items():
        parent = graph.by_id[source].parent
        if parent is not None:
            yield any(parent.id not in graph.ancestors(target) for target in edges.values())
