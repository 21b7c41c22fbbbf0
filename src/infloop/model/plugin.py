"""Webhook plugins: the events of a sender, and how it signs its requests."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from infloop.model.definition import parse_definition
from infloop.model.problems import short_repr
from infloop.model.schema import Document, FileModel, Whole, field, publish
from infloop.model.template import Template
from infloop.model.texts import HeaderName, unless_empty
from infloop.model.values import JsonValue

if TYPE_CHECKING:
    from infloop.errors import Problem
    from infloop.model.problems import Report

SchemeName: TypeAlias = Literal["hmac-sha256", "token"]
"""How a sender proves that it knows the secret; `triggers.signatures` computes the digests."""

GENERIC = "generic"
"""The built-in plugin for senders that sign nothing; no other plugin can have its id."""

# Our own fixed patterns: no nested repeats.
_PLUGIN_ID = re.compile(r"[a-z][a-z0-9_-]*", re.ASCII)  # noqa: TID251


# A prefix, and the encoding of the signature.
_FORMAT = re.compile(r"([!-;=?-~]*)<(hex|base64)>", re.ASCII)  # noqa: TID251
_PLACEHOLDER = re.compile(r"<([^<>]*)>", re.ASCII)  # noqa: TID251
_PLAIN_FORMATS = {"hex": "<hex>", "base64": "<base64>"}
_MAX_TOLERANCE_SECONDS = 3600


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
            f"{short_repr(text)} is not a signature format; use hex, base64, or a text that "
            "ends in <hex> or <base64>, such as sha256=<hex>"
        )
    return text


class Signature(FileModel):
    """How a sender signs its requests. It is only data: a new sender needs no code."""

    protects = True

    required_keys = ("header", "scheme")

    header: HeaderName = field("", "Header", "The header that holds the signature.")
    scheme: SchemeName = field(
        "hmac-sha256", "Scheme", "An HMAC with the secret as key, or the secret itself."
    )
    format: Annotated[str, unless_empty(_format)] = field(
        "", "Format", "The format of a signature: hex, base64, sha256=<hex>, v1,<base64>."
    )
    separator: Literal[" ", ","] | None = field(
        None, "Separator", "The character between several signatures; there is one if missing."
    )
    signed: str = field(
        "<body>", "Signed", "The signed text: <body>, with <timestamp> and <id> around it."
    )
    id_header: HeaderName | None = field(None, "Id header", "The header with the value of <id>.")
    timestamp_header: HeaderName | None = field(
        None, "Time header", "The header with the value of <timestamp>."
    )
    timestamp_prefix: str | None = field(
        None, "Time prefix", "The time is one of the signatures, after this prefix, such as t=."
    )
    tolerance_seconds: Whole = field(
        300, "Tolerance (s)", "How far the time may differ from infloop's, in both directions."
    )
    secret_format: Literal["text", "whsec"] = field(
        "text", "Secret's format", "The key itself, or whsec_ and the key in base64."
    )

    def prefix_and_encoding(self) -> tuple[str, Literal["hex", "base64"]]:
        """Return the prefix of a signature, and its encoding."""
        match = _FORMAT.fullmatch(_PLAIN_FORMATS.get(self.format, self.format))
        assert match is not None
        return match[1], "hex" if match[2] == "hex" else "base64"

    @property
    def is_token(self) -> bool:
        """Whether the header holds the secret itself."""
        return self.scheme == "token"

    @property
    def timed(self) -> bool:
        """Whether a request holds the time at which it was signed."""
        return bool(self.timestamp_header or self.timestamp_prefix)


class EventField(FileModel):
    """A value in the requests of an event."""

    required_keys = ("path", "type")

    path: str = field("", "Path", "Its path, such as body.action.")
    type: Literal["string", "number", "boolean", "array", "object"] = field(
        "string", "Type", "Its JSON type."
    )
    description: str | None = field(None, "Description", "What it means.")


class EventSpec(FileModel):
    """An event of a sender."""

    required_keys = ("type", "displayName")

    type: str = field("", "Type", "The value of the event header.")
    display_name: str = field("", "Name", "What the console shows.")
    fields: tuple[EventField, ...] = field((), "Fields", "The values in its requests.")
    example_payload: JsonValue = field(None, "Example", "The body of a test request.")


class Plugin(Document):
    """A sender of webhooks: its events and how it signs them."""

    model_title = "Webhook plugin"
    required_keys = ("id", "displayName", "events")

    id: Annotated[str, unless_empty(_plugin_id)] = field("", "Id", "The name triggers use.")
    display_name: str = field("", "Name", "What the console shows.")
    icon: str | None = field(None, "Icon", "The name of an icon in the console.")
    event_header: HeaderName | None = field(
        None, "Event header", "The header that names the event."
    )
    event_path: str | None = field(
        None, "Event path", "The path of the event's name if no header has it: body.type."
    )
    delivery_path: str | None = field(
        None, "Delivery path", "The path of an id that retries of a request share: body.id."
    )
    challenge_path: str | None = field(
        None,
        "Challenge path",
        "The path of a text that is sent back, for a sender that verifies an address this way.",
    )
    events: tuple[EventSpec, ...] = field((), "Events", "At least one.")
    signature: Signature | None = field(None, "Signature", "Requests are not signed if missing.")


def parse_plugin(data: bytes) -> tuple[Plugin | None, list[Problem]]:
    """Read a webhook plugin of the operator."""

    def rules(plugin: Plugin, report: Report) -> None:
        if plugin.id == GENERIC:
            report.error("id", f"{GENERIC!r} cannot be a plugin's id", "it is built in")
        _plugin_rules(plugin, report)

    return parse_definition(data, lambda raw, report: Plugin, rules)


def parse_shipped_plugin(data: bytes) -> tuple[Plugin | None, list[Problem]]:
    """Read a webhook plugin that comes with infloop, including the generic one."""
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
            report.error(key, f"{short_repr(path)} is not a path", "write it like body.type")
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
            report.error(place, "a token has no format, time or id", "keep only header")
        return
    if not signature.format:
        report.error(f"{place}.format", "is missing")
    elif signature.separator and signature.separator in signature.prefix_and_encoding()[0]:
        report.error(
            f"{place}.format",
            f"{short_repr(signature.format)} holds the separator {short_repr(signature.separator)}",
            "choose a format without it",
        )
    if signature.timestamp_header and signature.timestamp_prefix:
        report.error(place, "the time is in two places", "keep timestampHeader or timestampPrefix")
    if signature.timestamp_prefix and not signature.separator:
        report.error(f"{place}.separator", "is missing", "name the character after the time")
    if not 1 <= signature.tolerance_seconds <= _MAX_TOLERANCE_SECONDS:
        report.error(
            f"{place}.toleranceSeconds",
            f"{short_repr(signature.tolerance_seconds)} is not a tolerance",
            f"use 1 to {_MAX_TOLERANCE_SECONDS}",
        )
    expected = {
        "body": True,
        "timestamp": signature.timed,
        "id": signature.id_header is not None,
    }
    used = _PLACEHOLDER.findall(signature.signed)
    for name, wanted in expected.items():
        # An unsigned value proves nothing, and a value that is not sent cannot be signed.
        if used.count(name) != wanted:
            times = "once" if wanted else "not at all"
            report.error(
                f"{place}.signed",
                f"{short_repr(signature.signed)} must hold <{name}> {times}",
                "<timestamp> and <id> belong to the headers that hold them",
            )
    for name in sorted(set(used) - set(expected)):
        unknown = short_repr(f"<{name}>")
        report.error(f"{place}.signed", f"{unknown} is not known", "use <body>, <timestamp>, <id>")


def plugin_schema() -> dict[str, Any]:
    """Return the JSON Schema of a webhook plugin."""
    return publish(Plugin, "plugin")
