"""Makes a test request as the sender of a trigger would.

It is signed with the trigger's own secret and handled like any other request.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from infloop.triggers.signatures import sign
from infloop.triggers.webhook import Delivery

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infloop.model.plugin import Plugin
    from infloop.model.trigger import Trigger


def trial_delivery(
    trigger: Trigger,
    plugin: Plugin,
    now_ms: int,
    *,
    request_id: str,
    payload: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Delivery:
    """Return a request with the trigger's event; the default body is the plugin's example.

    `headers` override those of the sender. Raises ValueError if the trigger's secret does not fit
    the plugin.
    """
    body = json.dumps(example(trigger, plugin)).encode() if payload is None else payload
    made = {"content-type": "application/json"}
    if plugin.event_header and trigger.event_type:
        made[plugin.event_header] = trigger.event_type
    if plugin.signature and trigger.secret:
        made |= sign(plugin.signature, trigger.secret, body, now_ms, request_id)
    made |= {name.lower(): value for name, value in (headers or {}).items()}
    return Delivery(trigger.id, tuple(made.items()), body, remote="trial", is_trial=True)


def example(trigger: Trigger, plugin: Plugin) -> object:
    """Return the plugin's example body for the trigger's event; empty if there is none."""
    for event in plugin.events:
        if event.type == trigger.event_type or not trigger.event_type:
            return event.example_payload if event.example_payload is not None else {}
    return {}
