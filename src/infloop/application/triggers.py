"""Triggers: list, make, change, try out. A secret can be set and is never shown."""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import TYPE_CHECKING, Any

from infloop.application.trigger_models import (
    SECRETS,
    PluginList,
    TrialResult,
    TriggerDetail,
    TriggerList,
    TriggerView,
    plugin_view,
    trigger_view,
)
from infloop.catalog.triggers import new_trigger_id
from infloop.errors import Conflict, InvalidFile, NotFound, Problem, UsageError, WorkflowError
from infloop.model.audit import fingerprint
from infloop.model.problems import Report, short_repr
from infloop.model.reading import read_object
from infloop.model.trigger import is_trigger_id, parse_trigger
from infloop.model.values import JsonObject
from infloop.triggers import KINDS, kind_named
from infloop.triggers.checks import check_trigger
from infloop.triggers.kinds.webhook import needs_secret
from infloop.triggers.trial import trial_delivery
from infloop.triggers.webhook import MAX_BODY_BYTES, Delivery, WebhookAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from infloop.application.caller import Caller
    from infloop.application.resources import Resources
    from infloop.model.audit import EventName
    from infloop.model.trigger import Trigger

INVALID = "invalid-trigger"
_OWN = ("lastFiredAt", "createdAt", "updatedAt")


