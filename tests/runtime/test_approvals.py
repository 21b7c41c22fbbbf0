"""What waits for a person: asked by an agent, listed in one place, answered from anywhere, once."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from infloop.model.approval import MAX_DETAILS_CHARS, MAX_TEXT_CHARS, Approval, question
from infloop.model.audit import Actor
from infloop.model.events import Notice
from infloop.providers.approval_requests import MAX_OPEN_REQUESTS
from support import forkserver
from support.acp_agents import RM, STOP, bot
from support.confinement import need_bubblewrap
from support.eventually import eventually, eventually_async
from support.runs import Finished, World, scripted, world
from support.server import (
    PATIENCE,
    TOKEN,
    Client,
    Events,
    environment,
    process,
    put_workflow,
)
from support.terminal import on_terminal
from support.workflows import edges, node, workflow

TITLE = "bot wants to run: `rm -rf build`"
CHOSEN = {"allow": "allow_once-id", "deny": "reject_once-id"}
NOBODY = 65534


def asks(id: str = "asks", **config: Any) -> dict[str, Any]:
    agent = node("a", "agent", **{"providerId": "bot", "prompt": "go", **config})
    return workflow([node("s", "start"), agent], edges("s next a"), id)


def heard(folder: Path) -> list[dict[str, Any]]:
    """What the agent was answered."""
    lines = (folder / "heard.jsonl").read_text().splitlines()
    return [one["result"]["outcome"] for one in map(json.loads, lines) if "method" not in one]


def waiting(client: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/api/approvals?state=waiting").json()["approvals"]
    return found


def stored(folder: Path) -> list[tuple[str, str]]:
    """The questions in the database and their states, without any help of ours."""
    with sqlite3.connect(f"file:{folder}/data/journal.db?mode=ro", uri=True) as database:
        return database.execute("SELECT id, state FROM approval ORDER BY key").fetchall()


def column(folder: Path, name: str) -> list[Any]:
    """One column of the questions in the database."""
    with sqlite3.connect(f"file:{folder}/data/journal.db?mode=ro", uri=True) as database:
        return [value for (value,) in database.execute(f"SELECT {name} FROM approval ORDER BY key")]


def entries(folder: Path) -> list[dict[str, Any]]:
    """The answers in the audit log."""
    lines = [
        line
        for file in sorted((folder / "data/audit").glob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    return [one for one in map(json.loads, lines) if one["event"] == "approval.answered"]


def infloop(folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = forkserver.run(arguments, folder, environment(folder), PATIENCE)
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done


def listed(folder: Path) -> list[dict[str, Any]]:
    lines = infloop(folder, "approvals", "--json").stdout.splitlines()
    return [json.loads(line) for line in lines]


@contextmanager
def running(folder: Path, *arguments: str, **settings: str) -> Iterator[forkserver.Command]:
    """An `infloop` process that goes on; ended when the test is over."""
    env = environment(folder, **settings)
    made = forkserver.Command(arguments, folder, env, stderr=forkserver.STDOUT)
    try:
        yield made
    finally:
        if made.poll() is None:
            made.kill()
        made.communicate(timeout=PATIENCE)


def workflow_file(folder: Path, content: dict[str, Any]) -> str:
    path = folder / "asks.workflow.json"
    path.write_text(json.dumps(content))
    return str(path)


async def asked(here: World) -> Approval:
    """The question that waits, as soon as there is one."""
    assert here.service.approvals is not None
    return (await eventually_async(here.service.approvals.waiting))[0]


def notices(ended: Finished) -> list[str]:
    return [event.message for event in ended.events if isinstance(event, Notice)]


# -- the doors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("decision", "state"), [("allow", "allowed"), ("deny", "denied")])
def test_what_an_agent_asks_is_answered_over_the_api(
    tmp_path: Path, decision: str, state: str
) -> None:
    bot(tmp_path)
    put_workflow(tmp_path / "data", asks())
    with process(tmp_path, api_token=TOKEN) as server, Events(server.client, "/api/events") as news:
        client = server.client
        run_id = client.post("/api/run", {"workflowId": "asks"}).json()["runId"]
        told = news.until("approval_asked")[-1]
        (question,) = waiting(client)
        assert question["title"] == told["title"] == TITLE
        assert question["id"] == told["approvalId"]
        assert (question["kind"], question["state"]) == ("permission", "waiting")
        assert (question["runId"], question["stepPath"]) == (run_id, "a")
        assert question["details"] == {"kind": "execute", "rawInput": {"command": "rm -rf build"}}
        assert question["expiresAt"] - question["askedAt"] == 600_000

        path = f"/api/approvals/{question['id']}"
        given = client.post(path, {"decision": decision, "note": "as agreed"})
        assert given.status == 200, given.body
        answered = given.json()["approval"]
        assert (answered["state"], answered["note"]) == (state, "as agreed")
        assert answered["answeredBy"] == {"kind": "api-token", "name": ""}
        assert news.until("approval_answered")[-1]["state"] == state
        assert client.finished(run_id)["status"] == "succeeded"
        assert client.get(path).json()["approval"] == answered
        assert waiting(client) == []
        settled = client.get(f"/api/approvals?state={state}").json()["approvals"]
        assert settled == [answered]
    (outcome,) = heard(tmp_path)
    assert outcome["optionId"] == CHOSEN[decision]
    (entry,) = entries(tmp_path)
    assert (entry["outcome"], entry["runId"]) == (decision, run_id)
    assert entry["actor"] == {"kind": "api-token", "name": ""}
    assert entry["details"]["approval"] == question["id"]


@pytest.mark.parametrize(("action", "state"), [("allow", "allowed"), ("deny", "denied")])
def test_what_an_agent_asks_is_answered_from_another_terminal(
    tmp_path: Path, action: str, state: str
) -> None:
    bot(tmp_path)
    with running(tmp_path, "run", workflow_file(tmp_path, asks())) as run:
        (question,) = eventually(lambda: listed(tmp_path))
        name = question["id"][:8]
        shown = infloop(tmp_path, "approvals").stdout
        assert shown.startswith(f"{name}  permission  run {question['runId'][:8]} a  until ")
        assert TITLE in shown
        assert 'rawInput: {"command":"rm -rf build"}' in shown
        why = infloop(tmp_path, "why", "last").stdout
        assert f"waiting for an answer: {TITLE}" in why
        said = infloop(tmp_path, "approvals", action, name, "--note", "from here").stdout
        assert said == f"{state}: {TITLE}\n"
        output, _ = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, output
    hint = f"`infloop approvals allow {name}`, or deny"
    assert f"info: [approval] waiting for an answer: {TITLE}; {hint}" in output
    assert f"info: [approval] {state} by cli: from here: {TITLE}" in output
    assert f"[permissions] {state}: execute `rm -rf build` ({state} by cli: from here)" in output
    assert heard(tmp_path)[0]["optionId"] == CHOSEN[action]
    again = infloop(tmp_path, "approvals", "allow", question["id"], code=2).stderr
    assert f"takes no answer any more: {state} by cli: from here" in again
    assert [(one["outcome"], one["actor"]["kind"]) for one in entries(tmp_path)] == [
        (action, "cli")
    ]


def test_a_terminal_that_shows_a_run_says_how_to_answer(tmp_path: Path) -> None:
    bot(tmp_path)
    command = ("run", workflow_file(tmp_path, asks()))
    env = {**environment(tmp_path), "TERM": "xterm"}
    with on_terminal(command, tmp_path, env, lines=40, columns=120) as terminal:
        shown = terminal.read_until("infloop approvals allow ", and_more=8)
        name = shown.partition("infloop approvals allow ")[2][:8]
        assert f"waiting for an answer: {TITLE}" in shown
        infloop(tmp_path, "approvals", "allow", name)
        assert terminal.end() == 0
    assert "succeeded in " in terminal.shown


def test_of_many_answers_at_once_the_first_counts_and_the_others_are_told_so(
    tmp_path: Path,
) -> None:
    bot(tmp_path)
    put_workflow(tmp_path / "data", asks())
    with process(tmp_path, api_token=TOKEN) as server:
        client = server.client
        run_id = client.post("/api/run", {"workflowId": "asks"}).json()["runId"]
        (question,) = eventually(lambda: waiting(client))
        start = threading.Barrier(8)

        def give(decision: str) -> tuple[int, str, dict[str, Any]]:
            start.wait(PATIENCE)
            got = client.post(f"/api/approvals/{question['id']}", {"decision": decision})
            return got.status, decision, got.json()

        with ThreadPoolExecutor(8) as threads:
            given = list(threads.map(give, ["allow", "deny"] * 4))
        (first,) = [decision for status, decision, _ in given if status == 200]
        refused = [body for status, _, body in given if status == 409]
        assert len(refused) == 7
        state = {"allow": "allowed", "deny": "denied"}[first]
        for body in refused:
            assert body["error"] == "already-answered"
            assert f"{state} by api-token" in body["message"]
        client.finished(run_id)
    assert heard(tmp_path)[0]["optionId"] == CHOSEN[first]
    on_record = [one["outcome"] for one in entries(tmp_path)]
    counted = [outcome for outcome in on_record if outcome != "too-late"]
    assert len(counted) - on_record.count("too-late") == 1


def test_of_two_processes_that_answer_at_once_one_is_told_of_the_other(tmp_path: Path) -> None:
    bot(tmp_path)
    with running(tmp_path, "run", workflow_file(tmp_path, asks())) as run:
        (question,) = eventually(lambda: listed(tmp_path))
        with (
            running(tmp_path, "approvals", "allow", question["id"]) as one,
            running(tmp_path, "approvals", "deny", question["id"]) as other,
        ):
            said = {each.communicate(timeout=PATIENCE)[0]: each.wait() for each in (one, other)}
        run.communicate(timeout=PATIENCE)
    ((_, state),) = stored(tmp_path)
    won, lost = sorted(said, key=said.__getitem__)
    assert (said[won], said[lost]) == (0, 2)
    assert won == f"{state}: {TITLE}\n"
    assert f"takes no answer any more: {state} by cli" in lost


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, dict[str, Any]]]:
    """A server, and a question that waits there."""
    folder = tmp_path_factory.mktemp("asking")
    bot(folder)
    put_workflow(folder / "data", asks())
    with process(folder, api_token=TOKEN) as server:
        client = server.client
        client.post("/api/run", {"workflowId": "asks"})
        (question,) = eventually(lambda: waiting(client))
        yield client, question
        assert waiting(client) == [question]
    assert entries(folder) == []


@pytest.mark.parametrize(
    "name", ["nothing", "run", "%00", "..%2f..%2fjournal.db", "%C3%A9", "budget:x"]
)
def test_a_name_that_is_no_question_is_answered_404(
    asking: tuple[Client, dict[str, Any]], name: str
) -> None:
    client, question = asking
    path = f"/api/approvals/{question['runId'] if name == 'run' else name}"
    for got in (client.get(path), client.post(path, {"decision": "allow"})):
        assert (got.status, got.json()["error"]) == (404, "not-found"), got.body


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"decision": "ALLOW"},
        {"decision": "allow", "note": 1},
        {"decision": "allow", "note": "x" * 5_000},
        {"decision": "allow", "state": "allowed"},
    ],
)
def test_an_answer_that_is_none_changes_nothing(
    asking: tuple[Client, dict[str, Any]], body: dict[str, Any]
) -> None:
    client, question = asking
    assert client.post(f"/api/approvals/{question['id']}", body).status == 400
    assert waiting(client) == [question]


async def test_the_caller_that_asked_is_woken_by_an_answer_in_its_own_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infloop.runtime.approvals.POLL_SECONDS", 3_600.0)
    bot(tmp_path)
    async with world(tmp_path) as here, asyncio.timeout(PATIENCE):
        run_id = await here.start(asks())
        assert here.service.approvals is not None
        await here.service.approvals.answer((await asked(here)).id, "allow", Actor("mcp", "editor"))
        ended = await here.finish(run_id)
    assert notices(ended)[-1] == f"[approval] allowed by mcp (editor): {TITLE}"
    assert "(allowed by mcp (editor))" in ended.said("tool")


# -- silence -------------------------------------------------------------------------------------


async def test_silence_denies(tmp_path: Path) -> None:
    bot(tmp_path)
    async with world(tmp_path, approval_timeout_ms=300) as here:
        ended = await here.run(asks())
    assert ended.status == "succeeded"
    assert heard(here.folder)[0]["optionId"] == CHOSEN["deny"]
    assert notices(ended)[-2:] == [
        f"[approval] nobody answered in time: {TITLE}",
        "[permissions] denied: execute `rm -rf build` (nobody answered in time)",
    ]
    assert [state for _, state in stored(tmp_path)] == ["expired"]


@pytest.mark.parametrize(
    ("decision", "timeout_ms", "outcome"),
    [
        ("ask", 0, "reject_once-id"),
        ("deny", 600_000, "reject_once-id"),
        ("allow", 1, "allow_once-id"),
    ],
)
async def test_nobody_is_asked_where_the_manifest_or_the_operator_has_decided(
    tmp_path: Path, decision: str, timeout_ms: int, outcome: str
) -> None:
    bot(tmp_path, decision=decision)
    async with world(tmp_path, approval_timeout_ms=timeout_ms) as here:
        ended = await here.run(asks())
    assert ended.status == "succeeded"
    assert heard(here.folder)[0]["optionId"] == outcome
    assert stored(tmp_path) == []


async def test_what_cannot_be_allowed_once_is_not_asked(tmp_path: Path) -> None:
    bot(tmp_path, {"ask": {**RM, "options": ["allow_always", "reject_once"]}}, STOP)
    async with world(tmp_path) as here:
        await here.run(asks())
    assert heard(here.folder)[0]["optionId"] == CHOSEN["deny"]
    assert stored(tmp_path) == []


async def test_an_agent_that_waits_for_a_person_is_not_taken_for_a_stalled_one(
    tmp_path: Path,
) -> None:
    bot(tmp_path)
    async with world(tmp_path, approval_timeout_ms=4_500) as here:
        ended = await here.run(asks(idleTimeoutMs=3_000))
    assert (ended.status, ended.scope["a"]["stdout"]) == ("succeeded", "done")


async def test_its_silence_counts_again_once_it_has_an_answer(tmp_path: Path) -> None:
    bot(tmp_path, {"ask": RM}, {"hang": 1})
    async with world(tmp_path, approval_timeout_ms=1_000) as here:
        ended = await here.run(asks(idleTimeoutMs=3_000))
    assert "stalled: no output for 3000 ms" in ended.result.error
    assert [state for _, state in stored(tmp_path)] == ["expired"]


async def test_the_time_of_the_whole_step_goes_on_while_a_person_is_asked(tmp_path: Path) -> None:
    bot(tmp_path)
    async with world(tmp_path) as here:
        ended = await here.run(asks(timeoutMs=5_000))
    assert "did not finish within 5000 ms" in ended.result.error
    assert [state for _, state in stored(tmp_path)] == ["withdrawn"]


# -- the end of who asked ------------------------------------------------------------------------


def test_a_run_that_is_cancelled_takes_its_question_back(tmp_path: Path) -> None:
    bot(tmp_path)
    put_workflow(tmp_path / "data", asks())
    with process(tmp_path, api_token=TOKEN) as server, Events(server.client, "/api/events") as news:
        client = server.client
        run_id = client.post("/api/run", {"workflowId": "asks"}).json()["runId"]
        (question,) = eventually(lambda: waiting(client))
        client.post("/api/run/stop")
        assert news.until("approval_answered")[-1]["state"] == "withdrawn"
        assert client.finished(run_id)["status"] == "cancelled"
        assert waiting(client) == []
        late = client.post(f"/api/approvals/{question['id']}", {"decision": "allow"})
        assert (late.status, late.json()["error"]) == (409, "already-answered")
        assert "withdrawn" in late.json()["message"]
    assert {"outcome": "cancelled"} in heard(tmp_path)
    assert entries(tmp_path) == []


@pytest.mark.parametrize("answered", ["while nobody waits", "after it is resumed"])
def test_a_question_outlives_its_process_and_the_resumed_run_gets_its_answer(
    tmp_path: Path, answered: str
) -> None:
    bot(tmp_path)
    with running(tmp_path, "run", workflow_file(tmp_path, asks())) as run:
        (question,) = eventually(lambda: listed(tmp_path))
        run.send_signal(signal.SIGKILL)
        run.wait(PATIENCE)
    assert [each["id"] for each in listed(tmp_path)] == [question["id"]]
    (owner,) = column(tmp_path, "owner")
    if answered == "while nobody waits":
        infloop(tmp_path, "approve", question["id"][:8])
    with running(tmp_path, "resume", question["runId"]) as run:
        if answered != "while nobody waits":
            eventually(lambda: column(tmp_path, "owner") != [owner])
            infloop(tmp_path, "approve", question["id"][:8])
        output, _ = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, output
    assert stored(tmp_path) == [(question["id"], "allowed")]
    assert column(tmp_path, "used_at") != [None]
    (entry,) = entries(tmp_path)
    assert entry["details"]["approval"] == question["id"]


async def test_a_start_after_a_crash_withdraws_what_the_dead_asked(tmp_path: Path) -> None:
    bot(tmp_path)
    with running(tmp_path, "run", workflow_file(tmp_path, asks())) as run:
        eventually((tmp_path / "heard.jsonl").exists)
        ((name, _),) = eventually(lambda: stored(tmp_path))
        run.send_signal(signal.SIGKILL)
        run.wait(PATIENCE)
    async with world(tmp_path) as here:
        assert stored(tmp_path) == [(name, "waiting")]
        await here.service.recover()
        assert stored(tmp_path) == [(name, "withdrawn")]


async def test_an_agent_that_leaves_takes_its_question_with_it(tmp_path: Path) -> None:
    permission: dict[str, Any] = {"sessionId": "sess-1", "toolCall": {"toolCallId": "t", **RM}}
    permission["options"] = [{"optionId": "y", "name": "y", "kind": "allow_once"}]
    line = {"jsonrpc": "2.0", "method": "session/request_permission", "params": permission}
    ids = [f"q{number}" for number in range(MAX_OPEN_REQUESTS + 3)]
    many = [{"raw": json.dumps({**line, "id": name})} for name in ids]
    bot(tmp_path, *many, {"wait": "go"}, STOP)
    async with world(tmp_path) as here:
        run_id = await here.start(asks())
        approvals = here.service.approvals
        assert approvals is not None

        async def as_many_as_may_wait() -> bool:
            return len(await approvals.waiting()) == MAX_OPEN_REQUESTS

        await eventually_async(as_many_as_may_wait)
        (here.folder / "go").touch()
        ended = await here.finish(run_id)
        gone = await approvals.listed("withdrawn")
        assert [each.details for each in gone] == [{}] * MAX_OPEN_REQUESTS
    denied = f"({MAX_OPEN_REQUESTS} questions wait for an answer already)"
    assert sum(denied in each for each in notices(ended)) == 1  # equal ones are told once
    assert [state for _, state in stored(tmp_path)] == ["withdrawn"] * MAX_OPEN_REQUESTS


# -- hostile questions ---------------------------------------------------------------------------

NASTY = {
    "an escape sequence": "\x1b]0;owned\x07\x1b[2J\x1b[1;1Hallowed",
    "a second line": "ls\r\n1f3a9c2e  permission  allowed",
    "a reversed text": "cat \u202egnp.exe",
    "a separator": "a\u2028b\u2029c\x85d",
    "half a character": "x\ud800y",
    "a long text": "x" * 200_000,
    "nothing": "",
}


@pytest.mark.parametrize("title", NASTY.values(), ids=NASTY)
async def test_a_hostile_question_is_harmless_wherever_it_is_shown(
    tmp_path: Path, title: str
) -> None:
    bot(tmp_path, {"ask": {**RM, "title": title, "rawInput": {title: [title]}}}, STOP)
    async with world(tmp_path) as here:
        run_id = await here.start(asks())
        question = await asked(here)
        assert len(question.title) < 400
        assert len(json.dumps(question.details)) <= MAX_DETAILS_CHARS
        shown = (await asyncio.to_thread(infloop, tmp_path, "approvals")).stdout
        assert shown.replace("\n", "").isprintable()
        assert not any(line.startswith("1f3a9c2e") for line in shown.splitlines())
        said = await asyncio.to_thread(infloop, tmp_path, "approvals", "deny", question.id)
        assert said.stdout.removesuffix("\n").isprintable()
        assert (await here.finish(run_id)).status == "succeeded"


def nested(depth: int) -> dict[str, Any]:
    return {"in": nested(depth - 1)} if depth else {}


@pytest.mark.parametrize(
    ("details", "kept"),
    [
        ({"command": "ls"}, {"command": "ls"}),
        ({"n": [1, 2.5, None, True]}, {"n": [1, 2.5, None, True]}),
        ({"n": 10**400, "x": 1e999}, {"n": "[int, not shown]", "x": "[float, not shown]"}),
        ({"c": "y" * (MAX_TEXT_CHARS + 5)}, {"c": "y" * MAX_TEXT_CHARS + "… (5 more characters)"}),
        ({"m": [0] * 60}, {"m": [0] * 50 + ["… 10 more members"]}),
        (
            dict.fromkeys(map(str, range(60)), 0),
            dict.fromkeys(map(str, range(50)), 0) | {"…": "10 more members"},
        ),
        (
            {str(n): "z" * 3_000 for n in range(40)},
            {"omitted": "120390 characters of details, too many to keep"},
        ),
        (nested(500), {"in": {"in": {"in": {"in": {"in": {"in": "[dict, not shown]"}}}}}}),
    ],
)
def test_details_are_bounded_and_what_is_left_out_says_so(
    details: dict[str, Any], kept: dict[str, Any]
) -> None:
    assert question("permission", "t", details).details == kept


# -- who may answer ------------------------------------------------------------------------------


def test_a_server_without_a_token_shows_questions_and_takes_no_answers(tmp_path: Path) -> None:
    bot(tmp_path)
    put_workflow(tmp_path / "data", asks())
    with process(tmp_path) as server:
        client = server.client
        client.post("/api/run", {"workflowId": "asks"})
        (question,) = eventually(lambda: waiting(client))
        refused = client.post(f"/api/approvals/{question['id']}", {"decision": "allow"})
        assert (refused.status, refused.json()["error"]) == (403, "token-needed")
        assert waiting(client) == [question]
    assert entries(tmp_path) == []


CULPRIT = """
import json, os, pathlib, sqlite3, sys, urllib.error, urllib.request

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def tried(attempt):
    try:
        return str(attempt())
    except (OSError, sqlite3.Error) as error:
        return type(error).__name__

