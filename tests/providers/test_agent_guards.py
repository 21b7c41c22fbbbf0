"""What the built-in agent may not do, replayed: a model asks for it, and the guards answer.

Each case is a whole run: provider, gate, tools, audit log, events and sessions are the real ones.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from infloop.model.audit import Actor
from infloop.model.capabilities import CAPABILITIES
from infloop.policy.leaks.guard import BLOCKED
from infloop.providers.builtin.subagent import MAX_DEPTH
from support.builtin_agent import AgentWorld, agent_world, tables
from support.eventually import eventually_async
from support.fake_model import Asked, FakeModel, FixedTurn, Say, Use
from support.paths import CHILDREN
from support.web_site import Site, web_site

SECRET = "Zq81-planted-Wv07-secret-Lk55"
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture
def site() -> Iterator[Site]:
    with web_site() as opened:
        opened.pages["/docs/a"] = "hello from the site"
        opened.pages["/token"] = f"the token is {TOKEN}."
        yield opened


def mcp(folder: Path) -> dict[str, Any]:
    """Return the table of an MCP server whose tool `echo` returns its arguments."""
    echo = {"name": "echo", "description": "echoes", "inputSchema": {"type": "object"}}
    (folder / "script.json").write_text(json.dumps({"tools": [echo]}))
    shutil.copyfile(CHILDREN / "mcp_server.py", folder / "server.py")
    args = ["-S", str(folder / "server.py"), str(folder / "script.json")]
    return {"servers": {"bot": {"command": sys.executable, "args": args}}}


@dataclass(frozen=True)
class Case:
    """A call, the configuration, and what the model gets; `asked` are the paths that were fetched.

    `{port}` in texts is that of a web site on loopback.
    """

    name: str
    call: Use
    expected: str
    tables: dict[str, Any] = field(default_factory=dict)
    node: dict[str, Any] = field(default_factory=dict)
    workflow: dict[str, Any] = field(default_factory=dict)
    asked: tuple[str, ...] = ()


def fetch(url: str, **more: Any) -> Use:
    return Use("web_fetch", {"url": url, **more})


def rule(**fields: Any) -> dict[str, Any]:
    return {"host": "127.0.0.1", "ports": ["PORT"], "schemes": ["http"], **fields}


def rules(*listed: dict[str, Any], private: bool = True) -> dict[str, Any]:
    return {"security": {"egress": {"rules": [*listed]}}, "agent": {"allow_private": private}}


HERE = "http://127.0.0.1:{port}"
PRIVATE = {"allow_private": True}
CASES = (
    Case("a parent", Use("fs_read", {"path": "../secret"}), "error (path-has-parent)"),
    Case("an absolute path", Use("fs_read", {"path": "/etc/passwd"}), "error (path-is-absolute)"),
    Case("a link", Use("fs_read", {"path": "link"}), "error (path-is-link)"),
    Case("a hook", Use("fs_write", {"path": ".git/hooks/x", "content": ""}), "error ("),
    Case(
        "a tool that is not listed",
        Use("fs_write", {"path": "a", "content": ""}),
        "error (tool-not-allowed)",
        node={"tools": ["fs_read"]},
    ),
    Case("a write to others", Use("a2a_send", {"url": HERE, "message": "x"}), "error (denied)"),
    Case("a destructive command", Use("shell", {"command": "rm -rf build"}), "error (denied)"),
    Case(
        "an allowed command",
        Use("shell", {"command": "echo $((6 * 7)); env"}),
        "42",
        {"security": {"approvals": {"rules": [{"capability": "execute", "answer": "allow"}]}}},
    ),
    Case("a private address", fetch(f"{HERE}/docs/a"), "error (network-refused)"),
    Case("a private agent", Use("a2a_discover", {"url": HERE}), "error (network-refused)"),
    Case("a model that allows itself", fetch(f"{HERE}/docs/a", **PRIVATE), "error (denied)"),
    Case(
        "a rule without permission",
        fetch(f"{HERE}/docs/a", **PRIVATE),
        "error (denied)",
        rules(rule(), private=False),
    ),
    Case(
        "a rule and permission",
        fetch(f"{HERE}/docs/a", **PRIVATE),
        "hello from the site",
        rules(rule(path_prefix="/docs", methods=["GET"])),
        asked=("/docs/a",),
    ),
    Case(
        "another host",
        fetch(f"{HERE}/docs/a", **PRIVATE),
        "error (egress-refused)",
        rules(rule(), rule(host="192.0.2.1"), {**rule(), "tool": "browser_navigate"})
        | {
            "security": {
                "egress": {"rules": [rule(host="192.0.2.1")]},
                "approvals": {"rules": [{"capability": "private-network", "answer": "allow"}]},
            }
        },
    ),
    Case(
        "another path",
        fetch(f"{HERE}/docs-evil/a", **PRIVATE),
        "error (egress-refused)",
        rules(rule(path_prefix="/docs")),
    ),
    Case(
        "another method",
        fetch(f"{HERE}/docs/a", **PRIVATE),
        "error (egress-refused)",
        rules(rule(methods=["POST"])),
    ),
    Case(
        "a host that the workflow lists",
        fetch(f"{HERE}/docs/a", **PRIVATE),
        "hello from the site",
        rules(rule()),
        workflow={"egress": "allowlist", "egressAllowlist": ["127.0.0.1:{port}"]},
        asked=("/docs/a",),
    ),
    Case(
        "a host that the workflow does not list",
        fetch(f"{HERE}/docs/a", **PRIVATE),
        "error (egress-refused)",
        rules(rule()),
        workflow={"egress": "allowlist", "egressAllowlist": ["docs.test"]},
    ),
    Case(
        "a workflow without a network",
        Use("a2a_discover", {"url": HERE, **PRIVATE}),
        "error (egress-refused)",
        rules(rule()),
        workflow={"egress": "none"},
    ),
    Case(
        "a browser in a workflow that lists another host",
        Use("browser_navigate", {"url": f"{HERE}/docs/a", **PRIVATE}),
        "error (egress-refused)",
        rules(rule()),
        workflow={"egress": "allowlist", "egressAllowlist": ["docs.test"]},
    ),
)


@pytest.mark.claim("L15", "L21")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_call_is_refused_or_made_as_the_rules_say(
    tmp_path: Path, site: Site, case: Case
) -> None:
    def filled(value: Any) -> Any:
        text = json.dumps(value).replace('"PORT"', str(site.port))
        return json.loads(text.replace("{port}", str(site.port)))

    (tmp_path / "secret").write_text(SECRET)
    call = Use(case.call.name, filled(case.call.input))
    async with (
        FakeModel([call], [Say("ok")]) as model,
        agent_world(tmp_path, tables(model, **filled(case.tables)), approval_timeout_ms=0) as here,
    ):
        (here.folder / "link").symlink_to(tmp_path / "secret")
        run = await here.ask(top=filled(case.workflow), **case.node)
        assert run.status == "succeeded", run.result
        assert case.expected in json.dumps(model.asked[1].body)
        assert SECRET not in json.dumps(model.asked[1].body)
        assert site.paths() == set(case.asked)
        entries = here.audited("tool.refused") + here.audited("tool.finished")
        assert len(entries) == 1


async def test_a_tool_of_an_mcp_server_is_called_if_a_rule_allows_it(tmp_path: Path) -> None:
    allowed = {"capability": "execute", "answer": "allow", "pattern": "*"}
    async with (
        FakeModel([Use("mcp_bot__echo", {"word": "hello"})], [Say("ok")]) as model,
        agent_world(
            tmp_path,
            tables(model, mcp=mcp(tmp_path), security={"approvals": {"rules": [allowed]}}),
        ) as here,
    ):
        run = await here.ask()
        assert run.status == "succeeded"
        assert "text from MCP server bot" in json.dumps(model.asked[1].body)
        assert '{\\\\\\"word\\\\\\": \\\\\\"hello\\\\\\"}' in json.dumps(
            json.dumps(model.asked[1].body)
        )


async def test_an_mcp_server_that_does_not_start_is_a_warning(tmp_path: Path) -> None:
    broken = {"servers": {"bot": {"command": "no-such-program-here"}}}
    async with (
        FakeModel([Say("ok")]) as model,
        agent_world(tmp_path, tables(model, mcp=broken)) as here,
    ):
        run = await here.ask()
        assert run.status == "succeeded"
        assert "MCP server bot" in str(run.events)


@pytest.mark.parametrize(("answer", "code"), [("allow", "network-"), ("deny", "denied")])
async def test_a_person_decides_and_the_answer_is_audited(
    tmp_path: Path, site: Site, answer: Any, code: str
) -> None:
    call = Use("a2a_send", {"url": f"http://127.0.0.1:{site.port}", "message": "hello"})
    async with (
        FakeModel([call], [Say("ok")]) as model,
        agent_world(tmp_path, tables(model)) as here,
    ):
        asking = asyncio.create_task(here.ask())
        approvals = here.service.approvals
        assert approvals is not None
        (question,) = await eventually_async(approvals.waiting)
        assert question.title.startswith("a2a_send: http://127.0.0.1")
        assert question.details["reason"] == "rule: ask network-write"
        await approvals.answer(question.id, answer, Actor("cli"))
        run = await asking
        assert run.status == "succeeded"
        assert f"error ({code}" in json.dumps(model.asked[1].body)
        assert [each["outcome"] for each in here.audited("approval.answered")] == [answer]


def everywhere(here: AgentWorld, model: FakeModel) -> str:
    """Return all that was stored, and all that the model was sent."""
    stored = b""
    for file in here.settings.data_dir.rglob("*"):
        if file.is_file() and "snapshots" not in file.parts:  # they hold the user's own files
            stored += file.read_bytes()
    return stored.decode("utf-8", "replace") + json.dumps([asked.body for asked in model.asked])


READ_SECRET = Use("fs_read", {"path": "config.ini"})


@pytest.mark.claim("L35", "L36", "L39")
async def test_redacted_secrets_reach_neither_the_model_nor_any_file(
    tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_KEY", SECRET)
    page = fetch(f"http://127.0.0.1:{site.port}/token", **PRIVATE)
    delegated = Use("subagent", {"task": "read it"})
    config = json.loads(json.dumps(rules(rule())).replace('"PORT"', str(site.port)))
    async with (
        FakeModel(
            [READ_SECRET, page], [delegated], [READ_SECRET], [Say("read")], [Say(f"ok {TOKEN}")]
        ) as model,
        agent_world(
            tmp_path, tables(model, provider={"api_key_env": "FAKE_KEY"}, **config)
        ) as here,
    ):
        (here.folder / "config.ini").write_text(f"key = {SECRET}{SECRET}\n")
        run = await here.ask()
        assert run.status == "succeeded"
        text = everywhere(here, model)
        assert "[redacted:env:FAKE_KEY]" in text
        assert "[redacted:github" in text
        for part in (SECRET, SECRET[:16], SECRET[-16:], TOKEN, TOKEN[-16:]):
            assert part not in text
        found = [each.get("leaks") for each in here.audited("tool.finished")]
        assert found[0] == ["env:FAKE_KEY"]
        assert found[1]
        assert found[2] == ["env:FAKE_KEY"]  # that of the sub-agent


@pytest.mark.claim("L40")
async def test_an_enforced_guard_fails_the_call_with_its_stable_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_KEY", SECRET)
    async with (
        FakeModel([READ_SECRET], [Say("ok")]) as model,
        agent_world(
            tmp_path, tables(model, provider={"api_key_env": "FAKE_KEY"}), leaks_mode="enforce"
        ) as here,
    ):
        (here.folder / "config.ini").write_text(f"key = {SECRET}\n")
        await here.ask()
        (result,) = [m for m in model.asked[1].body["messages"] if m["role"] == "tool"]
        assert result["content"] == BLOCKED == "tool output blocked by leak guard"
        assert SECRET not in everywhere(here, model)
        (finished,) = here.audited("tool.finished")
        assert finished["outcome"] == "leak-blocked"


@pytest.mark.claim("L37", "L38")
@pytest.mark.parametrize("mode", ["off", "warn"])
async def test_a_guard_that_only_warns_or_is_off_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv("FAKE_KEY", SECRET)
    async with (
        FakeModel([READ_SECRET], [Say("ok")]) as model,
        agent_world(
            tmp_path, tables(model, provider={"api_key_env": "FAKE_KEY"}), leaks_mode=mode
        ) as here,
    ):
        (here.folder / "config.ini").write_text(f"key = {SECRET}\n")
        run = await here.ask()
        (result,) = [m for m in model.asked[1].body["messages"] if m["role"] == "tool"]
        assert f"key = {SECRET}" in result["content"]
        (finished,) = here.audited("tool.finished")
        assert finished.get("leaks") == (None if mode == "off" else ["env:FAKE_KEY"])
        warned = "fs_read returned secrets: env:FAKE_KEY" in str(run.events)
        assert warned is (mode == "warn")


@pytest.mark.claim("L41")
async def test_a_configured_key_is_known_whatever_its_name_and_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = ("another-value-0815-later", "a-token-0816-that-is-new")
    monkeypatch.setenv("PLAIN_WORD", SECRET)
    async with (
        FakeModel([READ_SECRET], [Say("ok")]) as model,
        agent_world(tmp_path, tables(model, provider={"api_key_env": "PLAIN_WORD"})) as here,
    ):
        monkeypatch.setenv("PLAIN_WORD", later[0])
        monkeypatch.setenv("MY_SERVICE_TOKEN", later[1])
        here.service._shared.dependencies.redactor.refresh()  # as it does all the time
        (here.folder / "config.ini").write_text(f"{SECRET} {later[0]} {later[1]}\n")
        await here.ask()
        text = everywhere(here, model)
        for value in (SECRET, *later):
            assert value not in text


VALUES: dict[str, Any] = {
    "path": "a.txt",
    "url": "http://192.0.2.1/",
    "patch": "*** Begin Patch\n*** Add File: a.txt\n+x\n*** End Patch",
    "task": "write a file",
}
BY_TYPE: dict[str, Any] = {
    "string": "x",
    "integer": 1,
    "number": 1,
    "boolean": False,
    "array": [],
    "object": {},
}


def sample(tool: dict[str, Any]) -> Use:
    """Return a call of a tool with valid arguments."""
    schema = tool["function"]["parameters"]
    known = schema.get("properties", {})
    arguments = {
        name: VALUES.get(name, BY_TYPE[known[name].get("type", "string")])
        for name in schema.get("required", ())
    }
    return Use(tool["function"]["name"], arguments)


DELEGATED = "do it all"


@pytest.mark.claim("L1")
async def test_every_tool_passes_the_gate_on_every_route(tmp_path: Path) -> None:
    """All tools of all families are called by an agent and by its sub-agents, and a policy that
    denies everything but the sub-agents themselves refuses each of them, with an audit entry."""
    denied = [{"capability": each, "answer": "deny"} for each in CAPABILITIES]
    allowed = {"capability": "read", "answer": "allow", "pattern": DELEGATED}
    security = {"approvals": {"rules": [allowed, *denied]}}

    def turn(asked: Asked) -> FixedTurn:
        if "error (" in json.dumps(asked.body["messages"]):
            return [Say("done")]
        calls = [sample(tool) for tool in asked.body["tools"]]
        return [*calls, Use("subagent", {"task": DELEGATED})]

    async with (
        FakeModel(turn) as model,
        agent_world(
            tmp_path,
            tables(
                model,
                mcp=mcp(tmp_path),
                security=security,
                agent={"search_url": "http://192.0.2.1/?q={query}"},
            ),
        ) as here,
    ):
        run = await here.ask()
        assert run.status == "succeeded"
        offered = [tool["function"]["name"] for tool in model.asked[0].body["tools"]]
        refused = here.audited("tool.refused")
        routes = 1 + MAX_DEPTH  # the agent, its sub-agent, and the sub-agent of that
        for name in offered:
            found = [each for each in refused if each["tool"] == name]
            assert [each["outcome"] for each in found] == ["denied"] * routes, name
            assert all(each["digest"].startswith("sha256:") for each in found)
        called = here.audited("tool.called")
        assert {each["tool"] for each in called} == {"subagent"}
        assert not [*here.folder.iterdir()]
        families = {"fs_", "apply_patch", "shell", "process_", "web_", "a2a_", "browser_"}
        families |= {"mcp_bot__", "subagent"}
        assert {each for each in families if any(name.startswith(each) for name in offered)} == (
            families
        )
