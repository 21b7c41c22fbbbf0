"""Secrets that the server knows reach neither the record, nor who looks, nor the next prompt."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infloop.catalog.connections import save as save_connection
from infloop.catalog.triggers import TriggerFiles, new_trigger_id
from infloop.model.connection import Connection, ConnectionPort
from infloop.model.events import (
    BudgetExceeded,
    GuardFailed,
    Notice,
    Output,
    Remark,
    StepFinished,
    encode_event,
)
from infloop.model.trigger import Trigger
from infloop.model.values import JsonObject
from infloop.nodes.base import Outcome
from infloop.policy.leaks.finder import LeakFinder
from infloop.policy.leaks.guard import LeakGuard
from infloop.policy.leaks.known import Secret
from infloop.policy.leaks.variables import secret_values
from infloop.runtime.runs.redaction import PIECE, Redactor
from support.acp_agents import bot as acp_bot
from support.runs import Finished, World, scripted, world
from support.user_machine import agent, command, machine, script
from support.workflows import edges, node, workflow

TOKEN = "ghp_0123456789abcdefABCDEF0123456789abcd"
KEY = '-----BEGIN KEY-----\nMIIEv "quoted"\\gIBADAN\u00e9\n-----END KEY-----'
MARKER = "[redacted:known]"
TOLD_TOKEN, TOLD_KEY = "[redacted:env:GH_TOKEN]", "[redacted:env:SIGNING_KEY]"
TAKE = "import os, sys\ntoken, key = os.environ['GH_TOKEN'], os.environ['SIGNING_KEY']\n"


def guard(*values: str) -> LeakGuard:
    """A guard that knows some values and has no rules."""
    return LeakGuard(Secret("known", each) for each in values)


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GH_TOKEN", TOKEN)
    monkeypatch.setenv("SIGNING_KEY", KEY)


def telling(tmp_path: Path, **settings: Any) -> Any:
    """A world whose children know the secrets."""
    return world(tmp_path, child_env_passthrough="GH_TOKEN,SIGNING_KEY", **settings)


def kept(folder: Path) -> bytes:
    """Everything that is in the files of a data directory."""
    return b"".join(file.read_bytes() for file in (folder / "data").rglob("*") if file.is_file())


def told(run: Finished) -> bytes:
    """Everything that the run says of itself."""
    events = b"".join(map(encode_event, run.events))
    said = "".join(run.said(stream) for stream in ("stdout", "stderr", "tool"))
    return events + said.encode() + json.dumps(run.scope).encode()


def assert_clean(data: bytes, *secrets: str) -> None:
    for secret in secrets or (TOKEN, KEY):
        for form in (
            secret,
            json.dumps(secret)[1:-1],
            json.dumps(secret, ensure_ascii=False)[1:-1],
        ):
            assert form.encode() not in data


def program(tmp_path: Path, line: str, **manifest: Any) -> dict[str, Any]:
    """An agent that is a shell line."""
    made: dict[str, Any] = {
        "id": "sh",
        "label": "sh",
        "description": "d",
        "transport": "cli",
        "bin": "/bin/sh",
    }
    made |= {"args": ["-c", line], "promptVia": "stdin", **manifest}
    (tmp_path / "data/providers").mkdir(parents=True, exist_ok=True)
    (tmp_path / "data/providers/sh.json").write_text(json.dumps(made))
    return agent("a", providerId="sh")


def scripted_agent(tmp_path: Path, line: str) -> dict[str, Any]:
    """A scripted agent that runs a shell line as its tool."""
    manifest = {"id": "bot", "label": "bot", "description": "d", "transport": "scripted"}
    folder = tmp_path / "data/providers"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bot.json").write_text(json.dumps({**manifest, "script": "bot.turns"}))
    (folder / "bot.turns").write_text(json.dumps({"turns": [{"do": [{"shell": line}]}]}))
    return agent("a")


# Who tells a secret, how the step ends, and which of its outputs holds what is left of it.
TELLERS: dict[str, tuple[Callable[[Path], dict[str, Any]], str, str]] = {
    "a script prints it": (
        lambda _: script("a", TAKE + "print('so', token, key)"),
        "next",
        "stdout",
    ),
    "a script complains about it": (
        lambda _: script("a", TAKE + "sys.stderr.write(key + token)"),
        "next",
        "stderr",
    ),
    "a script writes it letter by letter": (
        lambda _: script("a", TAKE + "for one in token: print(one, end='', flush=True)"),
        "next",
        "stdout",
    ),
    "a script returns it": (
        lambda _: script("a", TAKE + "return {'it': token}", outputs=["it"]),
        "next",
        "it",
    ),
    "a script returns it deep inside": (
        lambda _: script("a", TAKE + "return {'it': [1, {'deep': [key, None, token]}]}"),
        "next",
        "result",
    ),
    "a script returns it deeper than calls go": (
        lambda _: script(
            "a", TAKE + "it = token\nfor _ in range(900): it = [it]\nreturn {'it': it}"
        ),
        "next",
        "result",
    ),
    "a script returns it as a key": (
        lambda _: script("a", TAKE + "return {token: 1, 'more': {key: 2}}"),
        "next",
        "result",
    ),
    "a script returns it as JSON in a text": (
        lambda _: script("a", TAKE + "return {'it': {'deep': key}}", outputs=["it"]),
        "next",
        "it",
    ),
    "a script prints it as JSON": (
        lambda _: script("a", TAKE + "import json\nprint(json.dumps({'key': key}))"),
        "next",
        "stdout",
    ),
    "a script prints it as JSON in Unicode": (
        lambda _: script("a", TAKE + "import json\nprint(json.dumps(key, ensure_ascii=False))"),
        "next",
        "stdout",
    ),
    "a script fails with it": (
        lambda _: script("a", TAKE + "raise ValueError(token)"),
        "error",
        "errorMessage",
    ),
    "a command prints it": (
        lambda _: command("a", 'printf %s "$GH_TOKEN$SIGNING_KEY"; printf %s "$GH_TOKEN" >&2'),
        "met",
        "stdout",
    ),
    "an agent says it": (
        lambda folder: program(folder, 'printf %s "$GH_TOKEN"', envPassthrough=["GH_TOKEN"]),
        "next",
        "transcript",
    ),
    "an agent fails with it": (
        lambda folder: program(
            folder, 'echo "bad $GH_TOKEN" >&2; exit 3', envPassthrough=["GH_TOKEN"]
        ),
        "error",
        "stderr",
    ),
    "an agent's tool prints it": (
        lambda folder: scripted_agent(folder, 'echo "$GH_TOKEN"'),
        "next",
        "transcript",
    ),
}


@pytest.mark.parametrize("teller", TELLERS)
async def test_a_secret_that_a_child_tells_is_taken_out_everywhere(
    tmp_path: Path, teller: str
) -> None:
    make, handle, output = TELLERS[teller]
    line = f"printf %s {{{{a.{output}}}}} > {tmp_path}/next"
    flow = workflow(
        [node("s", "start"), make(tmp_path), command("b", line)], edges(f"s next a {handle} b")
    )
    async with telling(tmp_path) as here:
        run: Finished = await here.run(flow)
        shown = told(run)
    assert run.status == "succeeded", run.result
    assert b"[redacted:env:" in shown
    assert "[redacted:env:" in (tmp_path / "next").read_text()
    for data in (shown, kept(tmp_path), (tmp_path / "next").read_bytes()):
        assert_clean(data)


async def test_a_secret_in_two_writes_is_never_shown(tmp_path: Path) -> None:
    code = f"""
