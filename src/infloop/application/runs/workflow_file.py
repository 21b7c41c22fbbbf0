"""Whether the file of a run's workflow is still what the run began with."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from infloop.application.runs.models import WorkflowFile
from infloop.engine.graph import Definition, decode_definition
from infloop.errors import NotFound, UsageError, WorkflowError
from infloop.runtime.runs.replay import first_event
from infloop.runtime.runs.rewinding import FILES

if TYPE_CHECKING:
    from infloop.application.resources import Resources
    from infloop.catalog import Bundle
    from infloop.model.values import JsonObject

_SAVED = ("version", "createdAt", "updatedAt")
_DRAWN = ("position", "size")


async def changed_file(resources: Resources, run_id: str) -> WorkflowFile | None:
    """Return the file of a run's workflow unless it still means what the run began with."""
    row = await resources.store.run_log.run(run_id)
    started = await first_event(resources.store.run_log, run_id)
    cause = row.cause if row.cause.kind == "rewind" else started.cause
    if cause.kind in FILES and not cause.detail.startswith("/"):
        return None  # it was not read from a file
    name = cause.detail if cause.kind in FILES else row.workflow_id
    folders = resources.folders
    try:
        bundle = await asyncio.to_thread(
            folders.workflows.load_bundle, name, known_providers=folders.known_providers()
        )
    except (UsageError, NotFound):
        return WorkflowFile(file=name, state="gone")
    except WorkflowError:
        return WorkflowFile(file=name, state="broken")
    stored = decode_definition((await resources.store.run_log.load(run_id, until_seq=1)).definition)
    if meaning(definition_of(bundle)) == meaning(stored):
        return None
    return WorkflowFile(file=str(bundle.source), state="changed")


def definition_of(bundle: Bundle) -> Definition:
    """Return what a run of these workflows executes."""
    return Definition(bundle.root.id, bundle.plain())


def meaning(definition: Definition) -> dict[str, JsonObject]:
    """Return the workflows without what saving and drawing add to them."""
    return {
        name: {
            **{key: value for key, value in body.items() if key not in _SAVED},
            "nodes": [_node(each) for each in body["nodes"]],
        }
        for name, body in definition.workflows.items()
    }


def _node(node: JsonObject) -> JsonObject:
    kept = {key: value for key, value in node.items() if key not in _DRAWN}
    children = node.get("children")
    if isinstance(children, list):
        kept["children"] = [_node(each) for each in children if isinstance(each, dict)]
    return kept
