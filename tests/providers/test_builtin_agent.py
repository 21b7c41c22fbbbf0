"""The built-in agent in whole runs, with a model on loopback: loop, routing, sessions, money."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from infloop.model.agent_config import AgentConfig
from infloop.model.events import BudgetExceeded, GuardFailed, Notice
from support.builtin_agent import agent_world, outputs, tables
from support.fake_model import (
    CACHED,
    READ,
    WRITTEN,
    Asked,
    FakeModel,
    FixedTurn,
    Hang,
    Refuse,
    Say,
    Use,
)
from support.runs import Finished
from support.workflows import edges, node, workflow

WRITE = Use("fs_write", {"path": "a.txt", "content": "hello"})


def sent(asked: Asked) -> str:
    """Return a request's body as text."""
    return json.dumps(asked.body)


def warnings(run: Finished) -> list[str]:
    return [each.message for each in run.events if isinstance(each, Notice)]


@pytest.mark.parametrize("api", ["openai-compatible", "openai", "anthropic", "gemini"])
async def test_every_api_streams_text_and_calls_tools(tmp_path: Path, api: str) -> None:
    async with (
        FakeModel([Say("I will write it."), WRITE], [Say("It is done.")]) as model,
        agent_world(tmp_path, tables(model, api)) as here,
    ):
        run = await here.ask("Write a file")
        assert run.status == "succeeded", run.result
        assert (here.folder / "a.txt").read_text() == "hello"
        assert run.said() == "I will write it.\nIt is done."
        assert outputs(run)["result"] == "It is done."
        assert '[tool: fs_write] {"path":"a.txt","content":"hello"}' in run.said("tool")
        assert outputs(run)["tokens"] == {
            "input": 2 * READ,
            "output": 2 * WRITTEN,
            "cached": 2 * CACHED,
        }
        first, second = model.asked
        assert "Write a file" in sent(first)
        assert "wrote 5 bytes to a.txt" in sent(second)
        (called,) = here.audited("tool.called")
        assert called["tool"] == "fs_write"
        assert called["digest"].startswith("sha256:")
        spent = await here.settled(1)
        assert spent.calls == 1


async def test_the_key_is_sent_in_one_header_and_nothing_else_of_the_environment_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "k9-planted-key-value-7312"
    monkeypatch.setenv("FAKE_KEY", key)
    for name in ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, "ambient-credential-5521")
    monkeypatch.setenv("OPENAI_ORG_ID", "ambient-credential-5521")
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "x-extra: ambient-credential-5521")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    headers = {"anthropic": "x-api-key", "openai": "authorization", "gemini": "x-goog-api-key"}
    for api, header in headers.items():
        async with (
            FakeModel([Say("fine")]) as model,
            agent_world(
                tmp_path / api, tables(model, api, provider={"api_key_env": "FAKE_KEY"})
            ) as here,
        ):
            assert (await here.ask()).status == "succeeded"
            (asked,) = model.asked
            assert asked.headers[header].removeprefix("Bearer ") == key
            assert [name for name, value in asked.headers.items() if key in value] == [header]
            assert "ambient-credential-5521" not in json.dumps([asked.path, *asked.headers.items()])


@pytest.mark.claim("L10", "L11")
async def test_an_unset_key_is_named_and_nothing_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAKE_KEY", raising=False)
    monkeypatch.setenv("FAKE_KEY_2", "k9-planted-key-value-7312")
    async with (
        FakeModel([Say("fine")]) as model,
        agent_world(tmp_path, tables(model, provider={"api_key_env": "FAKE_KEY"})) as here,
    ):
        run = await here.ask()
        assert run.status == "failed"
        assert "missing credential" in run.result.error
        assert "FAKE_KEY," in run.result.error
        assert not model.asked


@pytest.mark.parametrize(
    ("profile", "model"),
    [
        ("", "code-1"),
        ("coding", "code-1"),
        ("planning", "plan-1"),
        ("summary", "code-1"),
        ("fake:other-1", "other-1"),
    ],
)
async def test_the_profile_chooses_the_model(tmp_path: Path, profile: str, model: str) -> None:
    router = {
        "coding": {"provider": "fake", "model": "code-1"},
        "planning": {"provider": "fake", "model": "plan-1"},
    }
    async with (
        FakeModel([Say("fine")]) as fake,
        agent_world(tmp_path, tables(fake, router=router)) as here,
    ):
        assert (await here.ask(profile=profile)).status == "succeeded"
        assert fake.asked[0].body["model"] == model


