"""Stored conversations: one private file each, written atomically, without secrets.

A session belongs to the directory in which it began.
"""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from infloop.errors import StepError
from infloop.store.files import private_directory, write_private

if TYPE_CHECKING:
    from infloop.policy.leaks.guard import LeakGuard

VERSION = 1
MAX_FILE_BYTES = 64 << 20

# Our own fixed pattern: one character class.
_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)  # noqa: TID251


class StoredSession(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file: the directory it belongs to, and the messages as the model library writes them."""

    version: int
    workspace: str
    messages: list[dict[str, Any]]


class AgentSession(msgspec.Struct, frozen=True):
    """A session that can be continued."""

    id: str
    workspace: str
    messages: list[dict[str, Any]]


class Sessions:
    """The sessions in a folder. Its calls block."""

    def __init__(self, folder: Path, leaks: LeakGuard) -> None:
        self._folder = folder
        self._leaks = leaks

    def begin(self, directory: str) -> AgentSession:
        """Return a new session; nothing is written before it has messages."""
        return AgentSession(uuid.uuid4().hex, _workspace(directory), [])

    def load(self, session_id: str, directory: str) -> AgentSession:
        """Return a stored session. Raises StepError if it cannot be continued here."""
        if not _ID.fullmatch(session_id):
            raise StepError(f"{session_id[:80]!r} is not the id of a session")
        file = self._file(session_id)
        try:
            if file.stat().st_size > MAX_FILE_BYTES:
                raise StepError(f"session {session_id} is larger than {MAX_FILE_BYTES} bytes")
            stored = msgspec.json.decode(file.read_bytes(), type=StoredSession)
        except FileNotFoundError:
            raise StepError(
                f"there is no session {session_id}; leave it out to begin one"
            ) from None
        except OSError as error:
            raise StepError(f"{str(file)!r} cannot be read: {error.strerror}") from None
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise _corrupt(file, error) from None
        if stored.version != VERSION:
            raise _corrupt(file, f"it has version {stored.version}")
        if stored.workspace != _workspace(directory):
            raise StepError(
                f"session {session_id} belongs to {stored.workspace!r}; continue it there, or "
                "begin another one here"
            )
        return AgentSession(session_id, stored.workspace, stored.messages)

    def save(self, session: AgentSession, messages: list[dict[str, Any]]) -> None:
        """Replace what is stored of a session; secrets are removed."""
        stored = StoredSession(VERSION, session.workspace, self._leaks.redact(messages))  # type: ignore[type-var]
        private_directory(self._folder)
        write_private(self._file(session.id), msgspec.json.encode(stored))

    def corrupt(self, session: AgentSession, error: Exception) -> StepError:
        """Return the error about a session whose messages cannot be used; the file stays."""
        return _corrupt(self._file(session.id), error)

    def _file(self, session_id: str) -> Path:
        return self._folder / f"{session_id}.json"


def _corrupt(file: Path, why: object) -> StepError:
    first = str(why).splitlines()[0][:200] if str(why) else "unknown content"
    return StepError(
        f"the session in {str(file)!r} cannot be continued: {first}. The file stays as it is; "
        "leave the session out to begin another one"
    )


def _workspace(directory: str) -> str:
    return str(Path(directory).resolve())
