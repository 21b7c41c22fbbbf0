"""Turns a webhook request into an answer.

The order of checks is part of the security promise:

    size        a body that is too large or compressed is refused unread
    trigger     it exists, is enabled, and its plugin exists; the next check happens either way
    signature   over the bytes that arrived
    rate        a number of genuine requests a minute for each trigger
    event       the one that the trigger waits for
    body        text that can be stored, and no multipart body
    workflow    it exists
    predicates  all of them hold
    inputs      they fit the workflow
    start       the run could start here and now
    replay      no request with another id was signed alike within a day
    queue       the run is durable before it is acknowledged

A sender learns nothing before the signature check. An unknown address, a disabled trigger and a
wrong signature get the same answer after the same work, under the same limits. Refusals are limited
for each network address of senders, and for groups of trigger ids. Genuine requests are not counted
there, because all senders behind a proxy share one address; and forged ones are not counted where
genuine ones are.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from infloop.model.hosts import sender_network
from infloop.model.inputs import InputError
from infloop.model.template import Missing, TooLong
from infloop.model.trigger import is_trigger_id
from infloop.model.values import as_text
from infloop.policy.rate import RateLimit
from infloop.triggers import kind_named
from infloop.triggers.firing import prepare
from infloop.triggers.payload import BadBody, read_body, request_values
from infloop.triggers.signatures import header, simulate_check, verify

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from infloop.model.plugin import Plugin
    from infloop.model.trigger import Trigger
    from infloop.model.values import JsonObject
    from infloop.model.workflow import Workflow
    from infloop.triggers.firing import Firing
    from infloop.triggers.payload import Values
    from infloop.triggers.signatures import Headers

MAX_BODY_BYTES = 1 << 20
REQUESTS_PER_MINUTE = 120
RETRY_SECONDS = 30
# Ids share this many counters of refusals, so that guessed ones need no memory each.
_ID_GROUPS = 64
# Looked up where there is no trigger, so that the same files are looked at.
_DECOY_PLUGIN = "github"
_DELIVERY_HEADERS = ("x-github-delivery", "webhook-id", "idempotency-key")
_LONGEST_KEY = 200
_LONGEST_CHALLENGE = 500


class Delivery(msgspec.Struct, frozen=True):
    """A request as it arrived; `remote` is the network address of the sender.

    A trial may be repeated: the operator sends it.
    """

    trigger_id: str
    headers: Headers
    body: bytes
    query: Headers = ()
    remote: str = ""
    is_trial: bool = False


class WebhookAnswer(msgspec.Struct, frozen=True):
    """The answer to a request, and what only the log learns.

    - `reason` is a word for the log, `detail` is more text for it.
    - `trigger_id` is empty if no trigger has that id, so the log knows which requests were for an
      existing one.
    """

    status: int
    reason: str
    body: JsonObject | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    trigger_id: str = ""
    detail: str = ""
    firing: Firing | None = None


class QueuePosition(msgspec.Struct, frozen=True):
    """The position of a run in the queue."""

    queue_id: str
    position: int


class CannotStart(msgspec.Struct, frozen=True):
    """The run could not start, so it was not queued. Only the log learns the `message`."""

    reason: str
    message: str


NotQueued: TypeAlias = Literal["queue-full", "replayed"] | CannotStart


class Lookup(Protocol):
    """Finds triggers, plugins and workflows by their ids, as they are now."""

    def trigger(self, trigger_id: str) -> Trigger | None:
        """Return the trigger, or None."""

    def plugin(self, plugin_id: str) -> Plugin | None:
        """Return the plugin, or None."""

    def workflow(self, workflow_id: str) -> Workflow | None:
        """Return the workflow, or None if there is none that can run."""


class _Rejected(Exception):
    """A check failed with this answer."""

    def __init__(self, answer: WebhookAnswer) -> None:
        super().__init__(answer.reason)
        self.answer = answer


CountRequest: TypeAlias = "Callable[[str, int], Awaitable[int]]"


class Webhooks:
    """Answers requests and passes runs to `enqueue`, which makes them durable.

    `enqueue` returns the position of the run; for a known key, that of the first run; or why it is
    not queued. It also records when the trigger last fired. `count` counts a genuine request to a
    trigger, for all servers together, and returns the seconds to wait if there were too many.
    Others are counted here: whoever sends them must not reach the database.
    """

    def __init__(
        self,
        lookup: Lookup,
        enqueue: Callable[[Firing], Awaitable[QueuePosition | NotQueued]],
        *,
        per_minute: int = REQUESTS_PER_MINUTE,
        count: CountRequest | None = None,
    ) -> None:
        self._lookup = lookup
        self._enqueue = enqueue
        self._requests = RateLimit(per_minute)
        self._count = count or self._count_here
        self._refusals = RateLimit(per_minute)
        self._refused_ids = RateLimit(per_minute)

    async def receive(self, delivery: Delivery, now_ms: int) -> WebhookAnswer:
        """Return the answer to a request; no content of a request raises an error."""
        try:
            firing, warning = await self._check(delivery, now_ms)
        except _Rejected as refused:
            return refused.answer
        position = await self._enqueue(firing)
        retry = {"Retry-After": str(RETRY_SECONDS)}
        if isinstance(position, CannotStart):
            body: JsonObject = {"error": "cannot-start", "reason": position.reason}
            return WebhookAnswer(
                503, position.reason, body, retry, firing.trigger_id, position.message
            )
        if position == "queue-full":
            body = {"error": "queue-full"}
            return WebhookAnswer(503, "queue-full", body, retry, firing.trigger_id)
        if position == "replayed":
            return WebhookAnswer(409, "replayed", {"error": "replayed"}, {}, firing.trigger_id)
        body = {
            "queued": True,
            "queueId": position.queue_id,
            "position": position.position,
        }
        return WebhookAnswer(
            202, "accepted", body, trigger_id=firing.trigger_id, detail=warning, firing=firing
        )

    async def _check(self, delivery: Delivery, now_ms: int) -> tuple[Firing, str]:
        """Return the run that a request asks for, and a warning for the log.

        Raises the answer of the first check that fails.
        """
        _check_size(delivery)
        trigger = self._find(delivery.trigger_id)
        plugin = self._lookup.plugin(trigger.plugin_id if trigger else _DECOY_PLUGIN)
        if trigger is None or plugin is None or not trigger.enabled:
            simulate_check(delivery.headers, delivery.body, now_ms)
            raise self._refusal(delivery, trigger, _absence_reason(trigger), now_ms)
        warning, fingerprint = await self._check_signature(delivery, trigger, plugin, now_ms)
        await self._check_rate(trigger, now_ms)
        scope = _check_event(delivery, trigger, plugin)
        workflow = self._lookup.workflow(trigger.workflow_id)
        if workflow is None:
            raise _Rejected(_rejection(404, "not-found", trigger, "its workflow is missing"))
        firing = _make_firing(delivery, trigger, plugin, workflow, scope)
        if fingerprint and not delivery.is_trial:
            firing = replace(firing, fingerprint=f"{trigger.id}:{fingerprint}")
        return firing, warning

    def _find(self, trigger_id: str) -> Trigger | None:
        trigger = self._lookup.trigger(trigger_id) if is_trigger_id(trigger_id) else None
        takes_requests = trigger is not None and kind_named(trigger.kind).takes_requests
        return trigger if takes_requests else None

    async def _check_rate(self, trigger: Trigger, now_ms: int) -> None:
        wait = await self._count(trigger.id, now_ms)
        if wait:
            raise _Rejected(_rate_limited(trigger, wait))

    async def _count_here(self, trigger_id: str, now_ms: int) -> int:
        return self._requests.take(trigger_id, now_ms)

    async def _check_signature(
        self, delivery: Delivery, trigger: Trigger, plugin: Plugin, now_ms: int
    ) -> tuple[str, str]:
        """Return a warning for the log, and what a replay of this request is recognised by."""
        signature = plugin.signature
        if signature is None:
            if trigger.secret:  # the secret would never be checked
                raise await self._misconfigured(trigger, "its plugin does not sign", now_ms)
            return "", ""
        if not trigger.secret:
            if trigger.verify_optional:
                return "accepted without a signature", ""
            raise await self._misconfigured(trigger, "it has no secret", now_ms)
        verdict = verify(
            signature, valid_secrets(trigger, now_ms), delivery.headers, delivery.body, now_ms
        )
        if verdict.reason == "misconfigured":
            raise await self._misconfigured(trigger, "its secret does not fit its plugin", now_ms)
        if not verdict.ok:
            raise self._refusal(delivery, trigger, f"signature-{verdict.reason}", now_ms)
        return "", verdict.fingerprint

    async def _misconfigured(self, trigger: Trigger, detail: str, now_ms: int) -> _Rejected:
        await self._check_rate(trigger, now_ms)
        return _Rejected(_rejection(500, "trigger-misconfigured", trigger, detail))

    def _refusal(
        self, delivery: Delivery, trigger: Trigger | None, reason: str, now_ms: int
    ) -> _Rejected:
        group = zlib.crc32(delivery.trigger_id.encode(errors="replace")) % _ID_GROUPS
        wait = max(
            self._refusals.take(sender_network(delivery.remote), now_ms),
            self._refused_ids.take(str(group), now_ms),
        )
        if wait:
            return _Rejected(_rate_limited(trigger, wait))
        body: JsonObject = {"error": "bad-signature"}
        return _Rejected(WebhookAnswer(401, reason, body, {}, trigger.id if trigger else ""))


def valid_secrets(trigger: Trigger, now_ms: int) -> tuple[str, ...]:
    """Return the secrets that are valid now: the present one, and the previous one for a while."""
    before = trigger.previous_secret
    overlaps = before and now_ms < (trigger.previous_secret_until or 0)
    return tuple(filter(None, (trigger.secret, before if overlaps else None)))


# -- checks ----------------------------------------------------------------------------------


def _check_size(delivery: Delivery) -> None:
    if len(delivery.body) > MAX_BODY_BYTES:
        raise _Rejected(WebhookAnswer(413, "too-large", {"error": "payload-too-large"}))
    try:
        coding = header(delivery.headers, "content-encoding") or "identity"
    except ValueError:
        coding = "several"
    if coding.strip().lower() != "identity":
        raise _Rejected(WebhookAnswer(415, "encoded", {"error": "unsupported-content-encoding"}))


def _check_event(delivery: Delivery, trigger: Trigger, plugin: Plugin) -> Values:
    """Return the request for templates if its event is the one the trigger waits for."""
    if plugin.event_header:
        # Check the header before the body is parsed: most requests end here.
        names = [value for name, value in delivery.headers if name.lower() == plugin.event_header]
        _check_name(names[0] if len(names) == 1 else None, trigger)
    _check_media_type(delivery, trigger)
    try:
        body = read_body(delivery.body)
    except BadBody as error:
        raise _Rejected(_rejection(400, "invalid-body", trigger, str(error))) from None
    signature = plugin.signature
    hidden = (signature.header,) if signature and signature.is_token else ()
    scope = request_values(delivery.headers, delivery.query, body, hidden)
    if plugin.challenge_path and trigger.secret:
        _check_challenge(scope, trigger, plugin.challenge_path)
    if plugin.event_path:
        named = scope.lookup(plugin.event_path.split("."))
        _check_name(named if isinstance(named, str) else None, trigger)
    return scope


def _check_media_type(delivery: Delivery, trigger: Trigger) -> None:
    """Refuse forms with files: no template could name their parts."""
    kinds = [value for name, value in delivery.headers if name.lower() == "content-type"]
    if any(kind.strip().lower().startswith("multipart/") for kind in kinds):
        raise _Rejected(_rejection(415, "unsupported-media-type", trigger, "a multipart body"))


def _check_challenge(scope: Values, trigger: Trigger, path: str) -> None:
    """Answer a sender that tests the address; only signed requests get here."""
    challenge = scope.lookup(path.split("."))
    if isinstance(challenge, str) and len(challenge) <= _LONGEST_CHALLENGE:
        raise _Rejected(WebhookAnswer(200, "challenge", {"challenge": challenge}, {}, trigger.id))


def _check_name(name: str | None, trigger: Trigger) -> None:
    if name is None or name != trigger.event_type:
        raise _Rejected(WebhookAnswer(204, "other-event", trigger_id=trigger.id))


def _make_firing(
    delivery: Delivery, trigger: Trigger, plugin: Plugin, workflow: Workflow, scope: Values
) -> Firing:
    try:
        firing = prepare(trigger, workflow, scope)
    except InputError as error:
        body: JsonObject = {"error": "invalid-inputs", "field": error.field, "reason": error.reason}
        if error.reason == "type":
            body |= {"expected": error.expected, "got": error.got}
        raise _Rejected(
            WebhookAnswer(422, "invalid-inputs", body, {}, trigger.id, str(error))
        ) from None
    except TooLong as error:
        raise _Rejected(_rejection(422, "invalid-inputs", trigger, str(error))) from None
    if firing is None:
        raise _Rejected(WebhookAnswer(204, "no-match", trigger_id=trigger.id))
    return replace(firing, key=_delivery_key(delivery, trigger, plugin, scope))


def _delivery_key(delivery: Delivery, trigger: Trigger, plugin: Plugin, scope: Values) -> str:
    """Return the id that repetitions of this request share, or an empty string."""
    given: str | None = None
    if plugin.delivery_path:
        found = scope.lookup(plugin.delivery_path.split("."))
        given = None if isinstance(found, Missing) else as_text(found)
    if not given:  # of a repeated header, the first counts
        headers = {name.lower(): value for name, value in reversed(delivery.headers)}
        given = next(filter(None, map(headers.get, _DELIVERY_HEADERS)), None)
    if not given:
        return ""
    if len(given) > _LONGEST_KEY:
        given = hashlib.sha256(given.encode(errors="replace")).hexdigest()
    return f"{trigger.id}:{given}"


# -- answers ---------------------------------------------------------------------------------


def _absence_reason(trigger: Trigger | None) -> str:
    """Return the word for the log if an address cannot fire."""
    if trigger is None:
        return "unknown-trigger"
    return "unknown-plugin" if trigger.enabled else "disabled"


def _rejection(status: int, error: str, trigger: Trigger, detail: str) -> WebhookAnswer:
    return WebhookAnswer(status, error, {"error": error}, {}, trigger.id, detail)


def _rate_limited(trigger: Trigger | None, wait: int) -> WebhookAnswer:
    body: JsonObject = {"error": "rate-limited"}
    retry = {"Retry-After": str(wait)}
    return WebhookAnswer(429, "rate-limited", body, retry, trigger.id if trigger else "")
