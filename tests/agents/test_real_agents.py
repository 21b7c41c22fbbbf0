"""The real `claude` and `codex`, through the real adapters, with a fake model behind them.

`make test-agents` installs the agents and runs these. From the first test on, this process and all
that it starts have loopback and no other network, so no other tests can run in the process.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest

from agents.record import PATCH, claude_limit, codex_limit
from infloop.providers.base import (
    Answer,
    AnswerPart,
    Done,
    Provider,
    ProviderNotice,
    RateLimited,
    Request,
    Tool,
    Usage,
)
from infloop.sandbox.levels.host import HostSandbox
from support.agent_programs import PLANTED, Stage, leave_the_network, need_agents
from support.eventually import eventually_async
from support.fake_model import CACHED, READ, WRITTEN, Asked, FakeModel, Hang, Say, Turn, Use

pytestmark = pytest.mark.agents

DEADLINE_S = 120.0
BOTH = ("claude", "codex")
ACP = {"claude": "claude-agent-acp", "codex": "codex-acp"}
DONE = [Say("It is DONE")]


@pytest.fixture(scope="session", autouse=True)
def _alone() -> None:
    need_agents()
    leave_the_network()


@pytest.fixture
async def sandbox() -> AsyncIterator[HostSandbox]:
    made = HostSandbox()
    yield made
    await made.close()


class Asking:
    """One agent on a stage; with permissions it is one that speaks ACP."""

    def __init__(
        self,
        provider: str,
        folder: Path,
        model: FakeModel,
        sandbox: HostSandbox,
        permissions: dict[str, str] | None = None,
        **variables: str,
    ) -> None:
        self.stage = Stage(folder, model.url, **variables)
        self.cwd = self.stage.cwd
        self._agent: Provider = self.stage.agent(provider, sandbox)
        if permissions is not None:
            self._agent = self.stage.acp_agent(ACP[provider], sandbox, permissions)

    def ask(self, prompt: str = "Please say DONE", **fields: Any) -> AsyncGenerator[AnswerPart]:
        asked = self._agent.ask(Request(prompt, str(self.cwd), **fields))
        return cast("AsyncGenerator[AnswerPart]", asked)

    async def parts(self, prompt: str = "Please say DONE", **fields: Any) -> list[AnswerPart]:
        async with asyncio.timeout(DEADLINE_S), aclosing(self.ask(prompt, **fields)) as parts:
            return [part async for part in parts]


def answer_of(parts: Sequence[AnswerPart]) -> Answer:
    answer = Answer(1 << 20)
    for part in parts:
        answer.add(part)
    return answer


def notices(parts: Sequence[AnswerPart]) -> list[str]:
    return [part.line for part in parts if isinstance(part, ProviderNotice)]


def writing(provider: str, file: Path) -> Use:
    """The use of a tool that makes `file` with a line in it."""
    if provider == "claude":
        return Use("Write", {"file_path": str(file), "content": "hello\n"})
    return Use("exec_command", {"cmd": PATCH})


def running(provider: str, command: str) -> Use:
    if provider == "claude":
        return Use("Bash", {"command": command, "description": "run it"})
    return Use("exec_command", {"cmd": command})


def prompts(asked: Asked) -> str:
    """What the user is said to have said, in either dialect."""
    return str(asked.body.get("messages") or asked.body.get("input"))


def test_there_is_no_network_but_loopback() -> None:
    assert [name for _, name in socket.if_nameindex()] == ["lo"]


@pytest.mark.parametrize("provider", BOTH)
async def test_it_says_what_its_model_says_and_counts_it(
    provider: str, tmp_path: Path, sandbox: HostSandbox
) -> None:
    prompt = "--dangerously-skip-permissions $& {agent} \"quoted\" — 'end'"
    async with FakeModel(DONE) as model:
        parts = await Asking(provider, tmp_path, model, sandbox).parts(prompt)
    answer = answer_of(parts)
    assert parts[-1] == Done(0, "It is DONE")
    assert answer.text == "It is DONE"
    assert answer.session
    assert notices(parts) == []
    model_name = answer.usage.model
    assert answer.usage == Usage(READ, WRITTEN, CACHED, 0, model_name)
    assert prompt.replace('"', "") in prompts(model.asked[-1]).replace('"', "").replace("\\", "")
    if provider == "claude":
        assert model_name == model.asked[-1].body["model"]
        assert answer.cost_usd is not None
        assert 0 < answer.cost_usd < 0.1
    else:
        assert answer.cost_usd is None


@pytest.mark.parametrize("provider", BOTH)
async def test_it_uses_the_model_it_is_told(
    provider: str, tmp_path: Path, sandbox: HostSandbox
) -> None:
    async with FakeModel(DONE) as model:
        parts = await Asking(provider, tmp_path, model, sandbox).parts(model="some-model-9")
    assert model.asked[-1].body["model"] == "some-model-9"
    assert answer_of(parts).usage.model == "some-model-9"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory that is not in /tmp, where codex's sandbox lets everybody write."""
    with tempfile.TemporaryDirectory(prefix="infloop-agents-", dir="/var/tmp") as made:
        yield Path(made)


