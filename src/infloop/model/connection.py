"""Connections: machines with model servers, one provider per port."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, ConfigDict

from infloop.model.definition import parse_definition
from infloop.model.schema import Document, FileModel, Whole, field, publish, required
from infloop.model.texts import BareHost

if TYPE_CHECKING:
    from infloop.errors import Problem


def _port_number(value: int) -> int:
    if not 1 <= value <= 65_535:
        raise ValueError(f"{value} is not a port; use 1 to 65535")
    return value


class ConnectionPort(FileModel):
    """A model server on one port."""

    model_config = required("port")

    port: Annotated[Whole, AfterValidator(_port_number)] = field(0, "Port", "1 to 65535.")
    profile: str | None = field(None, "Profile", "The model that answers there.")


class Connection(Document):
    """A machine with Hermes model servers; each port becomes an HTTP provider."""

    model_config = ConfigDict(title="Connection", **required("label", "host", "ports"))

    id: str | None = field(None, "Id", "Its file's name.")
    label: str = field("", "Label", "What the console shows.")
    host: BareHost = field("", "Host", "http(s)://name, without path; a port is left out.")
    token: str | None = field(None, "Token", "Sent as bearer token.", secret=True)
    ports: tuple[ConnectionPort, ...] = field((), "Ports", "One model server each.")


def parse_connection(data: bytes) -> tuple[Connection | None, list[Problem]]:
    """Read a connection file."""
    return parse_definition(data, lambda raw, report: Connection, lambda connection, report: None)


def connection_schema() -> dict[str, Any]:
    """Return the JSON Schema of a connection."""
    return publish(Connection, "connection")
