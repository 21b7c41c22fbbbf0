"""What became of the requests and times that fired a trigger, from the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from infloop.application.models import Model
from infloop.model.audit import AuditFilter, fingerprint, utc_ms
from infloop.store.audit.reading import newest

if TYPE_CHECKING:
    from pathlib import Path

    from infloop.model.audit import AuditEntry

Verdict: TypeAlias = Literal["queued", "ignored", "refused"]

VERDICTS: dict[str, Verdict] = {
    "webhook.accepted": "queued",
    "run.queued": "queued",
    "webhook.ignored": "ignored",
    "webhook.refused": "refused",
    "trigger.refused": "refused",
}
_ACCEPTED = 202


class TriggerDelivery(Model, kw_only=True):
    """One firing of a trigger. `status` is what a sender was answered; null without a request.

    `reason` is a word for programs, `detail` says more. Equal refusals in a row may be one entry
    with a `count`.
    """

    at: int
    verdict: Verdict
    status: int | None
    reason: str
    detail: str
    correlation_id: str
    run_id: str | None
    count: int


class DeliveryList(Model, kw_only=True):
    """The newest firings of a trigger, newest first."""

    deliveries: list[TriggerDelivery]


def read_deliveries(audit: Path, trigger_id: str, limit: int) -> DeliveryList:
    """Return the newest firings of a trigger. Blocks."""
    wanted = AuditFilter(events=frozenset(VERDICTS), trigger=fingerprint(trigger_id))
    found = newest(audit, wanted, limit).entries
    return DeliveryList(deliveries=[_delivery(entry) for entry in found])


def _delivery(entry: AuditEntry) -> TriggerDelivery:
    status, count = entry.details.get("status"), entry.details.get("count")
    if entry.event == "webhook.accepted":
        status = _ACCEPTED
    return TriggerDelivery(
        at=utc_ms(entry.time),
        verdict=VERDICTS[entry.event],
        status=status if isinstance(status, int) else None,
        reason=entry.outcome,
        detail=str(entry.details.get("detail", "")),
        correlation_id=entry.correlation_id,
        run_id=entry.run_id or None,
        count=count if isinstance(count, int) else 1,
    )
