"""What a trigger asks for when it fires: a run of its workflow, with inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from infloop.model.audit import fingerprint
from infloop.model.events import Cause
from infloop.model.references import workflow_inputs
from infloop.triggers.predicates import holds, map_inputs

if TYPE_CHECKING:
    from infloop.model.template import Scope
    from infloop.model.trigger import Trigger
    from infloop.model.values import JsonObject
    from infloop.model.workflow import Workflow


@dataclass(frozen=True, slots=True)
class Firing:
    """A run to be queued.

    `cause` says which inputs hold something from outside. Two firings with the same `key` are one
    and the same: whoever queues them starts one run. Without a key each is its own.
    """

    trigger_id: str
    workflow_id: str
    inputs: JsonObject
    cause: Cause
    key: str = ""


def name_of(trigger: Trigger) -> str:
    """Return what a trigger is called where others read: never its id, which opens the way in."""
    return trigger.name or fingerprint(trigger.id)


def prepare(
    trigger: Trigger, workflow: Workflow, scope: Scope, *, key: str = "", trusted: bool = False
) -> Firing | None:
    """Return the run that a trigger asks for, or None when one of its conditions does not hold.

    The mapped texts are brought to the types of the workflow's inputs; InputError is raised for
    the first that does not fit, TooLong for one that grows past all bounds. Every input that a
    reference was filled into is untrusted, unless `trusted` says that nothing is from outside.
    """
    if not holds(trigger.match, scope):
        return None
    mapped = map_inputs(trigger.inputs, scope)
    inputs = workflow_inputs(workflow, mapped.values)
    untrusted = () if trusted else tuple(name for name in mapped.filled_in if name in inputs)
    cause = Cause(trigger.kind, name_of(trigger), untrusted=untrusted)
    return Firing(trigger.id, trigger.workflow_id, inputs, cause, key)
