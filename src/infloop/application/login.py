"""Logging in with the token, or with a link that works once: counted, compared, audited."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING

from infloop.errors import RateLimited
from infloop.model.audit import Actor
from infloop.policy.secrets import same_secret
from infloop.store.interfaces.rate_limits import SharedRateLimit

if TYPE_CHECKING:
    from infloop.application.resources import Resources
    from infloop.model.audit import ActorKind, EventName


LINK_MS = 3_600_000
"""How long a link can be used."""


def is_token(given: str, token: str) -> bool:
    """Compare in constant time."""
    return same_secret(given, token)


class Logins:
    """Logins with one token; an empty token means that none is needed."""

    def __init__(self, resources: Resources, token: str, per_minute: int) -> None:
        self._resources = resources
        self._token = token
        self._attempts = SharedRateLimit(resources.store.rates, "login", per_minute)
        # The digest of the code in a link, and until when it can be used.
        self._codes: dict[bytes, int] = {}

    def make_code(self) -> str:
        """Return a code for a link that opens one session, once."""
        code = secrets.token_urlsafe(32)
        self._codes[_digest(code)] = self._resources.clock.now_ms() + LINK_MS
        return code

    async def attempt(self, given: str, correlation_id: str) -> bool:
        """Say whether `given` is the token. All attempts at all servers together are counted.

        Raises RateLimited.
        """
        await self._count(correlation_id)
        if self._token and not is_token(given, self._token):
            await self._record("login.failed", correlation_id, "wrong-token")
            return False
        await self._record("login.succeeded", correlation_id)
        return True

    async def use_code(self, code: str, correlation_id: str) -> bool:
        """Say whether `code` is of a link that was not used yet; from now on it is used.

        Attempts count as those with the token. Raises RateLimited.
        """
        await self._count(correlation_id)
        until = self._codes.pop(_digest(code), 0)
        if until <= self._resources.clock.now_ms():
            await self._record("login.failed", correlation_id, "wrong-link")
            return False
        await self._record("login.succeeded", correlation_id, "link")
        return True

    async def _count(self, correlation_id: str) -> None:
        wait = await self._attempts.take("", self._resources.clock.now_ms())
        if wait:
            await self._record("login.failed", correlation_id, "too-many")
            raise RateLimited(f"too many logins; try again in {wait} seconds", wait)

    async def ended(self, correlation_id: str) -> None:
        """Record that somebody logged out."""
        await self._record("login.ended", correlation_id)

    async def _record(self, event: EventName, correlation_id: str, outcome: str = "") -> None:
        who: ActorKind = "anonymous" if event == "login.failed" else "browser-session"
        await self._resources.audit().record(
            event,
            Actor(who if self._token else "open"),
            outcome=outcome,
            correlation_id=correlation_id,
        )


def _digest(code: str) -> bytes:
    """Return what a code is looked up by: the time of a lookup says nothing about the code."""
    return hashlib.sha256(code.encode(errors="replace")).digest()