def over_http(port):
    body = json.dumps({"decision": "allow"}).encode()
    head = {"content-type": "application/json"}
    url = f"http://127.0.0.1:{port}/api/approvals/any"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        return opener.open(urllib.request.Request(url, body, head), timeout=10).status
    except urllib.error.HTTPError as error:
        return error.code

def in_the_database(data):
    database = sqlite3.connect(f"{data}/journal.db", timeout=1)
    return database.execute("UPDATE approval SET state = 'allowed'").rowcount

for line in sys.stdin:
    got = json.loads(line)
    if got.get("method") == "initialize":
        send(id=got["id"], result={"protocolVersion": 1})
    elif got.get("method") == "session/new":
        send(id=got["id"], result={"sessionId": "one"})
    elif got.get("method") == "session/prompt":
        prompt = got
        told = json.loads(got["params"]["prompt"][0]["text"])
        options = [{"optionId": "y", "name": "y", "kind": "allow_once"}]
        tool = {"toolCallId": "t", "title": "rm", "kind": "execute"}
        asked = {"sessionId": "one", "toolCall": tool, "options": options}
        send(id="q", method="session/request_permission", params=asked)
        found = {
            "data": tried(lambda: os.listdir(told["data"])),
            "database": tried(lambda: in_the_database(told["data"])),
            "http": tried(lambda: over_http(told["port"])),
            "env": [name for name in os.environ if name.startswith("INFLOOP")],
        }
        text = {"type": "text", "text": json.dumps(found)}
        chunk = {"sessionUpdate": "agent_message_chunk", "content": text}
        send(method="session/update", params={"sessionId": "one", "update": chunk})
        pathlib.Path("tried").touch()
    elif got.get("id") == "q":
        send(id=prompt["id"], result={"stopReason": "end_turn"})