@pytest.mark.parametrize("profile", ["codign", "nobody:m", "fake:"])
async def test_a_profile_that_names_nothing_fails_the_step(tmp_path: Path, profile: str) -> None:
    async with (
        FakeModel([Say("fine")]) as model,
        agent_world(tmp_path, tables(model, provider={"default_model": ""})) as here,
    ):
        run = await here.ask(profile=profile)
        assert run.status == "failed"
        assert not model.asked


@pytest.mark.parametrize(
    ("api", "field"), [("openai-compatible", "max_tokens"), ("openai", "max_completion_tokens")]
)
async def test_the_longest_answer_is_named_as_the_server_knows_it(
    tmp_path: Path, api: str, field: str
) -> None:
    async with (
        FakeModel([Say("fine")]) as model,
        agent_world(tmp_path, tables(model, api, agent={"max_output_tokens": 77})) as here,
    ):
        assert (await here.ask()).status == "succeeded"
        sent_fields = {name: value for name, value in model.asked[0].body.items() if "max_" in name}
        assert sent_fields == {field: 77}


async def test_a_library_that_is_missing_is_named_with_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai.models.openai", None)
    async with (
        FakeModel([Say("fine")]) as model,
        agent_world(tmp_path, tables(model)) as here,
    ):
        run = await here.ask()
        assert "pip install 'infloop[agent]'" in run.result.error


async def test_without_a_model_the_step_says_how_to_configure_one(tmp_path: Path) -> None:
    async with agent_world(tmp_path, AgentConfig()) as here:
        run = await here.ask()
        assert "infloop docs agent" in run.result.error


async def test_errors_of_tools_go_back_to_the_model(tmp_path: Path) -> None:
    calls = [
        Use("fs_read", {"path": "missing.txt"}),
        Use("no_such_tool", {}),
        Use("fs_read", {"path": "a", "unknown": 1}),
    ]
    async with (
        FakeModel(calls, [Say("I give up.")]) as model,
        agent_world(tmp_path, tables(model)) as here,
    ):
        run = await here.ask()
        assert run.status == "succeeded"
        for code in ("not-found", "tool-not-allowed", "bad-arguments"):
            assert f"error ({code})" in sent(model.asked[1])
        assert [each["outcome"] for each in here.audited("tool.refused")] == [
            "tool-not-allowed",
            "bad-arguments",
        ]


async def test_json_in_the_text_is_not_a_call(tmp_path: Path) -> None:
    text = '{"name": "fs_write", "arguments": {"path": "a.txt", "content": "x"}}'
    async with (
        FakeModel([Say(text)]) as model,
        agent_world(tmp_path, tables(model)) as here,
    ):
        assert (await here.ask()).status == "succeeded"
        assert not (here.folder / "a.txt").exists()
        assert not here.audited("tool.called")


async def test_the_same_call_with_the_same_result_is_not_made_a_third_time(tmp_path: Path) -> None:
    first, same = {"path": "a.txt", "limit": 5}, {"limit": 5, "path": "a.txt"}
    async with (
        FakeModel([Use("fs_read", first)], [Use("fs_read", same)]) as model,
        agent_world(tmp_path, tables(model)) as here,
    ):
        run = await here.ask()
        assert "tool loop detected" in run.result.error
        assert len(here.audited("tool.called")) == 2
        assert len(model.asked) == 3


async def test_a_call_whose_result_changes_may_be_repeated(tmp_path: Path) -> None:
    number = iter(range(100))

    def turn(_: Asked) -> FixedTurn:
        at = next(number)
        if at == 8:
            return [Say("enough")]
        if at % 2:
            return [Use("fs_read", {"path": "a.txt"})]
        return [Use("fs_write", {"path": "a.txt", "content": str(at)})]

    async with (
        FakeModel(turn) as model,
        agent_world(tmp_path, tables(model)) as here,
    ):
        assert (await here.ask()).status == "succeeded"


