"""From a request to an answer.

The order of checks is part of what is promised, so it is written down here and nowhere else:

    size        a body that is too large or compressed is not looked at
    trigger     … is there one, is it on, is its plugin known; what follows happens either way
    rate        so many requests a minute at each address, existing or not
    signature   over the bytes that arrived
    event       the one that the trigger waits for
    workflow    … is there one
    predicates  all of them
    inputs      that fit the workflow
    queue       the run is durable before it is acknowledged

Up to the signature a request learns nothing: an address that does not exist, one that is switched
off and a wrong signature get the same answer after the same work, and are held to the same limits.
So many refusals a minute are answered for each sender's network address; that of a genuine request
is never counted, because everybody behind a proxy shares it.
"""

from __future__ import annotations

import hashlib
import ipaddress
import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from infloop.model.inputs import InputError
from infloop.model.template import Missing, TooLong
from infloop.model.trigger import is_trigger_id
from infloop.model.values import as_text
from infloop.policy.rate import RateLimit
from infloop.triggers.firing import prepare
from infloop.triggers.payload import BadBody, read_body, request_values
from infloop.triggers.signatures import header, pretend, verify

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
QUEUE_FULL_RETRY_SECONDS = 30
# Addresses that do not exist share so many counters: they cost no memory, however many there are.
_STRANGERS = 64
_DELIVERY_HEADERS = ("x-github-delivery", "webhook-id", "idempotency-key")
_LONGEST_KEY = 200
_LONGEST_CHALLENGE = 500


@dataclass(frozen=True, slots=True)
class Delivery:
    """A request as it arrived; `remote` is the network address of whoever sent it."""

    trigger_id: str
    headers: Headers
    body: bytes
    query: Headers = ()
    remote: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the sender is told, and what only the log is.

    `reason` is one word for the log, `detail` says more. `trigger_id` is empty where no trigger
    has that id, so that the log knows which requests were for an existing one.
    """

    status: int
    reason: str
    body: JsonObject | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    trigger_id: str = ""
    detail: str = ""
    firing: Firing | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the queue a run is."""

    queue_id: str
    position: int


class Desk(Protocol):
    """Where triggers, plugins and workflows are found by their ids, as they are now."""

    def trigger(self, trigger_id: str) -> Trigger | None:
        """Return the trigger, or None."""

    def plugin(self, plugin_id: str) -> Plugin | None:
        """Return the plugin, or None."""

    def workflow(self, workflow_id: str) -> Workflow | None:
        """Return the workflow, or None when there is none that could run."""


