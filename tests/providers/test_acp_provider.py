"""Agents that speak the Agent Client Protocol: what they may do, what they say, how they end."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import psutil
import pytest

from infloop.errors import StepError
from infloop.model.events import StepFinished
from infloop.model.provider import AcpProvider, Permissions, parse_provider
from infloop.policy.environment import child_environment
from infloop.policy.permissions import decide_permission
from infloop.providers.acp.agent import AcpAgent
from infloop.providers.acp.files import MAX_BYTES, AgentFiles
from infloop.providers.base import (
    AnswerPart,
    Cost,
    Done,
    ProviderNotice,
    Request,
    Session,
    Stderr,
    Text,
    Tool,
    ToolResult,
    Usage,
)
from infloop.sandbox.levels.host import HostSandbox
from support.acp_agents import ALL_ALLOWED, DEADLINE_S, STOP, Bench
from support.eventually import eventually_async
from support.paths import CHILDREN, ROOT
from support.provider_conformance import VARIABLES
from support.runs import world
from support.workflows import edges, node, workflow

AGENT = CHILDREN / "acp_agent.py"


@pytest.fixture
async def sandbox() -> AsyncIterator[HostSandbox]:
    made = HostSandbox()
    yield made
    await made.close()


def notices(parts: Sequence[AnswerPart]) -> list[str]:
    return [part.line for part in parts if isinstance(part, ProviderNotice)]


def said(parts: Sequence[AnswerPart]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Text))


def message(text: str, number: str | None = None) -> dict[str, Any]:
    chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    return {"update": {**chunk, "messageId": number} if number else chunk}


def tool(update: str, **fields: Any) -> dict[str, Any]:
    return {"update": {"sessionUpdate": update, "toolCallId": "t1", **fields}}


def spent(amount: object, currency: str = "USD") -> dict[str, Any]:
    cost = {"amount": amount, "currency": currency}
    return {"update": {"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": cost}}


# -- the manifest --------------------------------------------------------------------------------


def manifest(**fields: Any) -> bytes:
    whole = {"id": "some", "label": "Some", "description": "d", "transport": "acp", "bin": "agent"}
    return json.dumps({**whole, **fields}).encode()


def test_without_permissions_everything_is_denied() -> None:
    read, problems = parse_provider(manifest())
    assert isinstance(read, AcpProvider)
    assert problems == []
    kinds = (*Permissions.model_fields, "new")
    assert {decide_permission(read.permissions, kind).allowed for kind in kinds} == {False}


@pytest.mark.parametrize(
    ("permissions", "place"),
    [
        ({"reed": "allow"}, "permissions"),
        ({"read": "yes"}, "permissions.read"),
        ({"read": True}, "permissions.read"),
        ({"default": "allways"}, "permissions.default"),
        ("allow", "permissions"),
        (["read"], "permissions"),
    ],
)
def test_a_permission_that_is_misspelt_is_a_problem(permissions: object, place: str) -> None:
    read, problems = parse_provider(manifest(permissions=permissions))
    assert read is None
    assert [problem.place for problem in problems] == [place]


@pytest.mark.parametrize(
    ("permissions", "kind", "allowed", "why"),
    [
        ({}, "read", False, "permissions.default is 'deny'"),
        ({"read": "allow"}, "read", True, "permissions.read is 'allow'"),
        ({"read": "allow"}, "edit", False, "permissions.default is 'deny'"),
        ({"default": "allow"}, "edit", True, "permissions.default is 'allow'"),
        ({"default": "allow", "edit": "deny"}, "edit", False, "permissions.edit is 'deny'"),
        ({"edit": "ask"}, "edit", False, "permissions.edit is 'ask', and nobody answered"),
        ({"default": "ask"}, "x", False, "permissions.default is 'ask', and nobody answered"),
        ({"other": "allow"}, "other", True, "permissions.other is 'allow'"),
        ({"other": "allow"}, "switch_mode", False, "permissions.default is 'deny'"),
        ({"other": "allow"}, "EDIT", False, "permissions.default is 'deny'"),
        ({"other": "allow"}, "default", False, "permissions.default is 'deny'"),
        ({"other": "allow"}, "model_fields", False, "permissions.default is 'deny'"),
        ({"other": "allow"}, "", False, "permissions.default is 'deny'"),
    ],
)
def test_the_kind_of_a_tool_decides(
    permissions: dict[str, Any], kind: str, allowed: bool, why: str
) -> None:
    assert decide_permission(Permissions(**permissions), kind) == (allowed, why, "'ask'" in why)


def test_a_node_that_skips_prompts_allows_everything() -> None:
    ruling = decide_permission(Permissions(edit="deny"), "edit", skips_prompts=True)
    assert ruling == (True, "this node skips permission prompts", False)


def test_the_documents_have_every_kind_and_a_manifest_that_is_right() -> None:
    text = (ROOT / "docs/providers.md").read_text()
    for name in Permissions.model_fields:
        assert f"\n| `{name}` |" in text
    example = text.partition("```json file=data/providers/claude-acp.json\n")[2].partition("```")[0]
    read, problems = parse_provider(example.encode())
    assert isinstance(read, AcpProvider)
    assert problems == []


# -- asking for leave ----------------------------------------------------------------------------

REJECT = {"outcome": "selected", "optionId": "reject_once-id"}
ALLOW = {"outcome": "selected", "optionId": "allow_once-id"}
CANCEL = {"outcome": "cancelled"}


@pytest.mark.parametrize(
    ("permissions", "asked", "outcome", "notice"),
    [
        ({}, {"kind": "edit"}, REJECT, "denied: edit T (permissions.default is 'deny')"),
        ({"edit": "allow"}, {"kind": "edit"}, ALLOW, "allowed: edit T (permissions.edit is 'allow"),
        ({"edit": "ask"}, {"kind": "edit"}, REJECT, "denied: edit T (permissions.edit is 'ask', "),
        ({"other": "allow"}, {}, ALLOW, "allowed: other T"),
        ({"other": "allow"}, {"kind": "launch"}, REJECT, "denied: launch T (permissions.default"),
        ({"other": "allow"}, {"kind": 7}, ALLOW, "allowed: other T"),
        ({"edit": "allow"}, {"kind": "x" * 9999}, REJECT, f"denied: {'x' * 20}… T"),
        (ALL_ALLOWED, {"options": ["allow_always"]}, CANCEL, "denied: other T (it cannot be allow"),
        (ALL_ALLOWED, {"options": ["allow_always", "reject_once"]}, REJECT, "denied: other T (it"),
        (ALL_ALLOWED, {"options": []}, CANCEL, "denied: other T (it cannot be allowed just once)"),
        ({}, {"options": ["allow_once"]}, CANCEL, "denied: other T (permissions.default"),
        (
            {},
            {"options": ["allow_once", "reject_always"]},
            {"outcome": "selected", "optionId": "reject_always-id"},
            "denied: other T (permissions.default",
        ),
    ],
)
async def test_an_agent_that_asks_is_answered_by_the_policy_and_it_is_told(
    permissions: dict[str, str],
    asked: dict[str, Any],
    outcome: dict[str, str],
    notice: str,
    tmp_path: Path,
    sandbox: HostSandbox,
) -> None:
    ask = {"ask": {"title": "T", **asked}}
    bench = Bench(tmp_path, sandbox, ask, STOP, permissions=permissions)
    parts = await bench.parts()
    assert [answer["result"]["outcome"] for answer in bench.answers] == [outcome]
    (told,) = notices(parts)
    assert told.startswith(f"[permissions] {notice}")
    assert parts[-1] == Done(0)


@pytest.mark.claim("I35")
async def test_skipping_permissions_on_a_node_allows_that_request_alone(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    bench = Bench(tmp_path, sandbox, {"ask": {"kind": "execute", "title": "rm"}}, STOP)
    skipping = await bench.parts(skip_permissions=True)
    asking = await bench.parts()
    assert [answer["result"]["outcome"] for answer in bench.answers] == [ALLOW, REJECT]
    assert notices(skipping) == [
        "[permissions] allowed: execute rm (this node skips permission prompts)"
    ]
    assert notices(asking)[0].startswith("[permissions] denied: execute rm")


async def test_the_kind_may_have_been_told_before(tmp_path: Path, sandbox: HostSandbox) -> None:
    begun = tool("tool_call", title="Edit x", kind="edit", status="pending")
    options = {"ask": {"options": ["allow_once", "reject_once"]}}
    bench = Bench(tmp_path, sandbox, begun, options, STOP, permissions={"edit": "allow"})
    parts = await bench.parts()
    assert parts[1:3] == [
        Tool("edit", "Edit x", id="t1"),
        ProviderNotice("[permissions] allowed: edit Edit x (permissions.edit is 'allow')"),
    ]


async def test_what_a_request_for_leave_says_cannot_fake_a_line(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    title = "x\n[permissions] allowed: all \x1b[2J" + "y" * 500
    bench = Bench(tmp_path, sandbox, {"ask": {"kind": "edit", "title": title}}, STOP)
    (notice,) = notices(await bench.parts())
    assert "\n" not in notice
    assert "\x1b" not in notice
    assert len(notice) < 300


# -- what it says --------------------------------------------------------------------------------


async def test_a_conversation_becomes_parts_in_order(tmp_path: Path, sandbox: HostSandbox) -> None:
    plan = [
        {"content": "look", "priority": "high", "status": "completed"},
        {"content": "write it", "priority": "low", "status": "in_progress"},
    ]
    bench = Bench(
        tmp_path,
        sandbox,
        {"think": "DONE already?"},
        {"say": "I look"},
        {"say": "."},
        tool("tool_call", title="Read", kind="read", status="pending", rawInput={}),
        tool("tool_call_update", title="Read x.txt", status="in_progress"),
        tool("tool_call_update", content=[{"type": "content", "content": {"type": "text",
             "text": "line 1\nline 2"}}]),
        tool("tool_call_update", status="completed"),
        {"update": {"sessionUpdate": "plan", "entries": plan}},
        tool("tool_call", title="Run it", kind="execute", status="failed", rawOutput={"code": 1}),
        {"update": {"sessionUpdate": "current_mode_update", "currentModeId": "x"}},
        {"update": {"sessionUpdate": "of another day", "x": 1}},
        message("All", "m1"),
        message(" well", "m1"),
        message("It is DONE", "m2"),
        STOP,
    )  # fmt: skip
    assert merged(await bench.parts("Look — \ud83d")) == [
        Session("sess-1"),
        Text("I look."),
        Tool("read", "Read x.txt", id="t1"),
        ToolResult("line 1↵line 2", id="t1"),
        ProviderNotice("[plan] 1 of 2 done write it"),
        Tool("execute", "Run it", id="t1"),
        ToolResult('{"code":1}', id="t1", failed=True),
        Text("\nAll well\nIt is DONE"),
        Done(0, "It is DONE"),
    ]
    assert bench.told("session/prompt") == {
        "sessionId": "sess-1",
        "prompt": [{"type": "text", "text": "Look — ?"}],
    }


def merged(parts: Sequence[AnswerPart]) -> list[AnswerPart]:
    """The parts with text that came in pieces in one piece: how much comes at once is chance."""
    whole: list[AnswerPart] = []
    for part in parts:
        if isinstance(part, Text) and whole and isinstance(whole[-1], Text):
            part = Text(whole.pop().text + part.text)  # type: ignore[union-attr]
        whole.append(part)
    return whole


async def test_a_tool_that_is_announced_and_no_more_is_shown_at_the_end(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    begun = tool("tool_call", title="Read x", kind="read", status="pending")
    parts = await Bench(tmp_path, sandbox, begun, STOP).parts()
    assert parts[1:] == [Tool("read", "Read x", id="t1"), Done(0)]


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        ({"totalTokens": 30, "inputTokens": 20, "outputTokens": 10}, Usage(20, 10)),
        (
            {"totalTokens": 67, "inputTokens": 20, "outputTokens": 10, "cachedReadTokens": 30,
             "cachedWriteTokens": 3, "thoughtTokens": 4},
            Usage(53, 14, 30, 3),
        ),
        (
            {"totalTokens": 30, "inputTokens": 20, "outputTokens": 10, "cachedReadTokens": 15},
            Usage(20, 10, 15),
        ),
        ({"totalTokens": 1, "inputTokens": 10**30, "outputTokens": 5}, Usage(0, 5)),
        ({"totalTokens": 30, "inputTokens": -1, "outputTokens": 10}, None),
        ({"totalTokens": 0, "inputTokens": 0, "outputTokens": 0}, None),
        ({"inputTokens": 5}, None),
        ("many", None),
        (None, None),
    ],
)  # fmt: skip
async def test_tokens_are_counted_as_far_as_they_make_sense(
    told: object, usage: Usage | None, tmp_path: Path, sandbox: HostSandbox
) -> None:
    parts = await Bench(tmp_path, sandbox, {"stop": "end_turn", "usage": told}).parts()
    assert [part for part in parts if isinstance(part, Usage)] == ([usage] if usage else [])
    assert parts[-1] == Done(0)


async def test_money_is_counted_once_and_only_in_dollars(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    updates = [spent(0.25), spent(0.25), spent(0.75), spent(0.5), spent(9, "EUR"), spent(-1)]
    odd = [spent("much"), spent([1]), spent(10**40), {"raw": '{"amount": NaN}'}]
    parts = await Bench(tmp_path, sandbox, *updates, *odd, spent(1.0), STOP).parts()
    assert [part.usd for part in parts if isinstance(part, Cost)] == [0.25, 0.5, 0.25]


# -- sessions and models -------------------------------------------------------------------------


async def test_a_session_is_loaded_and_what_it_replays_is_not_said_again(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    before = [{"say": "of yesterday"}, tool("tool_call", title="Old"), spent(2.0)]
    bench = Bench(tmp_path, sandbox, {"say": "new"}, spent(2.5), STOP, replay=before)
    parts = await bench.parts(session_id="sess-9")
    assert parts == [Session("sess-9"), Text("new"), Cost(0.5), Done(0, "new")]
    assert bench.told("session/load")["sessionId"] == "sess-9"
    assert bench.told("session/prompt")["sessionId"] == "sess-9"


def used(read: int, said: int) -> dict[str, Any]:
    return {
        **STOP,
        "usage": {"totalTokens": read + said, "inputTokens": read, "outputTokens": said},
    }


@pytest.mark.parametrize(
    ("later", "tokens", "cost"),
    [
        ([spent(0.75), used(150, 15)], {"input": 50, "output": 5, "cached": 0}, 0.25),
        ([spent(0.25), used(30, 4)], {"input": 30, "output": 4, "cached": 0}, 0.25),
    ],
    ids=["all turns of the session", "an agent that forgot the turn before"],
)
async def test_what_an_earlier_turn_of_the_session_used_is_counted_once(
    tmp_path: Path, later: list[dict[str, Any]], tokens: dict[str, int], cost: float
) -> None:
    script = {"do": [spent(0.5), used(100, 10)], "later": later}
    (tmp_path / "script.json").write_text(json.dumps(script))
    fields = {"bin": sys.executable, "args": [str(AGENT), str(tmp_path / "script.json")]}
    (tmp_path / "data/providers").mkdir(parents=True)
    (tmp_path / "data/providers/some.json").write_bytes(manifest(**fields))
    asking = node("a", "agent", providerId="some", prompt="go", continueSession=True)
    rounds = node("l", "loop", [asking], maxIterations=2)
    async with world(tmp_path, snapshots=False) as here:
        done = await here.run(workflow([node("s", "start"), rounds], edges("s next l")))
        assert done.status == "succeeded", (done.result, done.said("stderr"))
        first, second = (
            each.outputs
            for each in done.events
            if isinstance(each, StepFinished) and each.node.endswith("a")
        )
        booked = await here.settled(2)
    assert (first["tokens"], first["costUsd"]) == ({"input": 100, "output": 10, "cached": 0}, 0.5)
    assert (second["tokens"], second["costUsd"]) == (tokens, cost)
    assert second["sessionCostUsd"] == 0.5 + cost
    assert booked.usd == 0.5 + cost


async def test_an_agent_that_can_resume_needs_to_replay_nothing(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    able: dict[str, Any] = {"agentCapabilities": {"sessionCapabilities": {"resume": {}}}}
    bench = Bench(tmp_path, sandbox, {"say": "new"}, STOP, initialize=able)
    assert (await bench.parts(session_id="sess-9"))[0] == Session("sess-9")
    assert bench.told("session/resume")["sessionId"] == "sess-9"


async def test_an_agent_that_cannot_continue_a_session_begins_a_new_one_and_it_is_told(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    bench = Bench(tmp_path, sandbox, STOP, initialize={"agentCapabilities": {}})
    parts = await bench.parts(session_id="sess-9")
    assert parts[:2] == [
        ProviderNotice("[session] the agent cannot continue sessions: a new one begins"),
        Session("sess-1"),
    ]


OPTION = {"id": "m", "name": "Model", "category": "model", "type": "select", "currentValue": "a"}


@pytest.mark.parametrize(
    "options",
    [
        [{"value": "big", "name": "Big"}],
        [{"group": "g", "name": "G", "options": [{"value": "big", "name": "Big"}]}],
    ],
)
async def test_a_model_is_chosen_from_those_the_agent_offers(
    options: list[Any], tmp_path: Path, sandbox: HostSandbox
) -> None:
    session = {"configOptions": [{"id": "x"}, {**OPTION, "options": options}]}
    usage = {"totalTokens": 3, "inputTokens": 1, "outputTokens": 2}
    stop = {"stop": "end_turn", "usage": usage}
    bench = Bench(tmp_path, sandbox, stop, session=session)
    parts = await bench.parts(model="big")
    assert parts == [Session("sess-1"), Usage(1, 2, model="big"), Done(0)]
    chosen = bench.told("session/set_config_option")
    assert (chosen["configId"], chosen["value"]) == ("m", "big")


@pytest.mark.parametrize("session", [{}, {"configOptions": 7}, {"configOptions": [OPTION]}])
async def test_a_model_or_agent_that_is_not_offered_is_told(
    session: dict[str, Any], tmp_path: Path, sandbox: HostSandbox
) -> None:
    bench = Bench(tmp_path, sandbox, STOP, session=session)
    assert notices(await bench.parts(model="big", agent="rev")) == [
        "[agent] 'rev' is not used: ACP has no agents",
        "[model] the agent does not offer 'big': it is not used",
    ]


# -- how it ends ---------------------------------------------------------------------------------

BROKE_OFF = "the agent's output broke off before its result"


@pytest.mark.parametrize(
    ("script", "ending"),
    [
        ({"do": [{"stop": "max_tokens"}]}, Done(None, None, "the agent reached its limit of tok")),
        ({"do": [{"stop": "max_turn_requests"}]}, Done(None, None, "the agent reached its limit")),
        ({"do": [{"say": "no"}, {"stop": "refusal"}]}, Done(None, "no", "the agent refused to go")),
        ({"do": [{"stop": "cancelled"}]}, Done(None, None, "the agent was cancelled")),
        ({"do": [{"stop": "of another day"}]}, Done(None, None, "the agent stopped: 'of another")),
        ({"do": [{"stop": 7}]}, Done(None, None, "the agent stopped: ''")),
        ({"do": [{"fail": {"code": -32603, "message": "Internal", "data": {"details": "no key"}}}]},
         Done(None, None, "Internal: no key")),
        ({"do": [{"fail": {"code": -32000, "message": "Auth"}}]},
         Done(None, None, "Auth; sign in with the agent's own program first")),
        ({"do": [{"fail": [1]}]}, Done(None, None, "it gave no reason")),
        ({"do": [{"fail": {"code": "x", "message": ["y"]}}]}, Done(None, None, "it gave no reas")),
        ({"do": [{"say": "hm"}, {"exit": 0}]}, Done(0, None, BROKE_OFF)),
        ({"do": [{"say": "hm"}, {"exit": 4}]}, Done(4, None, "the agent left with exit code 4")),
        ({"do": [{"kill": 15}]}, Done(None, None, "the agent was ended by signal 15")),
        ({"before": [{"exit": 0}]}, Done(0, None, BROKE_OFF)),
        ({"before": [{"exit": 2}]}, Done(2, None, "the agent left with exit code 2")),
        ({"initialize": {"protocolVersion": 2}}, Done(None, None, "the agent speaks version 2 of")),
        ({"initialize": {"protocolVersion": "new"}}, Done(None, None, "the agent's reply to init")),
        ({"session": {"sessionId": None}}, Done(None, None, "the agent opened a session without")),
        ({"session": {"sessionId": ["x"]}}, Done(None, None, "the agent opened a session without")),
        ({"session": {"sessionId": "x" * 5000}}, Done(None, None, "the agent opened a session wi")),
        ({"before": [{"raw": '{"id": 1, "result": 7}'}]}, Done(None, None, "the agent's reply to")),
        ({"before": [{"raw": '{"id": 1, "error": {}}'}]}, Done(None, None, "it gave no reason")),
        ({"do": [{"flood": 100_000}, STOP]}, Done(None, None, "the agent sends requests and do")),
        ({"do": [STOP, {"say": "more"}, {"stop": "refusal"}]}, Done(0)),
        ({"do": [STOP, {"exit": 1}]}, Done(0)),
    ],
)  # fmt: skip
async def test_however_an_agent_ends_it_is_one_done_with_the_reason(
    script: dict[str, Any], ending: Done, tmp_path: Path, sandbox: HostSandbox
) -> None:
    parts = await Bench(tmp_path, sandbox, **script).parts()
    assert [part for part in parts if isinstance(part, Done)] == [parts[-1]]
    done = parts[-1]
    assert isinstance(done, Done)
    assert (done.exit_code, done.result) == (ending.exit_code, ending.result)
    assert done.error.startswith(ending.error)
    assert bool(done.error) == bool(ending.error)


async def test_noise_is_kept_with_the_diagnostics(tmp_path: Path, sandbox: HostSandbox) -> None:
    parts = await Bench(tmp_path, sandbox, {"raw": "Welcome!"}, {"raw": '{"half'}, STOP).parts()
    assert "".join(p.text for p in parts if isinstance(p, Stderr)) == 'Welcome!\n{"half\n'
    assert said(parts) == ""


async def test_unknown_requests_are_refused_and_the_agent_goes_on(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    calls = [
        {"call": ["terminal/create", {"sessionId": "sess-1", "command": "rm"}]},
        {"call": ["elicitation/create", {}]},
        {"call": ["x" * 100_000, {}]},
        {"call": ["session/request_permission", {"options": 1}]},
        {"call": ["fs/read_text_file", {"path": 7}]},
        {"call": ["fs/write_text_file", {}]},
    ]
    bench = Bench(tmp_path, sandbox, *calls, STOP, permissions=ALL_ALLOWED)
    assert await bench.done() == Done(0)
    codes = [answer["error"]["code"] for answer in bench.answers]
    assert codes == [-32601, -32601, -32601, -32602, -32602, -32602]


async def test_an_update_of_another_session_is_not_heard(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    content = {"type": "text", "text": "DONE"}
    update = {"sessionUpdate": "agent_message_chunk", "content": content}
    other = {"method": "session/update", "params": {"sessionId": "other", "update": update}}
    parts = await Bench(
        tmp_path, sandbox, {"raw": json.dumps(other)}, {"say": "mine"}, STOP
    ).parts()
    assert said(parts) == "mine"


async def test_a_program_that_does_not_greet_is_ended(tmp_path: Path, sandbox: HostSandbox) -> None:
    silent = [{"wait": "never"}]
    bench = Bench(tmp_path, sandbox, before=silent, settings={"handshake_timeout_ms": 400})
    done = await bench.done()
    assert done.exit_code is None
    assert "did not answer within 400 ms: does it speak ACP" in done.error


@pytest.mark.parametrize("at", ["before", "do"])
async def test_an_agent_that_says_nothing_for_too_long_has_stalled(
    at: str, tmp_path: Path, sandbox: HostSandbox
) -> None:
    script: dict[str, Any] = {at: [{"hang": True}]}
    bench = Bench(tmp_path, sandbox, **script)
    assert await bench.done(idle_timeout_ms=1500) == Done(
        None, error="stalled: no output for 1500 ms"
    )
    pids = [int((tmp_path / name).read_text()) for name in ("child", "grandchild")]
    assert [pid for pid in pids if psutil.pid_exists(pid)] == []


async def test_an_agent_that_stays_after_its_result_is_ended_and_has_finished(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    settings = {"after_result_ms": 300}
    bench = Bench(tmp_path, sandbox, {"say": "DONE"}, STOP, {"stay": True}, settings=settings)
    assert await bench.done() == Done(0, "DONE")


async def test_cancelled_the_agent_is_told_so_before_it_is_ended(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    bench = Bench(tmp_path, sandbox, {"say": "hm"}, {"hang": True})
    task = asyncio.create_task(bench.parts())
    await eventually_async((tmp_path / "child").exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.told("session/cancel") == {"sessionId": "sess-1"}
    pids = [int((tmp_path / name).read_text()) for name in ("child", "grandchild")]
    assert [pid for pid in pids if psutil.pid_exists(pid)] == []
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_long_talk_is_heard_to_its_end_in_bounded_memory(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    words = [{"say": "x" * 1_000_000}, {"think": "y" * 1_000_000}] * 50
    bench = Bench(tmp_path, sandbox, *words, {"say": "DONE"}, STOP)
    process, message_text = psutil.Process(), 0
    before = most = process.memory_info().rss
    async with asyncio.timeout(DEADLINE_S), aclosing(bench.ask()) as parts:
        async for part in parts:
            if isinstance(part, Text):
                message_text += len(part.text)
            most = max(most, process.memory_info().rss)
    assert message_text == 50_000_004
    assert most - before < 64 << 20


# -- the program ---------------------------------------------------------------------------------


def shell_program(folder: Path, script: str) -> str:
    path = folder / "agent"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.claim("I30")
async def test_a_manifest_adds_its_variables_and_no_others(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    planted = {**VARIABLES, "SOME_KEY": "1", "GH_TOKEN": "secret", "INFLOOP_API_TOKEN": "secret"}
    path = shell_program(tmp_path, "env > env")
    read, _ = parse_provider(manifest(bin=path, envPassthrough=["SOME_KEY"]))
    assert isinstance(read, AcpProvider)
    agent = AcpAgent(read, sandbox, lambda wanted: child_environment(planted, wanted, {}))
    _ = [part async for part in agent.ask(Request("hello", str(tmp_path)))]
    got = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines())
    assert {name for name in got if name in planted} == {"PATH", "SOME_KEY"}


async def test_a_program_that_is_not_there_cannot_be_asked(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    read, _ = parse_provider(manifest(bin="no-such-agent"))
    assert isinstance(read, AcpProvider)
    agent = AcpAgent(read, sandbox, lambda _: dict(VARIABLES))
    with pytest.raises(StepError, match=r"no-such-agent.*INFLOOP_PROVIDER_BIN_SOME"):
        await anext(agent.ask(Request("hello", str(tmp_path))))


async def test_another_program_takes_the_place_of_the_manifests(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    read, _ = parse_provider(manifest(bin="not-there"))
    assert isinstance(read, AcpProvider)
    other = shell_program(tmp_path, "exit 5")
    agent = AcpAgent(read, sandbox, lambda _: dict(VARIABLES), program=other)
    parts = [part async for part in agent.ask(Request("hello", str(tmp_path)))]
    assert parts == [Done(5, None, "the agent left with exit code 5")]


PACKAGED = r"""
import asyncio
import acp
from acp import schema