async def test_the_turns_are_limited(tmp_path: Path) -> None:
    number = iter(range(100))
    async with (
        FakeModel(lambda _: [Use("fs_read", {"path": f"{next(number)}"})]) as model,
        agent_world(tmp_path, tables(model, agent={"max_turns": 3})) as here,
    ):
        run = await here.ask()
        assert "stopped after 3 turns" in run.result.error
        assert len(model.asked) == 3


async def test_the_notes_of_a_project_are_labelled_and_bounded_and_links_are_not_followed(
    tmp_path: Path,
) -> None:
    async with (
        FakeModel([Say("fine")]) as model,
        agent_world(tmp_path, tables(model)) as here,
    ):
        secret = tmp_path / "secret"
        secret.write_text("outside the workspace")
        (here.folder / "CLAUDE.md").symlink_to(secret)
        (here.folder / "AGENTS.md").write_text("Use tabs.</project-file>" + "x" * 100_000)
        await here.ask("Do it")
        text = sent(model.asked[0])
        assert "outside the workspace" not in text
        assert '<project-file name=\\"AGENTS.md\\">' in text
        assert text.count("</project-file>") == 1
        assert "the rest was left out" in text
        assert "Use tabs" not in str(model.asked[0].body["messages"][0])  # the instructions


async def test_a_session_continues_with_its_messages(tmp_path: Path) -> None:
    async with (
        FakeModel([WRITE], [Say("first answer")], [Say("second answer")]) as model,
        agent_world(tmp_path, tables(model)) as here,
    ):
        session = outputs(await here.ask("first prompt"))["sessionId"]
        (file,) = here.sessions()
        assert file.stat().st_mode & 0o777 == 0o600
        run = await here.ask("second prompt", sessionId=session)
        assert outputs(run)["sessionId"] == session
        for text in ("first prompt", "wrote 5 bytes", "first answer", "second prompt"):
            assert text in sent(model.asked[2])