@pytest.mark.parametrize("provider", BOTH)
async def test_it_edits_files_in_its_directory_without_being_asked(
    provider: str, folder: Path, sandbox: HostSandbox
) -> None:
    file = folder / "workspace/hello.txt"
    async with FakeModel([Say("I write."), writing(provider, file)], DONE) as model:
        parts = await Asking(provider, folder, model, sandbox).parts()
    assert notices(parts) == []
    assert parts[-1] == Done(0, "It is DONE")
    assert file.read_text() == "hello\n"


@pytest.mark.parametrize("provider", BOTH)
async def test_as_a_judge_it_answers_and_changes_nothing(
    provider: str, folder: Path, sandbox: HostSandbox
) -> None:
    file = folder / "workspace/hello.txt"
    verdict = [Say('{"winner_index": 0}')]
    async with FakeModel([Say("I write."), writing(provider, file)], verdict) as model:
        judge = Asking(provider, folder, model, sandbox)
        parts = await judge.parts("Which one?", kind="judge", model="some-model-9")
    assert not file.exists()
    assert parts[-1] == Done(0, '{"winner_index": 0}')
    assert model.asked[-1].body["model"] == "some-model-9"
    assert "Which one?" in prompts(model.asked[0])
    assert answer_of(parts).usage.has_tokens


@pytest.mark.parametrize("provider", BOTH)
async def test_what_leads_out_of_its_directory_is_denied(
    provider: str, folder: Path, sandbox: HostSandbox
) -> None:
    outside = folder / "planted"
    async with FakeModel([Say("I leave."), running(provider, f"touch {outside}")], DONE) as model:
        parts = await Asking(provider, folder, model, sandbox).parts()
    assert not outside.exists()
    (notice,) = notices(parts)
    assert notice.startswith("[permissions] denied: ")


@pytest.mark.parametrize("provider", BOTH)
async def test_skipping_permissions_it_edits_a_file(
    provider: str, tmp_path: Path, sandbox: HostSandbox
) -> None:
    file = tmp_path / "workspace/hello.txt"
    async with FakeModel([Say("I write."), writing(provider, file)], DONE) as model:
        parts = await Asking(provider, tmp_path, model, sandbox).parts(skip_permissions=True)
    assert file.read_text() == "hello\n"
    assert notices(parts) == []
    (tool,) = [part for part in parts if isinstance(part, Tool)]
    assert str(file) in tool.summary
    answer = answer_of(parts)
    assert answer.text == "I write.\nIt is DONE"
    assert answer.usage.input_tokens == 2 * READ


@pytest.mark.parametrize("provider", BOTH)
async def test_it_sees_its_own_key_and_nothing_that_was_planted(
    provider: str, tmp_path: Path, sandbox: HostSandbox
) -> None:
    # A program may set such a variable anew for its own children; the planted value is what counts.
    tool = running(provider, "env > env.txt; cat /proc/$PPID/environ | tr '\\0' '\\n' > its.txt")
    async with FakeModel([tool], DONE) as model:
        asking = Asking(provider, tmp_path, model, sandbox, CLAUDE_CODE_ENTRYPOINT="planted-nest")
        await asking.parts(skip_permissions=True)
    got = (asking.cwd / "its.txt").read_text() + (asking.cwd / "env.txt").read_text()
    assert f"HOME={asking.stage.home}" in got
    for name, value in {**PLANTED, "CLAUDE_CODE_ENTRYPOINT": "planted-nest"}.items():
        assert f"{name}={value}" not in (asking.cwd / "its.txt").read_text().splitlines()
        if value.startswith("planted"):
            assert value not in got