class Agent:
    def on_connect(self, client):
        self.client = client

    async def initialize(self, protocol_version, client_capabilities=None, **_):
        return schema.InitializeResponse(protocol_version=protocol_version)

    async def new_session(self, cwd, mcp_servers=None, **_):
        self.cwd = cwd
        return schema.NewSessionResponse(session_id="made-with-the-package")

    async def prompt(self, prompt, session_id, **_):
        options = [schema.PermissionOption(option_id="a", name="Yes", kind="allow_once")]
        call = schema.ToolCallUpdate(tool_call_id="t", title="Write it", kind="edit")
        asked = await self.client.request_permission(
            session_id=session_id, tool_call=call, options=options)
        path = self.cwd + "/made.txt"
        await self.client.write_text_file(session_id=session_id, path=path, content="one\ntwo\n")
        read = await self.client.read_text_file(session_id=session_id, path=path, line=2)
        text = prompt[0].text + " " + asked.outcome.outcome + " " + read.content
        await self.client.session_update(session_id, acp.update_agent_message_text(text))
        return schema.PromptResponse(stop_reason="end_turn")

asyncio.run(acp.run_agent(Agent()))
"""


async def test_an_agent_that_is_made_with_the_protocols_own_package_is_understood(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    file = tmp_path / "agent.py"
    file.write_text(PACKAGED)
    fields = {"bin": sys.executable, "args": [str(file)], "permissions": {"default": "allow"}}
    read, _ = parse_provider(manifest(**fields))
    assert isinstance(read, AcpProvider)
    agent = AcpAgent(read, sandbox, lambda _: dict(VARIABLES))
    async with asyncio.timeout(DEADLINE_S):
        parts = [part async for part in agent.ask(Request("Do it", str(tmp_path)))]
    assert said(parts) == "Do it selected two\n"
    assert (tmp_path / "made.txt").read_text() == "one\ntwo\n"
    assert parts[-1] == Done(0, "Do it selected two\n")


# -- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("permissions", "offered"),
    [
        ({}, {"readTextFile": False, "writeTextFile": False}),
        ({"read": "allow", "edit": "ask"}, {"readTextFile": True, "writeTextFile": False}),
        ({"default": "allow"}, {"readTextFile": True, "writeTextFile": True}),
    ],
)
async def test_only_what_is_allowed_is_offered_and_a_terminal_never_is(
    permissions: dict[str, str], offered: dict[str, bool], tmp_path: Path, sandbox: HostSandbox
) -> None:
    bench = Bench(tmp_path, sandbox, STOP, permissions=permissions)
    await bench.parts()
    able = bench.told("initialize")["clientCapabilities"]
    assert able["fs"] == offered
    assert able["terminal"] is False


async def test_files_that_were_not_offered_are_neither_read_nor_written(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    (tmp_path / "x").write_text("secret")
    place = {"sessionId": "sess-1", "path": str(tmp_path / "x")}
    read = {"call": ["fs/read_text_file", place]}
    write = {"call": ["fs/write_text_file", {**place, "content": "new"}]}
    bench = Bench(tmp_path, sandbox, read, write, STOP)
    parts = await bench.parts()
    why = "(permissions.default is 'deny')"
    assert notices(parts) == [
        f"[permissions] denied: read {tmp_path}/x {why}",
        f"[permissions] denied: edit {tmp_path}/x {why}",
    ]
    assert "secret" not in str(bench.answers)
    assert (tmp_path / "x").read_text() == "secret"


async def test_allowed_files_are_read_and_written(tmp_path: Path, sandbox: HostSandbox) -> None:
    (tmp_path / "x").write_bytes(b"one\ntwo\nthree \xff\n")
    (tmp_path / "x").chmod(0o640)
    place = {"sessionId": "sess-1", "path": str(tmp_path / "x")}
    new = {"sessionId": "sess-1", "path": str(tmp_path / "a/b/new"), "content": "hello\n"}
    bench = Bench(
        tmp_path,
        sandbox,
        {"call": ["fs/read_text_file", place]},
        {"call": ["fs/read_text_file", {**place, "line": 2, "limit": 1}]},
        {"call": ["fs/write_text_file", {**place, "content": "four"}]},
        {"call": ["fs/write_text_file", new]},
        {"call": ["fs/read_text_file", {**place, "path": str(tmp_path / "missing")}]},
        STOP,
        permissions={"read": "allow", "edit": "allow"},
    )
    assert await bench.done() == Done(0)
    contents = [answer.get("result", {}).get("content") for answer in bench.answers]
    assert contents == ["one\ntwo\nthree \ufffd\n", "two\n", None, None, None]
    assert "missing" in bench.answers[-1]["error"]["message"]
    assert (tmp_path / "x").read_text() == "four"
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "a/b/new").read_text() == "hello\n"
    assert [file.name for file in (tmp_path / "a/b").iterdir()] == ["new"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A directory to work in, with what could lead out of it, beside a secret."""
    root = tmp_path / "work"
    (root / ".git/hooks").mkdir(parents=True)
    (root / "sub").mkdir()
    (tmp_path / "secret").write_text("secret")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "out").symlink_to(tmp_path)
    (root / "loop").symlink_to("loop")
    (root / "large").write_bytes(b"x" * (MAX_BYTES + 1))
    os.mkfifo(root / "pipe")
    return root