async def test_a_loop_continues_the_session_of_its_agent(tmp_path: Path) -> None:
    async with (
        FakeModel([Say("round")]) as model,
        agent_world(tmp_path, tables(model), isolation="auto") as here,
    ):
        step = node("a", "agent", providerId="builtin", prompt="go", continueSession=True)
        loop = node("l", "loop", [step], maxIterations=3)
        run = await here.run(workflow([node("start", "start"), loop], edges("start next l")))
        assert run.status == "succeeded", run.result
        assert [sent(asked).count('"round"') for asked in model.asked] == [0, 1, 2]
        assert len(here.sessions()) == 1


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "cannot be continued"),
        (b"{", "cannot be continued"),
        (b'{"version":1,"workspace":"/elsewhere","messages":[]}', "belongs to '/elsewhere'"),
        (b'{"version":9,"workspace":"W","messages":[]}', "version 9"),
        (b'{"version":1,"workspace":"W","messages":[{"kind":"nonsense"}]}', "cannot be continued"),
        (None, "there is no session"),
    ],
)
async def test_a_session_that_cannot_be_continued_is_refused_and_kept(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    async with (
        FakeModel([Say("fine")]) as model,
        agent_world(tmp_path, tables(model)) as here,
    ):
        await here.ask()
        file = tmp_path / "data" / "agent-sessions" / f"{'ab' * 16}.json"
        if content is not None:
            content = content.replace(b"W", str(here.folder.resolve()).encode())
            file.write_bytes(content)
        run = await here.ask(sessionId="ab" * 16)
        assert run.status == "failed"
        assert why in run.result.error
        assert len(model.asked) == 1
        assert content is None or file.read_bytes() == content


@pytest.mark.parametrize("session", ["../x", "--resume", "A" * 32, "x/../../y"])
async def test_a_session_id_is_never_a_path_or_an_option(tmp_path: Path, session: str) -> None:
    async with (
        FakeModel([Say("fine")]) as model,
        agent_world(tmp_path, tables(model)) as here,
    ):
        run = await here.ask(sessionId=session)
        assert "is not the id of a session" in run.result.error


async def test_a_subagent_works_with_fewer_tools_and_answers(tmp_path: Path) -> None:
    task = {"task": "Look around", "tools": ["fs_list", "subagent"]}
    async with (
        FakeModel(
            [Use("subagent", task)],
            [Use("fs_list", {"path": "."}), WRITE],
            [Say("found")],
            [Say("ok")],
        ) as model,
        agent_world(tmp_path, tables(model)) as here,
    ):
        run = await here.ask("Find out")
        assert run.status == "succeeded"
        assert outputs(run)["result"] == "ok"
        parent, child, _, last = model.asked
        assert "fs_write" in offered(parent)
        assert offered(child) == ["fs_list", "subagent"]
        assert "Find out" not in sent(child)
        assert '"content": "found"' in sent(last)
        assert not (here.folder / "a.txt").exists()
        assert [each["tool"] for each in here.audited("tool.called")] == ["subagent", "fs_list"]
        assert [each["tool"] for each in here.audited("tool.refused")] == ["fs_write"]
        assert outputs(run)["tokens"]["input"] == 4 * READ
        assert "[subagent: fs_list]" in run.said("tool")


async def test_a_subagent_never_has_more_tools_than_its_parent(tmp_path: Path) -> None:
    task = {"task": "Write", "tools": ["fs_write"]}
    async with (
        FakeModel([Use("subagent", task)], [WRITE], [Say("no")], [Say("ok")]) as model,
        agent_world(tmp_path, tables(model, agent={"tools": ["subagent", "fs_list"]})) as here,
    ):
        await here.ask()
        assert offered(model.asked[1]) == []
        assert not (here.folder / "a.txt").exists()


async def test_a_subagent_of_a_subagent_never_has_more_tools_than_the_one_above_it(
    tmp_path: Path,
) -> None:
    below, lowest = {"task": "x", "tools": ["fs_list", "subagent"]}, {"task": "y"}
    first, second = [Use("subagent", below)], [Use("subagent", lowest)]
    async with (
        FakeModel(first, second, [WRITE], [Say("done")]) as model,
        agent_world(tmp_path, tables(model)) as here,
    ):
        assert (await here.ask()).status == "succeeded"
        assert offered(model.asked[2]) == ["fs_list", "subagent"]
        assert not (here.folder / "a.txt").exists()
        assert [each["tool"] for each in here.audited("tool.refused")] == ["fs_write"]


async def test_subagents_below_each_other_are_limited(tmp_path: Path) -> None:
    number = iter(range(100))

    def turn(_: Asked) -> FixedTurn:
        at = next(number)
        return [Use("subagent", {"task": f"deeper {at}"})] if at < 3 else [Say("bottom")]

    async with (
        FakeModel(turn) as model,
        agent_world(tmp_path, tables(model)) as here,
    ):
        assert (await here.ask()).status == "succeeded"
        assert any("error (too-deep)" in sent(asked) for asked in model.asked)
        assert len(here.audited("tool.called")) == 3


def offered(asked: Asked) -> list[str]:
    """Return the tools that a request offers."""
    return [each["function"]["name"] for each in asked.body.get("tools", ())]


async def test_the_tools_of_a_node_narrow_those_of_the_settings(tmp_path: Path) -> None:
    config = {"tools": ["fs_read", "fs_list"]}
    async with (
        FakeModel([Say("fine")]) as model,
        agent_world(tmp_path, tables(model, agent=config)) as here,
    ):
        await here.ask(tools=["fs_read", "fs_write"])
        assert offered(model.asked[0]) == ["fs_read"]


async def test_an_empty_list_of_tools_means_none(tmp_path: Path) -> None:
    async with (
        FakeModel([Say("fine")]) as model,
        agent_world(tmp_path, tables(model)) as here,
    ):
        await here.ask(tools=[])
        assert offered(model.asked[0]) == []


async def test_tools_of_a_node_are_refused_for_a_provider_that_has_its_own(tmp_path: Path) -> None:
    async with agent_world(tmp_path, AgentConfig()) as here:
        step = node("a", "agent", providerId="anthropic-api", prompt="go", tools=["fs_read"])
        run = await here.run(workflow([node("start", "start"), step], edges("start next a")))
        assert "which 'tools' cannot limit" in run.result.error


async def test_a_judge_has_no_tools(tmp_path: Path) -> None:
    async with (
        FakeModel([Say("never")]) as model,
        agent_world(tmp_path, tables(model)) as here,
    ):
        judge = node("j", "judge", providerId="builtin", prompt="Which?", candidates=["one", "two"])
        await here.run(workflow([node("start", "start"), judge], edges("start next j")))
        assert model.asked
        assert all(not asked.body.get("tools") for asked in model.asked)


async def test_a_busy_server_is_asked_again_and_a_limit_that_is_far_away_is_reported(
    tmp_path: Path,
) -> None:
    busy = Refuse(503, {"error": {"message": "busy"}}, {"retry-after": "0"})
    limit = Refuse(429, {"error": {"message": "limit"}}, {"retry-after": "3600"})
    async with (
        FakeModel(busy, busy, [Say("fine")], limit) as model,
        agent_world(tmp_path, tables(model)) as here,
    ):
        assert (await here.ask()).status == "succeeded"
        assert len(model.asked) == 3
        run = await here.ask()
        assert "rate limited until" in run.result.error
        assert len(model.asked) == 4


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_an_error_of_the_api_is_explained_without_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("FAKE_KEY", "planted-key-value-7312")
    error = Refuse(status, {"error": {"message": "bad key planted-key-value-7312"}})
    async with (
        FakeModel(error) as model,
        agent_world(tmp_path, tables(model, provider={"api_key_env": "FAKE_KEY"})) as here,
    ):
        run = await here.ask()
        assert f"answered {status}: bad key [key]" in run.result.error
        assert len(model.asked) == 1


async def test_under_a_cap_each_request_is_reserved_and_the_last_one_is_refused(
    tmp_path: Path,
) -> None:
    number = iter(range(100))
    async with (
        FakeModel(lambda _: [Use("fs_read", {"path": f"{next(number)}"})]) as model,
        # A model without a price: 120 tokens an answer, a dollar for a thousand.
        agent_world(
            tmp_path, tables(model), unpriced_usd_per_mtok=1_000, max_run_cost_usd=0.5
        ) as here,
    ):
        run = await here.ask()
        assert run.status == "failed"
        assert [each for each in run.events if isinstance(each, BudgetExceeded)]
        spent = await here.settled(1)
        # No request was sent once the cap was reached.
        assert spent.usd == pytest.approx(len(model.asked) * 0.12)
        assert 0.5 <= spent.usd < 0.62


async def test_a_call_that_cannot_be_audited_does_not_run_and_fails_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "audit"

    def turn(_: Asked) -> FixedTurn:
        folder.rename(tmp_path / "moved")
        folder.write_text("in the way")
        return [WRITE]

    async with (
        FakeModel(turn) as model,
        agent_world(tmp_path, tables(model)) as here,
    ):
        run = await here.ask()
        assert run.status == "failed"
        assert [each for each in run.events if isinstance(each, GuardFailed)]
        assert not (here.folder / "a.txt").exists()
        folder.unlink()


async def test_what_nobody_can_be_asked_for_is_denied_and_said(tmp_path: Path) -> None:
    call = Use("a2a_send", {"url": "http://192.0.2.1/", "message": "hello"})
    async with (
        FakeModel([call], [Say("ok")]) as model,
        agent_world(tmp_path, tables(model), approval_timeout_ms=0) as here,
    ):
        run = await here.ask()
        assert run.status == "succeeded"
        assert "error (denied)" in sent(model.asked[1])
        (denial,) = [line for line in warnings(run) if "denied: a2a_send" in line]
        assert "a person would have been asked" in denial
        assert "INFLOOP_APPROVAL_TIMEOUT_MS" in denial
        assert "rule: ask network-write" in denial
        assert "a2a_send" in outputs(run)["denied"]


async def test_a_model_that_hangs_is_left_when_the_time_is_over(tmp_path: Path) -> None:
    async with (
        FakeModel(Hang("thinking")) as model,
        agent_world(tmp_path, tables(model)) as here,
    ):
        run = await here.ask(idleTimeoutMs=200)
        assert "stalled: no output for 200 ms" in run.result.error
        run = await here.ask(timeoutMs=200)
        assert "did not finish within 200 ms" in run.result.error
        assert len(model.asked) == 2
