"""The rules for the ids of nodes, and for the start node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.model.problems import short_repr
from infloop.model.references import INPUT_ROOTS

if TYPE_CHECKING:
    from infloop.model.check.context import CheckContext

MAX_NODE_ID_CHARS = 200
RESERVED_NODE_IDS = ("globals", *INPUT_ROOTS)


def check_ids(check: CheckContext) -> None:
    """Report ids that are missing, duplicate, reserved, or not allowed in a step's path."""
    report, seen = check.report, set[str]()
    for placed in check.graph.nodes:
        node_id = placed.node.id
        if not node_id:
            report.error(placed.place, "has no id", "every node needs one of its own")
            continue
        if node_id in seen:
            report.error(
                placed.place,
                f"the id {short_repr(node_id)} is used twice",
                "rename one of them",
                unsafe=True,
            )
        seen.add(node_id)
        if (
            len(node_id) > MAX_NODE_ID_CHARS
            or not node_id.isprintable()
            or set(node_id) & set("/[]{}#")
        ):
            report.error(
                placed.place,
                f"{short_repr(node_id)} cannot be a node id",
                f"use at most {MAX_NODE_ID_CHARS} printable characters other than / [ ] {{ }} #",
                unsafe=True,
            )
        elif node_id in RESERVED_NODE_IDS:
            report.error(
                placed.place,
                f"{node_id!r} cannot be a node id",
                f"references use {{{{{node_id}.…}}}} for something else; rename the node",
                unsafe=True,
            )


def check_start(check: CheckContext) -> None:
    """Report a workflow without a start node, or with several."""
    starts = [node.id for node in check.graph.workflow.nodes if node.is_start]
    if not starts:
        check.report.error(
            "nodes", "there is no start node", "add a node of type 'start' at the top level"
        )
    elif len(starts) > 1:
        check.report.warning(
            "nodes",
            f"there are {len(starts)} start nodes; only {starts[0]!r} is used",
            "remove the others",
        )
