"""Triggers that fire on an HTTP request; `infloop.triggers.webhook` answers it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.model.audit import Actor
from infloop.model.problems import short_repr
from infloop.triggers.kinds.base import TriggerKind
from infloop.triggers.signatures import MIN_SECRET_BYTES, accepts_secret, is_short_secret

if TYPE_CHECKING:
    import argparse

    from infloop.model.plugin import Plugin
    from infloop.model.problems import Report
    from infloop.model.trigger import Trigger
    from infloop.model.values import JsonObject
    from infloop.triggers.kinds.base import OptionGroup


class WebhookKind(TriggerKind):
    """A request from a sender that a plugin describes."""

    name = "webhook"
    title = "webhooks"
    takes_requests = True
    actor = Actor("webhook")
    queued_event = "webhook.accepted"

    def add_options(self, group: OptionGroup) -> None:
        group.add_argument("--plugin", metavar="ID", default="generic", help="default: generic")
        group.add_argument("--event", metavar="TYPE", help="the event to react to")
        group.add_argument("--secret", action="store_true", help="ask for the sender's secret")
        group.add_argument(
            "--unsigned", action="store_true", help="take requests without signature"
        )

    def is_chosen(self, args: argparse.Namespace) -> bool:
        return False  # it is the default

    def fields(self, args: argparse.Namespace) -> JsonObject:
        return {
            "pluginId": args.plugin,
            "eventType": args.event,
            "verifyOptional": args.unsigned,
        }

    def describe(self, trigger: Trigger) -> str:
        event = f", event {trigger.event_type!r}," if trigger.event_type else ""
        return f"a webhook of {trigger.plugin_id!r}{event}"

    def check(self, trigger: Trigger, plugin: Plugin | None, report: Report) -> None:
        if plugin is None:
            report.error("pluginId", f"there is no plugin {short_repr(trigger.plugin_id)}")
            return
        known = [event.type for event in plugin.events]
        if (plugin.event_header or plugin.event_path) and not trigger.event_type:
            report.error("eventType", "is missing", f"{plugin.id!r} has: {', '.join(known[:20])}")
        elif trigger.event_type and trigger.event_type not in known:
            report.error(
                "eventType",
                f"{plugin.id!r} has no event {short_repr(trigger.event_type)}",
                report.guess(trigger.event_type, known),
            )
        _check_secret(trigger, plugin, report)


def needs_secret(trigger: Trigger, plugin: Plugin) -> bool:
    """Tell whether a trigger lacks the secret without which all its requests are refused."""
    return plugin.signature is not None and not trigger.secret and not trigger.verify_optional


def _check_secret(trigger: Trigger, plugin: Plugin, report: Report) -> None:
    signature = plugin.signature
    if needs_secret(trigger, plugin):
        report.error(
            "secret",
            f"is missing: {plugin.id!r} signs its requests",
            "set the sender's secret, or verifyOptional to take unsigned requests",
        )
    elif signature is None and trigger.secret:
        report.error(
            "secret", f"proves nothing: {plugin.id!r} does not sign", "remove it, or use a plugin"
        )
    elif signature is not None and trigger.secret and not accepts_secret(signature, trigger.secret):
        report.error(
            "secret", f"does not have the format of {plugin.id!r}", "it is whsec_ and base64"
        )
    elif signature is not None and not trigger.secret:
        report.warning("verifyOptional", "nothing proves who sends the requests")
    elif signature is not None and is_short_secret(signature, trigger.secret or ""):
        report.warning(
            "secret",
            f"has fewer than {MIN_SECRET_BYTES} bytes and can be guessed",
            "set a longer one here and at the sender with `infloop triggers secret`",
        )
