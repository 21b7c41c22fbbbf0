"""Which values of a run come from outside, and where they may go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.engine.graph import decode_definition
from infloop.policy.taint import tainted_fields

if TYPE_CHECKING:
    from infloop.store.interfaces.run_log import RunLog, RunRow


async def untrusted_names(run_log: RunLog, row: RunRow) -> list[str]:
    """Return what may hold an untrusted value: `inputs.NAME`, and the nodes that it reaches.

    A node of a called workflow is `WORKFLOW/NODE`. This follows the definition, not the run: a node
    that the run did not execute is named too.
    """
    inputs = row.cause.untrusted
    if not inputs:
        return []
    loaded = await run_log.load(row.id, until_seq=0)
    definition = decode_definition(loaded.definition)
    root = definition.root
    nodes = (
        each.node if each.workflow == root else f"{each.workflow}/{each.node}"
        for each in tainted_fields(definition.workflows, root, inputs)
    )
    return list(dict.fromkeys([*(f"inputs.{name}" for name in inputs), *nodes]))
