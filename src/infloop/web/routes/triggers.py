"""Triggers: what starts workflows without a person. A secret can be set and is never shown."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query, Request
from pydantic import Field

from infloop.application.trigger_deliveries import DeliveryList
from infloop.application.triggers import PluginList, TrialResult, TriggerDetail, TriggerList
from infloop.web.errors import documented
from infloop.web.routing import App, Body, Who, router

ROUTER = router("triggers")

TriggerId = Annotated[str, Path(max_length=200)]
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A trigger; its JSON Schema is in `/api/catalog`.",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}


class TrialRequest(Body):
    """A request to try a trigger with; without a payload, the plugin's example."""

    payload: Any = None
    headers: dict[str, str] = Field(default_factory=dict)


class MissedAnswer(Body):
    """Whether a run is to make up for what a schedule missed."""

    start: bool


@ROUTER.get("/api/webhook-plugins")
async def list_plugins(app: App) -> PluginList:
    """List the known senders of webhooks, with their events."""
    return await app.triggers.plugins()


@ROUTER.get("/api/triggers")
async def list_triggers(
    app: App,
    workflow_id: Annotated[str | None, Query(alias="workflowId", max_length=200)] = None,
) -> TriggerList:
    """List the triggers, or those of one workflow."""
    return await app.triggers.all(workflow_id)


@ROUTER.post("/api/triggers", status_code=201, openapi_extra=_BODY)
async def make_trigger(request: Request, app: App, who: Who) -> TriggerDetail:
    """Make a trigger; a webhook gets an address that nobody can guess."""
    return await app.triggers.create(await request.body(), who)


@ROUTER.get("/api/triggers/{trigger_id}", responses=documented(404))
async def read_trigger(trigger_id: TriggerId, app: App) -> TriggerDetail:
    """Return a trigger."""
    return await app.triggers.read(trigger_id)


@ROUTER.get("/api/triggers/{trigger_id}/deliveries", responses=documented(404))
async def list_deliveries(
    trigger_id: TriggerId, app: App, limit: Annotated[int, Query(ge=1, le=500)] = 50
) -> DeliveryList:
    """Return what became of the newest requests or times of a trigger, newest first."""
    return await app.triggers.deliveries(trigger_id, limit)


@ROUTER.put("/api/triggers/{trigger_id}", responses=documented(404), openapi_extra=_BODY)
async def change_trigger(
    trigger_id: TriggerId, request: Request, app: App, who: Who
) -> TriggerDetail:
    """Replace a trigger. A secret that is not given stays; null removes it."""
    return await app.triggers.replace(trigger_id, await request.body(), who)


@ROUTER.delete("/api/triggers/{trigger_id}", status_code=204, responses=documented(404))
async def delete_trigger(trigger_id: TriggerId, app: App, who: Who) -> None:
    """Delete a trigger; its address is dead at once."""
    await app.triggers.delete(trigger_id, who)


@ROUTER.post("/api/triggers/{trigger_id}/regenerate", responses=documented(404))
async def regenerate_trigger(trigger_id: TriggerId, app: App, who: Who) -> TriggerDetail:
    """Give a trigger a new address; the old one is dead at once."""
    return await app.triggers.regenerate(trigger_id, who)


@ROUTER.post("/api/triggers/{trigger_id}/test", responses=documented(404))
async def try_trigger(
    trigger_id: TriggerId, app: App, who: Who, body: TrialRequest | None = None
) -> TrialResult:
    """Fire a webhook trigger by hand, with a request as its sender would sign it."""
    chosen = body or TrialRequest()
    return await app.triggers.try_out(trigger_id, who, chosen.payload, chosen.headers)


@ROUTER.post("/api/triggers/{trigger_id}/missed", responses=documented(404, 409))
async def answer_missed(
    trigger_id: TriggerId, body: MissedAnswer, app: App, who: Who
) -> TriggerDetail:
    """Say whether a run makes up for what a schedule missed."""
    return await app.triggers.answer_missed(trigger_id, who, start=body.start)
