"""Connections: machines with model servers. A token can be set and is never shown."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from infloop.application.models import Model
from infloop.application.problems import ShownProblem, shown_problems
from infloop.catalog.connections import ConnectionFile, connections, remove, save, unused_id
from infloop.errors import Conflict, InvalidFile, NotFound, StepError, UsageError
from infloop.model.connection import is_connection_id, parse_connection, provider_of
from infloop.model.values import JsonObject

if TYPE_CHECKING:
    from infloop.application.caller import Caller
    from infloop.application.resources import FileResources
    from infloop.model.connection import Connection


class ConnectionPort(Model, kw_only=True):
    """A port with one model server; `profile` is the model that it serves."""

    port: int
    profile: str | UnsetType = UNSET


class ConnectedEntry(Model, kw_only=True):
    """The provider of one port."""

    id: str
    base_url: str


class ConnectionEntry(Model, kw_only=True):
    """A machine with model servers; each port is a provider."""

    id: str
    label: str
    host: str
    has_token: bool
    ports: list[ConnectionPort]
    providers: list[ConnectedEntry]
    problems: list[ShownProblem]


class UnusableConnection(Model, kw_only=True):
    """A file that cannot be used, and why."""

    id: str
    problems: list[ShownProblem]


class ConnectionDetail(Model, kw_only=True):
    """One machine."""

    connection: ConnectionEntry


class ConnectionList(Model, kw_only=True):
    """All machines by id."""

    connections: list[ConnectionEntry]
    unusable: list[UnusableConnection]


class Done(Model, kw_only=True):
    """It was done."""

    ok: bool = True


class ConnectionRequest(Model, kw_only=True):
    """What a machine is to be.

    Without `token` the present one stays, unless the host changes: a token is for one host. An
    empty one is removed.
    """

    id: str | None = None
    label: str
    host: str
    token: str | None = None
    ports: list[int | JsonObject]


class Connections:
    """The connection files of a folder."""

    def __init__(self, resources: FileResources) -> None:
        self._audit = resources.audit
        self._models_of = resources.models_of
        self._folder = resources.folders.connections

    async def all(self) -> ConnectionList:
        found = await asyncio.to_thread(connections, self._folder)
        return ConnectionList(
            connections=[_shown(one) for one in found if one.connection],
            unusable=[
                UnusableConnection(id=one.id, problems=shown_problems(one.problems))
                for one in found
                if not one.connection
            ],
        )

    async def read(self, connection_id: str) -> ConnectionDetail:
        return ConnectionDetail(connection=_shown(await self._find(connection_id)))

    async def add(self, wanted: ConnectionRequest, caller: Caller) -> ConnectionDetail:
        """Add a machine; each of its ports becomes a provider.

        The server at a port without a model is asked for one. Raises UsageError if it has none.
        """
        connection = _checked(wanted, None)
        taken = {entry.id for entry in await asyncio.to_thread(connections, self._folder)}
        if wanted.id in taken:
            raise Conflict(f"there is a connection {wanted.id!r} already", "duplicate")
        name = await asyncio.to_thread(unused_id, self._folder, wanted.id or "", wanted.label)
        connection = await self._with_models(name, connection)
        return await self._save(name, connection, caller)

    async def change(
        self, connection_id: str, wanted: ConnectionRequest, caller: Caller
    ) -> ConnectionDetail:
        before = await self._find(connection_id)
        if wanted.id not in (None, connection_id):
            raise UsageError(f"the connection's id is {connection_id!r}; it cannot be changed")
        connection = _checked(wanted, before.connection)
        connection = await self._with_models(connection_id, connection)
        saved = await self._save(connection_id, connection, caller)
        if before.path.name != f"{connection_id}.json":
            await asyncio.to_thread(before.path.unlink, missing_ok=True)
        return saved

    async def delete(self, connection_id: str, caller: Caller) -> None:
        """Delete a machine and its token, also when its file cannot be used."""
        found = await asyncio.to_thread(connections, self._folder)
        if connection_id not in {entry.id for entry in found}:
            raise _unknown(connection_id)
        await self._audit().record(
            "connection.deleted",
            caller.actor,
            correlation_id=caller.correlation_id,
            details={"connection": connection_id},
        )
        await asyncio.to_thread(remove, self._folder, connection_id)

    async def _with_models(self, name: str, connection: Connection) -> Connection:
        ports = []
        for port in connection.ports:
            profile = port.profile
            if not profile:
                try:
                    offer = await self._models_of(provider_of(name, connection, port))
                except StepError as error:
                    raise UsageError(
                        f"port {port.port}: {error}; name its model: --port {port.port}=MODEL, or "
                        f'{{"port": {port.port}, "profile": "MODEL"}}'
                    ) from None
                profile = offer.profiles[0].id
            ports.append(port.model_copy(update={"profile": profile}))
        return connection.model_copy(update={"ports": tuple(ports)})

    async def _find(self, connection_id: str) -> ConnectionFile:
        if is_connection_id(connection_id):
            for entry in await asyncio.to_thread(connections, self._folder):
                if entry.id == connection_id and entry.connection is not None:
                    return entry
        raise _unknown(connection_id)

    async def _save(self, name: str, connection: Connection, caller: Caller) -> ConnectionDetail:
        await self._audit().record(
            "connection.saved",
            caller.actor,
            correlation_id=caller.correlation_id,
            details={"connection": name, "host": connection.host},
        )
        path = await asyncio.to_thread(save, self._folder, name, connection)
        return ConnectionDetail(connection=_shown(ConnectionFile(name, path, connection)))


def _unknown(connection_id: str) -> NotFound:
    return NotFound(
        f"there is no connection {connection_id[:80]!r}; `infloop connections` lists them"
    )


def _checked(wanted: ConnectionRequest, before: Connection | None) -> Connection:
    """Return what was asked for, by the rules for such files; a problem never shows the token."""
    content = {
        "label": wanted.label,
        "host": wanted.host,
        "ports": [{"port": one} if isinstance(one, int) else one for one in wanted.ports],
        **({"token": wanted.token} if wanted.token else {}),
    }
    made, problems = parse_connection(json.dumps(content).encode())
    if made is None:
        raise InvalidFile(str(problems[0]), "invalid-connection", problems)
    # Another host must not be sent the token of this one.
    if wanted.token is None and before and before.host == made.host:
        return made.model_copy(update={"token": before.token})
    return made


def _shown(entry: ConnectionFile) -> ConnectionEntry:
    connection = entry.connection
    assert connection is not None
    return ConnectionEntry(
        id=entry.id,
        label=connection.label,
        host=connection.host,
        has_token=bool(connection.token),
        ports=[
            ConnectionPort(port=each.port, profile=each.profile or UNSET)
            for each in connection.ports
        ],
        providers=[ConnectedEntry(id=one.id, base_url=one.base_url) for one in entry.providers],
        problems=shown_problems(entry.problems),
    )
