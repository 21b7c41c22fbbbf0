"""Triggers: what starts a workflow by itself. A secret can be set and is never shown."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Path, Query, Request
from pydantic import Field

from infloop.catalog.triggers import new_trigger_id
from infloop.errors import NotFound, Problem, UsageError, WorkflowError
from infloop.model.audit import EventName, mark_of
from infloop.model.problems import Report, shown
from infloop.model.reading import read_object
from infloop.model.trigger import Trigger, is_trigger_id, parse_trigger
from infloop.model.values import JsonObject
from infloop.triggers import kind_named
from infloop.triggers.checks import check_trigger
from infloop.triggers.kinds.webhook import needs_secret
from infloop.triggers.trial import trial_delivery
from infloop.web.dependencies import WebParts
from infloop.web.errors import Refused, documented, problem_objects
from infloop.web.routing import CorrelationId, Parts, Shape, Who, router

ROUTER = router("triggers")

TriggerId = Annotated[str, Path(max_length=200)]
_SECRETS = ("secret", "previousSecret")
_OWN = ("lastFiredAt", "createdAt", "updatedAt")
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A trigger; its JSON Schema is in `/api/catalog`.",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}


class TriggerAnswer(Shape):
    """A trigger; `secretSet` says whether it has a secret."""

    trigger: dict[str, Any]


class TriggerList(Shape):
    """All triggers."""

    triggers: list[dict[str, Any]]


class PluginList(Shape):
    """Senders of webhooks, the generic one first."""

    plugins: list[dict[str, Any]]


class TestRequest(Shape):
    """A request to try a trigger with; without a payload, the plugin's example."""

    payload: Any = None
    headers: dict[str, str] = Field(default_factory=dict)


class TestAnswer(Shape):
    """What the sender would have been answered; the run is a real one."""

    status: int
    body: dict[str, Any] | None


class MissedAnswer(Shape):
    """Whether a run is to make up for what a schedule missed."""

    start: bool


@ROUTER.get("/api/webhook-plugins")
async def list_plugins(parts: Parts) -> PluginList:
    """List the senders of webhooks that are known, with their events."""
    plugins, _ = await asyncio.to_thread(parts.triggering.lookup.plugins.load)
    return PluginList(plugins=[plugin.to_json() for plugin in plugins])


@ROUTER.get("/api/triggers")
async def list_triggers(
    parts: Parts,
    workflow_id: Annotated[str | None, Query(alias="workflowId", max_length=200)] = None,
) -> TriggerList:
    """List the triggers, or those of one workflow."""
    found = await asyncio.to_thread(parts.triggering.lookup.triggers.all)
    wanted = [one for one in found if workflow_id in (None, one.workflow_id)]
    return TriggerList(triggers=[_shown(parts, one) for one in wanted])


@ROUTER.post("/api/triggers", status_code=201, openapi_extra=_BODY)
async def make_trigger(
    request: Request, parts: Parts, who: Who, correlation_id: CorrelationId
) -> TriggerAnswer:
    """Make a trigger; a webhook gets an address that nobody can guess."""
    content = _content(await request.body())
    now = parts.clock.now_ms()
    content |= {"id": new_trigger_id(), "createdAt": now, "updatedAt": now}
    trigger = await asyncio.to_thread(_checked, parts, content)
    await _audited(parts, "trigger.created", trigger, who, correlation_id)
    await asyncio.to_thread(parts.triggering.lookup.triggers.save, trigger)
    parts.triggering.scheduler.wake()
    return TriggerAnswer(trigger=_shown(parts, trigger))


@ROUTER.get("/api/triggers/{trigger_id}", responses=documented(404))
async def read_trigger(trigger_id: TriggerId, parts: Parts) -> TriggerAnswer:
    """Return a trigger."""
    return TriggerAnswer(trigger=_shown(parts, await _find(parts, trigger_id)))


