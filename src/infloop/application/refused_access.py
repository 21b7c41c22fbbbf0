"""Requests with a wrong token or a forged session: limited for each sender, and audited.

The right token and a genuine session are never refused here, however many wrong ones came from the
same address: behind a reverse proxy all clients share one. What protects the token from being
guessed is its length.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal, TypeAlias

from infloop.errors import StoreError
from infloop.model.audit import Actor
from infloop.model.hosts import sender_network
from infloop.policy.rate import RateLimit
from infloop.policy.repetitions import Repetitions

if TYPE_CHECKING:
    from infloop.application.resources import Resources

Wrong: TypeAlias = Literal["wrong-token", "wrong-session"]

PER_MINUTE = 60
"""Wrong credentials a minute that are answered 401 to one sender; more are answered 429."""

log = logging.getLogger("infloop.application")


class RefusedAccess:
    """Counts wrong credentials by the network address of their sender."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._limit = RateLimit(PER_MINUTE)
        self._repetitions = Repetitions()

    async def note(self, wrong: Wrong, remote: str, correlation_id: str) -> int:
        """Count a refused request; return 0, or the seconds after which more are answered 401.

        Not each of many is in the audit log: the 1st, the 10th, the 100th and so on are.
        """
        sender, now = sender_network(remote), self._resources.clock.now_ms()
        number = self._repetitions.count(f"{wrong} {sender}", now)
        if number:
            try:
                await self._resources.audit().record(
                    "access.refused",
                    Actor("anonymous"),
                    outcome=wrong,
                    correlation_id=correlation_id,
                    details={"sender": sender, "count": number},
                )
            except StoreError as error:  # it is refused all the same
                log.warning("a refused request is not in the audit log: %s", error)
        return self._limit.take(sender, now)
