"""Webhooks: from a request to an answer, over real files of triggers, plugins and workflows."""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infloop.catalog.plugins import PluginFiles
from infloop.catalog.triggers import TriggerFiles, new_trigger_id
from infloop.cli import run as infloop
from infloop.errors import UsageError
from infloop.model.plugin import GENERIC
from infloop.model.template import Template
from infloop.model.trigger import is_trigger_id, parse_trigger
from infloop.policy.rate import RateLimit
from infloop.triggers.checks import check_trigger
from infloop.triggers.kinds.webhook import needs_secret
from infloop.triggers.payload import Values
from infloop.triggers.trial import trial_delivery
from infloop.triggers.webhook import MAX_BODY_BYTES, WebhookAnswer
from support.webhooks import BODY, ID, NOW, SECRET, TRIGGER, WORKFLOW, Stand

OTHER = "Qp3bBKPc04r3UQGQt71Dsw"
ANOTHER = "another-secret-0123456789"


async def test_a_genuine_request_is_queued_with_its_inputs(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.trigger()
    answer = await stand.post()
    assert (answer.status, answer.reason) == (202, "accepted")
    assert answer.body == {"queued": True, "queueId": "q-0", "position": 1}
    (firing,) = stand.queued
    assert (firing.trigger_id, firing.workflow_id) == (ID, "review")
    assert firing.inputs == {"title": "It breaks", "count": 0, "urgent": False}
    assert (firing.cause.kind, firing.cause.detail) == ("webhook", "opened")


async def test_what_came_from_outside_is_named_and_what_the_author_wrote_is_not(
    tmp_path: Path,
) -> None:
    stand = Stand(tmp_path)
    stand.trigger(inputs={"title": "issue: {{body.issue.title}}", "count": "7", "urgent": "TRUE"})
    await stand.post()
    assert stand.queued[0].inputs == {"title": "issue: It breaks", "count": 7, "urgent": True}
    assert stand.queued[0].cause.untrusted == ("title",)


# -- the order of checks ---------------------------------------------------------------------------

LARGE = b"x" * (MAX_BODY_BYTES + 1)


def wrong_workflow(stand: Stand) -> None:
    (stand.folder / "workflows/review.json").unlink()


def full_queue(stand: Stand) -> None:
    stand.room = 0


def no_input(stand: Stand) -> None:
    stand.trigger(inputs={"count": "many"})


Spoil = Callable[[Stand], None]
# From the last check to the first: each answer wins over all that are listed above it.
ORDER: list[tuple[int, Spoil, dict[str, Any]]] = [
    (503, full_queue, {}),
    (422, no_input, {}),
    (204, lambda stand: stand.trigger(match=[{"lhs": "a", "op": "==", "rhs": "b"}]), {}),
    (404, wrong_workflow, {}),
    (204, lambda stand: None, {"X_GitHub_Event": "push"}),
    (429, lambda stand: None, {}),
    (401, lambda stand: None, {"secret": "wrong"}),
    (401, lambda stand: None, {"to": OTHER}),
    (413, lambda stand: None, {"body": LARGE}),
]


@pytest.mark.parametrize("number", range(len(ORDER)))
async def test_the_first_check_that_fails_is_the_answer(number: int, tmp_path: Path) -> None:
    stand = Stand(tmp_path, per_minute=1)
    stand.trigger()
    sent: dict[str, Any] = {}
    for status, spoil, more in ORDER[: number + 1]:
        spoil(stand)
        sent |= more
        if status == 429:
            await stand.post()  # the one request of this minute
    answer = await stand.post(**sent)
    assert answer.status == ORDER[number][0]
    assert answer.status == 202 or answer.firing is None


@pytest.mark.claim("I22")
@pytest.mark.parametrize(
    "sent",
    [{"secret": "wrong"}, {"secret": None}, {"X_Hub_Signature_256": "sha256=" + "0" * 64}],
    ids=["wrong", "missing", "zeros"],
)
async def test_a_missing_or_wrong_signature_is_answered_401(
    sent: dict[str, Any], tmp_path: Path
) -> None:
    stand = Stand(tmp_path)
    stand.trigger()
    answer = await stand.post(**sent)
    assert answer.status == 401
    assert stand.queued == []
    assert answer.reason.startswith("signature-")


@pytest.mark.claim("I22")
async def test_the_signature_is_checked_over_the_bytes_that_arrived(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.trigger()
    spaced = BODY.replace(b": ", b" :  ")
    assert (await stand.post(spaced)).status == 202
    signed = hmac.new(SECRET.encode(), BODY, hashlib.sha256).hexdigest()
    changed = await stand.post(spaced, X_Hub_Signature_256=f"sha256={signed}")
    assert changed.status == 401


@pytest.mark.claim("I23")
async def test_a_signing_plugin_without_a_secret_is_misconfigured(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.trigger(secret=None)
    for secret in (None, SECRET, ""):
        answer = await stand.post(secret=secret)
        assert (answer.status, answer.body) == (500, {"error": "trigger-misconfigured"})
    assert stand.queued == []


@pytest.mark.claim("I24")
async def test_an_unsigned_request_is_taken_where_that_is_said_and_the_log_is_warned(
    tmp_path: Path,
) -> None:
    stand = Stand(tmp_path)
    stand.trigger(secret=None, verifyOptional=True)
    answer = await stand.post(secret=None)
    assert answer.status == 202
    assert answer.detail == "accepted without a signature"
    signed = Stand(tmp_path / "signed")
    signed.trigger(verifyOptional=True)
    assert (await signed.post(secret=None)).status == 401
    assert (await signed.post()).detail == ""


async def test_a_secret_that_nobody_would_check_is_refused(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.trigger(pluginId="generic", eventType=None)
    answer = await stand.post()
    assert (answer.status, answer.detail) == (500, "its plugin does not sign")


async def test_an_old_secret_counts_for_as_long_as_was_said(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.trigger(previousSecret="before", previousSecretUntil=NOW + 1000)
    for at, secret, status in (
        (NOW, SECRET, 202),
        (NOW + 999, "before", 202),
        (NOW + 1000, "before", 401),
        (NOW + 1000, SECRET, 202),
    ):
        assert (await stand.post(body(at - NOW), at=at, secret=secret)).status == status


# -- a stranger learns nothing ---------------------------------------------------------------------


def told(answer: WebhookAnswer) -> tuple[int, Any, dict[str, str]]:
    """What the sender sees of an answer."""
    return answer.status, answer.body, dict(answer.headers)


HIDDEN: dict[str, tuple[dict[str, Any] | None, dict[str, Any]]] = {
    "no such trigger": ({"id": OTHER}, {}),
    "one that is off": ({"enabled": False}, {}),
    "one whose plugin is gone": ({"pluginId": "gone"}, {}),
    "a schedule": (
        {"kind": "schedule", "schedule": {"cron": "0 0 * * *"}, "pluginId": "generic"},
        {},
    ),
    "a trigger whose file is broken": (None, {}),
    "an id that is a path": ({}, {"to": "../../../../etc/passwd"}),
    "an id that is too long": ({}, {"to": "a" * 100_000}),
    "an id with a NUL": ({}, {"to": f"{ID}\0"}),
    "an id that is no text": ({}, {"to": "\udc80" * 20}),
    "an empty id": ({}, {"to": ""}),
}


@pytest.mark.parametrize("case", HIDDEN)
async def test_what_is_not_there_is_answered_like_a_wrong_signature(
    case: str, tmp_path: Path
) -> None:
    changes, sent = HIDDEN[case]
    stand = Stand(tmp_path)
    if changes is None:
        (tmp_path / f"triggers/{ID}.json").write_text("{")
    else:
        stand.trigger(**changes)
    signed = Stand(tmp_path / "other")
    signed.trigger()
    wrong = await signed.post(secret="wrong")
    assert told(await stand.post(**sent)) == told(wrong) == (401, {"error": "bad-signature"}, {})


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"secret": "wrong"},
        {"secret": None},
        {"X_Hub_Signature_256": "x"},
        {"to": OTHER},
        {"to": OTHER, "secret": None},
    ],
    ids=str,
)
async def test_every_request_costs_one_pass_over_its_bytes(
    sent: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand = Stand(tmp_path)
    stand.trigger()
    real, passes = hmac.digest, list[bytes]()

    def counted(key: bytes, message: bytes, algorithm: Any) -> bytes:
        passes.append(message)
        return real(key, message, algorithm)

    monkeypatch.setattr(hmac, "digest", counted)
    await stand.post(**sent)
    assert passes == [BODY]


async def test_existing_and_other_addresses_are_held_to_the_same_limits(tmp_path: Path) -> None:
    answers = []
    for number, target in enumerate((ID, OTHER)):
        stand = Stand(tmp_path / str(number), per_minute=3)
        stand.trigger()
        sent = [await stand.post(to=target, secret="wrong", at=NOW + n * 100) for n in range(6)]
        answers.append([told(answer) for answer in sent])
    assert answers[0] == answers[1]
    assert [status for status, _, _ in answers[0]] == [401, 401, 401, 429, 429, 429]


async def test_guessing_from_one_address_is_answered_429_but_a_genuine_request_is_not(
    tmp_path: Path,
) -> None:
    stand = Stand(tmp_path, per_minute=5)
    stand.trigger()
    guesses = [await stand.post(to=new_trigger_id()) for _ in range(10)]
    assert [answer.status for answer in guesses] == [401] * 5 + [429] * 5
    assert (await stand.post(secret="wrong")).status == 429
    assert (await stand.post()).status == 202
    elsewhere = await stand.post(to=new_trigger_id(), remote="198.51.100.7")
    assert elsewhere.status == 401


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("192.0.2.1", "::ffff:192.0.2.1", False),
        ("not an address", "not an address", True),
    ],
)
async def test_an_ipv6_host_is_one_sender_whatever_address_it_takes(
    first: str, second: str, same: bool, tmp_path: Path
) -> None:
    stand = Stand(tmp_path, per_minute=1)
    # Two ids of different groups: those of one group are limited together.
    assert (await stand.post(to=f"{0:032x}", remote=first)).status == 401
    again = await stand.post(to=f"{1:032x}", remote=second)
    assert again.status == (429 if same else 401)


async def test_ten_thousand_guesses_cost_no_memory_and_are_limited_together(
    tmp_path: Path,
) -> None:
    stand = Stand(tmp_path)
    statuses = [
        (await stand.post(b"", to=new_trigger_id(), remote=f"10.0.{n >> 8}.{n & 255}")).status
        for n in range(10_000)
    ]
    assert statuses.count(429) > 0
    assert set(statuses) == {401, 429}
    assert len(stand.webhooks._requests) <= 64


async def test_a_trigger_takes_so_many_requests_a_minute(tmp_path: Path) -> None:
    stand = Stand(tmp_path, room=1_000, per_minute=120)
    stand.trigger()
    stand.trigger(id=OTHER)
    statuses = [(await stand.post(body(n), at=NOW + n)).status for n in range(121)]
    assert statuses == [202] * 120 + [429]
    refused = await stand.post(at=NOW + 30_000)
    assert told(refused) == (429, {"error": "rate-limited"}, {"Retry-After": "30"})
    assert (await stand.post(to=OTHER, at=NOW + 30_000)).status == 202
    assert (await stand.post(at=NOW + 59_999)).status == 429
    assert (await stand.post(body(200), at=NOW + 60_000)).status == 202


def body(number: int) -> bytes:
    """A body that no other request has."""
    return BODY + b" " * number


async def test_forged_requests_use_up_nothing_of_a_triggers_rate(tmp_path: Path) -> None:
    stand = Stand(tmp_path, per_minute=5)
    stand.trigger()
    remotes = ("192.0.2.1", "198.51.100.7", "203.0.113.9")
    forged = [
        (await stand.post(body(n), secret="wrong", remote=remotes[n % 3], at=NOW + n)).status
        for n in range(300)
    ]
    assert set(forged) == {401, 429}
    assert forged.count(401) == 5
    genuine = [(await stand.post(body(n), at=NOW + 400 + n)).status for n in range(6)]
    assert genuine == [202] * 5 + [429]


async def test_a_misconfigured_trigger_is_limited_too(tmp_path: Path) -> None:
    stand = Stand(tmp_path, per_minute=3)
    stand.trigger(secret=None)
    statuses = [(await stand.post(secret=None)).status for _ in range(5)]
    assert statuses == [500] * 3 + [429] * 2


@pytest.mark.parametrize(
    "kind", ["multipart/form-data; boundary=x", "Multipart/Mixed", " multipart/related"]
)
async def test_a_multipart_body_is_refused_after_its_signature(kind: str, tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.trigger()
    form = b'--x\r\nContent-Disposition: form-data; name="action"\r\n\r\nopened\r\n--x--\r\n'
    answer = await stand.post(form, Content_Type=kind)
    assert told(answer) == (415, {"error": "unsupported-media-type"}, {})
    assert (await stand.post(form, Content_Type=kind, secret="wrong")).status == 401
    assert stand.queued == []


@pytest.mark.parametrize("kind", ["application/json", "application/x-www-form-urlencoded", "", "x"])
async def test_any_other_media_type_is_taken_as_it_is(kind: str, tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.trigger()
    assert (await stand.post(Content_Type=kind)).status == 202


# -- rates -----------------------------------------------------------------------------------------


def test_in_no_minute_are_there_more_than_allowed() -> None:
    limit = RateLimit(10)
    passed = [at for at in range(0, 300_000, 700) if limit.take("a", at) == 0]
    assert all(
        later - earlier >= 60_000 for earlier, later in zip(passed, passed[10:], strict=False)
    )
    assert len(passed) == 50


def test_after_the_seconds_that_were_said_the_next_one_passes() -> None:
    limit = RateLimit(2)
    assert [limit.take("a", at) for at in (0, 100, 500)] == [0, 0, 60]
    assert limit.take("a", 59_001) == 1
    assert limit.take("a", 60_001) == 0


def test_memory_is_bounded_and_the_quietest_key_is_forgotten() -> None:
    limit = RateLimit(1, max_keys=3)
    for key in ("a", "b", "c", "d"):
        assert limit.take(key, 0) == 0
    assert len(limit) == 3
    assert limit.take("d", 1) > 0
    assert limit.take("a", 1) == 0


def test_a_clock_that_is_set_back_locks_nobody_out() -> None:
    limit = RateLimit(1)
    assert limit.take("a", 10**12) == 0
    assert limit.take("a", 10**12 - 86_400_000) == 0


def test_no_limit_counts_nothing_and_a_high_one_remembers_little() -> None:
    none = RateLimit(0)
    assert [none.take("a", 0) for _ in range(1000)] == [0] * 1000
    assert len(none) == 0
    high = RateLimit(1_000_000)
    assert sum(high.take("a", at // 10) for at in range(100_000)) == 0
    assert len(high._recent["a"]._times) <= 1_001


# -- bodies ----------------------------------------------------------------------------------------

BODIES: dict[str, tuple[bytes, int, str]] = {
    "an object": (b'{"a": 1}', 202, "[1][][][]"),
    "a list": (b'[{"a": 2}, 5]', 202, "[][2][][]"),
    "a number": (b"5", 202, "[][][5][]"),
    "a text": (b'"hi"', 202, "[][][hi][]"),
    "null": (b"null", 202, "[][][][]"),
    "nothing": (b"", 202, "[][][][]"),
    "blanks": (b" \n", 202, "[][][][]"),
    "no JSON": (b"a=1&b=2", 202, "[][][][a=1&b=2]"),
    "braces that are only text": (b"{{body.a}}", 202, "[][][][{{body.a}}]"),
    "bytes that are no text": (b'{"a": "\xff"}', 400, ""),
    "a byte order mark": (b'\xef\xbb\xbf{"a": 1}', 400, ""),
    "a key twice": (b'{"a": 1, "a": 2}', 400, ""),
    "no number": (b'{"a": NaN}', 400, ""),
    "a number without end": (b"9" * 10_000, 400, ""),
    "a number too large": (b'{"a": 99999999999999999999}', 400, ""),
    "too deep": (b"[" * 5_000 + b"]" * 5_000, 400, ""),
    "deeper than Python": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, 400, ""),
    "too many values": (b"[" + b"1," * 100_000 + b"1]", 400, ""),
    "too many keys": (
        b"{" + b",".join(b'"%d":1' % n for n in range(60_000)) + b"}",
        400,
        "",
    ),
    "a NUL": (b'{"a": "\\u0000"}', 400, ""),
    "a NUL in a text": (b"\0", 400, ""),
    "half a pair": (b'{"a": "\\ud800"}', 400, ""),
}


@pytest.mark.parametrize("case", BODIES)
async def test_a_body_is_read_within_bounds(case: str, tmp_path: Path) -> None:
    body, status, title = BODIES[case]
    stand = Stand(tmp_path)
    template = "[{{body.a}}][{{body.0.a}}][{{body.value}}][{{body.raw}}]"
    stand.trigger(
        pluginId=GENERIC, secret=None, eventType=None, match=[], inputs={"title": template}
    )
    answer = await stand.post(body)
    assert answer.status == status, answer
    assert [firing.inputs["title"] for firing in stand.queued] == ([title] if title else [])


async def test_headers_and_query_are_found_but_none_that_opens_something(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    template = (
        "{{headers.x-kind}}|{{query.a}}|{{headers.authorization}}|{{headers.cookie}}"
        "|{{headers.x-gitlab-token}}"
    )
    stand.trigger(pluginId="gitlab", eventType="Issue Hook", match=[], inputs={"title": template})
    answer = await stand.post(
        query=(("a", "1"), ("a", "2")),
        X_Gitlab_Event="Issue Hook",
        X_Gitlab_Token=SECRET,
        X_Kind="{{query.a}}",
        Authorization="Bearer t",
        Cookie="s=1",
    )
    assert answer.status == 202
    assert stand.queued[0].inputs["title"] == "{{query.a}}|2|||"


@pytest.mark.parametrize(
    ("coding", "status"),
    [("gzip", 415), ("identity", 202), ("", 202), ("br, gzip", 415), ("IDENTITY", 202)],
)
async def test_a_body_is_taken_as_it_is_and_never_unpacked(
    coding: str, status: int, tmp_path: Path
) -> None:
    stand = Stand(tmp_path)
    stand.trigger()
    assert (await stand.post(Content_Encoding=coding)).status == status


async def test_a_value_that_does_not_fit_is_answered_with_its_place(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.trigger(inputs={"count": "{{body.issue.title}}"})
    answer = await stand.post()
    assert (answer.status, answer.body) == (
        422,
        {
            "error": "invalid-inputs",
            "field": "count",
            "reason": "type",
            "expected": "number",
            "got": "string",
        },
    )


async def test_a_template_cannot_grow_past_all_bounds(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.trigger(match=[], inputs={"title": "{{body.a}}" * 1_000})
    answer = await stand.post(json.dumps({"a": "x" * 500_000}).encode())
    assert (answer.status, answer.reason) == (422, "invalid-inputs")


# -- events ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", ["push", "", "Issues", "issues, push", "ping"])
async def test_another_event_is_answered_204(event: str, tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.trigger()
    answer = await stand.post(X_GitHub_Event=event)
    assert (answer.status, answer.reason, answer.body) == (204, "other-event", None)


async def test_an_event_may_be_named_in_the_body(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.trigger(
        pluginId="stripe",
        eventType="invoice.payment_failed",
        match=[],
        inputs={"title": "{{body.data.object.id}}"},
    )
    plugin = stand.lookup.plugin("stripe")
    trigger = stand.lookup.trigger(ID)
    assert plugin is not None
    assert trigger is not None
    delivery = trial_delivery(trigger, plugin, NOW, request_id="r")
    assert (await stand.webhooks.receive(delivery, NOW)).status == 202
    assert stand.queued[0].inputs["title"] == "in_1"
    assert stand.queued[0].key == f"{ID}:evt_1Example"
    stand.trigger(pluginId="stripe", eventType="payment_intent.succeeded")
    assert (await stand.webhooks.receive(delivery, NOW)).status == 204


async def test_a_challenge_is_answered_only_when_it_is_signed(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.trigger(pluginId="slack", eventType="app_mention", match=[])
    plugin, trigger = stand.lookup.plugin("slack"), stand.lookup.trigger(ID)
    assert plugin is not None
    assert trigger is not None
    body = b'{"type": "url_verification", "challenge": "3eZbrw1a"}'
    delivery = trial_delivery(trigger, plugin, NOW, request_id="r", payload=body)
    answer = await stand.webhooks.receive(delivery, NOW)
    assert (answer.status, answer.body) == (200, {"challenge": "3eZbrw1a"})
    forged = trial_delivery(
        trigger, plugin, NOW, request_id="r", payload=body, headers={"x-slack-signature": "v0=0"}
    )
    assert (await stand.webhooks.receive(forged, NOW)).status == 401
    stand.trigger(pluginId="slack", eventType="app_mention", secret=None, verifyOptional=True)
    assert (await stand.webhooks.receive(delivery, NOW)).status == 204
    assert stand.queued == []


# -- the same again --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["X_GitHub_Delivery", "webhook_id", "Idempotency_Key"])
async def test_a_repetition_gets_the_first_answer_and_starts_nothing(
    name: str, tmp_path: Path
) -> None:
    stand = Stand(tmp_path)
    stand.trigger()
    stand.trigger(id=OTHER)
    same: dict[str, Any] = {name: "72d3162e"}
    first = await stand.post(**same)
    again = await stand.post(**same)
    assert told(first) == told(again)
    assert len(stand.queued) == 1
    other: dict[str, Any] = {name: "other"}
    await stand.post(BODY + b" ", **other)
    await stand.post(to=OTHER, **same)
    assert len(stand.queued) == 3


@pytest.mark.parametrize("name", ["X_GitHub_Delivery", "webhook_id", "Idempotency_Key"])
async def test_a_signed_request_under_another_id_or_none_is_a_replay(
    name: str, tmp_path: Path
) -> None:
    stand = Stand(tmp_path)
    stand.trigger(previousSecret="an-older-secret-0123", previousSecretUntil=NOW + 1)
    first: dict[str, Any] = {name: "72d3162e"}
    again: list[dict[str, Any]] = [
        {name: "new"},
        {},
        {"X_Hub_Signature_256": f"sha256={sign(BODY).upper()}"},
        {"X_GitHub_Delivery": "1", "webhook_id": "2", "Idempotency_Key": "3"},
        {"User_Agent": "another", "query": (("a", "b"),)},
    ]
    assert (await stand.post(**first)).status == 202
    for sent in again:
        answer = await stand.post(**sent)
        assert told(answer) == (409, {"error": "replayed"}, {}), sent
        assert (answer.reason, answer.trigger_id) == ("replayed", ID)
    assert len(stand.queued) == 1
    # Somebody who only repeats what they saw cannot sign it with another secret.
    assert (await stand.post(secret="an-older-secret-0123")).status == 202


def sign(body: bytes) -> str:
    return hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()


async def test_where_nothing_is_signed_there_is_no_replay(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.trigger(secret=None, verifyOptional=True)
    await stand.post(secret=None)
    await stand.post(secret=None)
    stand.trigger(pluginId="gitlab", eventType="Push Hook", match=[], inputs={})
    for _ in range(2):
        sent: dict[str, Any] = {"X_Gitlab_Token": SECRET, "X_Gitlab_Event": "Push Hook"}
        assert (await stand.post(secret=None, **sent)).status == 202
    assert [(firing.key, firing.fingerprint) for firing in stand.queued] == [("", "")] * 4


async def test_a_trial_may_be_repeated(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.trigger(match=[])
    plugin = stand.lookup.plugin("github")
    trigger = stand.lookup.trigger(ID)
    assert plugin is not None
    assert trigger is not None
    for number in range(2):
        trial = trial_delivery(trigger, plugin, NOW, request_id=str(number))
        assert (await stand.webhooks.receive(trial, NOW)).status == 202


async def test_requests_without_an_id_are_each_their_own(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.trigger()
    await stand.post()
    await stand.post(BODY + b" ")
    assert [firing.key for firing in stand.queued] == ["", ""]


async def test_an_id_without_end_is_kept_short(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.trigger()
    await stand.post(Idempotency_Key="k" * 10_000)
    await stand.post(BODY + b" ", Idempotency_Key="k" * 10_001)
    keys = [firing.key for firing in stand.queued]
    assert len(set(keys)) == 2
    assert all(len(key) < 100 for key in keys)


async def test_a_full_queue_says_when_to_come_back(tmp_path: Path) -> None:
    stand = Stand(tmp_path, room=0)
    stand.trigger()
    answer = await stand.post()
    assert told(answer) == (503, {"error": "queue-full"}, {"Retry-After": "30"})
    found = stand.lookup.trigger(ID)
    assert found is not None
    assert found.last_fired_at is None


# -- trying out ------------------------------------------------------------------------------------


@pytest.mark.parametrize("plugin_id", ["generic", "github", "gitlab", "slack", "stripe"])
async def test_every_shipped_example_fires_its_own_trigger(plugin_id: str, tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    plugin = stand.lookup.plugin(plugin_id)
    assert plugin is not None
    for event in plugin.events:
        stand.trigger(
            pluginId=plugin_id,
            eventType=event.type,
            match=[],
            inputs={},
            secret=None if plugin_id == "generic" else SECRET,
        )
        trigger = stand.lookup.trigger(ID)
        assert trigger is not None
        delivery = trial_delivery(trigger, plugin, NOW, request_id="r")
        answer = await stand.webhooks.receive(delivery, NOW)
        assert answer.status == 202, (event.type, answer)


def test_every_shipped_field_is_in_its_example() -> None:
    plugins, problems = PluginFiles(Path("/nowhere")).load()
    assert problems == []
    assert [plugin.id for plugin in plugins] == [
        *("generic", "github", "gitlab", "slack", "standard-webhooks", "stripe")
    ]
    optional = {"body.event.thread_ts", "body.event.subtype", "body.issue.pull_request"}
    missing: list[str] = []
    for plugin in plugins:
        for event in plugin.events:
            scope = Values({"body": event.example_payload})
            for field in event.fields:
                Template(f"{{{{{field.path}}}}}").render(scope, missing.append)
    # A reaction has its channel elsewhere.
    assert set(missing) <= optional | {"body.event.channel"}


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.claim("I20")
def test_an_address_holds_at_least_128_random_bits() -> None:
    ids = {new_trigger_id() for _ in range(1_000)}
    assert len(ids) == 1_000
    assert all(is_trigger_id(one) and one[0] not in "-_" for one in ids)
    # 24 characters of an alphabet of 64 (62 for the first), each of which is used everywhere.
    assert {len(one) for one in ids} == {24}
    assert all(len({one[place] for one in ids}) >= 60 for place in range(24))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.claim("I72")
def test_a_triggers_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    files = TriggerFiles(tmp_path / "triggers")
    trigger, _ = parse_trigger(json.dumps(TRIGGER).encode())
    assert trigger is not None
    files.save(trigger)
    assert mode(tmp_path / "triggers") == 0o700
    assert mode(tmp_path / f"triggers/{ID}.json") == 0o600
    assert [path.name for path in (tmp_path / "triggers").iterdir()] == [f"{ID}.json"]


@pytest.mark.claim("I73")
async def test_a_file_that_others_could_read_is_closed_when_the_trigger_fires(
    tmp_path: Path,
) -> None:
    stand = Stand(tmp_path)
    stand.trigger(note="kept")
    path = tmp_path / f"triggers/{ID}.json"
    path.chmod(0o644)
    (entry,) = stand.lookup.triggers.entries()
    assert "other users can read it" in " ".join(map(str, entry.problems))
    assert (await stand.post()).status == 202
    assert mode(path) == 0o600
    written = json.loads(path.read_text())
    assert (written["lastFiredAt"], written["note"]) == (NOW, "kept")


def test_a_trigger_that_fires_all_the_time_is_written_now_and_then(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.trigger()
    path = tmp_path / f"triggers/{ID}.json"
    inodes = set()
    for at in range(NOW, NOW + 2_000, 10):
        stand.lookup.fired(ID, at)
        inodes.add(path.stat().st_mtime_ns)
    assert json.loads(path.read_text())["lastFiredAt"] == NOW + 1_000
    assert len(inodes) == 2
    stand.lookup.triggers.flush()
    assert json.loads(path.read_text())["lastFiredAt"] == NOW + 1_990


def test_a_trigger_that_was_removed_does_not_come_back_by_firing(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.trigger()
    stand.lookup.triggers.remove(ID)
    stand.lookup.fired(ID, NOW)
    assert stand.lookup.trigger(ID) is None
    assert list((tmp_path / "triggers").iterdir()) == []


def test_a_trigger_that_fires_never_undoes_what_somebody_changes_meanwhile(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.trigger(secret="0")
    found = stand.lookup.trigger(ID)
    assert found is not None

    def fire() -> None:
        for at in range(40):
            stand.lookup.fired(ID, NOW + at * 1_000)

    firing = threading.Thread(target=fire)
    firing.start()
    for number in range(40):
        # Another process has its own view of the folder.
        TriggerFiles(tmp_path / "triggers").save(found.model_copy(update={"secret": str(number)}))
        now = json.loads((tmp_path / f"triggers/{ID}.json").read_text())
        assert now["secret"] == str(number)
    firing.join(30)
    assert not firing.is_alive()


async def test_a_new_address_works_and_the_old_one_is_dead_at_once(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.trigger()
    assert (await stand.post()).status == 202
    made = stand.lookup.triggers.regenerate(ID, NOW + 5)
    assert (made.secret, made.updated_at) == (SECRET, NOW + 5)
    assert (await stand.post()).status == 401
    assert (await stand.post(to=made.id)).status == 202


@pytest.mark.parametrize(
    "name", ["../review", "review", "", "a" * 33, f"{ID}/../{ID}", "Mp3bBKPc04r3UQGQt71Ds\n"]
)
def test_an_id_never_leads_out_of_the_folder(name: str, tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.trigger()
    assert stand.lookup.trigger(name) is None
    for act in (
        stand.lookup.triggers.remove,
        lambda one: stand.lookup.triggers.regenerate(one, NOW),
    ):
        with pytest.raises(UsageError, match="there is no trigger"):
            act(name)
    assert (tmp_path / "workflows/review.json").exists()


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.trigger()
    outside = tmp_path / "outside.json"
    (tmp_path / f"triggers/{ID}.json").rename(outside)
    (tmp_path / f"triggers/{ID}.json").symlink_to(outside)
    assert stand.lookup.trigger(ID) is None
    (entry,) = stand.lookup.triggers.entries()
    assert "leads out of its folder" in str(entry.problems[0])


def test_a_file_under_another_name_is_no_trigger(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.write("triggers", OTHER, TRIGGER)
    stand.write("triggers", "short", TRIGGER)
    assert stand.lookup.triggers.all() == []
    assert stand.lookup.trigger(OTHER) is None
    said = " ".join(str(p) for entry in stand.lookup.triggers.entries() for p in entry.problems)
    assert "is not the name of its file" in said
    assert "'short' is not a trigger's id" in said


async def test_what_is_changed_on_disk_counts_for_the_next_request(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.trigger()
    assert (await stand.post()).status == 202
    stand.trigger(secret="another one")
    assert (await stand.post()).status == 401
    assert (await stand.post(secret="another one")).status == 202
    changed = {**WORKFLOW, "inputs": [{"name": "title", "type": "number"}]}
    stand.write("workflows", "review", changed)
    assert (await stand.post(secret="another one")).status == 422
    stand.write("workflows", "review", {"id": "review"})
    assert (await stand.post(secret="another one")).status == 404


def test_a_plugin_of_ones_own_takes_the_place_of_a_shipped_one(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    event = {"type": "leap", "displayName": "Leap"}
    own = {"id": "github", "displayName": "Mine", "events": [event]}
    stand.write("plugins", "a", own)
    stand.write("plugins", "b", {**own, "displayName": "Second"})
    found = stand.lookup.plugin("github")
    assert found is not None
    assert found.display_name == "Mine"
    stand.write("plugins", "c", {**own, "id": "generic", "displayName": "Hidden"})
    generic = stand.lookup.plugin("generic")
    assert generic is not None
    assert generic.display_name == "Generic"
    _, problems = stand.lookup.plugins.load()
    assert "'generic' cannot be a plugin's id" in str(problems[0])


def test_triggers_inside_an_older_workflow_become_files(tmp_path: Path) -> None:
    files = TriggerFiles(tmp_path / "triggers")
    inline: dict[str, Any] = {
        "id": "legacyTrigger0000000001",
        "name": "old",
        "enabled": True,
        "match": [{"lhs": "{{headers.x-github-event}}", "op": "==", "rhs": "push"}],
        "inputs": {},
    }
    (made,) = files.import_inline("review", [inline], NOW)
    assert (made.workflow_id, made.plugin_id, made.enabled) == ("review", "generic", True)
    assert files.import_inline("review", [inline], NOW + 1) == []
    with pytest.raises(UsageError, match="is invalid"):
        files.import_inline("review", [{**inline, "id": "../x"}], NOW)


# -- what is wrong with a trigger ------------------------------------------------------------------

# changes -> place and message
PROBLEMS: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, ""),
    "no plugin": ({"pluginId": "gone"}, "pluginId: there is no plugin 'gone'"),
    "no event": ({"eventType": None}, "eventType: is missing ('github' has: push, issues,"),
    "an unknown event": ({"eventType": "isues"}, "did you mean 'issues'?"),
    "no secret": ({"secret": None}, "secret: is missing: 'github' signs its requests"),
    "unsigned": (
        {"secret": None, "verifyOptional": True},
        "verifyOptional: nothing proves who sends the requests",
    ),
    "a secret for nothing": (
        {"pluginId": "generic", "eventType": None},
        "secret: proves nothing: 'generic' does not sign",
    ),
    "a secret of another kind": (
        {"pluginId": "standard-webhooks", "eventType": None, "secret": "plain text"},
        "secret: does not have the format of 'standard-webhooks'",
    ),
    "no workflow": ({"workflowId": "gone"}, "workflowId: there is no workflow 'gone' to run"),
    "an unknown input": ({"inputs": {"titel": "x"}}, "inputs.titel: workflow 'review' has no"),
    "a schedule that never is": (
        {"kind": "schedule", "schedule": {"cron": "0 0 30 2 *"}},
        "schedule: '0 0 30 2 *' is not a schedule",
    ),
    "files that nobody can mean": (
        {"kind": "file", "files": {"directory": "/tmp", "globs": ["../x"]}},
        "files: '../x': no '..'",
    ),
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_what_is_wrong_with_a_trigger_is_said(case: str, tmp_path: Path) -> None:
    changes, expected = PROBLEMS[case]
    stand = Stand(tmp_path)
    stand.trigger(**changes)
    trigger = stand.lookup.trigger(ID)
    assert trigger is not None
    plugin = stand.lookup.plugin(trigger.plugin_id)
    problems = check_trigger(trigger, plugin, stand.lookup.workflow(trigger.workflow_id))
    said = "; ".join(map(str, problems))
    assert expected in said
    assert bool(said) == bool(expected)
    if plugin is not None and trigger.kind == "webhook":
        assert needs_secret(trigger, plugin) == ("signs its requests" in said)


def test_a_trigger_whose_runs_would_be_refused_says_so(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    shell = {"kind": "command", "command": {"cmd": "echo {{inputs.title}}"}}
    node = {"id": "check", "type": "condition", "config": shell}
    edge = {"source": "start", "target": "check"}
    nodes = [*WORKFLOW["nodes"], node]
    stand.write("workflows", "review", {**WORKFLOW, "nodes": nodes, "edges": [edge]})
    stand.trigger()
    trigger, workflow = stand.lookup.trigger(ID), stand.lookup.workflow("review")
    assert trigger is not None
    (problem,) = check_trigger(trigger, stand.lookup.plugin("github"), workflow)
    assert problem.severity == "warning"
    assert "a value from outside reaches 'command.cmd' of condition 'check'" in problem.message


# -- on the command line ---------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INFLOOP_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("INFLOOP_ISOLATION", "host")
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows/review.json").write_text(json.dumps(WORKFLOW))
    return tmp_path


def one_trigger(home: Path) -> str:
    (path,) = (home / "triggers").glob("*.json")
    return path.stem


def test_a_trigger_is_added_shown_tried_out_changed_and_removed(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{SECRET}\n"))
    add = ["triggers", "add", "review", "--plugin", "github", "--event", "issues", "--secret"]
    add += ["--match", "{{body.action}} == opened", "--input", "title={{body.issue.title}}"]
    assert infloop(add) == 0
    name = one_trigger(home)
    assert mode(home / f"triggers/{name}.json") == 0o600
    assert infloop(["triggers", "show", name[:6]]) == 0
    assert infloop(["triggers"]) == 0
    assert infloop(["triggers", "test", name]) == 0
    payload = home / "payload.json"
    payload.write_text('{"action": "closed"}')
    assert infloop(["triggers", "test", name, "--payload", str(payload)]) == 1
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{ANOTHER}\n"))
    assert infloop(["triggers", "secret", name, "--overlap", "24"]) == 0
    assert infloop(["triggers", "disable", name]) == 0
    assert infloop(["triggers", "regenerate", name]) == 0
    renamed = one_trigger(home)
    assert renamed != name
    written = json.loads((home / f"triggers/{renamed}.json").read_text())
    assert (written["secret"], written["previousSecret"]) == (ANOTHER, SECRET)
    assert written["enabled"] is False
    assert "lastFiredAt" not in written
    assert infloop(["triggers", "remove", renamed]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert SECRET not in out
    assert ANOTHER not in out
    for line in (
        f"added {name} (review webhook): a webhook of 'github', event 'issues', starts 'review'",
        "  signature: x-hub-signature-256, secret set",
        "  if {{body.action}} == opened",
        "202 accepted",
        '  title (from outside): "Negative stock after a refund"',
        "it would start 'review'; nothing was started",
        "204 no-match",
        f"{name} has a new secret",
        f"{name} is off",
        f"new address: /api/webhook/{renamed}",
    ):
        assert line in out.splitlines()


def test_schedules_and_watches_are_added_by_what_they_need(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    zone = ["--time-zone", "Europe/Berlin", "--misfire", "ask"]
    assert infloop(["triggers", "add", "review", "--cron", "30 9 * * 1-5", *zone]) == 0
    name = one_trigger(home)
    assert infloop(["triggers", "show", name]) == 0
    assert infloop(["triggers", "remove", name]) == 0
    assert infloop(["triggers", "add", "review", "--directory", str(home), "--files", "*.md"]) == 0
    out = capsys.readouterr().out
    assert "'30 9 * * 1-5' in Europe/Berlin starts 'review'" in out
    assert out.count("T09:30:00+0") == 3
    assert f"a change of *.md in {home} starts 'review'" in out


REFUSED: dict[str, tuple[list[str], str]] = {
    "no secret": (["add", "review", "--plugin", "github", "--event", "push"], "secret: is missing"),
    "no workflow": (["add", "gone"], "there is no workflow 'gone'"),
    "a bad schedule": (["add", "review", "--cron", "* * * * * *"], "is not a schedule"),
    "both": (["add", "review", "--cron", "0 0 * * *", "--files", "*"], "a trigger has one kind"),
    "no glob": (["add", "review", "--directory", "."], "--directory needs --files"),
    "a condition without operator": (["add", "review", "--match", "a"], "is not 'LEFT OP RIGHT'"),
    "an input without value": (["add", "review", "--input", "a"], "is not NAME=VALUE"),
    "no such trigger": (["show", "gone"], "there is no trigger 'gone'"),
    "an empty id": (["remove", ""], "there is no trigger ''"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    case: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, message = REFUSED[case]
    assert infloop(["triggers", *words]) == 2
    assert message in capsys.readouterr().err
    assert list(home.glob("triggers/*")) == []
