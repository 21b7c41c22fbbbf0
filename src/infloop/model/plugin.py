"""Webhook plugins: the events that a sender knows, and how it signs them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import ConfigDict

from infloop.model.definition import parse_definition
from infloop.model.problems import short_repr
from infloop.model.schema import Document, FileModel, Whole, field, publish, required
from infloop.model.template import Template
from infloop.model.texts import HeaderName, unless_empty
from infloop.model.values import JsonValue

if TYPE_CHECKING:
    from infloop.errors import Problem
    from infloop.model.problems import Report

SchemeName: TypeAlias = Literal["hmac-sha256", "token"]
"""How a sender proves that it knows the secret; `triggers.signatures` computes the digests."""

GENERIC = "generic"
"""The sender that signs nothing and has one event; no other plugin can take its id."""

# Our own fixed patterns: no nested repeats.
_PLUGIN_ID = re.compile(r"[a-z][a-z0-9_-]*", re.ASCII)  # noqa: TID251


# A text before the signature, and how the signature itself is written.
_FORMAT = re.compile(r"([!-;=?-~]*)<(hex|base64)>", re.ASCII)  # noqa: TID251
_PLACE = re.compile(r"<([^<>]*)>", re.ASCII)  # noqa: TID251
_PLAIN_FORMATS = {"hex": "<hex>", "base64": "<base64>"}
_LONGEST_TOLERANCE = 3600


def _plugin_id(text: str) -> str:
    if not _PLUGIN_ID.fullmatch(text):
        raise ValueError(
            f"{short_repr(text)} cannot be a plugin's id; use lower-case letters, digits, dashes "
            "and underscores, a letter first"
        )
    return text


def _format(text: str) -> str:
    if not _FORMAT.fullmatch(_PLAIN_FORMATS.get(text, text)):
        raise ValueError(
            f"{short_repr(text)} is not how a signature is written; use hex, base64, or a text "
            "that ends in <hex> or <base64>, such as sha256=<hex>"
        )
    return text


class Signature(FileModel):
    """How a sender signs its requests. Every field is data: a new sender needs no code."""

    model_config = required("header", "scheme")

    header: HeaderName = field("", "Header", "The header that holds the signature.")
    scheme: SchemeName = field(
        "hmac-sha256", "Scheme", "A signature made with the secret, or the secret itself."
    )
    format: Annotated[str, unless_empty(_format)] = field(
        "", "Format", "How a signature is written: hex, base64, sha256=<hex>, v1,<base64>."
    )
    separator: Literal[" ", ","] | None = field(
        None, "Separator", "What stands between several signatures; one alone if missing."
    )
    signed: str = field(
        "<body>", "Signed", "What is signed: <body>, with <timestamp> and <id> around it."
    )
    id_header: HeaderName | None = field(
        None, "Id header", "The header whose text stands for <id>."
    )
    timestamp_header: HeaderName | None = field(
        None, "Time header", "The header whose text stands for <timestamp>."
    )
    timestamp_prefix: str | None = field(
        None, "Time prefix", "The time is among the signatures, behind this text, such as t=."
    )
    tolerance_seconds: Whole = field(
        300, "Tolerance (s)", "How far the time may be from ours, in both directions."
    )
    secret_format: Literal["text", "whsec"] = field(
        "text", "Secret's format", "The key itself, or whsec_ and the key in base64."
    )

    def written(self) -> tuple[str, Literal["hex", "base64"]]:
        """Return the text before a signature, and how the signature is encoded."""
        match = _FORMAT.fullmatch(_PLAIN_FORMATS.get(self.format, self.format))
        assert match is not None
        return match[1], "hex" if match[2] == "hex" else "base64"

    @property
    def is_token(self) -> bool:
        """Whether the header holds the secret itself."""
        return self.scheme == "token"

    @property
    def timed(self) -> bool:
        """Whether a request says when it was signed."""
        return bool(self.timestamp_header or self.timestamp_prefix)


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
    event_path: str | None = field(
        None, "Event's place", "Where a request names the event if no header does: body.type."
    )
    delivery_path: str | None = field(
        None, "Delivery's place", "Where a request has an id that its repetitions share: body.id."
    )
    challenge_path: str | None = field(
        None,
        "Challenge's place",
        "Where a signed request holds a text to send back, if its sender tries an address out so.",
    )
    events: tuple[EventSpec, ...] = field((), "Events", "At least one.")
    signature: Signature | None = field(None, "Signature", "Requests are not signed if missing.")


def parse_plugin(data: bytes) -> tuple[Plugin | None, list[Problem]]:
    """Read a webhook plugin of the operator's."""

    def rules(plugin: Plugin, report: Report) -> None:
        if plugin.id == GENERIC:
            report.error("id", f"{GENERIC!r} cannot be a plugin's id", "it is built in")
        _plugin_rules(plugin, report)

    return parse_definition(data, lambda raw, report: Plugin, rules)


