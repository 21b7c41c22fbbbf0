"""Triggers: which webhook request starts which workflow, with what."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict

from infloop.model.definition import parse_definition
from infloop.model.patterns import BadPattern, compile_pattern
from infloop.model.problems import shown
from infloop.model.schema import Document, FileModel, Flag, Whole, field, publish, required
from infloop.model.template import Template
from infloop.model.texts import FileName, unless_empty

if TYPE_CHECKING:
    from infloop.errors import Problem
    from infloop.model.problems import Report

# Our own fixed pattern: no nested repeats.
_TRIGGER_ID = re.compile(r"[A-Za-z0-9_-]{16,32}", re.ASCII)  # noqa: TID251


def _trigger_id(text: str) -> str:
    if not _TRIGGER_ID.fullmatch(text):
        raise ValueError(
            f"{shown(text)} is not a trigger id; use 16 to 32 letters, digits, dashes, underscores"
        )
    return text


class Predicate(FileModel):
    """A comparison that a request must pass."""

    lhs: str = field("", "Left", "The text that is compared.", template=True)
    op: Literal["==", "!=", "contains", "matches"] = field("==", "Operator", "How.")
    rhs: str = field("", "Right", "The text it is compared with.", template=True)


class Trigger(Document):
    """What a webhook request must look like to start a workflow. Its id is its credential."""

    model_config = ConfigDict(title="Trigger", **required("id", "enabled", "workflowId"))

    id: Annotated[str, unless_empty(_trigger_id)] = field(
        "", "Id", "The unguessable last part of the webhook's address."
    )
    name: str = field("", "Name", "What people call it.")
    enabled: Flag = field(default=False, title="Enabled", description="Whether requests are taken.")
    workflow_id: FileName = field("", "Workflow", "The workflow to run.")
    plugin_id: str = field("generic", "Plugin", "Who sends the requests.")
    event_type: str | None = field(None, "Event", "The event to react to.")
    match: tuple[Predicate, ...] = field((), "Conditions", "All must hold; none always do.")
    inputs: dict[str, str] = field({}, "Inputs", "Values by name.", template=True)
    secret: str | None = field(None, "Secret", "The key of the sender's signature.", secret=True)
    verify_optional: Flag = field(
        default=False,
        title="Accept unsigned requests",
        description="Take requests although nothing proves who sent them.",
    )
    last_fired_at: Whole | None = field(None, "Last fired", "Milliseconds since 1970.")
    created_at: Whole | None = field(None, "Created", "Milliseconds since 1970.")
    updated_at: Whole | None = field(None, "Changed", "Milliseconds since 1970.")


def parse_trigger(data: bytes) -> tuple[Trigger | None, list[Problem]]:
    """Read a trigger file."""
    return parse_definition(data, lambda raw, report: Trigger, _trigger_rules)


def _trigger_rules(trigger: Trigger, report: Report) -> None:
    for index, predicate in enumerate(trigger.match):
        if predicate.op == "matches" and not Template(predicate.rhs).references:
            try:
                compile_pattern(predicate.rhs)
            except BadPattern as error:
                report.warning(
                    f"match[{index}].rhs",
                    f"never matches, since it cannot run in linear time: {error}",
                    "RE2 syntax has no look-around and no back-references",
                )


def trigger_schema() -> dict[str, Any]:
    """Return the JSON Schema of a trigger."""
    return publish(Trigger, "trigger")