@pytest.mark.parametrize("provider", BOTH)
async def test_cancelled_it_leaves_no_process(
    provider: str, tmp_path: Path, sandbox: HostSandbox
) -> None:
    slow = running(provider, "touch started; sleep 1000")
    async with FakeModel([Say("I wait."), slow], DONE) as model:
        asking = Asking(provider, tmp_path, model, sandbox)
        task = asyncio.create_task(asking.parts(skip_permissions=True))
        await eventually_async(lambda: (asking.cwd / "started").exists() or task.done())
        assert not task.done(), task.result()
        assert asking.stage.processes() != []
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asking.stage.processes() == []


@pytest.mark.parametrize("provider", BOTH)
async def test_a_model_that_hangs_makes_it_stall(
    provider: str, tmp_path: Path, sandbox: HostSandbox
) -> None:
    async with FakeModel(Hang("I think")) as model:
        asking = Asking(provider, tmp_path, model, sandbox)
        parts = await asking.parts(idle_timeout_ms=8_000)
        assert model.asked
        assert answer_of(parts).text == "I think"
        assert parts[-1] == Done(None, error="stalled: no output for 8000 ms")
        assert asking.stage.processes() == []


@pytest.mark.parametrize("provider", BOTH)
async def test_a_session_is_continued_and_its_tokens_are_counted_once(
    provider: str, tmp_path: Path, sandbox: HostSandbox
) -> None:
    async with FakeModel(DONE) as model:
        asking = Asking(provider, tmp_path, model, sandbox)
        first = answer_of(await asking.parts("The first question"))
        again = await asking.parts(
            "The second one", session_id=first.session, session_usage=first.usage
        )
    second = answer_of(again)
    assert again[-1] == Done(0, "It is DONE")
    assert second.session == first.session
    assert (second.usage.input_tokens, second.usage.output_tokens) == (READ, WRITTEN)
    assert "The first question" in prompts(model.asked[-1])
    assert "The second one" in prompts(model.asked[-1])


@pytest.mark.parametrize(
    ("provider", "limit", "variables"),
    [
        (
            "claude",
            claude_limit,
            {"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-test"},
        ),
        ("codex", codex_limit, {}),
    ],
)
async def test_at_its_limit_it_tells_when_it_ends(
    provider: str,
    limit: Callable[[int], Turn],
    variables: dict[str, str],
    tmp_path: Path,
    sandbox: HostSandbox,
) -> None:
    ends_s = int(time.time()) // 60 * 60 + 7_200
    async with FakeModel(limit(ends_s)) as model:
        parts = await Asking(provider, tmp_path, model, sandbox, None, **variables).parts()
    assert parts[-2] == RateLimited(ends_s * 1000)
    ending = parts[-1]
    assert isinstance(ending, Done)
    assert ending.exit_code == 1
    assert ending.error.startswith("rate limited until ")


async def test_an_unknown_agent_is_an_error_of_the_program(
    tmp_path: Path, sandbox: HostSandbox
) -> None:
    async with FakeModel(DONE) as model:
        parts = await Asking("claude", tmp_path, model, sandbox).parts(agent="no-such-agent")
    assert parts[-1] == Done(1, error="the agent left with exit code 1")
    assert "no-such-agent" in answer_of(parts).stderr
    assert model.asked == []


# -- by the Agent Client Protocol ----------------------------------------------------------------


def ruled(parts: Sequence[AnswerPart]) -> list[str]:
    return [line for line in notices(parts) if line.startswith("[permissions]")]