import os, pathlib, time
token = os.environ["GH_TOKEN"]
print("begun", token[:20], end="", flush=True)
while not pathlib.Path({str(tmp_path / "go")!r}).exists(): time.sleep(0.01)
print(token[20:], "done")
"""
    flow = workflow([node("s", "start"), script("a", code)], edges("s next a"))
    async with telling(tmp_path) as here, asyncio.timeout(30):
        run_id = await here.start(flow)
        live = ""
        async for batch in here.service.listen(run_id):
            live += "".join(item.event.text for item in batch if isinstance(item.event, Output))
            if "begun" in live and not (tmp_path / "go").exists():
                assert live == "begun "
                (tmp_path / "go").touch()
        assert live == f"begun {TOLD_TOKEN} done\n"
        run = await here.finish(run_id)
    assert run.scope["a"]["stdout"] == live
    assert_clean(kept(tmp_path))


@pytest.mark.parametrize(
    ("secret", "shown"),
    [(TOKEN, f"{MARKER}…"), ("Correct Horse Battery Staple", f"{MARKER}Battery Stapl…")],
)
def test_a_line_that_was_shortened_shows_no_more_than_half_a_secret(
    secret: str, shown: str
) -> None:
    stream = guard(secret).stream()
    told = stream.feed("[tool] ") + stream.feed(f"{secret[:-1]}…\n") + stream.finish()
    assert told == f"[tool] {shown}\n"


async def test_what_only_begins_like_a_secret_is_told_when_the_step_ends(tmp_path: Path) -> None:
    flow = workflow(
        [node("s", "start"), script("a", TAKE + "print(token[:12], end='')")], edges("s next a")
    )
    async with telling(tmp_path) as here:
        run = await here.run(flow)
    assert run.said() == TOKEN[:12]


async def test_an_error_that_was_shortened_holds_no_part_of_a_random_secret(tmp_path: Path) -> None:
    code = TAKE + "sys.stderr.write('x' * 500 + token + 'y' * (300 - len(token) + 3))\nsys.exit(1)"
    flow = workflow([node("s", "start"), script("a", code)], edges("s next a"))
    async with telling(tmp_path) as here:
        run = await here.run(flow)
    assert f"{TOLD_TOKEN}yyy" in run.result.error
    assert_clean(told(run) + kept(tmp_path), TOKEN[20:], TOKEN[:20])


def test_what_is_noted_about_a_step_is_cleaned() -> None:
    redactor = Redactor(lambda: [Secret("known", TOKEN), Secret("known", KEY)])
    assert redactor.redact_event(Notice(f"no {KEY}!", "a")) == Notice(f"no {MARKER}!", "a")
    assert redactor.redact_event(GuardFailed(TOKEN, "a")) == GuardFailed(MARKER, "a")
    assert redactor.redact_event(BudgetExceeded(TOKEN, "a")) == BudgetExceeded(MARKER, "a")
    ended = StepFinished("a", "a", "agent", "error", {"errorMessage": TOKEN, "n": 1}, error=TOKEN)
    expected = StepFinished(
        "a", "a", "agent", "error", {"errorMessage": MARKER, "n": 1}, error=MARKER
    )
    assert redactor.redact_event(ended) == expected


async def test_a_step_that_waits_is_cleaned_like_one_that_ends() -> None:
    async def wait(_: Any, __: Any) -> Outcome:
        return Outcome("", {"said": [TOKEN]}, f"until {TOKEN}", until=5)

    told: list[str] = []
    redactor = Redactor(lambda: [Secret("known", TOKEN)])
    performer = redactor.wrap_performer(wait, lambda _, detectors: told.extend(detectors))
    step: Any = None
    outcome = await performer(step, lambda *_: None)
    assert (outcome.outputs, outcome.error) == ({"said": [MARKER]}, f"until {MARKER}")
    assert told == ["known"]


def test_an_event_type_that_is_not_listed_is_redacted_but_for_its_step() -> None:
    class Unlisted(Remark, frozen=True):
        path: str
        tool: str
        arguments: JsonObject

    redactor = Redactor(lambda: [Secret("known", TOKEN), Secret("known", KEY)])
    event: Any = Unlisted(TOKEN, f"use {TOKEN}", {"key": KEY})
    expected: Any = Unlisted(TOKEN, f"use {MARKER}", {"key": MARKER})
    assert redactor.redact_event(event) == expected


async def test_what_an_agent_asks_a_person_is_cleaned(tmp_path: Path) -> None:
    asked = {"kind": "execute", "title": f"`use {TOKEN}`", "rawInput": {"command": [TOKEN]}}
    script_file = tmp_path / "script.json"
    acp_bot(tmp_path, {"ask": asked}, {"stop": "end_turn"})
    flow = workflow([node("s", "start"), agent("a")], edges("s next a"))
    async with telling(tmp_path, approval_timeout_ms=300) as here:
        run = await here.run(flow)
        (question,) = await here.service.approvals.listed("expired")
    assert TOLD_TOKEN in question.title
    assert TOLD_TOKEN in json.dumps(question.details)
    assert TOKEN in script_file.read_text()
    assert_clean(told(run) + kept(tmp_path))


async def test_a_model_that_is_called_like_a_secret_is_not_in_the_ledger(tmp_path: Path) -> None:
    message = {"id": "m", "model": "%s", "usage": {"input_tokens": 7}, "content": []}
    said = json.dumps({"type": "assistant", "message": message})
    done = json.dumps({"type": "result", "result": "done", "usage": message["usage"]})
    teller = program(
        tmp_path,
        f"printf '{said}\\n{done}\\n' \"$GH_TOKEN\"",
        envPassthrough=["GH_TOKEN"],
        outputFormat="claude-stream-json",
    )
    flow = workflow([node("s", "start"), teller], edges("s next a"))
    async with telling(tmp_path) as here:
        run = await here.run(flow)
        await here.settled(1)
    assert run.scope["a"]["tokens"]["input"] == 7
    with sqlite3.connect(tmp_path / "data/journal.db") as database:
        assert database.execute("SELECT model FROM call").fetchall() == [(TOLD_TOKEN,)]
    assert_clean(told(run) + kept(tmp_path))


async def test_a_host_that_is_a_secret_is_not_in_the_audit_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = "glpat-0123456789abcdef.example"
    monkeypatch.setenv("SIGNING_KEY", host)
    code = (
        TAKE
        + """
