"""The gate: the one way to call a tool, and what stops a call on it."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, get_args
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infloop.errors import AuditError, BudgetError, EgressError, GuardError
from infloop.model.agent_config import AgentConfig
from infloop.model.capabilities import CAPABILITIES, TRAITS, Capability, Need, ToolRule, Trait
from infloop.model.values import JsonObject
from infloop.policy.leaks.guard import BLOCKED, LeakGuard
from infloop.policy.leaks.known import Secret
from infloop.policy.tool_policy import DEFAULT_RULES, ToolPolicy, decide_call, is_listed
from infloop.tools.base import Arguments, Tool, ToolError, ToolFamily
from infloop.tools.gate import MAX_ARGUMENT_BYTES, Gate, ToolEvent, cut_text
from support.tools import AuditList, Person, gate_for

KNOWN = "s3cr3t-Value-0f-this-machine-42"


class Say(Arguments, frozen=True):
    text: str = ""
    times: int = 1


Work = Callable[[Say], Awaitable[str]]


async def repeat(arguments: Say) -> str:
    return arguments.text * arguments.times


class SayTool(Tool[Say]):
    """A tool that does what a test tells it."""

    name: ClassVar[str] = "say"
    aliases: ClassVar[tuple[str, ...]] = ("say_exec",)
    description: ClassVar[str] = "Says something."
    arguments: ClassVar[type[Any]] = Say

    def __init__(self, needs: Sequence[Need] = (), work: Work = repeat) -> None:
        self.calls: list[Say] = []
        self._needs = needs or (Need("read", "a.txt"),)
        self._work = work

    def needs(self, arguments: Say) -> Sequence[Need]:
        return self._needs

    async def run(self, arguments: Say) -> str:
        self.calls.append(arguments)
        return await self._work(arguments)


class Family(ToolFamily):
    def __init__(self, *tools: Tool[Any]) -> None:
        self._tools = tools
        self.closed = 0

    @property
    def tools(self) -> tuple[Tool[Any], ...]:
        return self._tools

    async def close(self) -> None:
        self.closed += 1


def need(capability: Capability, *traits: Trait, subject: str = "x") -> Need:
    return Need(capability, subject, frozenset(traits))


# -- what is allowed without any configuration -----------------------------------------------------

ASKED = [
    need("execute", "destructive"),
    need("execute", "background"),
    need("execute", "unconfined"),
    need("execute", "new-tool"),
    need("network-write"),
    need("private-network"),
]
ALLOWED = [need("read"), need("write"), need("execute"), need("network-read")]


@pytest.mark.claim("L49", "L50")
@pytest.mark.parametrize("wanted", ASKED, ids=str)
@pytest.mark.parametrize("name", ["say", "say_exec"])
async def test_what_is_risky_is_asked_by_any_name_and_recorded(wanted: Need, name: str) -> None:
    for person, runs in ((Person(allows=True), 1), (Person(allows=False), 0), (None, 0)):
        tool, audit = SayTool([need("read"), wanted]), AuditList()
        async with gate_for(Family(tool), ask=person, record=audit) as gate:
            result = await gate.call(name, {"text": "hello"})
        assert len(tool.calls) == runs
        assert result.code == ("" if runs else "denied")
        events = ["tool.called", "tool.finished"] if runs else ["tool.refused"]
        assert [entry.event for entry in audit.entries] == events
        if person is not None:
            (question,) = person.questions
            assert question.details["arguments"] == {"text": "hello"}


@pytest.mark.claim("L50")
@pytest.mark.parametrize("wanted", ALLOWED, ids=str)
async def test_what_stays_in_the_fence_is_allowed(wanted: Need) -> None:
    async with gate_for(Family(SayTool([wanted]))) as gate:
        assert (await gate.call("say", {"text": "hello"})).text == "hello"


def test_every_capability_and_every_trait_has_a_default_rule() -> None:
    assert {rule.capability for rule in DEFAULT_RULES} == set(CAPABILITIES)
    assert {rule.trait for rule in DEFAULT_RULES} >= set(TRAITS)
    assert set(get_args(Capability)) == set(CAPABILITIES)
    assert set(get_args(Trait)) == set(TRAITS)


@pytest.mark.claim("L50")
@pytest.mark.parametrize(
    "rule",
    [
        {"capability": "exec", "answer": "ask"},
        {"capability": "execute", "answer": "Ask"},
        {"capability": "execute", "answer": "off"},
        {"capability": "execute", "answer": "ask", "trait": "destructiv"},
        {"capability": "execute", "answer": "ask", "patern": "rm*"},
        {"answer": "ask"},
        {"capability": "execute"},
    ],
)
def test_a_misspelt_rule_is_an_error(rule: dict[str, str]) -> None:
    tables = {"security": {"approvals": {"rules": [rule]}}}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(tables, AgentConfig)


@pytest.mark.parametrize(
    ("rules", "subject", "answer"),
    [
        ([ToolRule("execute", "deny", "git push*")], "git push origin", "deny"),
        ([ToolRule("execute", "deny", "git push*")], "git status", "allow"),
        ([ToolRule("execute", "deny", "git push")], "git push origin", "allow"),
        ([ToolRule("execute", "deny", "a?[b]")], "axb", "allow"),  # only * is special
        ([ToolRule("execute", "deny", "a?[b]")], "a?[b]", "deny"),
        ([ToolRule("execute", "deny", "GIT*")], "git push", "allow"),
        ([ToolRule("execute", "allow"), ToolRule("execute", "deny")], "x", "allow"),
        ([], "x", "allow"),
    ],
)
def test_the_first_rule_that_matches_decides(
    rules: list[ToolRule], subject: str, answer: str
) -> None:
    policy = ToolPolicy((*rules, *DEFAULT_RULES))
    assert decide_call([policy], [need("execute", subject=subject)]).answer == answer


def test_without_a_policy_a_need_or_a_rule_the_answer_is_no() -> None:
    assert decide_call([], [need("read")]).answer == "deny"
    assert decide_call([ToolPolicy()], []).answer == "deny"
    assert decide_call([ToolPolicy(rules=())], [need("read")]).answer == "deny"
    assert not is_listed([], "say")


RULES = st.builds(
    ToolRule,
    capability=st.sampled_from(sorted(CAPABILITIES)),
    answer=st.sampled_from(["allow", "ask", "deny"]),
    pattern=st.sampled_from(["*", "a*", "b"]),
    trait=st.none() | st.sampled_from(sorted(TRAITS)),
)
NEEDS = st.builds(
    Need,
    capability=st.sampled_from(sorted(CAPABILITIES)),
    subject=st.sampled_from(["a", "ab", "b"]),
    traits=st.frozensets(st.sampled_from(sorted(TRAITS)), max_size=2),
)
POLICIES = st.builds(ToolPolicy, rules=st.lists(RULES, max_size=6).map(tuple))
STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}


@given(st.lists(POLICIES, min_size=1, max_size=3), POLICIES, st.lists(NEEDS, max_size=3))
def test_a_sub_agent_never_may_more_than_those_above_it(
    above: list[ToolPolicy], own: ToolPolicy, needs: list[Need]
) -> None:
    parent = STRICTNESS[decide_call(above, needs).answer]
    child = STRICTNESS[decide_call([*above, own], needs).answer]
    assert child >= parent


# -- which tools there are -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listed", "there"), [(None, True), (frozenset({"say"}), True), (frozenset(), False)]
)
async def test_a_list_of_tools_is_exact_and_an_empty_one_has_none(
    listed: frozenset[str] | None, there: bool
) -> None:
    tool = SayTool()
    gate = Gate([Family(tool)], [ToolPolicy(tools=listed)], record=AuditList(), leaks=LeakGuard())
    assert [each.name for each in gate.definitions()] == (["say"] if there else [])
    for name in ("say", "say_exec"):
        assert (await gate.call(name, {})).code == ("" if there else "tool-not-allowed")
    assert len(tool.calls) == (2 if there else 0)


async def test_a_sub_agent_has_the_tools_that_everybody_above_it_has() -> None:
    family = Family(SayTool())
    async with gate_for(family) as gate:
        below = gate.narrowed(ToolPolicy(tools=frozenset({"say"})))
        nothing = below.narrowed(ToolPolicy(tools=frozenset({"other"})))
        again = nothing.narrowed(ToolPolicy())
        assert [len(each.definitions()) for each in (gate, below, nothing, again)] == [1, 1, 0, 0]
        assert (await again.call("say", {})).code == "tool-not-allowed"
        await again.close()
        assert family.closed == 0  # the tools are those of the first gate
    assert family.closed == 1


async def test_two_tools_never_share_a_name() -> None:
    with pytest.raises(ValueError, match="say"):
        Gate([Family(SayTool(), SayTool())], [], record=AuditList(), leaks=LeakGuard())


BAD_ARGUMENTS = [
    b"",  # the default is valid
    b"[]",
    b'"text"',
    b"{",
    b'{"text": 1}',
    b'{"times": true}',
    b'{"times": "2"}',
    b'{"unknown": 1}',
    b'{"text": "a", "times": 1e400}',
    b"{" + b'"a":{' * 5_000 + b"}" * 5_001,
    b'{"text": "\xff"}',
]


@pytest.mark.parametrize("arguments", BAD_ARGUMENTS, ids=lambda each: repr(each[:30]))
async def test_bad_arguments_are_told_to_the_model_and_nothing_runs(arguments: bytes) -> None:
    tool, audit = SayTool(), AuditList()
    async with gate_for(Family(tool), record=audit) as gate:
        result = await gate.call("say", arguments)
    if not arguments:
        assert result.code == ""
        return
    assert result.code == "bad-arguments"
    assert tool.calls == []
    assert [entry.event for entry in audit.entries] == ["tool.refused"]


async def test_arguments_are_bounded() -> None:
    async with gate_for(Family(SayTool())) as gate:
        huge = json.dumps({"text": "x" * MAX_ARGUMENT_BYTES}).encode()
        assert (await gate.call("say", huge)).code == "arguments-too-large"
        assert (await gate.call("no such tool" * 100, b"{}")).code == "tool-not-allowed"


# -- the audit log ---------------------------------------------------------------------------------


@pytest.mark.claim("L1")
async def test_a_call_is_recorded_with_a_digest_before_it_runs() -> None:
    audit = AuditList()

    async def look(_: Say) -> str:
        entry = audit.entries[-1]
        return f"{entry.event} {entry.outcome}"

    async with gate_for(Family(SayTool(work=look)), record=audit) as gate:
        assert (await gate.call("say", {"text": "a", "times": 2})).text == "tool.called started"
        await gate.call("say", b'{"times": 2, "text": "a"}')  # the same call
        await gate.call("say", {"text": "b", "times": 2})
    called = [entry.details for entry in audit.entries if entry.event == "tool.called"]
    first, same, other = (details["digest"] for details in called)
    assert first == same != other
    assert str(first).startswith("sha256:")
    assert called[0]["capabilities"] == ["read"]
    assert set(called[0]) == {"tool", "digest", "capabilities"}  # and no contents


@pytest.mark.claim("L1")
async def test_a_call_that_cannot_be_recorded_does_not_run() -> None:
    async def broken(event: ToolEvent, outcome: str, details: JsonObject) -> None:
        raise AuditError("the disk is full")

    tool = SayTool()
    gate = Gate([Family(tool)], [ToolPolicy()], record=broken, leaks=LeakGuard())
    with pytest.raises(AuditError):
        await gate.call("say", {})
    assert tool.calls == []
    with pytest.raises(AuditError):
        await gate.call("unknown", {})


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ToolError("path-is-link", "it is a link"), "path-is-link", "it is a link"),
        (EgressError("no answer", "timeout"), "network-timeout", "no answer"),
    ],
)
async def test_what_goes_wrong_is_told_to_the_model(error: Exception, code: str, text: str) -> None:
    async def fail(_: Say) -> str:
        raise error

    audit = AuditList()
    async with gate_for(Family(SayTool(work=fail)), record=audit) as gate:
        result = await gate.call("say", {})
    assert (result.code, result.text) == (code, text)
    assert audit.entries[-1].outcome == code


@pytest.mark.parametrize(
    "error", [GuardError("no sandbox"), BudgetError("no money"), AuditError("no log")]
)
async def test_a_missing_guard_ends_the_agent_also_below_a_sub_agent(error: Exception) -> None:
    async def fail(_: Say) -> str:
        raise error

    async with gate_for(Family(SayTool(work=fail))) as inner:

        async def call_below(_: Say) -> str:
            return (await inner.narrowed(ToolPolicy()).call("say", {})).text

        async with gate_for(Family(SayTool(work=call_below))) as outer:
            with pytest.raises(type(error)):
                await outer.call("say", {})


async def test_what_is_for_the_operator_is_in_the_audit_log_alone() -> None:
    async def fail(_: Say) -> str:
        raise ToolError("refused", "that is not allowed", f"host evil.example, key {KNOWN}")

    audit, leaks = AuditList(), LeakGuard([Secret("env:KEY", KNOWN)])
    async with gate_for(Family(SayTool(work=fail)), record=audit, leaks=leaks) as gate:
        result = await gate.call("say", {})
    assert result.text == "that is not allowed"
    assert audit.entries[-1].details["detail"] == "host evil.example, key [redacted:env:KEY]"


async def test_a_cancelled_call_is_recorded_as_interrupted() -> None:
    started = asyncio.Event()

    async def wait(_: Say) -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    audit = AuditList()
    async with gate_for(Family(SayTool(work=wait)), record=audit) as gate:
        call = asyncio.create_task(gate.call("say", {}))
        await started.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert [entry.outcome for entry in audit.entries] == ["started", "interrupted"]


# -- what a model gets -----------------------------------------------------------------------------

SAID = f"the key is {KNOWN}."
REDACTED = "the key is [redacted:env:KEY]."


@pytest.mark.parametrize(
    ("mode", "text", "code", "leaks"),
    [
        pytest.param("off", SAID, "", (), marks=pytest.mark.claim("L37")),
        pytest.param("warn", SAID, "", ("env:KEY",), marks=pytest.mark.claim("L38")),
        pytest.param("redact", REDACTED, "", ("env:KEY",), marks=pytest.mark.claim("L39")),
        pytest.param(
            "enforce", BLOCKED, "leak-blocked", ("env:KEY",), marks=pytest.mark.claim("L40")
        ),
    ],
)
@pytest.mark.parametrize("fails", [False, True])
async def test_secrets_are_handled_as_the_mode_says(
    mode: Any, text: str, code: str, leaks: tuple[str, ...], fails: bool
) -> None:
    async def tell(_: Say) -> str:
        if fails:
            raise ToolError("failed", SAID)
        return SAID

    audit = AuditList()
    guard = LeakGuard([Secret("env:KEY", KNOWN)], mode=mode)
    async with gate_for(Family(SayTool(work=tell)), record=audit, leaks=guard) as gate:
        result = await gate.call("say", {})
    assert (result.text, result.leaks) == (text, leaks)
    assert result.code == (code or ("failed" if fails else ""))
    assert audit.entries[-1].details.get("leaks", []) == [*leaks]
    assert KNOWN not in str(audit.entries)


@pytest.mark.parametrize("capability", sorted(CAPABILITIES))
@pytest.mark.parametrize("mode", ["off", "warn", "redact", "enforce"])
@pytest.mark.parametrize(
    "written", [KNOWN, quote(KNOWN), base64.b64encode(KNOWN.encode()).decode()]
)
async def test_no_secret_leaves_the_machine_in_an_argument(
    capability: Any, mode: Any, written: str
) -> None:
    tool, audit = SayTool([need(capability)]), AuditList()
    guard = LeakGuard([Secret("env:KEY", KNOWN)], mode=mode)
    async with gate_for(Family(tool), ask=Person(allows=True), record=audit, leaks=guard) as gate:
        result = await gate.call("say", {"text": f"https://example.com/?q={written}"})
    stops = "network" in capability and mode in ("redact", "enforce")
    said = "leak-blocked" if mode == "enforce" else ""
    assert result.code == ("secret-in-arguments" if stops else said)
    assert len(tool.calls) == (0 if stops else 1)
    if stops:
        assert audit.entries[-1].details["reason"] == "found: env:KEY"
        assert KNOWN not in str(audit.entries)


async def test_a_refusal_tells_no_secret() -> None:
    audit, guard = AuditList(), LeakGuard([Secret("env:KEY", KNOWN)])
    async with gate_for(Family(SayTool()), record=audit, leaks=guard) as gate:
        for name, arguments in ((KNOWN, {}), ("say", {KNOWN: 1})):
            refused = await gate.call(name, arguments)  # type: ignore[arg-type]
            assert refused.code in ("tool-not-allowed", "bad-arguments")
            assert "[redacted:env:KEY]" in refused.text
            assert KNOWN not in refused.text
    assert "[redacted:env:KEY]" in str(audit.entries)
    assert KNOWN not in str(audit.entries)


async def test_a_model_gets_the_start_and_the_end_of_a_long_text() -> None:
    async def talk(_: Say) -> str:
        return f"first {'x' * 100_000} last"

    async with gate_for(Family(SayTool(work=talk)), max_text_chars=1_000) as gate:
        text = (await gate.call("say", {})).text
    assert len(text) < 1_100
    assert text.startswith("first x")
    assert text.endswith("x last")


@pytest.mark.claim("L36", "L39")
async def test_a_secret_at_the_cut_leaves_nothing_behind() -> None:
    """Cut first, it would be two halves that no rule recognises."""
    guard = LeakGuard([Secret("env:KEY", KNOWN)])
    for before in range(80, 125):
        text = "x" * before + KNOWN + "y" * 400
        async with gate_for(Family(SayTool()), leaks=guard, max_text_chars=200) as gate:
            shown = (await gate.call("say", {"text": text})).text
        longest = next(
            (
                size
                for size in range(len(KNOWN), 7, -1)
                if any(KNOWN[at : at + size] in shown for at in range(len(KNOWN) - size + 1))
            ),
            0,
        )
        assert longest == 0, shown


@given(st.text(max_size=300), st.integers(2, 100))
def test_a_long_text_keeps_its_start_and_its_end(text: str, limit: int) -> None:
    cut = cut_text(text, limit)
    if len(text) <= limit:
        assert cut == text
    else:
        assert cut.startswith(text[: limit // 2])
        assert cut.endswith(text[-(limit - limit // 2) :])
        assert f"{len(text) - limit} characters omitted" in cut