@pytest.mark.parametrize("provider", BOTH)
async def test_by_acp_it_says_what_its_model_says(
    provider: str, tmp_path: Path, sandbox: HostSandbox
) -> None:
    prompt = "--dangerously-skip-permissions $& {agent} — 'end'"
    async with FakeModel(DONE) as model:
        asking = Asking(provider, tmp_path, model, sandbox, {})
        parts = await asking.parts(prompt)
        assert asking.stage.processes() == []
    answer = answer_of(parts)
    ending = parts[-1]
    assert isinstance(ending, Done)
    assert (ending.exit_code, ending.error) == (0, "")
    assert answer.text.endswith("It is DONE")
    assert answer.session
    assert prompt in prompts(model.asked[-1]).replace("\\", "")
    if provider == "claude":
        assert answer.usage == Usage(READ, WRITTEN, CACHED)
        assert answer.cost_usd is not None
        assert 0 < answer.cost_usd < 0.1


@pytest.mark.parametrize("provider", BOTH)
async def test_by_acp_a_tool_is_denied_and_nothing_is_written(
    provider: str, tmp_path: Path, sandbox: HostSandbox
) -> None:
    file = tmp_path / "workspace/hello.txt"
    async with FakeModel([Say("I write."), writing(provider, file)], DONE) as model:
        parts = await Asking(provider, tmp_path, model, sandbox, {"read": "allow"}).parts()
    (ruling,) = ruled(parts)
    assert ruling.startswith("[permissions] denied: edit ")
    assert ruling.endswith("(permissions.default is 'deny')")
    assert not file.exists()
    # To the one that is no to this tool, to the other to all that it was about to do.
    assert (
        cast("Done", parts[-1]).error
        == {"claude": "", "codex": "the agent was cancelled"}[provider]
    )


@pytest.mark.parametrize("provider", BOTH)
async def test_by_acp_it_edits_a_file_where_that_is_allowed(
    provider: str, tmp_path: Path, sandbox: HostSandbox
) -> None:
    file = tmp_path / "workspace/hello.txt"
    async with FakeModel([Say("I write."), writing(provider, file)], DONE) as model:
        parts = await Asking(provider, tmp_path, model, sandbox, {"edit": "allow"}).parts()
    assert file.read_text() == "hello\n"
    assert [line.split(" (")[1] for line in ruled(parts)] == ["permissions.edit is 'allow')"]
    (tool,) = [part for part in parts if isinstance(part, Tool)]
    assert (tool.name, "hello.txt" in tool.summary) == ("edit", True)
    assert answer_of(parts).text.endswith("I write.\nIt is DONE")
    assert parts[-1] == Done(0, "It is DONE")


@pytest.mark.parametrize("provider", BOTH)
async def test_by_acp_a_session_is_continued(
    provider: str, tmp_path: Path, sandbox: HostSandbox
) -> None:
    async with FakeModel(DONE) as model:
        asking = Asking(provider, tmp_path, model, sandbox, {})
        first = answer_of(await asking.parts("The first question"))
        second = answer_of(await asking.parts("The second one", session_id=first.session))
    assert second.session == first.session
    assert second.text == first.text
    assert second.usage == first.usage
    assert "The first question" in prompts(model.asked[-1])


@pytest.mark.parametrize("provider", BOTH)
async def test_by_acp_a_model_that_hangs_makes_it_stall(
    provider: str, tmp_path: Path, sandbox: HostSandbox
) -> None:
    async with FakeModel(Hang("I think")) as model:
        asking = Asking(provider, tmp_path, model, sandbox, {})
        parts = await asking.parts(idle_timeout_ms=8_000)
        assert answer_of(parts).text.endswith("I think")
        assert parts[-1] == Done(None, error="stalled: no output for 8000 ms")
        assert asking.stage.processes() == []


async def test_by_acp_cancelled_it_leaves_no_process(tmp_path: Path, sandbox: HostSandbox) -> None:
    slow = running("claude", "touch started; sleep 1000")
    async with FakeModel([Say("I wait."), slow], DONE) as model:
        asking = Asking("claude", tmp_path, model, sandbox, {"execute": "allow"})
        task = asyncio.create_task(asking.parts())
        await eventually_async(lambda: (asking.cwd / "started").exists() or task.done())
        assert not task.done(), task.result()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asking.stage.processes() == []