import urllib.request
try: urllib.request.urlopen(f"http://{key}/", timeout=10)
except OSError: pass
"""
    )
    flow = workflow([node("s", "start"), script("a", code)], edges("s next a"))
    async with telling(tmp_path, egress_enforce=True) as here:
        run = await here.run(flow)
        await here.service.settle_audit()
    audit = "".join(file.read_text() for file in (tmp_path / "data/audit").glob("*.jsonl"))
    assert "egress.refused" in audit
    assert TOLD_KEY in audit
    assert any(isinstance(each, Notice) and TOLD_KEY in each.message for each in run.events)
    assert_clean(told(run) + kept(tmp_path), host)


def test_no_command_shows_a_secret(tmp_path: Path) -> None:
    user = machine(tmp_path)
    user.variables = {"GH_TOKEN": TOKEN, "SIGNING_KEY": KEY}
    user.variables["INFLOOP_CHILD_ENV_PASSTHROUGH"] = "GH_TOKEN,SIGNING_KEY"
    nodes = [script("a", TAKE + "print(token)\nreturn {'it': key}"), command("c", "echo $GH_TOKEN")]
    shown = user.infloop("run", user.file("w", nodes, "start next a next c")).stdout
    for arguments in (
        ("show", "last"),
        ("show", "last", "--json"),
        ("logs", "last"),
        ("logs", "last", "--json"),
        ("runs", "--json"),
        ("why", "last"),
    ):
        shown += user.infloop(*arguments).stdout
    assert TOLD_TOKEN in shown
    assert TOLD_KEY in shown
    assert_clean(shown.encode() + kept(tmp_path))
    assert user.infloop("runs", "--search", TOKEN, "--json").stdout == ""


# -- what is known ---------------------------------------------------------------------------------


async def test_secrets_that_are_filed_while_the_server_runs_are_learnt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filed = {
        name: f"{name}-secret-0123456789" for name in ("hook", "old", "wire", "model", "named")
    }
    monkeypatch.setenv("PLAIN_NAME", filed["named"])
    reading = tmp_path / "reading"
    reading.write_text(" ".join(filed.values()))
    flow = workflow([node("s", "start"), command("a", f"cat {reading}")], edges("s next a"))
    async with telling(tmp_path) as here:
        assert (await here.run(flow)).said() == reading.read_text()
        file_secrets(here, filed)
        async with asyncio.timeout(30):
            while plain((run := await here.run(flow)).said()) != " ".join([MARKER] * len(filed)):
                pass
        # The secrets before these stay known, also once others are learnt.
        replaced = {name: f"another-{text}" for name, text in filed.items()}
        reading.write_text(" ".join([*filed.values(), *replaced.values(), TOKEN]))
        file_secrets(here, {**replaced, "named": filed["named"]})
        wanted = " ".join([MARKER] * len(filed)) + " "
        async with asyncio.timeout(30):
            while "another-wire" in (again := await here.run(flow)).said():
                assert plain(again.said()).startswith(wanted)
        assert plain(again.said()).startswith(wanted)
        assert again.said().endswith(f" {TOLD_TOKEN}")
    assert run.scope["a"]["stdout"] == run.said()


def plain(text: str) -> str:
    """The text with the same marker for every secret."""
    return re.sub(r"\[redacted:[^]]*]", MARKER, text)


def file_secrets(here: World, filed: dict[str, str]) -> None:
    """Write a trigger, a connection and two manifests as others would."""
    trigger = Trigger(
        id=new_trigger_id(),
        workflow_id="w",
        secret=filed["hook"],
        previous_secret=filed["old"],
        previous_secret_until=1,
    )
    TriggerFiles(here.settings.triggers).save(trigger)
    ports = (ConnectionPort(port=1),)
    connection = Connection(label="c", host="http://h", token=filed["wire"], ports=ports)
    save_connection(here.settings.connections, "c", connection)
    here.settings.providers.mkdir(parents=True, exist_ok=True)
    for name, auth in (("model", {"token": filed["model"]}), ("named", {"envVar": "PLAIN_NAME"})):
        manifest = {"id": name, "label": name, "description": "d", "transport": "http"}
        manifest |= {"baseUrl": "http://h/v1", "endpoint": "/x"}
        auth |= {"type": "bearer"}
        (here.settings.providers / f"{name}.json").write_text(
            json.dumps({**manifest, "auth": auth})
        )


AWS_SECRET = "/wJalrXUtnFEMI/K7MDENG+bPxRfiCY3EXAMPLEK"
JSON = '{"type": "service_account", "private_key": "x"}'


@pytest.mark.parametrize(
    ("name", "value", "secrets"),
    [
        ("GH_TOKEN", "ghp_0123456789", ["ghp_0123456789"]),
        ("ANTHROPIC_API_KEY", "sk-ant-0123", ["sk-ant-0123"]),
        ("INFLOOP_API_TOKEN", "correct-horse", ["correct-horse"]),
        ("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE", ["AKIAIOSFODNN7EXAMPLE"]),
        ("AWS_SECRET_ACCESS_KEY", AWS_SECRET, [AWS_SECRET]),
        ("PGPASSWORD", "hunter2hunter2", ["hunter2hunter2"]),
        ("MYSQL_PWD", "hunter2hunter2", ["hunter2hunter2"]),
        ("npm_config__authToken", "npm_0123456789", ["npm_0123456789"]),
        ("apikey", " padded-key-1 ", ["padded-key-1"]),
        ("SECRET_KEY_BASE", "0123abcd" * 8, ["0123abcd" * 8]),
        ("GOOGLE_CREDENTIALS_JSON", JSON, [JSON]),
        ("DB_PASSWORD", "correcthorsebattery", ["correcthorsebattery"]),
        ("DATABASE_URL", "postgres://me:s3cret-word@db/x", ["s3cret-word"] * 2),
        ("REDIS_URL", "redis://:s3cret-word@localhost:6379/0", ["s3cret-word"] * 2),
        ("SENTRY_DSN", "https://k:s3cr%2Ft%3D%C3%A9@h/1", ["s3cr%2Ft%3D%C3%A9", "s3cr/t=\u00e9"]),
        ("HTTPS_PROXY", "http://me:p@ss:w0rd@proxy:8080", ["p@ss:w0rd"] * 2),
        # short, so it would be found everywhere
        ("API_KEY", "1234abc", []),
        ("API_KEY", "", []),
        # about a secret
        ("TOKEN_TYPE", "bearer-token-1", []),
        ("SSH_KEY_PATH", "keys/id_ed25519", []),
        ("AUTH_HOST", "login.example.com", []),
        ("SECRET_NAME", "prod/db-password-1", []),
        ("OIDC_KEY_ID", "2024-key-number-1", []),
        # paths, numbers, words
        ("SSH_AUTH_SOCK", "/tmp/ssh-XXXXabc/agent.1", []),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/home/me/Keys2/my-project.json", []),
        ("SSL_KEY", "~/keys/mine-2.pem", []),
        ("PWD", "/home/me/work/project-1", []),
        ("TOKEN", "1234567890123", []),
        ("PRIVATE", "192.168.100.0/24", []),
        ("AUTH", "disabled", []),
        ("COOKIE", "Production", []),
        ("MONKEY", "BANANAS", []),
        # a URL is told but for its password
        ("AUTH", "https://login.example.com/realms/1", []),
        ("TOKEN", "https://me@example.com/a:b@c", []),
        ("DATABASE_URL", "postgres://postgres:postgres@localhost/x", []),
        ("DATABASE_URL", "postgres://me:password@localhost/x", []),
        # nothing says that it is one
        ("PATH", "/usr/bin:/bin:/opt/tool-1/bin", []),
        ("AUTHOR", "somebody-1234567", []),
        ("KEYBOARD_LAYOUT", "de-nodeadkeys-105", []),
        ("HOSTNAME", "ip-10-0-0-1-abcdef", []),
    ],
)
def test_a_variable_holds_a_secret_if_its_name_and_its_value_say_so(
    name: str, value: str, secrets: list[str]
) -> None:
    assert [each.value for each in secret_values({name: value})] == secrets


# -- finding them ----------------------------------------------------------------------------------

SECRETS = st.lists(st.text("ab", min_size=8, max_size=12), min_size=1, max_size=4)


def by_hand(text: str, secrets: list[str]) -> str:
    """What is to become of a text, the slow way."""
    made, covered = "", 0
    for at, letter in enumerate(text):
        found = [at + len(each) for each in secrets if text.startswith(each, at)]
        if at >= covered:
            made += MARKER if found else letter
        covered = max([covered, *found])
    return made


@given(st.data())
def test_a_text_in_pieces_is_cleaned_like_the_whole(data: st.DataObject) -> None:
    secrets = data.draw(SECRETS)
    parts = st.sampled_from(secrets) | st.text("abc", max_size=6)
    text = "".join(data.draw(st.lists(parts, max_size=8)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    known = guard(*secrets)
    stream = known.stream()
    ends = zip([0, *cuts], [*cuts, len(text)], strict=True)
    shown = [stream.feed(text[begin:end]) for begin, end in ends]
    assert "".join([*shown, stream.finish()]) == by_hand(text, secrets)
    assert known.redact(text) == by_hand(text, secrets)


@given(SECRETS, st.text("abc", max_size=40))
def test_no_more_is_held_back_than_may_become_a_secret(secrets: list[str], text: str) -> None:
    stream = guard(*secrets).stream()
    shown = "".join(map(stream.feed, text))
    held = stream.finish()
    assert by_hand(text, secrets) == shown + held
    ends = [text[at:] for at in range(len(text))]
    begun = [end for end in ends if any(each.startswith(end) and each != end for each in secrets)]
    assert len(held) <= max(map(len, begun), default=0)


def test_a_value_without_a_secret_is_the_same_value() -> None:
    value: JsonObject = {
        "a": ["x" * 100, {"b": None, "c": 1.5, "d": True}],
        "long enough to hold one": "ghp_",
    }
    assert guard(TOKEN).redact(value) is value
    assert guard().redact(value) is value


def test_a_value_with_a_secret_is_left_as_it_was() -> None:
    value: JsonObject = {"a": [TOKEN, {TOKEN: 1}], "b": {"c": "x"}}
    cleaned = guard(TOKEN).redact(value)
    assert cleaned == {"a": [MARKER, {MARKER: 1}], "b": {"c": "x"}}
    assert value == {"a": [TOKEN, {TOKEN: 1}], "b": {"c": "x"}}


def test_what_is_short_is_not_looked_for() -> None:
    known = guard("1234567", "", "12345678")
    assert known.redact("1234567 12345678") == f"1234567 {MARKER}"


def test_what_is_learnt_counts_in_the_middle_of_a_text() -> None:
    known = guard("first-secret")
    stream = known.stream()
    shown = stream.feed("first-secret second")
    known.add(Secret("known", each) for each in ("first-secret", "another-secret"))
    shown += stream.feed(" another-") + stream.feed("secret.") + stream.finish()
    assert shown == f"{MARKER} second {MARKER}."


INNER, OUTER = "inner-secret-1", "before/inner-secret-1/after"
LEFT, RIGHT = "left-middle-", "middle-right"
# The secrets that are known, a text that holds them, and what is left of it.
TOGETHER = {
    "one inside another": ({INNER, OUTER}, f"a {OUTER} b", f"a {MARKER} b"),
    "the inner one alone": ({INNER, OUTER}, f"about/{INNER} b", f"about/{MARKER} b"),
    "one at the beginning": ({"secret-one", "secret-one-two"}, "secret-one-two!", f"{MARKER}!"),
    "one at the end": ({"one-secret", "two-one-secret"}, "two-one-secret!", f"{MARKER}!"),
    "two that overlap": ({LEFT, RIGHT}, "left-middle-right!", f"{MARKER}!"),
    "three in a chain": (
        {"aaaa-bbbb", "bbbb-cccc", "cccc-dddd"},
        "aaaa-bbbb-cccc-dddd.",
        f"{MARKER}.",
    ),
    "one that overlaps itself": ({"abababab"}, "abababababab.", f"{MARKER}."),
    "two side by side": ({LEFT, INNER}, f"{LEFT}{INNER}.", f"{MARKER}{MARKER}."),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_secrets_that_lie_in_each_other_leave_no_tail(name: str) -> None:
    secrets, text, expected = TOGETHER[name]
    known = guard(*secrets)
    assert known.redact(text) == expected
    for at in range(len(text) + 1):
        stream = known.stream()
        assert stream.feed(text[:at]) + stream.feed(text[at:]) + stream.finish() == expected
    stream = known.stream()
    assert "".join(map(stream.feed, text)) + stream.finish() == expected


async def test_of_a_secret_with_another_inside_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GH_TOKEN", INNER)
    monkeypatch.setenv("SIGNING_KEY", OUTER)
    saying = script("a", TAKE + "print(key, flush=True); sys.stdout.write(key); return {'it': key}")
    async with telling(tmp_path) as app:
        run = await app.run(workflow([node("s", "start"), saying], edges("s next a")))
    assert run.status == "succeeded", run.result
    for part in (INNER, "before/", "/after"):
        assert part.encode() not in told(run)
    assert TOLD_KEY in run.scope["a"]["stdout"]


# -- how long the others wait ----------------------------------------------------------------

FLOOD = ("AKIA" * 400 + "\n") * 44  # more than is searched at once
FLOODING: dict[str, dict[str, Any]] = {
    "a command prints it": command("n", "cat flood"),
    "a script returns it in parts": script(
        "n", "return {'x': [[line] for line in open('flood')]}", outputs=["x"]
    ),
    "a script fails with it": script("n", "raise ValueError(open('flood').read())"),
    "an agent says it": node("n", "agent", providerId="fake", prompt="go"),
}


@pytest.mark.parametrize("step", FLOODING.values(), ids=FLOODING)
async def test_a_flood_of_keywords_is_not_searched_in_one_piece_while_others_wait(
    tmp_path: Path, step: dict[str, Any]
) -> None:
    searched: list[int] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is LeakFinder.find_between.__code__:
            searched.append(len(frame.f_locals["data"]))

    async with world(tmp_path) as here:
        (here.folder / "flood").write_text(FLOOD)
        scripted(tmp_path / "data/providers", "fake", {"do": [{"text": FLOOD}]})
        run_id = await here.start(workflow([node("s", "start"), step], edges("s next n")))
        sys.setprofile(note)  # in this thread, which is the event loop's
        try:
            ended = await here.finish(run_id)
        finally:
            sys.setprofile(None)
    assert ended.scope["n"]
    assert max(searched, default=0) < 4 * PIECE