class Triggers:
    """What starts workflows without a person."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._lookup = resources.folders.triggers
        self._firing = resources.firing
        self._scheduler = resources.scheduler

    async def all(self, workflow_id: str | None = None) -> TriggerList:
        found = await asyncio.to_thread(self._lookup.triggers.all)
        wanted = [one for one in found if workflow_id in (None, one.workflow_id)]
        return TriggerList(triggers=[self._shown(one) for one in wanted])

    async def read(self, trigger_id: str) -> TriggerDetail:
        return TriggerDetail(trigger=self._shown(await self.find(trigger_id)))

    async def plugins(self) -> PluginList:
        found, _ = await asyncio.to_thread(self._lookup.plugins.load)
        return PluginList(plugins=[plugin_view(plugin) for plugin in found])

    async def overview(self) -> tuple[list[Trigger], set[str]]:
        """Return all triggers, and the plugins whose senders sign."""
        triggers = await asyncio.to_thread(self._lookup.triggers.all)
        plugins, _ = await asyncio.to_thread(self._lookup.plugins.load)
        return triggers, {plugin.id for plugin in plugins if plugin.signature is not None}

    async def create(self, data: bytes, caller: Caller) -> TriggerDetail:
        """Make a trigger; a webhook gets an address that nobody can guess."""
        content, now = _content(data), self._now()
        content |= {"id": new_trigger_id(), "createdAt": now, "updatedAt": now}
        trigger = await asyncio.to_thread(self._checked, content)
        await self._record("trigger.created", trigger, caller)
        await asyncio.to_thread(self._lookup.triggers.save, trigger)
        self._wake()
        return TriggerDetail(trigger=self._shown(trigger))

    async def replace(self, trigger_id: str, data: bytes, caller: Caller) -> TriggerDetail:
        """Replace a trigger. A secret that is not given stays; null removes it."""
        given = _content(data)
        if given.get("id", trigger_id) != trigger_id:
            raise InvalidFile("the id in the body is another", INVALID, reason="id")
        return await self._change(
            trigger_id, caller, lambda before: _replaced(before.to_json(), given, self._now())
        )

    async def set_secret(self, trigger_id: str, secret: str, caller: Caller) -> TriggerDetail:
        """Set the secret that a webhook's sender signs with."""
        if not secret.strip():
            raise InvalidFile("a secret cannot be empty", INVALID, reason="secret")
        if not kind_named((await self.find(trigger_id)).kind).takes_requests:
            raise InvalidFile("only a webhook has a secret", INVALID, reason="kind")
        return await self._change(
            trigger_id,
            caller,
            lambda before: {**before.to_json(), "secret": secret, "updatedAt": self._now()},
        )

    async def delete(self, trigger_id: str, caller: Caller) -> None:
        """Delete a trigger; its address is dead at once."""
        trigger = await self.find(trigger_id)
        await self._record("trigger.deleted", trigger, caller)
        await asyncio.to_thread(self._lookup.triggers.remove, trigger_id)

    async def regenerate(self, trigger_id: str, caller: Caller) -> TriggerDetail:
        """Give a trigger a new address; the old one is dead at once."""
        trigger = await self.find(trigger_id)
        await self._record("trigger.moved", trigger, caller)
        moved = await asyncio.to_thread(self._lookup.triggers.regenerate, trigger_id, self._now())
        return TriggerDetail(trigger=self._shown(moved))

    async def try_out(
        self,
        trigger_id: str,
        caller: Caller,
        payload: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> TrialResult:
        """Fire a webhook trigger by hand, with a request as its sender would sign it."""
        trigger = await self.find(trigger_id)
        plugin = self._lookup.plugin(trigger.plugin_id)
        if not kind_named(trigger.kind).takes_requests or plugin is None:
            raise InvalidFile("only a webhook can be tried out", INVALID, reason="kind")
        try:
            delivery = trial_delivery(
                trigger,
                plugin,
                self._now(),
                request_id=f"trial_{secrets.token_hex(12)}",
                payload=None if payload is None else json.dumps(payload).encode(),
                headers=dict(headers or {}),
            )
        except ValueError as error:
            raise InvalidFile(str(error), INVALID, reason="secret") from None
        await self._record("trigger.tested", trigger, caller)
        answer = await self.receive(delivery, caller.correlation_id)
        return TrialResult(status=answer.status, body=answer.body)

    async def receive(self, delivery: Delivery, correlation_id: str) -> WebhookAnswer:
        """Return the answer to a webhook; what it asks for is durable before this returns."""
        assert self._firing is not None, "only a server receives webhooks"
        return await self._firing.receive(delivery, correlation_id)

    async def answer_missed(self, trigger_id: str, caller: Caller, *, start: bool) -> TriggerDetail:
        """Say whether a run makes up for what a schedule missed."""
        trigger = await self.find(trigger_id)
        if self._scheduler is None or trigger.id not in self._scheduler.questions():
            raise Conflict("this trigger has missed nothing that is asked about", "nothing-missed")
        await self._record("trigger.answered", trigger, caller, "start" if start else "let-be")
        answered = await self._scheduler.answer(
            trigger, start=start, correlation_id=caller.correlation_id
        )
        if not answered:
            raise Conflict("there is no such question, or no room in the queue", "nothing-missed")
        return TriggerDetail(trigger=self._shown(trigger))

    async def find(self, trigger_id: str) -> Trigger:
        """Return a trigger with its secrets; raise NotFound if there is none."""
        found = (
            await asyncio.to_thread(self._lookup.trigger, trigger_id)
            if is_trigger_id(trigger_id)
            else None
        )
        if found is None:
            raise NotFound(f"there is no trigger {short_repr(trigger_id)}")
        return found

    async def _change(
        self, trigger_id: str, caller: Caller, content: Callable[[Trigger], JsonObject]
    ) -> TriggerDetail:
        def changed(before: Trigger) -> Trigger:
            return self._checked(content(before))

        # Errors are raised before anything is recorded; the file is changed under its lock.
        planned = await asyncio.to_thread(changed, await self.find(trigger_id))
        await self._record("trigger.changed", planned, caller)
        try:
            trigger = await asyncio.to_thread(self._lookup.triggers.change, trigger_id, changed)
        except UsageError as error:  # it was moved or deleted meanwhile
            if isinstance(error, InvalidFile):
                raise
            raise NotFound(str(error)) from None
        self._wake()
        return TriggerDetail(trigger=self._shown(trigger))

    def _checked(self, content: JsonObject) -> Trigger:
        """Return a trigger that can be saved; raise with everything that is wrong with it."""
        trigger, problems = parse_trigger(json.dumps(content).encode())
        if trigger is None:
            raise _invalid(problems)
        plugin = self._lookup.plugin(trigger.plugin_id)
        if plugin is not None and needs_secret(trigger, plugin):
            raise _invalid([Problem("secret", "secret-required")], "secret-required")
        workflow, called = self._lookup.workflow(trigger.workflow_id), self._called(trigger)
        found = check_trigger(trigger, plugin, workflow, called)
        if any(problem.severity == "error" for problem in found):
            raise _invalid(found)
        return trigger

    def _called(self, trigger: Trigger) -> dict[str, JsonObject] | None:
        try:
            return self._resources.folders.workflows.load_bundle(trigger.workflow_id).plain()
        except (UsageError, WorkflowError):
            return None

    def _shown(self, trigger: Trigger) -> TriggerView:
        missed = self._scheduler.questions().get(trigger.id) if self._scheduler else None
        return trigger_view(trigger, missed.count if missed else 0)

    async def _record(
        self, event: EventName, trigger: Trigger, caller: Caller, outcome: str = ""
    ) -> None:
        await self._resources.audit.record(
            event,
            caller.actor,
            outcome=outcome,
            correlation_id=caller.correlation_id,
            workflow_id=trigger.workflow_id,
            details={
                "trigger": fingerprint(trigger.id),
                "name": trigger.name,
                "enabled": trigger.enabled,
            },
        )

    def _now(self) -> int:
        return self._resources.clock.now_ms()

    def _wake(self) -> None:
        if self._scheduler is not None:
            self._scheduler.wake()


def _replaced(before: JsonObject, given: JsonObject, now_ms: int) -> JsonObject:
    """Return what was sent, with what a trigger keeps of its own."""
    kept = {name: before[name] for name in (*SECRETS, "previousSecretUntil") if name in before}
    own = {name: before[name] for name in ("id", *_OWN) if name in before}
    return {**kept, **given, **own, "updatedAt": now_ms}


def _content(data: bytes) -> JsonObject:
    """Return what was sent, without what only the server says."""
    report = Report()
    content = read_object(data, report)
    if content is None or report.failed:
        raise _invalid(report.problems)
    for name in ("secretSet", "missed"):
        content.pop(name, None)
    return content


def _invalid(problems: list[Problem], reason: str = "") -> InvalidFile:
    errors = [problem for problem in problems if problem.severity == "error"] or problems
    return InvalidFile(str(errors[0]), INVALID, problems, reason or str(errors[0]))


__all__ = [
    "KINDS",
    "MAX_BODY_BYTES",
    "Delivery",
    "PluginList",
    "TrialResult",
    "TriggerDetail",
    "TriggerList",
    "Triggers",
    "WebhookAnswer",
    "kind_named",
]