OUTSIDE = [
    "/etc/passwd", "secret", "", "/", "{root}", "{root}/", "{root}/../secret", "{root}x/secret",
    "{root}/sub/../../secret", "{root}/./link", "{root}//link", "{root}/link", "{root}/out/secret",
    "{root}/loop", "{root}/pipe", "{root}/sub", "{root}/sub/", "file://{root}/sub/x", "{root}/a\0b",
    "{root}/" + "n" * 300, "~/.bashrc",
]  # fmt: skip


@pytest.mark.parametrize("path", OUTSIDE)
def test_nothing_but_files_beneath_the_directory_is_reached(path: str, tree: Path) -> None:
    files = AgentFiles(str(tree))
    where = path.replace("{root}", str(tree))
    with pytest.raises(StepError):
        files.read(where)
    with pytest.raises(StepError):
        files.write(where, "x")
    assert (tree.parent / "secret").read_text() == "secret"
    names = {file.name for file in tree.iterdir()}
    assert names == {".git", "large", "link", "loop", "out", "pipe", "sub"}


@pytest.mark.parametrize("path", [".git/config", ".git/hooks/x", "sub/.git/config", ".GIT/x"])
def test_nothing_of_gits_own_is_written(path: str, tree: Path) -> None:
    with pytest.raises(StepError, match="git's own"):
        AgentFiles(str(tree)).write(f"{tree}/{path}", "[core] fsmonitor = x")
    assert not (tree / path).exists()


def test_a_file_that_is_too_large_is_not_read(tree: Path) -> None:
    with pytest.raises(StepError, match="larger than"):
        AgentFiles(str(tree)).read(f"{tree}/large")


def test_a_directory_may_be_named_as_it_really_is(tree: Path) -> None:
    linked = tree.parent / "linked"
    linked.symlink_to(tree)
    (tree / "sub/x").write_text("x")
    files = AgentFiles(str(linked))
    assert files.read(f"{linked}/sub/x") == files.read(f"{tree}/sub/x") == "x"
