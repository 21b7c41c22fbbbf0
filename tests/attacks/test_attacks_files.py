"""Values, workflow files and audit entries that want to be more, row by row of a table."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from infloop.cli import run as infloop
from infloop.engine.graph import Definition
from infloop.errors import InfloopError
from infloop.model.audit import Actor
from infloop.model.events import Cause, StepStarted
from infloop.store.audit.reading import verify
from support.attack_tables import Attack, AttackTable
from support.audit_logs import open_audit_log
from support.eventually import eventually_async
from support.repositories import repository
from support.runs import World, scripted, world
from support.server import Here, here, put_workflow
from support.server import workflow as shell_workflow
from support.user_machine import command, script
from support.workflows import edges, node, workflow

TABLE = AttackTable("files")
DEADLINE_S = 40.0
START = node("start", "start")


def test_every_row_is_tried() -> None:
    TABLE.check()


def not_there(folder: Path) -> bool:
    """Whether what an attack would make is nowhere."""
    return not list(folder.rglob("PWN*"))


# -- templates -------------------------------------------------------------------------------------


@pytest.mark.parametrize("attack", TABLE.at("prompt"))
async def test_a_value_is_never_a_template(tmp_path: Path, attack: Attack) -> None:
    scripted(tmp_path / "data/providers", "fake", {"do": [{"text": "ok"}]})
    nodes = [
        START,
        script("s", f"print({attack['said']!r}, end='')"),
        node("a", "agent", providerId="fake", prompt=attack["prompt"]),
    ]
    made = workflow(nodes, edges("start next s next a"), globals={"g": "expanded"})
    async with world(tmp_path) as app:
        done = await app.run(made, inputs={"secret": "expanded", **attack.get("inputs", {})})
    (asked,) = [
        event.config["prompt"]
        for event in done.events
        if isinstance(event, StepStarted) and event.node == "a"
    ]
    assert asked == attack["asked"]


@pytest.mark.parametrize("attack", TABLE.at("line"))
async def test_a_value_is_never_shell_text(tmp_path: Path, attack: Attack) -> None:
    async with world(tmp_path) as app:
        for line in attack["lines"]:
            flow = workflow([START, command("c", line)], edges("start next c"))
            for title in attack["titles"]:
                done = await app.run(flow, inputs={"title": title})
                assert done.status == "succeeded", (line, title)
        assert not_there(app.folder)


@pytest.mark.parametrize("attack", TABLE.at("ref"))
async def test_a_value_is_never_an_option_of_git(tmp_path: Path, attack: Attack) -> None:
    scripted(tmp_path / "data/providers", "fake", {"do": [{"text": "ok"}]})
    async with world(tmp_path) as app:
        app.folder = repository(tmp_path / "repo")
        asks = node(
            "a",
            "agent",
            providerId="fake",
            prompt="x",
            useWorktree=True,
            worktreeRef="{{inputs.title}}",
        )
        flow = workflow([START, asks], edges("start next a"))
        for title in attack["titles"]:
            done = await app.run(flow, inputs={"title": title})
            assert (done.status, done.result.failed_step) == ("failed", "a"), title
        fine = await app.run(flow, inputs={"title": "HEAD"})
        assert fine.status == "succeeded"
    assert not_there(tmp_path)


@pytest.mark.parametrize("attack", TABLE.at("source"))
async def test_a_value_is_never_code(tmp_path: Path, attack: Attack) -> None:
    code = "open('seen', 'w').write('{{inputs.title}}')"
    flow = workflow([START, script("s", code)], edges("start next s"))
    async with world(tmp_path) as app:
        for title in attack["titles"]:
            done = await app.run(flow, inputs={"title": title})
            assert done.status == "succeeded", done.result
            assert (app.folder / "seen").read_text() == "{{inputs.title}}"
        assert not_there(app.folder)


@pytest.mark.parametrize("attack", TABLE.at("directory"))
async def test_a_value_from_outside_is_never_a_directory(tmp_path: Path, attack: Attack) -> None:
    scripted(tmp_path / "data/providers", "fake", {"do": [{"shell": "touch PWN"}]})
    steps = [
        node("n", "agent", providerId="fake", prompt="x", cwd="{{inputs.name}}"),
        command("n", "touch PWN", cwd="{{inputs.name}}"),
    ]
    async with world(tmp_path) as app:
        for step in steps:
            flow = workflow([START, step], edges("start next n"))
            for name in attack["names"]:
                assert "name" in await refusal(app, flow, name), name
    assert not_there(tmp_path)
    assert not Path("/etc/PWN").exists()


async def refusal(app: World, flow: dict[str, Any], name: str) -> str:
    """Why a run is refused that somebody outside began with a name."""
    cause = Cause("webhook", "w", untrusted=("name",))
    definition = Definition(flow["id"], {flow["id"]: flow})
    with pytest.raises(InfloopError) as caught:
        await app.service.start(definition, {"name": name}, workdir=str(app.folder), cause=cause)
    return str(caught.value)


@pytest.mark.parametrize("attack", TABLE.at("growth"))
async def test_a_text_grows_to_a_bound(tmp_path: Path, attack: Attack) -> None:
    scripted(tmp_path / "data/providers", "fake", {"do": [{"text": "ok"}]})
    asks = node("a", "agent", providerId="fake", prompt="{{inputs.v}}" * attack["times"])
    async with world(tmp_path) as app, asyncio.timeout(DEADLINE_S):
        flow = workflow([START, asks], edges("start next a"))
        done = await app.run(flow, inputs={"v": "x" * attack["size"]})
    assert done.status == "failed"
    assert "characters" in done.result.error


@pytest.mark.parametrize("attack", TABLE.at("branch"))
async def test_a_value_is_never_an_expression(tmp_path: Path, attack: Attack) -> None:
    choice = node("b", "branch", lhs="{{inputs.title}}", op="==", rhs="{{inputs.rhs}}")
    nodes = [START, choice, command("yes", "touch PWN"), command("no", "touch no")]
    flow = workflow(nodes, edges("start next b true yes", "b false no"))
    async with world(tmp_path) as app:
        for title in attack["titles"]:
            done = await app.run(flow, inputs={"title": title, "rhs": attack["rhs"]})
            assert done.status == "succeeded"
            (app.folder / "no").unlink()
        assert not_there(app.folder)


# -- workflow files --------------------------------------------------------------------------------


@pytest.mark.parametrize("attack", TABLE.at("calls"))
async def test_workflows_in_a_circle_do_not_run(tmp_path: Path, attack: Attack) -> None:
    for name, called in attack["calls"].items():
        steps = [node(f"c{n}", "subworkflow", workflowId=to) for n, to in enumerate(called)]
        chain = " next ".join(["start", *(step["id"] for step in steps)])
        put_workflow(tmp_path / "data", workflow([START, *steps], edges(chain), name))
    async with here(tmp_path) as served, asyncio.timeout(DEADLINE_S):
        answer = await served.ask("POST", "/api/run", {"workflowId": next(iter(attack["calls"]))})
        assert 400 <= answer.status < 500, answer.body
        assert "in a circle" in str(answer.json()["problems"])
        assert await runs(served) == []


async def runs(served: Here) -> list[Any]:
    found: list[Any] = (await served.ask("GET", "/api/runs")).json()["runs"]
    return found


@pytest.mark.parametrize("attack", TABLE.at("loops"))
async def test_loops_without_end_come_to_an_end(tmp_path: Path, attack: Attack) -> None:
    inner = node("b", "branch", lhs="a", op="==", rhs="b")
    for number in range(attack["depth"]):
        inner = node(f"l{number}", "loop", [inner], infinite=True)
    flow = workflow([START, inner], edges(f"start next {inner['id']}"))
    async with (
        world(tmp_path, max_run_node_executions=attack["most"]) as app,
        asyncio.timeout(DEADLINE_S),
    ):
        done = await app.run(flow)
    assert done.status == "failed"
    assert "budget" in done.result.error


TINY = shell_workflow("tiny", "true")


@pytest.mark.parametrize("attack", TABLE.at("save"))
async def test_a_file_that_wants_too_much_is_not_saved(tmp_path: Path, attack: Attack) -> None:
    put_workflow(tmp_path / "data", TINY)
    bodies = [json.dumps({**TINY, "id": long(name)}) for name in attack.get("ids", ())]
    bodies += [json.dumps({**TINY, "id": "w", **more}) for more in attack.get("changes", ())]
    bodies += attack.get("texts", ())
    async with here(tmp_path) as served:
        for body in bodies:
            answer = await served.ask(
                "POST",
                "/api/workflows",
                body=body.encode(),
                headers={"content-type": "application/json"},
            )
            assert answer.status in attack["expect"], (body[:100], answer.body)
        kept = await served.ask("GET", "/api/workflows/tiny")
        assert kept.json()["workflow"]["nodes"]
    made = [path for path in tmp_path.rglob("*.json") if "workflows" in path.parts]
    assert all(path.parent == tmp_path / "data/workflows" for path in made)
    assert 201 in attack["expect"] or [path.name for path in made] == ["tiny.json"]


def long(name: str) -> str:
    return "x" * int(name[1:-1]) if name.startswith("{") else name


@pytest.mark.parametrize("attack", TABLE.at("pattern"))
async def test_a_pattern_that_is_too_large_is_refused(tmp_path: Path, attack: Attack) -> None:
    async with here(tmp_path) as served, asyncio.timeout(DEADLINE_S):
        for text, times in attack["patterns"]:
            sentinel = {"pattern": text * times, "isRegex": True}
            step = node("c", "condition", kind="sentinel", sentinel=sentinel)
            flow = workflow([START, step], edges("start next c"))
            answer = await served.ask("POST", "/api/workflows", flow)
            assert answer.status in (413, 422), (text, answer.body[:200])


@pytest.mark.parametrize("attack", TABLE.at("match"))
async def test_no_pattern_keeps_the_server_busy(tmp_path: Path, attack: Attack) -> None:
    scripted(
        tmp_path / "data/providers",
        "fake",
        {"do": [{"text": attack["text"] * attack["length"] + "!"}]},
    )
    async with world(tmp_path) as app, asyncio.timeout(DEADLINE_S):
        for pattern in attack["patterns"]:
            looks = node(
                "c",
                "condition",
                kind="sentinel",
                sentinel={"pattern": pattern, "isRegex": True},
                against="{{a.stdout}}",
            )
            asks = node("a", "agent", providerId="fake", prompt="x")
            flow = workflow([START, asks, looks], edges("start next a next c"))
            done = await app.run(flow)
            assert done.scope["c"]["met"] is False, pattern


@pytest.mark.parametrize("attack", TABLE.at("schedule"))
async def test_a_schedule_without_sense_is_refused(tmp_path: Path, attack: Attack) -> None:
    put_workflow(tmp_path / "data", TINY)
    async with here(tmp_path) as served:
        for cron in attack["crons"]:
            made = {"name": "t", "enabled": True, "workflowId": "tiny", "kind": "schedule"}
            answer = await served.ask("POST", "/api/triggers", {**made, "schedule": {"cron": cron}})
            assert answer.status == 400, cron
        assert (await served.ask("GET", "/api/triggers")).json()["triggers"] == []


@pytest.mark.parametrize("attack", TABLE.at("storm"))
async def test_only_so_many_runs_wait(tmp_path: Path, attack: Attack) -> None:
    go = tmp_path / "go"
    held = shell_workflow("held", f"while ! test -e {go}; do sleep 0.05; done")
    put_workflow(tmp_path / "data", held)
    async with here(tmp_path, queue_limit=attack["waiting"], max_concurrent_runs=1) as served:
        asked = [
            await served.ask("POST", "/api/run", {"workflowId": "held"})
            for _ in range(attack["asked"])
        ]
        statuses = [answer.status for answer in asked]
        taken = [answer.json()["runId"] for answer in asked if answer.status == 202]
        assert attack["waiting"] <= len(taken) <= attack["waiting"] + 1
        assert set(statuses) == {202, 503}
        go.touch()
        for run_id in taken:
            await asyncio.to_thread(served.client.finished, run_id)
        assert len(await runs(served)) == len(taken)


@pytest.mark.parametrize("attack", TABLE.at("swap"))
async def test_a_run_goes_on_with_the_workflow_it_began_with(
    tmp_path: Path, attack: Attack
) -> None:
    go, begun = tmp_path / "go", tmp_path / "begun"
    first = f"touch {begun}; while ! test -e {go}; do sleep 0.02; done"
    put_workflow(tmp_path / "data", shell_workflow("w", first, f"touch {tmp_path}/right"))
    async with here(tmp_path) as served, asyncio.timeout(DEADLINE_S):
        asked = await served.ask("POST", "/api/run", {"workflowId": "w"})
        await eventually_async(begun.exists)
        evil = f"cd {tmp_path} && {attack['line']}"
        put_workflow(tmp_path / "data", shell_workflow("w", evil, evil))
        go.touch()
        ended = await asyncio.to_thread(served.client.finished, asked.json()["runId"])
    assert ended["status"] == "succeeded"
    assert (tmp_path / "right").exists()
    assert not_there(tmp_path)


# -- what is written -------------------------------------------------------------------------------


@pytest.mark.parametrize("attack", TABLE.at("flood"))
async def test_a_log_without_end_has_a_bound_and_stays_a_chain(
    tmp_path: Path, attack: Attack
) -> None:
    async with (
        open_audit_log(tmp_path, max_bytes=attack["bytes"], max_files=attack["files"]) as log,
        asyncio.TaskGroup() as group,
    ):
        for number in range(attack["entries"]):
            name = f"{number} {'x' * 200}"
            group.create_task(log.record("login.failed", Actor("open"), details={"name": name}))
    files = list(tmp_path.glob("audit*.jsonl"))
    assert len(files) == attack["files"]
    assert sum(file.stat().st_size for file in files) <= attack["bytes"] * attack["files"]
    verdict = verify(tmp_path)
    assert verdict.flaw is None
    assert verdict.entries > 100


@pytest.mark.parametrize("attack", TABLE.at("full"))
async def test_what_cannot_be_recorded_is_not_done(tmp_path: Path, attack: Attack) -> None:
    for put in attack["puts"]:
        folder = tmp_path / Path(put).name
        put_workflow(folder / "data", TINY)
        async with here(folder) as served:
            assert (await served.ask("POST", "/api/workflows", {**TINY, "id": "a"})).status == 201
            log = folder / "data/audit/audit.jsonl"
            log.unlink()
            if put == "directory":
                log.mkdir()
            else:
                log.symlink_to(put)
            requests: list[tuple[str, str, Any]] = [
                ("POST", "/api/workflows", {**TINY, "id": "b"}),
                ("DELETE", "/api/workflows/tiny", None),
                ("POST", "/api/run", {"workflowId": "tiny"}),
                ("POST", "/api/triggers", {"name": "t", "enabled": True, "workflowId": "tiny"}),
            ]
            for request in requests:
                assert (await served.ask(*request)).status >= 500, request
            assert (await served.ask("GET", "/api/workflows/b")).status == 404
            assert (await served.ask("GET", "/api/workflows/tiny")).status == 200
            assert (await served.ask("GET", "/api/triggers")).json()["triggers"] == []
            assert await runs(served) == []


@pytest.mark.parametrize("attack", TABLE.at("edit"))
async def test_a_log_that_was_changed_names_the_line(
    tmp_path: Path, attack: Attack, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setenv("INFLOOP_DATA_DIR", str(tmp_path))
    async with open_audit_log(tmp_path / "audit") as log:
        for number in range(6):
            await log.record("login.failed", Actor("open"), details={"number": number})
    file = tmp_path / "audit/audit.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    changed = lines[attack["line"] - 1].replace(*attack["replace"]) if attack["replace"] else ""
    lines[attack["line"] - 1] = changed
    assert await asyncio.to_thread(infloop, ["audit", "--verify"]) == 0
    file.write_text("".join(lines))
    assert await asyncio.to_thread(infloop, ["audit", "--verify"]) == 1
    said = capsys.readouterr()
    assert f"line {attack['line']}" in said.out + said.err


@pytest.mark.parametrize("attack", TABLE.at("odd"))
async def test_a_value_that_is_no_text_is_one_line_of_json(tmp_path: Path, attack: Attack) -> None:
    odd = {"surrogate": "\ud800", "bytes": b"\xff\xfe".decode("utf-8", "surrogateescape")}
    async with open_audit_log(tmp_path) as log:
        for value in attack["values"]:
            said = odd.get(value, value)
            await log.record("login.failed", Actor("open"), details={"value": said, said: 1})
    kept = (tmp_path / "audit.jsonl").read_bytes()
    lines = kept.split(b"\n")
    assert lines.pop() == b""
    assert [json.loads(line)["event"] for line in lines] == ["login.failed"] * len(attack["values"])
    assert not set(kept) & {0, 0x1B, 0x0D, 0xFF}
    assert verify(tmp_path).flaw is None
