"""Machines with model servers. A token can be set and is never shown."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

from fastapi import Path
from pydantic import Field

from infloop.catalog.connections import ConnectionFile, connections, remove, save, unused_id
from infloop.errors import NotFound, UsageError
from infloop.model.connection import Connection, is_connection_id, parse_connection
from infloop.web.dependencies import WebParts
from infloop.web.errors import Refused, documented, problem_objects
from infloop.web.routing import CorrelationId, Parts, Shape, Who, router

ROUTER = router("connections")

ConnectionId = Annotated[str, Path(max_length=200)]


class ConnectionRequest(Shape):
    """A machine; without `token` the one that is set stays, an empty one is removed."""

    id: str | None = None
    label: str
    host: str
    token: str | None = Field(None, json_schema_extra={"writeOnly": True})
    ports: list[int | dict[str, Any]]


class ConnectionEntry(Shape):
    """A machine with model servers."""

    id: str
    label: str
    host: str
    has_token: bool
    ports: list[dict[str, Any]]


class ConnectionAnswer(Shape):
    """One machine."""

    connection: ConnectionEntry


class ConnectionList(Shape):
    """All machines by id."""

    connections: list[ConnectionEntry]


class Done(Shape):
    """It was done."""

    ok: bool = True


@ROUTER.get("/api/providers/hermes-local")
async def list_connections(parts: Parts) -> ConnectionList:
    """List the machines."""
    found = await asyncio.to_thread(connections, parts.places.connections)
    return ConnectionList(connections=[_shown(one) for one in found if one.connection])


@ROUTER.post("/api/providers/hermes-local", status_code=201, responses=documented(409))
async def add_connection(
    asked: ConnectionRequest, parts: Parts, who: Who, correlation_id: CorrelationId
) -> ConnectionAnswer:
    """Add a machine; each of its ports becomes a provider."""
    connection = _connection(asked, None)
    folder = parts.places.connections
    taken = {entry.id for entry in await asyncio.to_thread(connections, folder)}
    if asked.id in taken:
        raise Refused(409, "duplicate", f"there is a connection {asked.id!r} already")
    name = await asyncio.to_thread(unused_id, folder, asked.id or "", asked.label)
    return await _save(parts, name, connection, who, correlation_id)


@ROUTER.get("/api/providers/hermes-local/{connection_id}", responses=documented(404))
async def read_connection(connection_id: ConnectionId, parts: Parts) -> ConnectionAnswer:
    """Return a machine."""
    return ConnectionAnswer(connection=_shown(await _find(parts, connection_id)))


@ROUTER.put("/api/providers/hermes-local/{connection_id}", responses=documented(404))
async def change_connection(
    connection_id: ConnectionId,
    asked: ConnectionRequest,
    parts: Parts,
    who: Who,
    correlation_id: CorrelationId,
) -> ConnectionAnswer:
    """Change a machine."""
    before = await _find(parts, connection_id)
    if asked.id not in (None, connection_id):
        raise UsageError(f"the connection's id is {connection_id!r}; it cannot be changed")
    connection = _connection(asked, before.connection)
    saved = await _save(parts, connection_id, connection, who, correlation_id)
    if before.path.name != f"{connection_id}.json":
        await asyncio.to_thread(before.path.unlink, missing_ok=True)
    return saved


@ROUTER.delete("/api/providers/hermes-local/{connection_id}", responses=documented(404))
async def delete_connection(
    connection_id: ConnectionId, parts: Parts, who: Who, correlation_id: CorrelationId
) -> Done:
    """Remove a machine."""
    await _find(parts, connection_id)
    await parts.audit.record(
        "connection.deleted",
        who,
        correlation_id=correlation_id,
        details={"connection": connection_id},
    )
    await asyncio.to_thread(remove, parts.places.connections, connection_id)
    return Done()


async def _find(parts: WebParts, connection_id: str) -> ConnectionFile:
    if not is_connection_id(connection_id):
        raise NotFound(f"there is no connection {connection_id[:80]!r}")
    for entry in await asyncio.to_thread(connections, parts.places.connections):
        if entry.id == connection_id and entry.connection is not None:
            return entry
    raise NotFound(f"there is no connection {connection_id!r}")


async def _save(
    parts: WebParts, name: str, connection: Connection, who: Who, correlation_id: str
) -> ConnectionAnswer:
    await parts.audit.record(
        "connection.saved",
        who,
        correlation_id=correlation_id,
        details={"connection": name, "host": connection.host},
    )
    folder = parts.places.connections
    path = await asyncio.to_thread(save, folder, name, connection)
    return ConnectionAnswer(connection=_shown(ConnectionFile(name, path, connection)))


def _connection(asked: ConnectionRequest, before: Connection | None) -> Connection:
    """Return what was asked for, by the rules for such files; a problem never shows the token."""
    token = asked.token if asked.token is not None else (before.token if before else None)
    content = {
        "label": asked.label,
        "host": asked.host,
        "ports": [{"port": one} if isinstance(one, int) else one for one in asked.ports],
        **({"token": token} if token else {}),
    }
    made, problems = parse_connection(json.dumps(content).encode())
    if made is None:
        raise Refused(
            400,
            "invalid-connection",
            str(problems[0]),
            problems=problem_objects(problems),
        )
    return made


def _shown(entry: ConnectionFile) -> ConnectionEntry:
    connection = entry.connection
    assert connection is not None
    return ConnectionEntry(
        id=entry.id,
        label=connection.label,
        host=connection.host,
        has_token=bool(connection.token),
        ports=[port.to_json() for port in connection.ports],
    )
