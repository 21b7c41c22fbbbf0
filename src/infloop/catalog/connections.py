"""The connections of a folder: reads them as providers, writes them with private permissions.

A connection is `<id>.json`, or `<id>.hermes.local.json` as Infinite Loop names it. It may contain a
token. So a file that others can read is reported, and the next write makes it private.
"""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING

import msgspec

from infloop.catalog.files import in_file, json_files, read_bounded
from infloop.errors import Problem, UsageError
from infloop.model.connection import (
    CONNECTION_ID_RULE,
    Connection,
    connection_id,
    is_connection_id,
    parse_connection,
    provider_of,
)
from infloop.store.files import private_directory, write_private

if TYPE_CHECKING:
    from pathlib import Path

    from infloop.model.connection import ConnectedProvider

SUFFIXES = (".hermes.local.json", ".json")


class ConnectionFile(msgspec.Struct, frozen=True):
    """A connection and its file; an invalid file has only problems."""

    id: str
    path: Path
    connection: Connection | None
    problems: tuple[Problem, ...] = ()

    @property
    def providers(self) -> list[ConnectedProvider]:
        """One provider for each of its ports."""
        connection = self.connection
        if connection is None:
            return []
        return [provider_of(self.id, connection, port) for port in connection.ports]


def connections(folder: Path) -> list[ConnectionFile]:
    """Return the connections of a folder by id; of two files with one id the first is used."""
    entries: dict[str, ConnectionFile] = {}
    for path in json_files(folder):
        entry = _read(path)
        entries.setdefault(entry.id, entry)
    return sorted(entries.values(), key=lambda entry: entry.id)


def connected_providers(folder: Path) -> tuple[list[ConnectedProvider], list[Problem]]:
    """Return the providers of all connections, and the problems of their files."""
    found = connections(folder)
    problems = [problem for one in found for problem in in_file(one.path.name, one.problems)]
    return [provider for one in found for provider in one.providers], problems


def unused_id(folder: Path, wanted: str, label: str) -> str:
    """Return the id of a new connection: `wanted`, or one made from its label."""
    taken = {entry.id for entry in connections(folder)}
    if wanted:
        if not is_connection_id(wanted):
            raise UsageError(f"{wanted!r} is not a connection's id: {CONNECTION_ID_RULE}")
        if wanted in taken:
            raise UsageError(f"there is a connection {wanted!r} already; remove it first")
        return wanted
    made = connection_id(label)
    numbered = (f"{made[:26]}-{number}" for number in range(2, 1_000))
    return next(name for name in (made, *numbered) if name not in taken)


def save(folder: Path, name: str, connection: Connection) -> Path:
    """Write a connection with mode 0600."""
    path = folder / f"{name}.json"
    content = {key: value for key, value in connection.to_json().items() if key != "id"}
    private_directory(folder)
    write_private(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())
    return path


def remove(folder: Path, name: str) -> None:
    """Delete a connection; raise UsageError if it does not exist."""
    for entry in connections(folder):
        if entry.id == name:
            entry.path.unlink(missing_ok=True)
            return
    raise UsageError(f"there is no connection {name!r}; `infloop connections` lists them")


def _read(path: Path) -> ConnectionFile:
    name = _id(path)
    if not is_connection_id(name):
        problem = Problem("file", f"{name!r} is not a connection's id", CONNECTION_ID_RULE)
        return ConnectionFile(name, path, None, (problem,))
    try:
        connection, problems = parse_connection(read_bounded(path))
        open_to_others = stat.S_IMODE(path.stat().st_mode) & 0o077
    except (UsageError, OSError) as error:
        return ConnectionFile(name, path, None, (Problem("file", str(error)),))
    if open_to_others and connection is not None and connection.token:
        problems.append(
            Problem("file", "other users can read the token in it", f"chmod 600 {path}", "warning")
        )
    return ConnectionFile(name, path, connection, tuple(problems))


def _id(path: Path) -> str:
    suffix = next(suffix for suffix in SUFFIXES if path.name.endswith(suffix))
    return path.name.removesuffix(suffix)
