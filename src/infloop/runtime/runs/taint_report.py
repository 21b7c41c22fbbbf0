"""What of a run is from outside: the inputs that nobody vouches for, and where they may go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.engine.graph import decode_definition
from infloop.policy.taint import tainted_fields

if TYPE_CHECKING:
    from infloop.store.interfaces.run_log import RunLog, RunRow


async def from_outside(run_log: RunLog, row: RunRow) -> list[str]:
    """Return what holds something untrusted: `inputs.NAME`, and the nodes that it arrives at.

    A node of a called workflow is `WORKFLOW/NODE`. As the rules look at the file, so does this: a
    node that a run did not come to is named, too.
    """
    inputs = row.cause.untrusted
    if not inputs:
        return []
    loaded = await run_log.load(row.id, until_seq=0)
    definition = decode_definition(loaded.definition)
    root = definition.root
    nodes = (
        one.node if one.workflow == root else f"{one.workflow}/{one.node}"
        for one in tainted_fields(definition.workflows, root, inputs)
    )
    return list(dict.fromkeys([*(f"inputs.{name}" for name in inputs), *nodes]))
