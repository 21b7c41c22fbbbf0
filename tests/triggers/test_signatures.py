"""Signatures: what each sender's own documents show is accepted, and nothing else."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest

from infloop.catalog.files import read_folder
from infloop.model.plugin import Plugin, Signature, parse_plugin, parse_shipped_plugin
from infloop.triggers import SHIPPED_DIR
from infloop.triggers.signatures import MAX_SIGNATURES, accepts_secret, sign, verify

PLUGINS: dict[str, Plugin] = {
    plugin.id: plugin for plugin in read_folder(SHIPPED_DIR, parse_shipped_plugin)[0]
}


def scheme(name: str) -> Signature:
    signature = PLUGINS[name].signature
    assert signature is not None
    return signature


def reason(
    name: str | Signature,
    secret: str | tuple[str, ...],
    headers: dict[str, str] | list[tuple[str, str]],
    body: bytes,
    now_s: float = 0,
) -> str:
    signature = name if isinstance(name, Signature) else scheme(name)
    secrets = (secret,) if isinstance(secret, str) else secret
    pairs = tuple(headers.items() if isinstance(headers, dict) else headers)
    return verify(signature, secrets, pairs, body, round(now_s * 1000)).reason


def digest(secret: str | bytes, signed: bytes) -> bytes:
    key = secret.encode() if isinstance(secret, str) else secret
    return hmac.new(key, signed, hashlib.sha256).digest()


# -- the senders' own examples ---------------------------------------------------------------------

GITHUB_SECRET = "It's a Secret to Everybody"
GITHUB_BODY = b"Hello, World!"
GITHUB = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"

STANDARD_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
STANDARD_BODY = b'{"test": 2432232314}'
STANDARD_TIME = 1614265330
STANDARD_SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
STANDARD = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": str(STANDARD_TIME),
    "webhook-signature": STANDARD_SIGNATURE,
}

SLACK_SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
SLACK_TIME = 1531420618
SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow"
    b"&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner"
    b"&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands"
    b"%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
    b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
SLACK = {
    "x-slack-request-timestamp": str(SLACK_TIME),
    "x-slack-signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
}

STRIPE_SECRET = "whsec_test_secret"
STRIPE_TIME = 1492774577
STRIPE_BODY = b'{"id": "evt_1"}'
STRIPE_HEX = digest(STRIPE_SECRET, b"1492774577." + STRIPE_BODY).hex()


@pytest.mark.claim("I22")
def test_githubs_example_is_genuine() -> None:
    assert reason("github", GITHUB_SECRET, {"x-hub-signature-256": GITHUB}, GITHUB_BODY) == "ok"


def test_the_standards_example_is_genuine() -> None:
    headers = STANDARD
    for secret in (STANDARD_SECRET, STANDARD_SECRET.removeprefix("whsec_")):
        assert reason("standard-webhooks", secret, headers, STANDARD_BODY, STANDARD_TIME) == "ok"


def test_slacks_example_is_genuine() -> None:
    assert reason("slack", SLACK_SECRET, SLACK, SLACK_BODY, SLACK_TIME) == "ok"


def test_stripes_scheme_takes_any_of_several_signatures_and_leaves_others_out() -> None:
    value = f"t={STRIPE_TIME},v1={'0' * 64},v0={'1' * 64},v1={STRIPE_HEX}"
    headers = {"Stripe-Signature": value}
    assert reason("stripe", STRIPE_SECRET, headers, STRIPE_BODY, STRIPE_TIME) == "ok"


def test_gitlab_sends_the_secret_itself() -> None:
    assert reason("gitlab", "tok-1", {"X-Gitlab-Token": "tok-1"}, b"{}") == "ok"
    assert reason("gitlab", "tok-1", {"X-Gitlab-Token": "tok-2"}, b"{}") == "mismatch"


@pytest.mark.parametrize("format", ["hex", "base64", "sha256=<hex>", "<hex>", "hmac <base64>"])
def test_a_sender_of_ones_own_needs_no_code(format: str) -> None:
    raw = {
        "id": "own",
        "displayName": "Own",
        "events": [{"type": "any", "displayName": "Any"}],
        "signature": {"header": "X-Sign", "scheme": "hmac-sha256", "format": format},
    }
    plugin, problems = parse_plugin(json.dumps(raw).encode())
    if " " in format:
        assert plugin is None
        assert "is not a signature format" in str(problems[0])
        return
    assert plugin is not None
    assert plugin.signature is not None
    made = digest("key", b"\xff\x00body")
    written = made.hex() if "hex" in format else base64.b64encode(made).decode()
    prefix = "sha256=" if format.startswith("sha256") else ""
    assert reason(plugin.signature, "key", {"x-sign": prefix + written}, b"\xff\x00body") == "ok"


@pytest.mark.parametrize("name", [name for name, one in PLUGINS.items() if one.signature])
def test_what_we_sign_for_a_trial_is_genuine(name: str) -> None:
    secret = STANDARD_SECRET if name == "standard-webhooks" else "some secret"
    body = b'{"a": "\xff"}'
    headers = sign(scheme(name), secret, body, 1_700_000_000_000, "msg_1")
    assert reason(name, secret, headers, body, 1_700_000_000) == "ok"
    assert reason(name, "c29tZSBvdGhlcg==", headers, body, 1_700_000_000) == "mismatch"


# -- what is refused -------------------------------------------------------------------------------

HEX = GITHUB.removeprefix("sha256=")
# header value -> reason
FORGED: dict[str, tuple[str | None, str]] = {
    "no header": (None, "missing"),
    "nothing in it": ("", "missing"),
    "another algorithm": (f"sha512={HEX}", "malformed"),
    "no algorithm": (HEX, "malformed"),
    "none": ("none=", "malformed"),
    "a colon": (f"sha256:{HEX}", "malformed"),
    "a digit too few": (GITHUB[:-1], "malformed"),
    "a digit too many": (f"{GITHUB}0", "malformed"),
    "a blank in front": (f" {GITHUB}", "malformed"),
    "a line break": (f"{GITHUB}\n", "malformed"),
    "two in one": (f"{GITHUB},{GITHUB}", "malformed"),
    "no hex": (f"sha256={'g' * 64}", "mismatch"),
    "zeros": (f"sha256={'0' * 64}", "mismatch"),
    "base64": (f"sha256={base64.b64encode(bytes.fromhex(HEX)).decode()}", "malformed"),
    "the prefix in capitals": (f"SHA256={HEX}", "malformed"),
    "letters that look like it": (f"sha256={HEX[:-1]}\uff17", "malformed"),
    "a lone surrogate": (f"sha256={HEX[:-1]}\udc80", "malformed"),
    "a NUL": (f"sha256={HEX[:-1]}\0", "mismatch"),
    "without end": (f"sha256={'a' * 1_000_000}", "malformed"),
}


@pytest.mark.claim("I22")
@pytest.mark.parametrize("case", FORGED)
def test_a_forged_signature_is_refused(case: str) -> None:
    value, expected = FORGED[case]
    headers = {} if value is None else {"x-hub-signature-256": value}
    assert reason("github", GITHUB_SECRET, headers, GITHUB_BODY) == expected


def test_hex_may_be_in_capitals_and_so_may_the_headers_name() -> None:
    headers = {"X-HUB-Signature-256": f"sha256={HEX.upper()}"}
    assert reason("github", GITHUB_SECRET, headers, GITHUB_BODY) == "ok"


def test_the_older_and_weaker_header_proves_nothing() -> None:
    weak = hmac.new(GITHUB_SECRET.encode(), GITHUB_BODY, hashlib.sha1).hexdigest()
    headers = {"x-hub-signature": f"sha1={weak}"}
    assert reason("github", GITHUB_SECRET, headers, GITHUB_BODY) == "missing"


def test_a_header_that_is_there_twice_is_refused_whatever_it_holds() -> None:
    headers = [("x-hub-signature-256", GITHUB), ("X-Hub-Signature-256", GITHUB)]
    assert reason("github", GITHUB_SECRET, headers, GITHUB_BODY) == "malformed"


@pytest.mark.claim("I22")
@pytest.mark.parametrize(
    "body", [b"Hello, World?", b"", b"Hello, World!\n", b"\xef\xbb\xbfHello, World!", b"hello"]
)
def test_the_signature_of_one_body_is_none_of_another(body: bytes) -> None:
    headers = {"x-hub-signature-256": GITHUB}
    assert reason("github", GITHUB_SECRET, headers, body) == "mismatch"


@pytest.mark.claim("I22")
def test_bytes_that_are_no_text_are_checked_as_they_are() -> None:
    body = b'{"title": "\xff\xfe"}'
    genuine = {"x-hub-signature-256": f"sha256={digest('key', body).hex()}"}
    decoded = body.decode(errors="replace").encode()
    read_as_text = {"x-hub-signature-256": f"sha256={digest('key', decoded).hex()}"}
    assert reason("github", "key", genuine, body) == "ok"
    assert reason("github", "key", read_as_text, body) == "mismatch"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(-301, "stale"), (-300, "ok"), (0, "ok"), (300, "ok"), (301, "stale"), (1e9, "stale")],
)
@pytest.mark.parametrize("name", ["slack", "stripe", "standard-webhooks"])
def test_a_time_too_far_away_is_refused_in_both_directions(
    name: str, seconds: float, expected: str
) -> None:
    cases: dict[str, tuple[str, dict[str, str], bytes, int]] = {
        "slack": (SLACK_SECRET, SLACK, SLACK_BODY, SLACK_TIME),
        "stripe": (
            STRIPE_SECRET,
            {"stripe-signature": f"t={STRIPE_TIME},v1={STRIPE_HEX}"},
            STRIPE_BODY,
            STRIPE_TIME,
        ),
        "standard-webhooks": (STANDARD_SECRET, STANDARD, STANDARD_BODY, STANDARD_TIME),
    }
    secret, headers, body, signed_at = cases[name]
    assert reason(name, secret, headers, body, signed_at + seconds) == expected


# name -> what the header holds -> reason
STRIPES: dict[str, tuple[str, str]] = {
    "no time": (f"v1={STRIPE_HEX}", "malformed"),
    "two times": (f"t={STRIPE_TIME},t={STRIPE_TIME},v1={STRIPE_HEX}", "malformed"),
    "an empty time": (f"t=,v1={STRIPE_HEX}", "malformed"),
    "a negative time": (f"t=-{STRIPE_TIME},v1={STRIPE_HEX}", "malformed"),
    "a time with a point": (f"t={STRIPE_TIME}.0,v1={STRIPE_HEX}", "malformed"),
    "a time in other digits": (f"t=\u0661\u0662,v1={STRIPE_HEX}", "malformed"),
    "a time of a thousand digits": (f"t={'9' * 1000},v1={STRIPE_HEX}", "malformed"),
    "another time": (f"t={STRIPE_TIME + 1},v1={STRIPE_HEX}", "mismatch"),
    "no signature": (f"t={STRIPE_TIME}", "malformed"),
    "only one of another scheme": (f"t={STRIPE_TIME},v0={STRIPE_HEX}", "malformed"),
    "too many signatures": (
        f"t={STRIPE_TIME}," + ",".join([f"v1={STRIPE_HEX}"] * (MAX_SIGNATURES + 1)),
        "malformed",
    ),
    "the right one behind a million others": (
        f"t={STRIPE_TIME}," + f"v0={'0' * 64}," * 10_000 + f"v1={STRIPE_HEX}",
        "malformed",
    ),
}


@pytest.mark.parametrize("case", STRIPES)
def test_a_header_with_parts_is_read_strictly(case: str) -> None:
    value, expected = STRIPES[case]
    headers = {"stripe-signature": value}
    assert reason("stripe", STRIPE_SECRET, headers, STRIPE_BODY, STRIPE_TIME) == expected


STANDARDS: dict[str, tuple[dict[str, str], str]] = {
    "no id": ({"webhook-id": ""}, "missing"),
    "another id": ({"webhook-id": "msg_other"}, "mismatch"),
    "an id that shifts the dots": (
        {"webhook-id": f"{STANDARD['webhook-id']}.{STANDARD_TIME}", "webhook-timestamp": "1"},
        "stale",
    ),
    "an id without end": ({"webhook-id": "m" * 10_000}, "malformed"),
    "an id that is no ASCII": ({"webhook-id": "msg_\xe9"}, "malformed"),
    "no time": ({"webhook-timestamp": ""}, "missing"),
    "a blank in the time": ({"webhook-timestamp": f"{STANDARD_TIME} "}, "malformed"),
    "a signature by a public key": ({"webhook-signature": "v1a,abc="}, "malformed"),
    "no padding": ({"webhook-signature": STANDARD_SIGNATURE[:-1]}, "malformed"),
    "the other alphabet": (
        {"webhook-signature": STANDARD_SIGNATURE.replace("+", "-").replace("/", "_")},
        "mismatch",
    ),
}


@pytest.mark.parametrize("case", STANDARDS)
def test_a_signature_covers_id_and_time(case: str) -> None:
    changed, expected = STANDARDS[case]
    headers = {**STANDARD, **changed}
    found = reason("standard-webhooks", STANDARD_SECRET, headers, STANDARD_BODY, STANDARD_TIME)
    assert found == expected


def test_one_of_several_signatures_is_enough() -> None:
    value = f"v1a,xyz v1,{'A' * 43}= {STANDARD_SIGNATURE}"
    headers = {**STANDARD, "webhook-signature": value}
    found = reason("standard-webhooks", STANDARD_SECRET, headers, STANDARD_BODY, STANDARD_TIME)
    assert found == "ok"


def test_each_of_two_secrets_counts() -> None:
    headers = {"x-hub-signature-256": GITHUB}
    assert reason("github", ("new", GITHUB_SECRET), headers, GITHUB_BODY) == "ok"
    assert reason("github", (GITHUB_SECRET, "old"), headers, GITHUB_BODY) == "ok"
    assert reason("github", ("new", "old"), headers, GITHUB_BODY) == "mismatch"


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_not base64!", "whsec_YQ=", "whsec_é"])
def test_a_secret_that_is_none_is_a_mistake_of_ours_and_no_key(secret: str) -> None:
    assert not accepts_secret(scheme("standard-webhooks"), secret)
    found = reason("standard-webhooks", secret, STANDARD, STANDARD_BODY, STANDARD_TIME)
    assert found == "misconfigured"


def test_without_any_secret_nothing_is_genuine() -> None:
    empty = {"x-hub-signature-256": f"sha256={digest(b'', GITHUB_BODY).hex()}"}
    assert reason("github", (), empty, GITHUB_BODY) == "misconfigured"
    assert reason("github", ("",), empty, GITHUB_BODY) == "misconfigured"
    assert reason("gitlab", ("",), {"x-gitlab-token": ""}, b"") == "misconfigured"


# -- a plugin that says it wrongly -----------------------------------------------------------------

HMAC: dict[str, Any] = {"header": "x-s", "scheme": "hmac-sha256", "format": "hex"}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no format": ({"format": ""}, "signature.format: is missing"),
    "an unknown format": ({"format": "rot13"}, "is not a signature format"),
    "a format around it": ({"format": "<hex>;"}, "is not a signature format"),
    "a time that is not signed": ({"timestampHeader": "x-t"}, "must hold <timestamp> once"),
    "a time that nobody sends": (
        {"signed": "<timestamp>.<body>"},
        "must hold <timestamp> not at all",
    ),
    "an id that is not signed": ({"idHeader": "x-i"}, "must hold <id> once"),
    "no body": ({"signed": "v0"}, "must hold <body> once"),
    "the body twice": ({"signed": "<body><body>"}, "must hold <body> once"),
    "an unknown part": ({"signed": "<url><body>"}, "'<url>' is not known"),
    "two places for the time": (
        {
            "timestampHeader": "x-t",
            "timestampPrefix": "t=",
            "separator": ",",
            "signed": "<timestamp>.<body>",
        },
        "the time is in two places",
    ),
    "a time among signatures that nothing separates": (
        {"timestampPrefix": "t=", "signed": "<timestamp>.<body>"},
        "signature.separator: is missing",
    ),
    "a separator inside a signature": (
        {"format": "v1,<hex>", "separator": ","},
        "holds the separator",
    ),
    "no tolerance": ({"toleranceSeconds": 0}, "0 is not a tolerance"),
    "any tolerance": ({"toleranceSeconds": 10**9}, "is not a tolerance"),
    "a token in a format": ({"scheme": "token"}, "a token has no format"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_scheme_that_would_prove_nothing_is_refused(case: str) -> None:
    changed, message = WRONG[case]
    raw = {
        "id": "own",
        "displayName": "Own",
        "events": [{"type": "any", "displayName": "Any"}],
        "signature": {**HMAC, **changed},
    }
    plugin, problems = parse_plugin(json.dumps(raw).encode())
    assert plugin is None
    assert message in " ".join(map(str, problems))
