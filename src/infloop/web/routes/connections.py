"""Machines with model servers. A token can be set and is never shown."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path
from pydantic import Field

from infloop.application.connections import (
    ConnectionDetail,
    ConnectionList,
    ConnectionRequest,
    Done,
)
from infloop.web.errors import documented
from infloop.web.routing import App, Body, Who, router

ROUTER = router("connections")

ConnectionId = Annotated[str, Path(max_length=200)]


class ConnectionBody(Body):
    """A machine.

    Without `token` the present one stays, unless `host` changes. An empty one is removed.
    """

    id: str | None = None
    label: str
    host: str
    token: str | None = Field(None, json_schema_extra={"writeOnly": True})
    ports: list[int | dict[str, Any]]

    def request(self) -> ConnectionRequest:
        return ConnectionRequest(
            id=self.id, label=self.label, host=self.host, token=self.token, ports=self.ports
        )


@ROUTER.get("/api/providers/hermes-local")
async def list_connections(app: App) -> ConnectionList:
    """List the machines."""
    return await app.connections.all()


@ROUTER.post("/api/providers/hermes-local", status_code=201, responses=documented(409))
async def add_connection(body: ConnectionBody, app: App, who: Who) -> ConnectionDetail:
    """Add a machine; each of its ports becomes a provider.

    The server at a port without a `profile` is asked for its model.
    """
    return await app.connections.add(body.request(), who)


@ROUTER.get("/api/providers/hermes-local/{connection_id}", responses=documented(404))
async def read_connection(connection_id: ConnectionId, app: App) -> ConnectionDetail:
    """Return a machine."""
    return await app.connections.read(connection_id)


@ROUTER.put("/api/providers/hermes-local/{connection_id}", responses=documented(404))
async def change_connection(
    connection_id: ConnectionId, body: ConnectionBody, app: App, who: Who
) -> ConnectionDetail:
    """Change a machine."""
    return await app.connections.change(connection_id, body.request(), who)


@ROUTER.delete("/api/providers/hermes-local/{connection_id}", responses=documented(404))
async def delete_connection(connection_id: ConnectionId, app: App, who: Who) -> Done:
    """Remove a machine."""
    await app.connections.delete(connection_id, who)
    return Done()
