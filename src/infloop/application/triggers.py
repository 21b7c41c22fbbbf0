"""Triggers: list, make, change, try out. A secret can be set and is never shown."""

from __future__ import annotations

import asyncio
import json
import secrets
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infloop.application.problems import shown_problems
from infloop.application.trigger_deliveries import DeliveryList, read_deliveries
from infloop.application.trigger_models import (
    SECRETS,
    DryRun,
    PluginList,
    TrialResult,
    TriggerDetail,
    TriggerList,
    TriggerReport,
    TriggerView,
    plugin_view,
    trigger_view,
)
from infloop.catalog.files import read_bounded
from infloop.catalog.triggers import new_trigger_id
from infloop.errors import Conflict, InvalidFile, NotFound, Problem, UsageError, WorkflowError
from infloop.model.audit import fingerprint
from infloop.model.nodes import AgentNode
from infloop.model.problems import Report, short_repr
from infloop.model.provider import AcpProvider, CliProvider
from infloop.model.reading import read_object
from infloop.model.trigger import KNOWN_KEYS, is_trigger_id, parse_trigger
from infloop.model.values import JsonObject
from infloop.model.walk import every_node
from infloop.triggers import KINDS, kind_named
from infloop.triggers.checks import check_trigger, start_refusals
from infloop.triggers.kinds.webhook import needs_secret
from infloop.triggers.scheduler import STATE_FILE, ScheduleStates
from infloop.triggers.signatures import MIN_SECRET_BYTES, is_short_secret
from infloop.triggers.trial import trial_delivery
from infloop.triggers.webhook import (
    MAX_BODY_BYTES,
    CannotStart,
    Delivery,
    NotQueued,
    QueuePosition,
    WebhookAnswer,
    Webhooks,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from infloop.application.caller import Caller
    from infloop.application.resources import FileResources
    from infloop.catalog.triggers import TriggerFile
    from infloop.model.audit import EventName
    from infloop.model.provider import Provider
    from infloop.model.trigger import Trigger
    from infloop.policy.confinement import Confinement
    from infloop.triggers.firing import Firing
    from infloop.triggers.schedule import Missed

INVALID = "invalid-trigger"
_HOUR_MS = 3_600_000
# Warnings about these fields are no reason why a run could not start.
_ABOUT_SENDERS = ("secret", "verifyOptional")
_OWN = ("lastFiredAt", "createdAt", "updatedAt")


class Triggers:
    """What starts workflows without a person."""

    def __init__(self, resources: FileResources) -> None:
        self._resources = resources
        self._lookup = resources.folders.triggers
        self._firing = resources.firing
        self._scheduler = resources.scheduler

    async def all(self, workflow_id: str | None = None) -> TriggerList:
        found = await asyncio.to_thread(self._lookup.triggers.all)
        wanted = [one for one in found if workflow_id in (None, one.workflow_id)]
        missed = self._missed()
        return TriggerList(triggers=[self._view(one, missed) for one in wanted])

    async def read(self, trigger_id: str) -> TriggerDetail:
        return TriggerDetail(trigger=self._shown(await self.find(trigger_id)))

    async def deliveries(self, trigger_id: str, limit: int) -> DeliveryList:
        """Return what became of the newest firings of a trigger; raise NotFound."""
        await self.find(trigger_id)
        audit = self._resources.folders.audit
        return await asyncio.to_thread(read_deliveries, audit, trigger_id, limit)

    async def find_id(self, name: str) -> str:
        """Return the id of the trigger that has this name, or whose id begins so.

        Only the id finds a trigger that cannot be used. Raises UsageError that says what to type.
        """
        entries = await asyncio.to_thread(self._lookup.triggers.entries)
        if any(entry.id == name for entry in entries):
            return name
        named = [each.id for each in entries if each.trigger and each.trigger.name == name]
        found = named or [entry.id for entry in entries if entry.id.startswith(name)]
        if name and len(found) == 1:
            return found[0]
        many = f"{len(found)} triggers {'are called' if named else 'begin with'}"
        what = many if found and name else "there is no trigger"
        raise UsageError(f"{what} {name!r}; `infloop triggers` lists them")

    async def reports(self) -> list[TriggerReport]:
        """Return all triggers with what is wrong with them, also those that cannot be used."""
        files = await asyncio.to_thread(self._lookup.triggers.entries)
        missed = self._missed()
        return [await asyncio.to_thread(self._report, file, missed) for file in files]

    async def report(self, trigger_id: str) -> TriggerReport:
        """Return one trigger that can be used, and whether its runs can start on this machine.

        Raises UsageError.
        """
        confinement = await self._resources.confinement()
        for file in await asyncio.to_thread(self._lookup.triggers.entries):
            if file.id == trigger_id and file.trigger is not None:
                return await asyncio.to_thread(self._report, file, self._missed(), confinement)
        raise UsageError(f"trigger {trigger_id!r} cannot be used; `infloop triggers` says why")

    async def unable_to_start(self) -> dict[str, list[Problem]]:
        """Return the enabled triggers whose runs could not start on this machine, by name."""
        triggers = await asyncio.to_thread(self._lookup.triggers.all)
        enabled = [one for one in triggers if one.enabled]
        if not enabled:
            return {}
        confinement = await self._resources.confinement()
        found: dict[str, list[Problem]] = {}
        for trigger in enabled:
            for problem in await asyncio.to_thread(self.problems_of, trigger, confinement):
                if problem.severity == "error" or problem.place not in _ABOUT_SENDERS:
                    found.setdefault(trigger.display_name, []).append(problem)
        return found

    def _report(
        self,
        file: TriggerFile,
        missed: Mapping[str, Missed],
        confinement: Confinement | None = None,
    ) -> TriggerReport:
        trigger = file.trigger
        if trigger is None:
            return TriggerReport(id=file.id, problems=shown_problems(file.problems))
        kind, plugin = kind_named(trigger.kind), self._lookup.plugin(trigger.plugin_id)
        return TriggerReport(
            id=file.id,
            problems=shown_problems([*file.problems, *self.problems_of(trigger, confinement)]),
            trigger=self._view(trigger, missed),
            event=kind.describe(trigger),
            details=list(kind.details(trigger, self._now())),
            takes_requests=kind.takes_requests,
            plugin=plugin_view(plugin) if plugin else None,
        )

    async def short_secrets(self) -> list[str]:
        """Return the names of triggers whose secret is so short that it can be guessed."""
        triggers = await asyncio.to_thread(self._lookup.triggers.all)
        return [one.display_name for one in triggers if self._has_short_secret(one)]

    def _has_short_secret(self, trigger: Trigger) -> bool:
        plugin = self._lookup.plugin(trigger.plugin_id)
        signature = plugin.signature if plugin else None
        return signature is not None and is_short_secret(signature, trigger.secret or "")

    async def plugins(self) -> PluginList:
        found, problems = await asyncio.to_thread(self._lookup.plugins.load)
        return PluginList(
            plugins=[plugin_view(plugin) for plugin in found], problems=shown_problems(problems)
        )

    async def create(self, data: bytes, caller: Caller) -> TriggerDetail:
        """Make a trigger; a webhook gets an address that nobody can guess."""
        content, now = _content(data), self._now()
        content |= {"id": new_trigger_id(), "createdAt": now, "updatedAt": now}
        trigger = await asyncio.to_thread(self._named, content)
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

    async def set_enabled(self, trigger_id: str, caller: Caller, *, enabled: bool) -> TriggerDetail:
        """Switch a trigger on or off."""
        update = {"enabled": enabled, "updated_at": self._now()}
        planned = (await self.find(trigger_id)).model_copy(update=update)
        await self._record("trigger.changed", planned, caller)
        trigger = await asyncio.to_thread(
            self._lookup.triggers.change,
            trigger_id,
            lambda before: before.model_copy(update=update),
        )
        self._wake()
        return TriggerDetail(trigger=self._shown(trigger))

    async def set_secret(
        self, trigger_id: str, secret: str, caller: Caller, *, overlap_hours: int = 0
    ) -> TriggerDetail:
        """Set the secret that a webhook's sender signs with.

        The secret before it counts for `overlap_hours` more.
        """
        if overlap_hours < 0:
            raise UsageError(f"{overlap_hours} is not a number of hours")
        if not secret.strip():
            raise InvalidFile("a secret cannot be empty", INVALID, reason="secret")
        if not kind_named((await self.find(trigger_id)).kind).takes_requests:
            raise InvalidFile("only a webhook has a secret", INVALID, reason="kind")
        return await self._change(
            trigger_id,
            caller,
            lambda before: _with_secret(before.to_json(), secret, overlap_hours, self._now()),
        )

    async def adopt(self, workflow_id: str, caller: Caller) -> list[TriggerReport]:
        """Write the triggers inside an older workflow file as files of their own.

        Those that have a file already are left alone.
        """
        _, parsed = await asyncio.to_thread(self._lookup.workflows.read, workflow_id)
        files = self._lookup.triggers
        new = [raw for raw in parsed.triggers if files.find(str(raw.get("id"))) is None]
        for raw in new:
            await self._resources.audit().record(
                "trigger.created",
                caller.actor,
                correlation_id=caller.correlation_id,
                workflow_id=workflow_id,
                details={"trigger": fingerprint(str(raw.get("id"))), "adopted": True},
            )
        made = await asyncio.to_thread(files.import_inline, workflow_id, new, self._now())
        names = {trigger.id for trigger in made}
        return [report for report in await self.reports() if report.id in names]

    async def delete(self, trigger_id: str, caller: Caller) -> None:
        """Delete a trigger, also one that cannot be used; its address is dead at once."""
        entries = await asyncio.to_thread(self._lookup.triggers.entries)
        entry = next((each for each in entries if each.id == trigger_id), None)
        if entry is None:
            raise _unknown(trigger_id)
        trigger = entry.trigger
        await self._resources.audit().record(
            "trigger.deleted",
            caller.actor,
            correlation_id=caller.correlation_id,
            workflow_id=trigger.workflow_id if trigger else "",
            details=_details(trigger) if trigger else {"trigger": fingerprint(trigger_id)},
        )
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
        await self.note_refusal(answer, caller.correlation_id)
        return TrialResult(status=answer.status, body=answer.body, detail=answer.detail)

    async def dry_run(
        self, trigger_id: str, headers: Mapping[str, str], *, payload_file: str | None = None
    ) -> DryRun:
        """Return what a request would be answered; its body is a file, or the plugin's example."""
        trigger = await self.find(trigger_id)
        plugin = self._lookup.plugin(trigger.plugin_id)
        if not kind_named(trigger.kind).takes_requests or plugin is None:
            raise UsageError(
                f"{trigger_id!r} takes no requests; `infloop triggers show {trigger_id}` says what "
                "it waits for"
            )
        body = await asyncio.to_thread(read_bounded, Path(payload_file)) if payload_file else None
        try:
            delivery = trial_delivery(
                trigger,
                plugin,
                self._now(),
                request_id=f"trial_{secrets.token_hex(8)}",
                payload=body,
                headers=dict(headers),
            )
        except ValueError as error:
            raise UsageError(str(error)) from None
        answer = await Webhooks(self._lookup, self._would_start).receive(delivery, self._now())
        firing = answer.firing
        return DryRun(
            status=answer.status,
            reason=answer.reason,
            detail=answer.detail,
            workflow_id=firing.workflow_id if firing else None,
            inputs=firing.inputs if firing else {},
            untrusted=list(firing.cause.untrusted) if firing else [],
        )

    async def _would_start(self, firing: Firing) -> QueuePosition | NotQueued:
        """Say whether a run could start on this machine; nothing is started."""
        called = await asyncio.to_thread(self._called, firing.workflow_id)
        confinement = await self._resources.confinement()
        for _, refusal in start_refusals(
            called or {}, firing.workflow_id, firing.cause, confinement
        ):
            return CannotStart("workflow-refused", refusal)
        return QueuePosition("none", 1)

    def receive(self, delivery: Delivery, correlation_id: str) -> Awaitable[WebhookAnswer]:
        """Return the answer to a webhook; what it asks for is durable before this returns.

        Call `note_refusal` after the answer was sent.
        """
        assert self._firing is not None, "only a server receives webhooks"
        return self._firing.receive(delivery, correlation_id)

    def note_refusal(self, answer: WebhookAnswer, correlation_id: str) -> Awaitable[None]:
        """Record the refusal of a request that is not genuine or one too many."""
        assert self._firing is not None, "only a server receives webhooks"
        return self._firing.note_refusal(answer, correlation_id)

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
            raise _unknown(trigger_id)
        return found

    async def _change(
        self, trigger_id: str, caller: Caller, content: Callable[[Trigger], JsonObject]
    ) -> TriggerDetail:
        def changed(before: Trigger) -> Trigger:
            return self._checked(content(before), before)

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

    def _checked(self, content: JsonObject, before: Trigger | None = None) -> Trigger:
        """Return a trigger that can be saved; raise with everything that is wrong with it.

        `before` is what the trigger was: a short secret that it has already may stay.
        """
        trigger, problems = parse_trigger(json.dumps(content).encode())
        if trigger is None:
            raise _invalid(problems)
        found = self.problems_of(trigger)
        if any(problem.severity == "error" for problem in found):
            plugin = self._lookup.plugin(trigger.plugin_id)
            missing = plugin is not None and needs_secret(trigger, plugin)
            raise _invalid(found, "secret-required" if missing else "")
        self._refuse_short_secret(trigger, before)
        return trigger

    def _refuse_short_secret(self, trigger: Trigger, before: Trigger | None) -> None:
        plugin = self._lookup.plugin(trigger.plugin_id)
        signature = plugin.signature if plugin else None
        old = (before.secret, before.previous_secret) if before else ()
        new = [each for each in (trigger.secret, trigger.previous_secret) if each not in old]
        if signature and any(each and is_short_secret(signature, each) for each in new):
            text = f"a new secret needs at least {MIN_SECRET_BYTES} bytes"
            raise _invalid([Problem("secret", text, "`openssl rand -hex 32` makes one")])

    def _named(self, content: JsonObject) -> Trigger:
        """Return a new trigger that can be saved; without a name it gets one of its own."""
        trigger = self._checked(content)
        if trigger.name:
            return trigger
        taken = {one.display_name for one in self._lookup.triggers.all()}
        numbered = (f"{trigger.display_name} {number}" for number in count(2))
        name = next(each for each in chain([trigger.display_name], numbered) if each not in taken)
        return trigger.model_copy(update={"name": name})

    def problems_of(
        self, trigger: Trigger, confinement: Confinement | None = None
    ) -> list[Problem]:
        """Return what is wrong with a trigger that its own file cannot show.

        With `confinement`, also why its runs could not start on this machine.
        """
        plugin = self._lookup.plugin(trigger.plugin_id)
        workflow = self._lookup.workflow(trigger.workflow_id)
        called = self._called(trigger.workflow_id)
        problems = check_trigger(trigger, plugin, workflow, called, confinement)
        if confinement is not None and called is not None:
            problems += self._missing_programs(trigger.workflow_id)
        return problems

    def _called(self, workflow_id: str) -> dict[str, JsonObject] | None:
        """Return a workflow and all it calls; None if they cannot run."""
        try:
            return self._lookup.workflows.load_bundle(workflow_id).plain()
        except (UsageError, WorkflowError):
            return None

    def _missing_programs(self, workflow_id: str) -> list[Problem]:
        """Return a warning for each agent of a workflow whose program is not installed."""
        bundle = self._lookup.workflows.load_bundle(workflow_id)
        named = dict.fromkeys(
            placed.node.config.provider_id
            for workflow in (bundle.root, *bundle.children.values())
            for placed in every_node(workflow)
            if isinstance(placed.node, AgentNode)
        )
        return [
            Problem(
                "workflowId",
                f"its agent {name!r} is not installed here: there is no program {provider.bin!r}",
                severity="warning",
            )
            for name in named
            if isinstance(provider := self._provider(name), AcpProvider | CliProvider)
            and not self._resources.program_of(provider)
        ]

    def _provider(self, provider_id: str) -> Provider | None:
        found = (folder.find(provider_id) for folder in self._resources.folders.providers)
        return next((each for each in found if each is not None), None)

    def _missed(self) -> Mapping[str, Missed]:
        """Return what schedules missed and somebody is asked about, by trigger."""
        if self._scheduler is not None:
            return self._scheduler.questions()
        states = ScheduleStates(self._lookup.triggers.folder / STATE_FILE).load()
        return {name: state.question for name, state in states.items() if state.question}

    def _shown(self, trigger: Trigger) -> TriggerView:
        return self._view(trigger, self._missed())

    def _view(self, trigger: Trigger, missed: Mapping[str, Missed]) -> TriggerView:
        own = missed.get(trigger.id)
        kind = kind_named(trigger.kind)
        next_at = kind.next_at(trigger, self._now()) if trigger.enabled else None
        return trigger_view(trigger, own.count if own else 0, next_at)

    async def _record(
        self, event: EventName, trigger: Trigger, caller: Caller, outcome: str = ""
    ) -> None:
        await self._resources.audit().record(
            event,
            caller.actor,
            outcome=outcome,
            correlation_id=caller.correlation_id,
            workflow_id=trigger.workflow_id,
            details=_details(trigger),
        )

    def _now(self) -> int:
        return self._resources.clock.now_ms()

    def _wake(self) -> None:
        if self._scheduler is not None:
            self._scheduler.wake()


def _unknown(trigger_id: str) -> NotFound:
    return NotFound(f"there is no trigger {short_repr(trigger_id)}")


def _details(trigger: Trigger) -> JsonObject:
    return {
        "trigger": fingerprint(trigger.id),
        "name": trigger.name,
        "enabled": trigger.enabled,
    }


def _with_secret(before: JsonObject, secret: str, overlap_hours: int, now_ms: int) -> JsonObject:
    """Return a trigger with a new secret; the one before it counts for a while."""
    kept = {name: value for name, value in before.items() if not name.startswith("previousSecret")}
    overlap: JsonObject = {}
    if overlap_hours and before.get("secret"):
        until = now_ms + overlap_hours * _HOUR_MS
        overlap = {"previousSecret": before["secret"], "previousSecretUntil": until}
    return {**kept, **overlap, "secret": secret, "updatedAt": now_ms}


def _replaced(before: JsonObject, given: JsonObject, now_ms: int) -> JsonObject:
    """Return what was sent, with what a trigger keeps of its own."""
    hidden = [name for name in before if name not in KNOWN_KEYS]
    kept = {
        name: before[name] for name in (*SECRETS, "previousSecretUntil", *hidden) if name in before
    }
    own = {name: before[name] for name in ("id", *_OWN) if name in before}
    return {**kept, **given, **own, "updatedAt": now_ms}


def _content(data: bytes) -> JsonObject:
    """Return what was sent, without what only the server says."""
    report = Report()
    content = read_object(data, report)
    if content is None or report.failed:
        raise _invalid(report.problems)
    for name in ("secretSet", "missed", "mark", "nextAt"):
        content.pop(name, None)
    return content


def _invalid(problems: list[Problem], reason: str = "") -> InvalidFile:
    errors = [problem for problem in problems if problem.severity == "error"] or problems
    return InvalidFile(str(errors[0]), INVALID, problems, reason or str(errors[0]))


__all__ = [
    "KINDS",
    "MAX_BODY_BYTES",
    "Delivery",
    "DryRun",
    "PluginList",
    "TrialResult",
    "TriggerDetail",
    "TriggerList",
    "TriggerReport",
    "Triggers",
    "WebhookAnswer",
    "kind_named",
]