def parse_shipped_plugin(data: bytes) -> tuple[Plugin | None, list[Problem]]:
    """Read a webhook plugin that comes with infloop, the generic one included."""
    return parse_definition(data, lambda raw, report: Plugin, _plugin_rules)


def _plugin_rules(plugin: Plugin, report: Report) -> None:
    if plugin.signature is not None:
        _signature_rules(plugin.signature, report)
    if plugin.event_header and plugin.event_path:
        report.error("eventPath", "the event is named twice", "keep it or eventHeader")
    paths = {
        "eventPath": plugin.event_path,
        "deliveryPath": plugin.delivery_path,
        "challengePath": plugin.challenge_path,
    }
    for key, path in paths.items():
        if path and not _is_path(path):
            report.error(key, f"{short_repr(path)} is not a place", "write it like body.type")
    seen: set[str] = set()
    for index, event in enumerate(plugin.events):
        place = f"events[{index}]"
        if event.type in seen:
            report.error(place, f"the event {short_repr(event.type)} is listed twice", "remove one")
        seen.add(event.type)


def _is_path(text: str) -> bool:
    return Template(f"{{{{{text}}}}}").references == (tuple(text.split(".")),)


def _signature_rules(signature: Signature, report: Report) -> None:
    place = "signature"
    if signature.is_token:
        if signature.format or signature.timed or signature.id_header:
            report.error(place, "a token is neither written in a format nor timed", "keep header")
        return
    if not signature.format:
        report.error(f"{place}.format", "is missing")
    elif signature.separator and signature.separator in signature.written()[0]:
        report.error(
            f"{place}.format",
            f"{short_repr(signature.format)} holds the separator {short_repr(signature.separator)}",
            "a signature must not be cut in two",
        )
    if signature.timestamp_header and signature.timestamp_prefix:
        report.error(place, "the time is in two places", "keep timestampHeader or timestampPrefix")
    if signature.timestamp_prefix and not signature.separator:
        report.error(f"{place}.separator", "is missing", "say what stands behind the time")
    if not 1 <= signature.tolerance_seconds <= _LONGEST_TOLERANCE:
        report.error(
            f"{place}.toleranceSeconds",
            f"{short_repr(signature.tolerance_seconds)} is not a tolerance",
            f"use 1 to {_LONGEST_TOLERANCE}",
        )
    expected = {
        "body": True,
        "timestamp": signature.timed,
        "id": signature.id_header is not None,
    }
    places = _PLACE.findall(signature.signed)
    for name, wanted in expected.items():
        # What is not signed proves nothing, and what nobody sends cannot be signed.
        if places.count(name) != wanted:
            times = "once" if wanted else "not at all"
            report.error(
                f"{place}.signed",
                f"{short_repr(signature.signed)} must hold <{name}> {times}",
                "<timestamp> and <id> belong to the headers that hold them",
            )
    for name in sorted(set(places) - set(expected)):
        report.error(f"{place}.signed", f"nothing stands for {short_repr(f'<{name}>')}")


def plugin_schema() -> dict[str, Any]:
    """Return the JSON Schema of a webhook plugin."""
    return publish(Plugin, "plugin")
