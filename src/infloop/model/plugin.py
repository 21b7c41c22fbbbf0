"""Webhook plugins: the events that a sender knows, and how it signs them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict

from infloop.model.definition import parse_definition
from infloop.model.problems import shown
from infloop.model.schema import Document, FileModel, field, publish, required
from infloop.model.texts import HeaderName, unless_empty
from infloop.model.values import JsonValue

if TYPE_CHECKING:
    from infloop.errors import Problem
    from infloop.model.problems import Report

# Our own fixed pattern: no nested repeats.
_PLUGIN_ID = re.compile(r"[a-z][a-z0-9_-]*", re.ASCII)  # noqa: TID251


def _plugin_id(text: str) -> str:
    if text == "generic" or not _PLUGIN_ID.fullmatch(text):
        raise ValueError(
            f"{shown(text)} cannot be a plugin's id; use lower-case letters, digits, dashes and "
            "underscores, a letter first; 'generic' is built in"
        )
    return text


class Signature(FileModel):
    """How a sender signs its requests."""

    model_config = required("header", "scheme", "format")

    header: HeaderName = field("", "Header", "The header that holds the signature.")
    scheme: Literal["hmac-sha256"] = field("hmac-sha256", "Scheme", "How it is made.")
    format: Literal["sha256=<hex>", "hex", "base64"] = field(
        "sha256=<hex>", "Format", "How it is written."
    )


class EventField(FileModel):
    """A value that an event's requests hold."""

    model_config = required("path", "type")

    path: str = field("", "Path", "Where it is, such as body.action.")
    type: Literal["string", "number", "boolean", "array", "object"] = field(
        "string", "Type", "What it is."
    )
    description: str | None = field(None, "Description", "What it means.")


class EventSpec(FileModel):
    """An event that a sender knows."""

    model_config = required("type", "displayName")

    type: str = field("", "Type", "The value of the event header.")
    display_name: str = field("", "Name", "What the console shows.")
    fields: tuple[EventField, ...] = field((), "Fields", "What its requests hold.")
    example_payload: JsonValue = field(None, "Example", "A request's body, for trying out.")


class Plugin(Document):
    """A sender of webhooks: its events and how it signs them."""

    model_config = ConfigDict(title="Webhook plugin", **required("id", "displayName", "events"))

    id: Annotated[str, unless_empty(_plugin_id)] = field("", "Id", "The name triggers use.")
    display_name: str = field("", "Name", "What the console shows.")
    icon: str | None = field(None, "Icon", "The name of a drawing in the console.")
    event_header: HeaderName | None = field(
        None, "Event header", "The header that names the event."
    )
    events: tuple[EventSpec, ...] = field((), "Events", "At least one.")
    signature: Signature | None = field(None, "Signature", "Requests are not signed if missing.")


def parse_plugin(data: bytes) -> tuple[Plugin | None, list[Problem]]:
    """Read a webhook plugin."""
    return parse_definition(data, lambda raw, report: Plugin, _plugin_rules)


def _plugin_rules(plugin: Plugin, report: Report) -> None:
    seen: set[str] = set()
    for index, event in enumerate(plugin.events):
        place = f"events[{index}]"
        if event.type in seen:
            report.error(place, f"the event {shown(event.type)} is listed twice", "remove one")
        seen.add(event.type)


def plugin_schema() -> dict[str, Any]:
    """Return the JSON Schema of a webhook plugin."""
    return publish(Plugin, "plugin")
