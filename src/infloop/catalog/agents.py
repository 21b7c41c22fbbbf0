"""Reads the agents that a user or a project defines for a program.

An agent of Claude Code is a Markdown file in `.claude/agents`, in the home directory or in the
project. It starts with its name and model between two lines of three dashes.

Rules
  * A project may be untrusted: links are not followed.
  * No program is started. The amount that is read is limited, and so is what a file can make us
    show.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Literal

import msgspec

from infloop.model.provider import CliProvider

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from infloop.model.provider import Provider

MAX_NAMES = 10_000
MAX_FILES = 200
MAX_BYTES = 16 << 10
"""The number of bytes read of a file; its header is at the start."""

MAX_NAME_LENGTH = 100

_FOLDER = (".claude", "agents")
_FENCE = "---"
# With O_NOFOLLOW, some systems report a link as ELOOP.
_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class Agent(msgspec.Struct, frozen=True):
    """An agent; `group` says who defined it."""

    name: str
    model: str | None
    group: Literal["user", "project"]


def has_agent_files(provider: Provider) -> bool:
    """Tell whether this module can read the agent files of a provider."""
    return isinstance(provider, CliProvider) and provider.output_format == "claude-stream-json"


def agents(home: Path, project: Path | None) -> list[Agent]:
    """Return the agents of the user and of a project, by group and name. Blocks.

    Raises OSError if the project is not a directory or cannot be read.
    """
    found = _agents(home, "user")
    if project is not None:
        os.scandir(project).close()
        found += _agents(project, "project")
    return found


def _agents(base: Path, group: Literal["user", "project"]) -> list[Agent]:
    try:
        with _opened(base) as folder, os.scandir(folder) as entries:
            listed = islice(entries, MAX_NAMES)
            names = sorted(entry.name for entry in listed if entry.name.endswith(".md"))
            heads = [_head(folder, name) for name in names[:MAX_FILES]]
    except OSError as error:
        if error.errno in _NO_FOLDER:
            return []
        raise
    named = {head["name"]: head.get("model") for head in heads if "name" in head}
    return [Agent(name, model, group) for name, model in sorted(named.items())]


@contextmanager
def _opened(base: Path) -> Iterator[int]:
    """Open the folder of agents below `base`, without following links."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    folder = os.open(base, flags)
    try:
        for name in _FOLDER:
            deeper = os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = deeper
        yield folder
    finally:
        os.close(folder)


def _head(folder: int, name: str) -> dict[str, str]:
    """Return the header of an agent file; empty if the file cannot be used."""
    try:
        text = _beginning(folder, name).decode("utf-8", "replace")
    except OSError:
        return {}
    first, *lines = text.splitlines() or [""]
    if first.rstrip() != _FENCE:
        return {}
    header: dict[str, str] = {}
    for line in lines:
        if line.rstrip() == _FENCE:
            return header
        key, colon, value = line.partition(":")
        plain = value.strip().strip("\"'")
        if colon and key in ("name", "model") and plain.isprintable():
            header |= {key: plain} if 0 < len(plain) <= MAX_NAME_LENGTH else {}
    return {}


def _beginning(folder: int, name: str) -> bytes:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=folder)
    try:
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return os.read(descriptor, MAX_BYTES) if regular else b""
    finally:
        os.close(descriptor)
