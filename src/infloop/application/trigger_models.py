"""Triggers and webhook plugins as every surface shows them: without secrets."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from infloop.application.models import Model
from infloop.application.problems import ShownProblem
from infloop.model.audit import fingerprint
from infloop.model.plugin import Plugin
from infloop.model.trigger import Trigger
from infloop.model.values import JsonObject, JsonValue

SECRETS = ("secret", "previousSecret")


class Predicate(Model, kw_only=True):
    """A comparison that a request must pass."""

    lhs: str
    op: str
    rhs: str


class Schedule(Model, kw_only=True):
    """When a schedule starts its workflow, and what happens to missed times."""

    cron: str
    time_zone: str
    misfire: Literal["once", "skip", "ask"]


class WatchedFiles(Model, kw_only=True):
    """Which changed files start a workflow."""

    directory: str
    globs: list[str]
    ignore: list[str]
    debounce_ms: int


class TriggerView(Model, kw_only=True):
    """A trigger. `secretSet` says whether it has a secret.

    The id of a webhook is its credential; `mark` is its fingerprint, which may be shown. It is the
    `trigger` of audit entries and refused firings, without the `#`. `nextAt` is the next time of a
    schedule that is enabled. `missed` counts the times of a schedule that somebody is asked about.
    """

    id: str
    mark: str
    name: str
    kind: str
    enabled: bool
    workflow_id: str
    plugin_id: str
    event_type: str | UnsetType = UNSET
    match: list[Predicate]
    inputs: dict[str, str]
    cwd: str | UnsetType = UNSET
    verify_optional: bool
    previous_secret_until: int | UnsetType = UNSET
    schedule: Schedule | UnsetType = UNSET
    files: WatchedFiles | UnsetType = UNSET
    last_fired_at: int | None
    next_at: int | None
    created_at: int | UnsetType = UNSET
    updated_at: int | UnsetType = UNSET
    secret_set: bool
    missed: int


class EventField(Model, kw_only=True):
    """A value that an event's requests hold."""

    path: str
    type: str
    description: str | UnsetType = UNSET


class PluginEvent(Model, kw_only=True):
    """An event that a sender knows; `examplePayload` is a request's body."""

    type: str
    display_name: str
    fields: list[EventField]
    example_payload: JsonValue | UnsetType = UNSET


class PluginSignature(Model, kw_only=True):
    """How a sender signs its requests."""

    header: str
    scheme: str
    format: str
    separator: str | UnsetType = UNSET
    signed: str
    id_header: str | UnsetType = UNSET
    timestamp_header: str | UnsetType = UNSET
    timestamp_prefix: str | UnsetType = UNSET
    tolerance_seconds: int
    secret_format: str


class PluginView(Model, kw_only=True):
    """A sender of webhooks: its events and how it signs them."""

    id: str
    display_name: str
    icon: str | UnsetType = UNSET
    event_header: str | UnsetType = UNSET
    event_path: str | UnsetType = UNSET
    delivery_path: str | UnsetType = UNSET
    challenge_path: str | UnsetType = UNSET
    events: list[PluginEvent]
    signature: PluginSignature | UnsetType = UNSET


class TriggerDetail(Model, kw_only=True):
    """One trigger."""

    trigger: TriggerView


class TriggerList(Model, kw_only=True):
    """All triggers, or those of one workflow."""

    triggers: list[TriggerView]


class PluginList(Model, kw_only=True):
    """Senders of webhooks, the generic one first; `problems` are those of their files."""

    plugins: list[PluginView]
    problems: list[ShownProblem]


class TrialResult(Model, kw_only=True):
    """What the sender would have been answered. The run is a real one.

    `detail` says more about a refusal than the sender learns.
    """

    status: int
    body: JsonObject | None
    detail: str


class DryRun(Model, kw_only=True):
    """What a request would be answered, and the run it would start. Nothing was started.

    `untrusted` names the inputs that come from the request. `workflowId` is null without a run.
    """

    status: int
    reason: str
    detail: str
    workflow_id: str | None
    inputs: JsonObject
    untrusted: list[str]


class TriggerReport(Model, kw_only=True):
    """A trigger, and everything that is wrong with it. An unusable file has only problems.

    `event` says in words what fires it; `details` say more.
    """

    id: str
    problems: list[ShownProblem]
    trigger: TriggerView | None = None
    event: str = ""
    details: list[str] = msgspec.field(default_factory=list)
    takes_requests: bool = False
    plugin: PluginView | None = None


class WebhookAccepted(Model, kw_only=True):
    """A webhook's run is in the queue; position 1 is next."""

    queued: Literal[True]
    queue_id: str
    position: int
    correlation_id: str


def trigger_view(trigger: Trigger, missed: int, next_at: int | None) -> TriggerView:
    """Return a trigger without its secrets."""
    content = trigger.to_json()
    for name in SECRETS:
        content.pop(name, None)
    shown = {
        "lastFiredAt": None,
        **content,
        "name": trigger.display_name,
        "secretSet": bool(trigger.secret),
        "missed": missed,
        "mark": fingerprint(trigger.id).removeprefix("#"),
        "nextAt": next_at,
    }
    return msgspec.convert(shown, TriggerView)


def plugin_view(plugin: Plugin) -> PluginView:
    return msgspec.convert(plugin.to_json(), PluginView)
