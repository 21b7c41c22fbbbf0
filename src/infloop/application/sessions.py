"""Browser sessions that need no memory.

A session is a cookie of three parts: a random id, when it ends, and an HMAC-SHA-256 over both with
a key derived from the token and from a random part that is kept beside the list of ended sessions.
So a restart changes nothing, another token ends all sessions at once, and a token that somebody
guesses or learns later does not make cookies. A session that was logged out is written down until
it would have ended.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from typing import TYPE_CHECKING

from infloop.errors import StoreError
from infloop.store.files import private_directory, write_private
from infloop.store.secret_file import keep_secret

if TYPE_CHECKING:
    from pathlib import Path

    from infloop.model.clock import Clock

SESSION_MS = 30 * 86_400_000
KEY_FILE = "key"
_ENDED_FILE = "ended.json"
_LONGEST = 200


class Sessions:
    """Opens, knows and ends the sessions of browsers; without a token there are none."""

    def __init__(self, token: str, folder: Path, clock: Clock) -> None:
        random_part = keep_secret(folder / KEY_FILE) if token else secrets.token_urlsafe(32)
        self._key = hmac.digest(
            random_part.encode(), b"infloop session key\n" + token.encode(), hashlib.sha256
        )
        self._file = folder / _ENDED_FILE
        self._clock = clock
        self._ended = self._read()

    def open(self) -> str:
        """Return a new session's cookie."""
        head = f"{secrets.token_urlsafe(16)}.{self._clock.now_ms() + SESSION_MS}"
        return f"{head}.{self._seal(head)}"

    def knows(self, cookie: str) -> bool:
        """Say whether a cookie is a session that goes on."""
        session = self._genuine(cookie)
        return session is not None and session not in self._ended

    def end(self, cookie: str) -> bool:
        """End a session for good; say whether there was one."""
        session = self._genuine(cookie)
        if session is None or session in self._ended:
            return False
        now = self._clock.now_ms()
        self._ended = {name: until for name, until in self._ended.items() if until > now}
        self._ended[session] = now + SESSION_MS
        private_directory(self._file.parent)
        write_private(self._file, json.dumps(self._ended).encode())
        return True

    def _genuine(self, cookie: str) -> str | None:
        """Return the id in a cookie that was made here with today's token and has not run out."""
        if len(cookie) > _LONGEST or not cookie.isascii():
            return None
        head, _, seal = cookie.rpartition(".")
        session, _, until = head.partition(".")
        if not hmac.compare_digest(seal.encode(), self._seal(head).encode()):
            return None
        return session if int(until) > self._clock.now_ms() else None

    def _seal(self, head: str) -> str:
        return hmac.new(self._key, head.encode(), hashlib.sha256).hexdigest()

    def _read(self) -> dict[str, int]:
        try:
            found = json.loads(self._file.read_bytes())
            return {str(name): int(until) for name, until in found.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise StoreError(
                f"{str(self._file)!r} cannot be read ({error}); it says which sessions were logged "
                "out. Remove it, and change INFLOOP_API_TOKEN so that none of them counts again"
            ) from None