"""


@pytest.fixture
def top() -> Iterator[Path]:
    """Give a directory that the user of the children can enter."""
    made = Path(tempfile.mkdtemp(prefix="infloop-test-", dir="/var/tmp"))
    made.chmod(0o755)
    (made / "work").mkdir()
    if os.geteuid() == 0:
        os.chown(made / "work", NOBODY, NOBODY)
    yield made
    shutil.rmtree(made)


@pytest.mark.parametrize("level", ["guard", "sandbox"])
def test_a_confined_agent_cannot_answer_its_own_question(top: Path, level: str) -> None:
    if level == "sandbox":
        need_bubblewrap()
    (top / "work/culprit.py").write_text(CULPRIT)
    bot(top)
    manifest = json.loads((top / "data/providers/bot.json").read_text())
    manifest |= {"bin": "/usr/bin/python3", "args": ["culprit.py"]}
    (top / "data/providers/bot.json").write_text(json.dumps(manifest))
    settings = {"isolation": level, "api_token": TOKEN}
    if os.geteuid() == 0:
        settings["service_user"] = "nobody"
    with process(top, **settings) as server:
        client = server.client
        told = {"port": client.port, "data": str(top / "data")}
        flow = asks(prompt=json.dumps(told), cwd=str(top / "work"))
        put_workflow(top / "data", flow)
        run_id = client.post("/api/run", {"workflowId": "asks"}).json()["runId"]
        eventually((top / "work/tried").exists)
        (question,) = eventually(lambda: waiting(client))
        client.post(f"/api/approvals/{question['id']}", {"decision": "deny"})
        ended = client.finished(run_id)
    assert ended["status"] == "succeeded", ended
    found = json.loads(ended["scope"]["a"]["stdout"])
    assert found["http"] == "URLError"  # it does not even reach the server
    assert found["env"] == []
    assert found["data"] in ("PermissionError", "FileNotFoundError")
    assert found["database"] == "OperationalError"
    assert stored(top) == [(question["id"], "denied")]


# -- what else waits -----------------------------------------------------------------------------


def test_paused_runs_and_missed_schedules_are_in_the_same_list(tmp_path: Path) -> None:
    scripted(tmp_path / "data/providers", "fake", {"do": [{"cost": 2.0}]})
    paid = [node(name, "agent", providerId="fake", prompt="go") for name in ("a", "b")]
    costly = workflow(
        [node("s", "start"), *paid],
        edges("s next a next b"),
        "costly",
        onBudget="pause",
        limits={"maxCostUsd": 1.0},
    )
    put_workflow(tmp_path / "data", costly)
    name = "abcdefghijklmnopqrstuv"
    schedule = {"cron": "0 9 * * *", "misfire": "ask"}
    trigger = {"id": name, "name": "Nightly", "enabled": True, "workflowId": "costly"}
    triggers = tmp_path / "data/triggers"
    triggers.mkdir(mode=0o700)
    content = json.dumps({**trigger, "kind": "schedule", "schedule": schedule})
    (triggers / f"{name}.json").write_text(content)
    missed = {"first_ms": 1_000, "last_ms": 9_000, "count": 3}
    now = int(time.time() * 1000)
    marks = {name: {"consideredMs": now, "asked": missed}}
    (triggers / "schedules.state").write_text(json.dumps(marks))
    with process(tmp_path, api_token=TOKEN) as server:
        client = server.client
        run_id = client.run("costly")["runId"]
        found = {each["kind"]: each for each in waiting(client)}
        assert [*found] == ["budget", "missed-schedule"]
        assert found["budget"]["runId"] == run_id
        assert f"infloop resume {run_id[:8]} --max-cost-usd" in found["budget"]["hint"]
        assert found["missed-schedule"]["title"] == "Nightly missed its time 3 times: run it?"
        assert f"/api/triggers/{name}/missed" in found["missed-schedule"]["hint"]
        for each in found.values():
            path = f"/api/approvals/{each['id']}"
            assert client.get(path).json()["approval"] == each
            refused = client.post(path, {"decision": "allow"})
            assert (refused.status, refused.json()["error"]) == (409, "answered-elsewhere")
            assert each["hint"] in refused.json()["message"]
        shown = infloop(tmp_path, "approvals").stdout
        assert all(each["hint"] in shown for each in found.values())
        assert client.post(f"/api/triggers/{name}/missed", {"start": False}).status == 200
        assert [each["kind"] for each in waiting(client)] == ["budget"]


# -- the node -------------------------------------------------------------------------------------


def needs_approval(**config: Any) -> dict[str, Any]:
    """A workflow that asks before it deploys, and says how it was answered if it may not."""
    ask = node("ask", "approval", **{"question": "Deploy {{inputs.what}}?", **config})
    refused = node("refused", "command", cmd="echo {{ask.answer}}: {{ask.why}}")
    deploy = node("deploy", "command", cmd="echo deployed")
    links = edges("s next ask", "ask next deploy", "ask error refused")
    return workflow([node("s", "start"), ask, deploy, refused], links, "deploys")


@pytest.mark.parametrize(
    ("decision", "said"),
    [("allow", "deployed\n"), ("deny", "denied: denied by cli: looked\n")],
)
async def test_an_approval_node_waits_for_a_person(
    tmp_path: Path, decision: Any, said: str
) -> None:
    async with world(tmp_path) as here:
        run_id = await here.start(needs_approval(details="3 files"), inputs={"what": "v2"})
        question = await asked(here)
        assert (question.kind, question.title) == ("approval", "Deploy v2?")
        assert question.details == {"details": "3 files"}
        assert here.service.approvals is not None
        await here.service.approvals.answer(question.id, decision, Actor("cli"), note="looked")
        ended = await here.finish(run_id)
    assert ended.said() == said


async def test_an_approval_node_is_denied_where_nobody_is_asked_or_answers(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        ended = await here.run(needs_approval(timeoutMs=1), inputs={"what": "v2"})
        assert ended.said() == "denied: nobody answered in time\n"
    async with world(tmp_path, approval_timeout_ms=0) as here:
        ended = await here.run(needs_approval(), inputs={"what": "v2"})
        assert "INFLOOP_APPROVAL_TIMEOUT_MS is 0" in ended.said()