class _Unanswered(Exception):
    """A check failed: this is the answer."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.reason)
        self.answer = answer


class Webhooks:
    """Answers requests. What is asked for is handed to `enqueue`, and is durable when it returns.

    `enqueue` returns the run's place, for a key that it knows the first one's, or None when the
    queue is full. It also remembers when the trigger last fired.
    """

    def __init__(
        self,
        desk: Desk,
        enqueue: Callable[[Firing], Awaitable[Place | None]],
        *,
        per_minute: int = REQUESTS_PER_MINUTE,
    ) -> None:
        self._desk = desk
        self._enqueue = enqueue
        self._requests = RateLimit(per_minute)
        self._refusals = RateLimit(per_minute)

    async def receive(self, delivery: Delivery, now_ms: int) -> Answer:
        """Return the answer to a request; nothing it holds can raise an error."""
        try:
            firing, warning = self._judged(delivery, now_ms)
        except _Unanswered as refused:
            return refused.answer
        place = await self._enqueue(firing)
        if place is None:
            return Answer(
                503,
                "queue-full",
                {"error": "queue-full"},
                {"Retry-After": str(QUEUE_FULL_RETRY_SECONDS)},
                firing.trigger_id,
            )
        said: JsonObject = {
            "queued": True,
            "queueId": place.queue_id,
            "position": place.position,
        }
        return Answer(202, "accepted", said, {}, firing.trigger_id, warning, firing)

    def _judged(self, delivery: Delivery, now_ms: int) -> tuple[Firing, str]:
        """Return what a request asks for, and what the log is warned of.

        Raises the answer of the first check that fails.
        """
        _check_size(delivery)
        trigger = self._find(delivery.trigger_id)
        plugin = self._desk.plugin(trigger.plugin_id if trigger else "")
        self._check_rate(delivery, trigger, now_ms)
        if trigger is None or plugin is None or not trigger.enabled:
            pretend(delivery.headers, delivery.body, now_ms)
            raise self._refusal(delivery, trigger, _absence(trigger), now_ms)
        warning = self._check_signature(delivery, trigger, plugin, now_ms)
        scope = _check_event(delivery, trigger, plugin)
        workflow = self._desk.workflow(trigger.workflow_id)
        if workflow is None:
            raise _Unanswered(_refused(404, "not-found", trigger, "its workflow is missing"))
        return _prepared(delivery, trigger, plugin, workflow, scope), warning

    def _find(self, trigger_id: str) -> Trigger | None:
        trigger = self._desk.trigger(trigger_id) if is_trigger_id(trigger_id) else None
        return trigger if trigger is not None and trigger.kind == "webhook" else None

    def _check_rate(self, delivery: Delivery, trigger: Trigger | None, now_ms: int) -> None:
        stranger = f"?{zlib.crc32(delivery.trigger_id.encode(errors='replace')) % _STRANGERS}"
        wait = self._requests.take(trigger.id if trigger else stranger, now_ms)
        if wait:
            raise _Unanswered(_too_often(trigger, wait))

    def _check_signature(
        self, delivery: Delivery, trigger: Trigger, plugin: Plugin, now_ms: int
    ) -> str:
        """Return what the log is warned of although the request is taken."""
        signature = plugin.signature
        if signature is None:
            if trigger.secret:  # whoever set it counts on something that nobody checks
                raise _Unanswered(_misconfigured(trigger, "its plugin does not sign"))
            return ""
        if not trigger.secret:
            if trigger.verify_optional:
                return "taken unsigned: nothing proves who sent it"
            raise _Unanswered(_misconfigured(trigger, "it has no secret"))
        verdict = verify(
            signature, secrets_at(trigger, now_ms), delivery.headers, delivery.body, now_ms
        )
        if verdict.reason == "misconfigured":
            raise _Unanswered(_misconfigured(trigger, "its secret does not fit its plugin"))
        if not verdict.ok:
            raise self._refusal(delivery, trigger, f"signature-{verdict.reason}", now_ms)
        return ""

    def _refusal(
        self, delivery: Delivery, trigger: Trigger | None, reason: str, now_ms: int
    ) -> _Unanswered:
        wait = self._refusals.take(_network(delivery.remote), now_ms)
        if wait:
            return _Unanswered(_too_often(trigger, wait))
        body: JsonObject = {"error": "bad-signature"}
        return _Unanswered(Answer(401, reason, body, {}, trigger.id if trigger else ""))


def secrets_at(trigger: Trigger, now_ms: int) -> tuple[str, ...]:
    """Return the secrets that count at this moment: the one, and the one before it for a while."""
    before = trigger.previous_secret
    overlaps = before and now_ms < (trigger.previous_secret_until or 0)
    return tuple(filter(None, (trigger.secret, before if overlaps else None)))


# -- checks ----------------------------------------------------------------------------------


def _check_size(delivery: Delivery) -> None:
    if len(delivery.body) > MAX_BODY_BYTES:
        raise _Unanswered(Answer(413, "too-large", {"error": "payload-too-large"}))
    try:
        coding = header(delivery.headers, "content-encoding") or "identity"
    except ValueError:
        coding = "several"
    if coding.strip().lower() != "identity":
        raise _Unanswered(Answer(415, "encoded", {"error": "unsupported-content-encoding"}))


def _check_event(delivery: Delivery, trigger: Trigger, plugin: Plugin) -> Values:
    """Return the request for templates, if its event is the one the trigger waits for."""
    if plugin.event_header:
        # By the header alone, where that is possible: most requests end here.
        names = [value for name, value in delivery.headers if name.lower() == plugin.event_header]
        _check_name(names[0] if len(names) == 1 else None, trigger)
    try:
        body = read_body(delivery.body)
    except BadBody as error:
        raise _Unanswered(_refused(400, "invalid-body", trigger, str(error))) from None
    signature = plugin.signature
    hidden = (signature.header,) if signature and signature.scheme == "token" else ()
    scope = request_values(delivery.headers, delivery.query, body, hidden)
    if plugin.challenge_path and trigger.secret:
        _check_challenge(scope, trigger, plugin.challenge_path)
    if plugin.event_path:
        named = scope.lookup(plugin.event_path.split("."))
        _check_name(named if isinstance(named, str) else None, trigger)
    return scope


def _check_challenge(scope: Values, trigger: Trigger, path: str) -> None:
    """Answer a sender that tries the address out; only signed requests come here."""
    challenge = scope.lookup(path.split("."))
    if isinstance(challenge, str) and len(challenge) <= _LONGEST_CHALLENGE:
        raise _Unanswered(Answer(200, "challenge", {"challenge": challenge}, {}, trigger.id))


def _check_name(name: str | None, trigger: Trigger) -> None:
    if name is None or name != trigger.event_type:
        raise _Unanswered(Answer(204, "other-event", trigger_id=trigger.id))


def _prepared(
    delivery: Delivery, trigger: Trigger, plugin: Plugin, workflow: Workflow, scope: Values
) -> Firing:
    try:
        firing = prepare(trigger, workflow, scope)
    except InputError as error:
        said: JsonObject = {"error": "invalid-inputs", "field": error.field, "reason": error.reason}
        if error.reason == "type":
            said |= {"expected": error.expected, "got": error.got}
        raise _Unanswered(Answer(422, "invalid-inputs", said, {}, trigger.id, str(error))) from None
    except TooLong as error:
        raise _Unanswered(_refused(422, "invalid-inputs", trigger, str(error))) from None
    if firing is None:
        raise _Unanswered(Answer(204, "no-match", trigger_id=trigger.id))
    return replace(firing, key=_delivery_key(delivery, trigger, plugin, scope))


def _delivery_key(delivery: Delivery, trigger: Trigger, plugin: Plugin, scope: Values) -> str:
    """Return what a repetition of this request has in common with it, or nothing."""
    given: str | None = None
    if plugin.delivery_path:
        found = scope.lookup(plugin.delivery_path.split("."))
        given = None if isinstance(found, Missing) else as_text(found)
    for name in _DELIVERY_HEADERS:
        if not given:
            given = next((value for key, value in delivery.headers if key.lower() == name), None)
    if not given:
        return ""
    if len(given) > _LONGEST_KEY:
        given = hashlib.sha256(given.encode(errors="replace")).hexdigest()
    return f"{trigger.id}:{given}"


# -- answers ---------------------------------------------------------------------------------


def _absence(trigger: Trigger | None) -> str:
    """Return the log's word for an address at which nothing can be fired."""
    if trigger is None:
        return "unknown-trigger"
    return "unknown-plugin" if trigger.enabled else "disabled"


def _refused(status: int, error: str, trigger: Trigger, detail: str) -> Answer:
    return Answer(status, error, {"error": error}, {}, trigger.id, detail)


def _misconfigured(trigger: Trigger, detail: str) -> Answer:
    return _refused(500, "trigger-misconfigured", trigger, detail)


def _too_often(trigger: Trigger | None, wait: int) -> Answer:
    body: JsonObject = {"error": "rate-limited"}
    retry = {"Retry-After": str(wait)}
    return Answer(429, "rate-limited", body, retry, trigger.id if trigger else "")


def _network(remote: str) -> str:
    """Return what is counted as one sender: an IPv4 address, or the /64 that a host is given."""
    try:
        address = ipaddress.ip_address(remote.partition("%")[0])
    except ValueError:
        return remote[:64]
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)