@ROUTER.put("/api/triggers/{trigger_id}", responses=documented(404), openapi_extra=_BODY)
async def change_trigger(
    trigger_id: TriggerId,
    request: Request,
    parts: Parts,
    who: Who,
    correlation_id: CorrelationId,
) -> TriggerAnswer:
    """Replace a trigger. A secret that is not given stays; null removes it."""
    given = _content(await request.body())
    if given.get("id", trigger_id) != trigger_id:
        raise Refused(400, "invalid-trigger", "the id in the body is another", reason="id")

    def changed(before: Trigger) -> Trigger:
        return _checked(parts, _replaced(before.to_json(), given, parts.clock.now_ms()))

    # What is wrong with it is said before anything is recorded; what counts is made under the lock.
    planned = await asyncio.to_thread(changed, await _find(parts, trigger_id))
    await _audited(parts, "trigger.changed", planned, who, correlation_id)
    trigger = await asyncio.to_thread(_change, parts, trigger_id, changed)
    parts.triggering.scheduler.wake()
    return TriggerAnswer(trigger=_shown(parts, trigger))


@ROUTER.delete("/api/triggers/{trigger_id}", status_code=204, responses=documented(404))
async def delete_trigger(
    trigger_id: TriggerId, parts: Parts, who: Who, correlation_id: CorrelationId
) -> None:
    """Delete a trigger; its address is dead at once."""
    trigger = await _find(parts, trigger_id)
    await _audited(parts, "trigger.deleted", trigger, who, correlation_id)
    await asyncio.to_thread(parts.triggering.lookup.triggers.remove, trigger_id)


@ROUTER.post("/api/triggers/{trigger_id}/regenerate", responses=documented(404))
async def move_trigger(
    trigger_id: TriggerId, parts: Parts, who: Who, correlation_id: CorrelationId
) -> TriggerAnswer:
    """Give a trigger a new address; the old one is dead at once."""
    trigger = await _find(parts, trigger_id)
    await _audited(parts, "trigger.moved", trigger, who, correlation_id)
    files = parts.triggering.lookup.triggers
    moved = await asyncio.to_thread(files.regenerate, trigger_id, parts.clock.now_ms())
    return TriggerAnswer(trigger=_shown(parts, moved))


async def set_secret(
    trigger_id: str, secret: str, parts: WebParts, who: Who, correlation_id: str
) -> None:
    """Set the secret that a webhook's sender signs with."""
    if not secret.strip():
        raise Refused(400, "invalid-trigger", "a secret cannot be empty", reason="secret")

    def changed(before: Trigger) -> Trigger:
        content = {**before.to_json(), "secret": secret, "updatedAt": parts.clock.now_ms()}
        return _checked(parts, content)

    trigger = await _find(parts, trigger_id)
    if not kind_named(trigger.kind).takes_requests:
        raise Refused(400, "invalid-trigger", "only a webhook has a secret", reason="kind")
    planned = await asyncio.to_thread(changed, trigger)
    await _audited(parts, "trigger.changed", planned, who, correlation_id)
    await asyncio.to_thread(_change, parts, trigger_id, changed)


@ROUTER.post("/api/triggers/{trigger_id}/test", responses=documented(404))
async def try_trigger(
    trigger_id: TriggerId,
    parts: Parts,
    who: Who,
    correlation_id: CorrelationId,
    asked: TestRequest | None = None,
) -> TestAnswer:
    """Fire a webhook trigger by hand, by a request as its sender would sign it."""
    chosen = asked or TestRequest()
    trigger = await _find(parts, trigger_id)
    plugin = parts.triggering.lookup.plugin(trigger.plugin_id)
    if not kind_named(trigger.kind).takes_requests or plugin is None:
        raise Refused(400, "invalid-trigger", "only a webhook can be tried out", reason="kind")
    payload = None if chosen.payload is None else json.dumps(chosen.payload).encode()
    try:
        delivery = trial_delivery(
            trigger,
            plugin,
            parts.clock.now_ms(),
            request_id=f"trial_{secrets.token_hex(12)}",
            payload=payload,
            headers=chosen.headers,
        )
    except ValueError as error:
        raise Refused(400, "invalid-trigger", str(error), reason="secret") from None
    await _audited(parts, "trigger.tested", trigger, who, correlation_id)
    answer = await parts.triggering.receive(delivery, correlation_id)
    return TestAnswer(status=answer.status, body=answer.body)


