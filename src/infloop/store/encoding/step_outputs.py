"""Finds an output of a step among decoded events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.errors import NotFound
from infloop.model.events import Recorded, StepFinished, StepPassed
from infloop.model.values import JsonObject, compact_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.store.encoding.large_texts import Reference

ANSWER_BYTES = 16 << 20
"""The approximate limit of one answer with events."""


def large_output(references: Sequence[Reference], field: str) -> Reference | None:
    """Return the reference to an output, if it is a large text."""
    wanted = ("outputs", field)
    return next((text for text in references if text.path == wanted and text.form == "text"), None)


def output_of(
    items: Sequence[Recorded], path: str, field: str, large: Reference | None
) -> str | Reference | None:
    """Return an output of the last visit of a step, or `large`; None if no item ends the step."""
    for item in reversed(items):
        event = item.event
        if isinstance(event, StepFinished | StepPassed) and event.path == path:
            return large or _text_of(event.outputs, path, field)
    return None


def _text_of(outputs: JsonObject, path: str, field: str) -> str:
    if field not in outputs:
        raise NotFound(f"step {path!r} has no output {field!r}; it has {sorted(outputs)}")
    value = outputs[field]
    return value if isinstance(value, str) else compact_json(value)
