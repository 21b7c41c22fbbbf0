"""Connections: machines with model servers, one provider per port."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from infloop.model.definition import parse_definition
from infloop.model.provider import Auth, HttpProvider
from infloop.model.schema import Document, FileModel, Whole, field, publish
from infloop.model.texts import BareHost
from infloop.model.type_checks import After

if TYPE_CHECKING:
    from infloop.errors import Problem

MAX_ID_CHARS = 30
CONNECTION_ID_RULE = "use 1 to 30 lower-case letters, digits and dashes, no dash first"

# Our own fixed patterns: no nested repeats.
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,29}", re.ASCII)  # noqa: TID251
_OTHERS = re.compile(r"[^a-z0-9]+", re.ASCII)  # noqa: TID251
# The id of a provider is a file name: at most 128 characters with the connection's id.
_MAX_SLUG_CHARS = 90


def _port_number(value: int) -> int:
    if not 1 <= value <= 65_535:
        raise ValueError(f"{value} is not a port; use 1 to 65535")
    return value


class ConnectionPort(FileModel):
    """A model server on one port."""

    required_keys = ("port",)

    port: Annotated[Whole, After(_port_number)] = field(0, "Port", "1 to 65535.")
    profile: str | None = field(None, "Profile", "The model that answers there.")


class Connection(Document):
    """A machine with Hermes model servers; each port becomes an HTTP provider."""

    model_title = "Connection"
    required_keys = ("label", "host", "ports")

    id: str | None = field(None, "Id", "Its file's name.")
    label: str = field("", "Label", "What the console shows.")
    host: BareHost = field("", "Host", "http(s)://name, without path; a port is left out.")
    token: str | None = field(None, "Token", "Sent as bearer token.", secret=True)
    ports: tuple[ConnectionPort, ...] = field((), "Ports", "One model server each.")


class ConnectedProvider(HttpProvider):
    """The provider at one port of a connection."""

    kind: Literal["hermes-local"] = field("hermes-local", "Kind", "hermes-local")
    connection_id: str = field("", "Connection", "The id of the connection.")
    connection_label: str = field("", "Connection's label", "What the console shows.")


def parse_connection(data: bytes) -> tuple[Connection | None, list[Problem]]:
    """Read a connection file."""
    return parse_definition(data, lambda raw, report: Connection, lambda connection, report: None)


def is_connection_id(text: str) -> bool:
    """Say whether `text` can be the id of a connection."""
    return bool(_ID.fullmatch(text))


def connection_id(label: str) -> str:
    """Return an id that is made from a label."""
    return _slug(label)[:MAX_ID_CHARS].strip("-") or "hermes"


def provider_of(name: str, connection: Connection, port: ConnectionPort) -> ConnectedProvider:
    """Return the provider at a port of the connection `name`.

    A port without a model has no default: a node must name one.
    """
    profile = port.profile or ""
    slug = _slug(profile)[:_MAX_SLUG_CHARS].strip("-") or str(port.port)
    address = f"{connection.host}:{port.port}"
    return ConnectedProvider(
        id=f"{name}-{slug}",
        label=profile or address,
        description=address,
        glyph="☿",
        base_url=f"{address}/v1",
        endpoint="/chat/completions",
        profiles_endpoint="/models",
        default_profile=profile or None,
        auth=Auth(token=connection.token) if connection.token else None,
        connection_id=name,
        connection_label=connection.label,
    )


def _slug(text: str) -> str:
    return _OTHERS.sub("-", text.lower()).strip("-")


def connection_schema() -> dict[str, Any]:
    """Return the JSON Schema of a connection."""
    return publish(Connection, "connection")
