"""Logging in with the token: counted, compared in constant time, audited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.errors import RateLimited
from infloop.model.audit import Actor
from infloop.policy.rate import RateLimit
from infloop.policy.secrets import same_secret

if TYPE_CHECKING:
    from infloop.application.resources import Resources
    from infloop.model.audit import ActorKind, EventName


def is_token(given: str, token: str) -> bool:
    """Compare in constant time."""
    return same_secret(given, token)


class Logins:
    """Logins with one token; an empty token means that none is needed."""

    def __init__(self, resources: Resources, token: str, per_minute: int) -> None:
        self._resources = resources
        self._token = token
        self._attempts = RateLimit(per_minute)

    async def attempt(self, given: str, correlation_id: str) -> bool:
        """Say whether `given` is the token. All attempts together are counted.

        Raises RateLimited.
        """
        wait = self._attempts.take("", self._resources.clock.now_ms())
        if wait:
            await self._record("login.failed", correlation_id, "too-many")
            raise RateLimited(f"too many logins; try again in {wait} seconds", wait)
        if self._token and not is_token(given, self._token):
            await self._record("login.failed", correlation_id, "wrong-token")
            return False
        await self._record("login.succeeded", correlation_id)
        return True

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
