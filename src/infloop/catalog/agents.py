"""The agents that a user or a project has defined for a program, read from their files.

An agent of Claude Code is a Markdown file in `.claude/agents`, of the home directory or of the
project, that begins with its name and model between two lines of three dashes.

Rules
  * A project may be anybody's: no link is followed, wherever it leads.
  * Nothing is started. What is read is bounded, and so is what a file can make us show.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal

from infloop.model.provider import CliProvider

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from infloop.model.provider import Provider

MOST_NAMES = 10_000
MOST_FILES = 200
MOST_BYTES = 16 << 10
"""What is read of a file: its head is at its beginning."""

LONGEST_NAME = 100

_FOLDER = (".claude", "agents")
_FENCE = "---"
# ELOOP is what some systems call a link that is not followed.
_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent by name; `group` says whose it is."""

    name: str
    model: str | None
    group: Literal["user", "project"]


def has_agent_files(provider: Provider) -> bool:
    """Say whether a program is one whose agents are files that are known here."""
    return isinstance(provider, CliProvider) and provider.output_format == "claude-stream-json"


def agents(home: Path, project: Path | None) -> list[Agent]:
    """Return the user's agents and those of a project, by group and name.

    Raises OSError for a project that is no directory, or that cannot be read. Blocks.
    """
    found = _agents(home, "user")
    if project is not None:
        os.scandir(project).close()
        found += _agents(project, "project")
    return found


def _agents(base: Path, group: Literal["user", "project"]) -> list[Agent]:
    try:
        with _opened(base) as folder, os.scandir(folder) as entries:
            listed = islice(entries, MOST_NAMES)
            names = sorted(entry.name for entry in listed if entry.name.endswith(".md"))
            heads = [_head(folder, name) for name in names[:MOST_FILES]]
    except OSError as error:
        if error.errno in _NO_FOLDER:
            return []
        raise
    named = {head["name"]: head.get("model") for head in heads if "name" in head}
    return [Agent(name, model, group) for name, model in sorted(named.items())]


@contextmanager
def _opened(base: Path) -> Iterator[int]:
    """Open the folder of agents below `base`; a link on the way is no directory."""
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
    """Return what a file says of its agent; nothing for a file that cannot be used."""
    try:
        text = _beginning(folder, name).decode("utf-8", "replace")
    except OSError:
        return {}
    first, *lines = text.splitlines() or [""]
    if first.rstrip() != _FENCE:
        return {}
    said: dict[str, str] = {}
    for line in lines:
        if line.rstrip() == _FENCE:
            return said
        key, colon, value = line.partition(":")
        plain = value.strip().strip("\"'")
        if colon and key in ("name", "model") and plain.isprintable():
            said |= {key: plain} if 0 < len(plain) <= LONGEST_NAME else {}
    return {}


def _beginning(folder: int, name: str) -> bytes:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=folder)
    try:
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return os.read(descriptor, MOST_BYTES) if regular else b""
    finally:
        os.close(descriptor)
