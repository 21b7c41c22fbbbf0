"""The leak guard: tokens of common services, known secrets in other forms, and its modes."""

from __future__ import annotations

import base64
import codecs
import hashlib
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infloop.model.events import Notice
from infloop.policy.leaks.guard import BLOCKED, LeakGuard
from infloop.policy.leaks.known import SHORTEST_PART, Secret
from infloop.policy.leaks.rules import LeakRule, shipped_rules
from support.runs import world
from support.thorough import amount
from support.user_machine import command
from support.workflows import edges, node, workflow

LETTERS = "aB3dE5gH7jK9mN2pQ4sT6vW8xY1zC0fR"
DIGITS = "4f9a1c7e2b8d6035"
UPPER = "Q7WERT2YUIOP3ASD5FGH4JKL"


def letters(count: int) -> str:
    return (LETTERS * (count // len(LETTERS) + 1))[:count]


def hexes(count: int) -> str:
    return (DIGITS * (count // len(DIGITS) + 1))[:count]


# For each rule, texts with a token; the token is between the angle brackets.
TOKENS: dict[str, list[str]] = {
    "anthropic": [f"key <sk-ant-api03-{letters(90)}>"],
    "sk": [f"<sk-{letters(17)}>", f"use <sk-proj-{letters(48)}>.", "<sk-" + "a" * 24 + ">"],
    "google-api-key": [f"?key=<AIza{letters(35)}>&q=1", f"<AIza{letters(20)}>"],
    "huggingface": [f"<hf_{letters(34)}>"],
    "groq": [f"<gsk_{letters(52)}>"],
    "xai": [f"<xai-{letters(80)}>"],
    "perplexity": [f"<pplx-{letters(48)}>"],
    "replicate": [f"<r8_{letters(37)}>"],
    "langsmith": [f"<lsv2_pt_{hexes(32)}_{hexes(10)}>"],
    "tavily": [f"<tvly-dev-{letters(32)}>"],
    "github": [f"<gh{kind}_{letters(36)}> " for kind in "pousr"] + [f"<ghp_{letters(16)}>"],
    "github-pat": [f"<github_pat_{letters(22)}_{letters(59)}>", f"<github_pat_{letters(13)}>"],
    "gitlab": [f"<glpat-{letters(20)}>", f"<gldt-{letters(20)}>"],
    "atlassian": [f"<ATATT3xFfGF0{letters(180)}>", f"<ATBB{letters(32)}>"],
    "npm": [f"//registry/:token=<npm_{letters(36)}>"],
    "pypi": [f"<pypi-AgEIcHlwaS5vcmc{letters(100)}>"],
    "rubygems": [f"<rubygems_{hexes(48)}>"],
    "crates": [f"<cio{letters(32)}>"],
    "docker": [f"<dckr_pat_{letters(27)}>"],
    "aws-key-id": [f"<AKIA{UPPER.translate({49: 50, 48: 50})[:4]}ABCDEFGH2345>"],
    "aws-secret": [
        f'aws_secret_access_key = "<{letters(40)}>"',
        f"AWS_SESSION_TOKEN=<{letters(90)}>",
    ],
    "aws-bedrock": [f"<ABSK{letters(120)}=>"],
    "azure-account-key": [f"AccountName=a;AccountKey=<{letters(86)}==>;Endpoint=b"],
    "google-oauth": [f"<ya29.a0{letters(60)}>"],
    "google-client-secret": [f"<GOCSPX-{letters(28)}>"],
    "digitalocean": [f"<dop_v1_{hexes(64)}>"],
    "heroku": [f"<HRKU-{letters(36)}>"],
    "fly": [f"FlyV1 <fm2_{letters(60)}>"],
    "vercel": [f"<vcp_{letters(56)}>"],
    "netlify": [f"<nfp_{letters(36)}>"],
    "cloudflare-origin": [f"<v1.0-{hexes(24)}-{hexes(146)}>"],
    "databricks": [f"<dapi{hexes(32)}>"],
    "alibaba": [f"<LTAI{letters(20)}>"],
    "tencent": [f"<AKID{letters(32)}>"],
    "supabase": [f"<sbp_{hexes(40)}>", f"<sb_secret_{letters(31)}>"],
    "planetscale": [f"<pscale_tkn_{letters(43)}>"],
    "neon": [f"<napi_{letters(60).lower()}>"],
    "vault": [f"<hvs.{letters(90)}>"],
    "terraform": [f"abcdefghij.<atlasv1.{letters(67)}>"],
    "pulumi": [f"<pul-{hexes(40)}>"],
    "doppler": [f"<dp.pt.{letters(43)}>"],
    "1password": [f"<ops_eyJ{letters(250)}>"],
    "age": [f"<AGE-SECRET-KEY-1{UPPER * 2}{UPPER[:10]}>"],
    "prefect": [f"<pnu_{letters(36)}>"],
    "tailscale": [f"<tskey-auth-{letters(30)}>"],
    "grafana": [f"<glsa_{letters(32)}_{hexes(8)}>", f"<glc_eyJ{letters(60)}>"],
    "sentry": [f"<sntrys_{letters(80)}>"],
    "new-relic": [f"<NRAK-{UPPER}ABC>"],
    "slack": [f"<xoxb-{hexes(12)}-{letters(24)}>", f"<xapp-1-{letters(60)}>"],
    "slack-webhook": [
        f"https://hooks.slack.com/services/<T{UPPER[:9]}/B{UPPER[:9]}/{letters(24)}>"
    ],
    "discord-webhook": [f"https://discord.com/api/webhooks/123456789012345678/<{letters(68)}>"],
    "telegram": [f"123456789:<AA{letters(33)}>"],
    "sendgrid": [f"<SG.{letters(22)}.{letters(43)}>"],
    "mailgun": [f"<key-{hexes(32)}>"],
    "twilio": [f"<SK{hexes(32)}>"],
    "stripe": [f"<sk_live_{letters(24)}>", f"<rk_test_{letters(24)}>"],
    "webhook-secret": [f"<whsec_{letters(32)}>"],
    "square": [f"<sq0atp-{letters(22)}>"],
    "braintree": [f"<access_token$production${letters(16).lower()}${hexes(32)}>"],
    "shopify": [f"<shpat_{hexes(32)}>"],
    "linear": [f"<lin_api_{letters(40)}>"],
    "notion": [f"<ntn_{letters(46)}>"],
    "figma": [f"<figd_{letters(40)}>"],
    "postman": [f"<PMAK-{hexes(24)}-{hexes(34)}>"],
    "private-key": [
        f"see\n<-----BEGIN {kind}-----\n{letters(64)}\n{letters(64)}\n-----END {kind}----->\nend"
        for kind in ("PRIVATE KEY", "RSA PRIVATE KEY", "OPENSSH PRIVATE KEY")
    ],
    "jwt": [f"<eyJ{letters(30)}.eyJ{letters(60)}.{letters(43)}>"],
    "url-password": [f"postgres://app:<{letters(12)}>@db:5432/x"],
    "authorization": [
        f"Authorization: Bearer <{letters(30)}>",
        f'"authorization": "Basic <{letters(24)}>"',
    ],
    "assigned-secret": [
        f"password = '<{letters(18)}>'",
        f'"api_key": "<{letters(32)}>"',
        f"DB_PASSWORD=<{letters(16)}>",
        f"//host/:_authToken=<{letters(36)}>",
    ],
}

# Ordinary text that begins or looks like a token.
HARMLESS = [
    "task-management-system-for-large-teams-2026",
    "risk-assessment-framework-version-2 disk-encryption-setup-guide-2024",
    "sk-learn-contrib-some-long-package-name",
    "the sk- prefix, the ghp_ prefix, AKIA, eyJ and -----BEGIN CERTIFICATE-----",
    f"commit {hexes(40)} Merge branch 'main'",
    f"sha256:{hexes(64)}",
    "550e8400-e29b-41d4-a716-446655440000",
    "password = os.environ['DATABASE_PASSWORD']",
    "password: string; api_key: Optional[str] = None; secret = get_secret(name)",
    'api_key="${API_KEY}" secret: {{ secrets.token }}',
    "https://example.com:8443/path?x=1 http://user@host/ postgres://app:${PASSWORD}@db/x",
    "Authorization: Bearer <token>",
    '{"input_tokens": 1234, "output_tokens": 567, "cache_read_input_tokens": 89012}',
    "AKIAIOSFODNN is too short, npm_config_registry, hf_hub_download, pypi-publish",
    "data:image/png;base64," + letters(200),
    "dapi-client key-value-store pul-request v1.0-beta SG.example",
    "src/components/secret_manager/password_field_with_validation_2.tsx",
]


def guard(*secrets: str, mode: Any = "redact") -> LeakGuard:
    return LeakGuard([Secret("known", each) for each in secrets], shipped_rules, mode)


def expected(text: str, rule: str) -> tuple[str, str]:
    """The text without its brackets, and the same with a marker for what was in them."""
    return re.sub("[<>]", "", text), re.sub("<[^>]*>", f"[redacted:{rule}]", text)


def test_every_rule_has_an_example() -> None:
    assert {rule.id for rule in shipped_rules()} == set(TOKENS)
    assert len(TOKENS) >= 60
    assert all(each.secret_group or each.regex.startswith(r"\b") for each in shipped_rules())


@pytest.mark.claim("L42")
@pytest.mark.parametrize("rule", TOKENS)
def test_a_token_is_found_where_it_starts(rule: str) -> None:
    for example in TOKENS[rule]:
        text, redacted = expected(example, rule)
        found: list[str] = []
        assert guard().redact(text, found.append) == redacted
        assert found
        # Also inside JSON, after a colour, and percent-encoded; not in the middle of a word.
        for before in ("\\n", "\x1b[32m", "%3D", '"', "("):
            assert "[redacted:" in guard().redact(before + text)


@pytest.mark.claim("L42")
@pytest.mark.parametrize("text", HARMLESS)
def test_ordinary_text_is_left_alone(text: str) -> None:
    found: list[str] = []
    assert guard().redact(text, found.append) == text
    assert found == []


PIECES = [expected(each, rule)[0] for rule, texts in TOKENS.items() for each in texts] + HARMLESS
KNOWN = "s3cr3t-Value-0f-this-machine-42"


NAMES = [
    "password=",
    "secret:",
    "sk-",
    "sk-A1",
    "//a:",
    "api_key=sk-",
    "-----BEGIN PRIVATE KEY-----\n",
]
FLOODS = [name * (1500 // len(name)) for name in NAMES]


@given(st.data())
def test_a_stream_is_redacted_like_the_whole_text(data: st.DataObject) -> None:
    pieces = st.sampled_from([*PIECES, KNOWN, *FLOODS, "naïve 日本語 ", "\n", " "])
    joints = st.sampled_from(["", " ", "\n", "="])
    text = "".join(
        part + data.draw(joints) for part in data.draw(st.lists(pieces, min_size=1, max_size=6))
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=20)))
    known = guard(KNOWN)
    shown = streamed(known, text, cuts)
    assert shown == known.redact(text)
    assert KNOWN not in shown


def streamed(known: LeakGuard, text: str, cuts: list[int]) -> str:
    stream = known.stream()
    ends = zip([0, *cuts], [*cuts, len(text)], strict=True)
    return "".join(stream.feed(text[begin:end]) for begin, end in ends) + stream.finish()


@pytest.mark.parametrize(
    "name", ["password=", "PASSWORD=", "Api_Key: ", "AUTHORIZATION: bearer ", "Aws_Secret_Key="]
)
@pytest.mark.parametrize("size", [1, 3, 8, 40, 100])
def test_a_value_that_follows_a_name_in_any_case_is_found_in_short_pieces(
    name: str, size: int
) -> None:
    text = f"so {name}aB3dE5gH7jK9mN2pQ4sT6vW8xY1zC0fRaB3dE5gH7j\nand more"
    shown = streamed(guard(), text, [*range(size, len(text), size)])
    assert re.fullmatch(rf"so {name}\[redacted:[a-z-]+]\nand more", shown)


def test_a_flood_of_names_before_a_secret_is_redacted_like_the_whole_text() -> None:
    text = "password=" * 166 + "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"
    assert streamed(guard(), text, []) == guard().redact(text)
    assert guard().redact(text).endswith("=[redacted:assigned-secret]")


class CountingRule(LeakRule, frozen=True, forbid_unknown_fields=True, rename="camel", dict=True):
    """A rule that adds up how many bytes of values it was asked about."""

    def is_secret(self, value: bytes) -> bool:
        READ[0] += len(value)
        return super().is_secret(value)


READ = [0]
FLOOD = amount(6_000, thorough=20_000)


@pytest.mark.thorough
@pytest.mark.parametrize("size", [300, FLOOD])
@pytest.mark.parametrize("name", NAMES)
def test_a_child_that_prints_nothing_but_names_of_secrets_costs_little(
    name: str, size: int
) -> None:
    rules = [msgspec.convert(msgspec.to_builtins(each), CountingRule) for each in shipped_rules()]
    line = name * (size // len(name)) + "\n"
    text = line * max(1, FLOOD // len(line))
    READ[0] = 0
    redacted = LeakGuard([], lambda: rules).redact(text)
    assert READ[0] <= 10 * len(text)
    READ[0] = 0
    stream = LeakGuard([], lambda: rules).stream()
    shown = [stream.feed(text[at : at + 8]) for at in range(0, len(text), 8)]
    assert "".join(shown) + stream.finish() == redacted
    assert READ[0] <= 100 * len(text)


def test_a_part_of_a_known_secret_in_a_stream_shows_at_most_its_beginning() -> None:
    stream = guard(KNOWN).stream()
    shown = "".join(map(stream.feed, f"so {KNOWN[3:-3]}.")) + stream.finish()
    assert re.fullmatch(r"so .{0,7}\[redacted:known]\.", shown)


SECRET = 'sk_canary"AbC123xyz789-Q4w5E6r7\\'
ENCODED = {
    "as it is": SECRET,
    "in JSON": json.dumps(SECRET),
    "in JSON twice": json.dumps(json.dumps(SECRET)),
    "in a URL": quote(SECRET, safe=""),
    "in hex": SECRET.encode().hex(),
    "in capital hex": SECRET.encode().hex().upper(),
    "in percent signs": "".join(f"%{byte:02x}" for byte in SECRET.encode()),
    "in escapes": "".join(f"\\x{byte:02x}" for byte in SECRET.encode()),
    "in Unicode escapes": "".join(f"\\u{ord(each):04x}" for each in SECRET),
    "in HTML": SECRET.replace('"', "&quot;"),
    "in numeric entities": "".join(f"&#{ord(each)};" for each in SECRET),
    "in quoted-printable": "".join(f"={byte:02X}" for byte in SECRET.encode()),
    "reversed": SECRET[::-1],
    "rotated": codecs.encode(SECRET, "rot13"),
    **{
        f"in base64 after {count} bytes": base64.b64encode(b"u" * count + SECRET.encode()).decode()
        for count in range(4)
    },
    "in base64 for URLs": base64.urlsafe_b64encode(SECRET.encode()).decode(),
    "in wrapped base64": base64.encodebytes(b"x" * 40 + SECRET.encode()).decode(),
    "without its end": SECRET[:-5],
    "without its start": SECRET[6:],
}


@pytest.mark.claim("L41")
@pytest.mark.parametrize("form", ENCODED)
def test_a_known_secret_is_found_in_other_forms(form: str) -> None:
    redacted = LeakGuard([Secret("env:KEY", SECRET)]).redact(f"it is {ENCODED[form]} here")
    assert "[redacted:env:KEY]" in redacted
    if "base64" in form:  # what is before the secret stays
        return
    left = redacted.replace("[redacted:env:KEY]", "")
    parts = (ENCODED[form][at : at + SHORTEST_PART] for at in range(len(ENCODED[form])))
    assert not any(part in left for part in parts if len(part) == SHORTEST_PART)


PASSPHRASES = [
    "пароль-от-базы-2026",
    "aßäöüß-жщ-1234567890",
    "日本語の長い合言葉です",
    "Größe\udc80-42-Zürich",
]


@pytest.mark.parametrize("secret", PASSPHRASES)
def test_a_known_secret_may_have_any_characters(secret: str) -> None:
    known = guard(secret)
    text = f"日本 {secret} {json.dumps(secret)}"
    assert known.redact(text) == '日本 [redacted:known] "[redacted:known]"'
    assert streamed(known, text, [*range(len(text))]) == known.redact(text)


def test_a_known_secret_is_found_wherever_it_is_in_a_long_text() -> None:
    known = guard(KNOWN)
    for before in (*range(0, 40_000, 4096), *range(16_300, 16_400)):
        text = "-" * before + KNOWN
        assert known.redact(text) == "-" * before + "[redacted:known]"


def test_known_secrets_that_overlap_become_one_marker() -> None:
    first, second = f"{letters(12)}-overlap", f"overlap-{letters(9)}"
    text = f"{letters(12)}-overlap-{letters(9)}"
    assert guard(first, second).redact(f"({text})") == "([redacted:known])"
    assert streamed(guard(first, second), f"({text})", [5, 15, 20]) == "([redacted:known])"


def test_a_thousand_secrets_can_be_known() -> None:
    many = [hashlib.sha256(str(number).encode()).hexdigest()[:24] for number in range(1_000)]
    text = "\n".join(many)
    assert guard(*many).redact(text) == "\n".join(["[redacted:known]"] * len(many))


TOKEN = f"ghp_{letters(36)}"
RESULTS = {
    # mode: what the step says, how it ends, and whether the run has a warning
    "off": (f"it is {TOKEN}", "succeeded", False),
    "warn": (f"it is {TOKEN}", "succeeded", True),
    "redact": ("it is [redacted:github]", "succeeded", True),
    "enforce": ("it is [redacted:github]", "failed", True),
}


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param("off", marks=pytest.mark.claim("L37")),
        pytest.param("warn", marks=pytest.mark.claim("L38")),
        "redact",
        pytest.param("enforce", marks=pytest.mark.claim("L40")),
    ],
)
async def test_the_mode_decides_what_happens_to_a_secret_in_a_file(
    tmp_path: Path, mode: Any
) -> None:
    (tmp_path / "found.txt").write_text(f"it is {TOKEN}")
    step = command("c", f"cat {tmp_path}/found.txt")
    flow = workflow([node("s", "start"), step], edges("s next c"))
    said, status, warned = RESULTS[mode]
    async with world(tmp_path, leaks_mode=mode) as here:
        run = await here.run(flow)
        await here.service.settle_audit()
    audit = "".join(file.read_text() for file in (tmp_path / "data/audit").glob("*.jsonl"))
    assert run.said() == said
    assert run.status == status
    notices = [
        each for each in run.events if isinstance(each, Notice) and "secrets" in each.message
    ]
    assert [each.level for each in notices] == ["warning"] * warned
    assert all("github" in each.message for each in notices)
    assert ('"leak.found"' in audit) == warned
    assert TOKEN not in audit
    if mode == "enforce":
        assert run.result.error.endswith(BLOCKED)
        kept = b"".join(
            file.read_bytes() for file in (tmp_path / "data").rglob("*") if file.is_file()
        )
        assert TOKEN.encode() not in kept
