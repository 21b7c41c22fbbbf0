"""The run that a trigger asks for when it fires."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from infloop.model.events import Cause
from infloop.model.references import workflow_inputs
from infloop.triggers.predicates import holds, map_inputs

if TYPE_CHECKING:
    from infloop.model.template import Scope
    from infloop.model.trigger import Trigger
    from infloop.model.values import JsonObject
    from infloop.model.workflow import Workflow


class Firing(msgspec.Struct, frozen=True):
    """A run to be queued.

    - `cause` says which inputs are untrusted.
    - Two firings with the same `key` are one run. Without a key each firing is a run of its own.
    - A second firing with the same `fingerprint` and another key is a replay and starts nothing.
    - `workdir` is empty for the server's own.
    """

    trigger_id: str
    workflow_id: str
    inputs: JsonObject
    cause: Cause
    key: str = ""
    fingerprint: str = ""
    workdir: str = ""
    workflow_name: str = ""


def prepare(
    trigger: Trigger, workflow: Workflow, scope: Scope, *, key: str = "", trusted: bool = False
) -> Firing | None:
    """Return the run that a trigger asks for; None if one of its conditions does not hold.

    The mapped texts are converted to the types of the workflow's inputs. Raises InputError for the
    first that does not fit, and TooLong for a text over the limit. Every input that contains a
    reference is untrusted, unless `trusted` is true.
    """
    if not holds(trigger.match, scope):
        return None
    mapped = map_inputs(trigger.inputs, scope)
    inputs = workflow_inputs(workflow, mapped.values)
    untrusted = () if trusted else tuple(name for name in mapped.filled_in if name in inputs)
    cause = Cause(trigger.kind, trigger.display_name, untrusted=untrusted)
    return Firing(
        trigger.id,
        trigger.workflow_id,
        inputs,
        cause,
        key,
        workdir=trigger.cwd or "",
        workflow_name=workflow.name,
    )
