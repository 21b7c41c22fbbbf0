"""Attacks an isolation level in the background, for clients that do not wait."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from infloop.application.attack_reports import AttackReport, attack_level
from infloop.application.models import Model
from infloop.errors import Conflict, Forbidden
from infloop.model.isolation import Level
from infloop.sandbox.self_check.battery import ATTEMPTS

if TYPE_CHECKING:
    from infloop.application.caller import Caller
    from infloop.application.resources import FileResources


class Attack(Model, kw_only=True):
    """An attack on one level: `report` once it is done, `error` if it could not be made.

    `attempts` is how many there are in all, `made` how many have been made.
    """

    level: Level
    state: Literal["running", "done", "failed"]
    started_at: int
    finished_at: int | None = None
    attempts: int
    made: int = 0
    report: AttackReport | None = None
    error: str = ""


class LatestAttack(Model, kw_only=True):
    """The attack that was started last since the server began; null without one."""

    attack: Attack | None


class Attacks:
    """Makes one attack at a time and keeps the result of the last."""

    def __init__(self, resources: FileResources, service_user: str) -> None:
        self._resources = resources
        self._service_user = service_user
        self._latest: Attack | None = None
        self._working: asyncio.Task[None] | None = None

    def latest(self) -> LatestAttack:
        return LatestAttack(attack=self._latest)

    async def start(self, level: Level, caller: Caller) -> LatestAttack:
        """Begin an attack on a level and return at once. Raises Forbidden or Conflict."""
        if not caller.is_identified:
            raise Forbidden(
                "a server without a token attacks nothing: whoever asks may be an agent. Set "
                "INFLOOP_API_TOKEN, or use `infloop doctor --attack`",
                "token-needed",
            )
        self._refuse_second()
        await self._resources.audit().record(
            "doctor.attack-started",
            caller.actor,
            correlation_id=caller.correlation_id,
            details={"level": level},
        )
        self._refuse_second()  # another request may have come meanwhile
        self._latest = Attack(
            level=level,
            state="running",
            started_at=self._resources.clock.now_ms(),
            attempts=sum(map(len, ATTEMPTS.values())),
        )
        self._working = asyncio.create_task(self._attack(self._latest))
        return self.latest()

    def _refuse_second(self) -> None:
        if self._working is not None and not self._working.done():
            raise Conflict("an attack is under way; wait until it is done", "attack-running")

    async def _attack(self, attack: Attack) -> None:
        report, error = None, ""
        try:
            report = await attack_level(attack.level, self._service_user, self._count)
        except Exception as failure:  # noqa: BLE001  (the edge of a task)
            error = str(failure) or type(failure).__name__
        self._latest = replace(
            attack,
            made=self._latest.made if self._latest else 0,
            state="failed" if report is None else "done",
            finished_at=self._resources.clock.now_ms(),
            report=report,
            error=error,
        )

    def _count(self) -> None:
        if self._latest is not None and self._latest.made < self._latest.attempts:
            self._latest = replace(self._latest, made=self._latest.made + 1)
