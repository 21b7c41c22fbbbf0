"""Restarts of processes that an agent asks for: a person allows them first."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from infloop.errors import Forbidden, InfloopError
from infloop.model.approval import question
from infloop.runtime.approvals import AskingStep

if TYPE_CHECKING:
    from infloop.application.caller import Caller
    from infloop.application.dev_loops import DevLoops
    from infloop.application.resources import Resources
    from infloop.model.approval import Approval, Question
    from infloop.model.values import JsonObject
    from infloop.policy.permissions import AskPerson
    from infloop.runtime.runs.service import RunService

KIND = "dev-restart"


class _Asked(NamedTuple):
    """An open question: the task that waits for its answer, and its id once it is stored."""

    waiting: asyncio.Task[None]
    id: asyncio.Future[str]


class DevRestarts:
    """Asks a person; there is at most one open question for each process."""

    def __init__(self, resources: Resources, loops: DevLoops) -> None:
        self._resources = resources
        self._loops = loops
        self._open: dict[str, _Asked] = {}

    async def ask(self, name: str, reason: str, caller: Caller) -> Approval:
        """Return the question at once; the process is restarted when a person allows it.

        Raises NotFound or Conflict for the process, and Forbidden if nobody is asked here.
        """
        root = self._loops.find(name).status.root
        service = await self._resources.service()
        asked = self._open.get(name)
        if asked is None:
            details: JsonObject = {"process": name, "root": root, "reason": reason}
            about = question(KIND, f"restart process {name!r} in {root}", details)
            asked = self._open[name] = self._begin(name, about, service, caller)
            asked.waiting.add_done_callback(lambda _: self._open.pop(name, None))
        await asyncio.wait((asked.waiting, asked.id), return_when=asyncio.FIRST_COMPLETED)
        if not asked.id.done():
            await asked.waiting  # raises why the question could not be stored
        return await self._resources.approvals().read(asked.id.result())

    def _begin(self, name: str, about: Question, service: RunService, caller: Caller) -> _Asked:
        known: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def publish(message: JsonObject) -> None:
            service.event_bus.publish(message)
            if not known.done():
                known.set_result(str(message["approvalId"]))

        ask = self._resources.approvals().ask_function(
            AskingStep(
                owner=service.instance.id,
                run_id="",
                workflow_id="",
                path="",
                node="",
                post=lambda _: None,
                publish=publish,
            )
        )
        if ask is None:
            raise Forbidden(
                "nobody is asked here (INFLOOP_APPROVAL_TIMEOUT_MS is 0)", "no-approvals"
            )
        waiting = asyncio.create_task(self._restart_if_allowed(ask, about, name, caller))
        return _Asked(waiting, known)

    async def _restart_if_allowed(
        self, ask: AskPerson, about: Question, name: str, caller: Caller
    ) -> None:
        decision = await ask(about)
        if decision.allowed:
            with suppress(InfloopError):  # the loop has ended meanwhile
                await self._loops.restart_allowed(name, caller)