@ROUTER.post("/api/triggers/{trigger_id}/missed", responses=documented(404, 409))
async def answer_missed(
    trigger_id: TriggerId,
    asked: MissedAnswer,
    parts: Parts,
    who: Who,
    correlation_id: CorrelationId,
) -> TriggerAnswer:
    """Say whether a run is to make up for what a schedule missed."""
    trigger = await _find(parts, trigger_id)
    if trigger.id not in parts.triggering.scheduler.questions():
        raise Refused(409, "nothing-missed", "this trigger has missed nothing that is asked about")
    outcome = "start" if asked.start else "let-be"
    await _audited(parts, "trigger.answered", trigger, who, correlation_id, outcome)
    if not await parts.triggering.answer_missed(trigger, correlation_id, start=asked.start):
        raise Refused(409, "nothing-missed", "there is no such question, or no room in the queue")
    return TriggerAnswer(trigger=_shown(parts, trigger))


async def _find(parts: WebParts, trigger_id: str) -> Trigger:
    found = (
        await asyncio.to_thread(parts.triggering.lookup.trigger, trigger_id)
        if is_trigger_id(trigger_id)
        else None
    )
    if found is None:
        raise NotFound(f"there is no trigger {shown(trigger_id)}")
    return found


async def _audited(
    parts: WebParts,
    event: EventName,
    trigger: Trigger,
    who: Who,
    correlation_id: str,
    outcome: str = "",
) -> None:
    await parts.audit.record(
        event,
        who,
        outcome=outcome,
        correlation_id=correlation_id,
        workflow_id=trigger.workflow_id,
        details={"trigger": mark_of(trigger.id), "name": trigger.name, "enabled": trigger.enabled},
    )


def _change(parts: WebParts, trigger_id: str, made: Callable[[Trigger], Trigger]) -> Trigger:
    try:
        return parts.triggering.lookup.triggers.change(trigger_id, made)
    except UsageError as error:  # it was moved or deleted meanwhile
        raise NotFound(str(error)) from None


def _replaced(before: JsonObject, given: JsonObject, now_ms: int) -> JsonObject:
    """Return what was sent, with what a trigger keeps of its own."""
    kept = {name: before[name] for name in (*_SECRETS, "previousSecretUntil") if name in before}
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


def _checked(parts: WebParts, content: JsonObject) -> Trigger:
    """Return a trigger that can be saved; raise with everything that is wrong with it."""
    trigger, problems = parse_trigger(json.dumps(content).encode())
    if trigger is None:
        raise _invalid(problems)
    lookup = parts.triggering.lookup
    plugin, workflow = lookup.plugin(trigger.plugin_id), lookup.workflow(trigger.workflow_id)
    if plugin is not None and needs_secret(trigger, plugin):
        raise _invalid([Problem("secret", "secret-required")], "secret-required")
    found = check_trigger(trigger, plugin, workflow, _called(parts, trigger.workflow_id))
    if any(problem.severity == "error" for problem in found):
        raise _invalid(found)
    return trigger


def _called(parts: WebParts, workflow_id: str) -> dict[str, JsonObject] | None:
    try:
        return parts.places.workflows.load_bundle(workflow_id).plain()
    except (UsageError, WorkflowError):
        return None


def _invalid(problems: list[Problem], reason: str = "") -> Refused:
    errors = [problem for problem in problems if problem.severity == "error"] or problems
    said = str(errors[0])
    return Refused(
        400,
        "invalid-trigger",
        said,
        reason=reason or said,
        problems=problem_objects(problems),
    )


def _shown(parts: WebParts, trigger: Trigger) -> JsonObject:
    """Return a trigger without its secrets."""
    content = trigger.to_json()
    for name in _SECRETS:
        content.pop(name, None)
    missed = parts.triggering.scheduler.questions().get(trigger.id)
    return {
        "lastFiredAt": None,
        **content,
        "secretSet": bool(trigger.secret),
        "missed": missed.count if missed else 0,
    }
