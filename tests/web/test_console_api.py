"""What the console asks of the API: problems on their nodes, forms, references, pages of a log."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.eventually import eventually, eventually_async
from support.server import (
    TOKEN,
    Client,
    Events,
    Process,
    here,
    infloop,
    process,
    put_workflow,
    workflow,
)
from support.workflows import edges, node
from support.workflows import workflow as graph


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("console")
    put_workflow(folder / "data", workflow("tiny", "echo one", "echo two"))
    with process(folder, api_token=TOKEN) as made:
        yield made


@pytest.fixture
def client(served: Process) -> Client:
    return served.client


# -- problems ---------------------------------------------------------------------------------


def test_a_problem_names_its_node_edge_and_field(client: Client) -> None:
    asking = {"id": "fix me", "type": "agent", "config": {"providerId": "nobody", "timeoutMs": -1}}
    looped = {"id": "loop-1", "type": "loop", "children": [asking], "config": {}}
    content = {
        "id": "wrong",
        "name": "Wrong",
        "inputs": [{"name": "n", "type": "number", "default": "many"}],
        "nodes": [{"id": "start", "type": "start"}, looped, {"id": "odd", "type": "weather"}],
        "edges": [
            {"source": "start", "target": "loop-1"},
            {"id": "e2", "source": "loop-1", "sourceHandle": "never", "target": "nowhere"},
        ],
    }
    found = {
        (each["nodeId"], each["edge"], each["field"])
        for each in client.post("/api/workflows/check", content).json()["problems"]
    }
    assert {
        ("fix me", None, "config.prompt"),
        ("fix me", None, "config.providerId"),
        ("fix me", None, "config.timeoutMs"),
        ("odd", None, ""),
        (None, 1, "target"),
        (None, 1, "sourceHandle"),
        (None, None, "inputs[0].default"),
    } <= found


def test_a_problem_of_a_called_workflow_is_on_no_node_of_the_caller(
    served: Process, client: Client
) -> None:
    called = graph(
        [node("start", "start"), node("asks", "agent")], edges("start next asks"), "called"
    )
    put_workflow(served.data, called)
    calls = node("asks", "subworkflow", workflowId="called")
    caller = graph([node("start", "start"), calls], edges("start next asks"))
    problems = client.post("/api/workflows/check", caller).json()["problems"]
    inside = [each for each in problems if "called" in each["place"]]
    assert inside
    assert all((each["nodeId"], each["field"]) == (None, "") for each in inside)


def test_checking_saving_and_reading_answer_the_same_problems(client: Client) -> None:
    content = graph([node("start", "start"), node("a", "agent")], edges("start next a"), "same")
    checked = client.post("/api/workflows/check", content).json()["problems"]
    saved = client.post("/api/workflows", content).json()
    changed = client.ask("PUT", "/api/workflows/same", saved["workflow"]).json()
    loaded = client.get("/api/workflows/same").json()

    def about(problems: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return [(each["nodeId"], each["field"], each["message"]) for each in problems]

    assert about(checked)
    assert set(saved) == set(changed) == set(loaded) == {"workflow", "problems"}
    for other in (saved, changed, loaded):
        assert about(other["problems"]) == about(checked)


def test_a_problem_of_a_loop_file_is_on_the_node_that_it_becomes(
    served: Process, client: Client
) -> None:
    (served.data / "workflows/looped.loop.yaml").write_text(
        "name: Looped\nsteps:\n  - agent: nobody\n    id: fix\n    prompt: Fix it.\n"
    )
    problems = client.get("/api/workflows/looped").json()["problems"]
    assert [(each["nodeId"], each["field"]) for each in problems] == [("fix", "config.providerId")]


# -- the log of a run -------------------------------------------------------------------------


def test_a_log_is_read_from_its_end_and_by_step(client: Client) -> None:
    log = f"/api/runs/{client.run('tiny')['runId']}/log"
    whole = client.get(log).json()["events"]
    backwards: list[dict[str, Any]] = []
    before: int | None = (1 << 62) - 1
    pages = 0
    while before is not None:
        page = client.get(f"{log}?before={before}&limit=2").json()
        assert [each["seq"] for each in page["events"]] == sorted(
            each["seq"] for each in page["events"]
        )
        backwards[:0] = page["events"]
        before, pages = page["previous"], pages + 1
    assert backwards == whole
    assert pages > 2
    for query in ("step=c2", f"step=c2&before={(1 << 62) - 1}"):
        inside = client.get(f"{log}?{query}").json()["events"]
        assert inside == [each for each in whole if each.get("stepPath") == "c2"]
        assert "two\n" in [each.get("line") for each in inside]


def put_agent(data: Path, *actions: dict[str, Any]) -> None:
    """An agent that does what the actions say."""
    folder = data / "providers"
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {"id": "bot", "label": "Bot", "description": "scripted", "transport": "scripted"}
    (folder / "bot.json").write_text(json.dumps({**manifest, "script": "bot.turns"}))
    (folder / "bot.turns").write_text(json.dumps({"turns": [{"do": list(actions)}]}))


def test_a_tool_call_is_structured_in_log_and_stream_and_holds_no_secret(
    served: Process, client: Client
) -> None:
    put_agent(
        served.data,
        {"text": "I look."},
        {"shell": f"echo {TOKEN}"},
        {"replace": "missing", "old": "a", "new": "b"},
    )
    asks = node("a", "agent", providerId="bot", prompt="go")
    put_workflow(served.data, graph([node("start", "start"), asks], edges("start next a"), "asks"))
    run = client.run("asks")
    assert run["status"] == "succeeded", run
    path = f"/api/runs/{run['runId']}"
    logged = [each for each in client.get(f"{path}/log").json()["events"] if "tool" in each]
    with Events(client, f"{path}/events") as stream:
        streamed = [each for each in stream if "tool" in each]
    assert streamed == logged
    assert [each["tool"] for each in logged] == [
        {"id": "1.1", "name": "Bash", "phase": "start", "kind": "tool", "failed": False},
        {"id": "1.1", "name": "Bash", "phase": "end", "kind": "tool", "failed": False},
        {"id": "1.2", "name": "Edit", "phase": "start", "kind": "tool", "failed": False},
        {"id": "1.2", "name": "Edit", "phase": "end", "kind": "tool", "failed": True},
    ]
    assert all(each["stream"] == "tool" and each["stepPath"] == "a" for each in logged)
    assert logged[0]["line"].startswith("[tool: Bash] echo ")
    assert TOKEN not in json.dumps(logged)


def test_a_run_says_where_it_is_whichever_process_drives_it(
    served: Process, client: Client
) -> None:
    waits = node("wait", "command", cmd="echo begun; sleep 600", timeoutMs=0)
    looped = graph(
        [node("start", "start"), node("rounds", "loop", [waits], maxIterations=3)],
        edges("start next rounds"),
        "slow",
        limits={"maxCostUsd": 5},
    )
    put_workflow(served.data, looped)
    begun_after = int(time.time() * 1000) - 1_000
    infloop(served.folder, "run", "slow", "--detach")
    asked = client.post("/api/run", {"workflowId": "slow"}).json()["runId"]

    listed = "/api/runs?workflowId=slow&activity=true"

    def at_work() -> list[dict[str, Any]] | None:
        runs: list[dict[str, Any]] = client.get(listed).json()["runs"]
        return runs if len(runs) == 2 and all(each["openSteps"] for each in runs) else None

    runs = eventually(at_work)
    assert {each["cause"].get("kind", "cli") for each in runs} == {"cli", "api"}
    for run in runs:
        (step,) = run["openSteps"]
        assert (step["path"], step["nodeId"], step["nodeType"]) == (
            "rounds[1]/wait",
            "wait",
            "command",
        )
        assert run["rounds"] == {"rounds": 1}
        assert (run["maxCostUsd"], run["waiting"]) == (5, None)
        assert begun_after <= step["startedAt"] <= run["lastSignAt"]
        assert client.get(f"/api/runs/{run['runId']}").json()["run"]["openSteps"] == [step]
        client.post(f"/api/runs/{run['runId']}/cancel")
        ended = client.finished(run["runId"])
        assert (ended["openSteps"], ended["rounds"], ended["lastSignAt"]) == ([], {}, None)
    assert asked in [run["runId"] for run in runs]


# -- triggers and the audit log ---------------------------------------------------------------


def test_the_deliveries_of_a_trigger_say_what_became_of_each(client: Client) -> None:
    wanted = [{"lhs": "{{body.go}}", "op": "==", "rhs": "yes"}]
    hook = {"name": "hook", "enabled": True, "workflowId": "tiny", "match": wanted}
    made = client.post("/api/triggers", {**hook, "pluginId": "generic", "verifyOptional": True})
    assert made.status == 201, made.body
    trigger = made.json()["trigger"]
    address = f"/api/webhook/{trigger['id']}"
    queued = client.post(address, {"go": "yes"})
    assert queued.status == 202
    assert client.post(address, {"go": "no"}).status == 204
    found = client.get(f"/api/triggers/{trigger['id']}/deliveries").json()["deliveries"]
    assert [(each["verdict"], each["status"]) for each in found] == [
        ("ignored", 204),
        ("queued", 202),
    ]
    assert found[0]["runId"] is None
    assert found[1]["correlationId"] == queued.json()["correlationId"]
    assert client.finished(found[1]["runId"])["status"] == "succeeded"
    assert all(each["at"] > 1_700_000_000_000 and each["count"] == 1 for each in found)
    assert (
        len(client.get(f"/api/triggers/{trigger['id']}/deliveries?limit=1").json()["deliveries"])
        == 1
    )
    assert client.get("/api/triggers/aaaaaaaaaaaaaaaaaaaaaa/deliveries").status == 404


def test_a_request_with_a_wrong_signature_is_a_refused_delivery(client: Client) -> None:
    hook = {"name": "signed", "enabled": True, "workflowId": "tiny", "pluginId": "github"}
    secret = "s" * 40
    made = client.post("/api/triggers", {**hook, "eventType": "issues", "secret": secret})
    name = made.json()["trigger"]["id"]
    assert client.post(f"/api/webhook/{name}", {}).status == 401
    path = f"/api/triggers/{name}/deliveries"
    (refused,) = eventually(lambda: client.get(path).json()["deliveries"])  # noted afterwards
    assert (refused["verdict"], refused["status"], refused["runId"]) == ("refused", 401, None)
    assert refused["reason"]


def test_a_trigger_has_a_mark_that_is_no_credential_and_its_next_time(client: Client) -> None:
    schedule = {"cron": "30 9 * * 1-5", "timeZone": "UTC", "misfire": "skip"}
    content = {"name": "daily", "enabled": True, "workflowId": "tiny", "kind": "schedule"}
    trigger = client.post("/api/triggers", {**content, "schedule": schedule}).json()["trigger"]
    assert trigger["nextAt"] % 86_400_000 == (9 * 60 + 30) * 60_000
    assert trigger["mark"] not in trigger["id"]
    assert trigger["mark"].isalnum()
    off = client.ask("PUT", f"/api/triggers/{trigger['id']}", {**trigger, "enabled": False})
    assert off.status == 200, off.body
    assert (off.json()["trigger"]["nextAt"], off.json()["trigger"]["mark"]) == (
        None,
        trigger["mark"],
    )
    (entry,) = client.get("/api/audit?event=trigger.changed&limit=1").json()["entries"]
    assert entry["details"]["trigger"] == f"#{trigger['mark']}"


def test_the_audit_log_is_read_page_by_page(client: Client) -> None:
    for number in range(3):
        client.post("/api/workflows", workflow(f"paged-{number}", "true"))
    path = "/api/audit?event=workflow"
    whole = client.get(path).json()["entries"]
    paged: list[dict[str, Any]] = []
    before: str | None = ""
    while before is not None:
        page = client.get(f"{path}&limit=2&before={before}").json()
        paged, before = paged + page["entries"], page["next"]
    assert len(whole) > 2
    assert paged == whole
    assert client.get(f"{path}&before=unknown").json()["entries"] == []


# -- the demo and the doctor ------------------------------------------------------------------


def test_the_demo_turns_its_tests_green_and_replaces_nothing(
    served: Process, client: Client
) -> None:
    (served.folder / "home").mkdir(exist_ok=True)
    asked = client.post("/api/demo")
    assert (asked.status, asked.json()["workflowId"]) == (202, "fix-tests"), asked.body
    second = client.post("/api/demo")
    assert (second.status, second.json()["error"]) == (409, "demo-running")
    run = client.finished(asked.json()["runId"])
    assert run["status"] == "succeeded", run
    changed = client.get(f"/api/runs/{run['runId']}/changes").json()["directories"]
    assert [each["path"] for one in changed for each in one["files"]] == ["slugs.py"]
    assert (served.folder / "home/infloop-demo/fix-tests-1/slugs.py").exists()
    own = client.get("/api/workflows/fix-tests").json()["workflow"]
    saved = client.ask("PUT", "/api/workflows/fix-tests", {**own, "name": "Mine"})
    assert saved.status == 200
    again = client.post("/api/demo").json()
    assert client.get("/api/workflows/fix-tests").json()["workflow"]["name"] == "Mine"
    client.post(f"/api/runs/{again['runId']}/cancel")
    client.finished(again["runId"])
    (entry, _) = client.get("/api/audit?event=demo.started").json()["entries"]
    assert entry["actor"]["kind"] == "api-token"


async def test_a_level_is_attacked_in_the_background_once_and_only_for_a_person(
    tmp_path: Path,
) -> None:
    async with here(tmp_path) as served:
        refused = await served.ask("POST", "/api/doctor/attack", {"level": "container"})
        assert (refused.status, refused.json()["error"]) == (403, "token-needed")
        assert (await served.ask("GET", "/api/doctor/attack")).json() == {"attack": None}
    async with here(tmp_path, api_token=TOKEN) as served:
        unknown = await served.ask("POST", "/api/doctor/attack", {"level": "none"})
        assert unknown.status == 400
        begun = await served.ask("POST", "/api/doctor/attack", {"level": "container"})
        assert begun.status == 202
        attack = begun.json()["attack"]
        assert (attack["level"], attack["state"], attack["report"]) == (
            "container",
            "running",
            None,
        )

        async def ended() -> dict[str, Any] | None:
            attack: dict[str, Any] = (await served.ask("GET", "/api/doctor/attack")).json()
            return attack["attack"] if attack["attack"]["state"] != "running" else None

        attack = await eventually_async(ended, within_s=150)
        assert attack["state"] == "done", attack
        assert attack["report"]["level"] == "container"
        assert attack["report"]["findings"] or attack["report"]["error"]
        (entry,) = (await served.ask("GET", "/api/audit?event=doctor")).json()["entries"]
        assert entry["details"] == {"level": "container"}
        asked = [served.ask("POST", "/api/doctor/attack", {"level": "host"}) for _ in "ab"]
        assert sorted(answer.status for answer in await asyncio.gather(*asked)) == [202, 409]


# -- references -------------------------------------------------------------------------------

ROUNDS = [node("fix", "agent", prompt="go"), node("check", "condition")]
FLOW = graph(
    [
        node("start", "start"),
        node("plan", "agent", prompt="go"),
        node("if", "branch", lhs="a", rhs="b"),
        node("yes", "script", outputs=["found"]),
        node("no", "agent", prompt="go"),
        node("loop", "loop", ROUNDS),
        node("both", "parallel", [node("left", "agent"), node("right", "agent")]),
        node("end", "agent", prompt="go"),
        node("apart", "agent", prompt="go"),
    ],
    edges(
        "start next plan next if true yes next loop next both all_done end",
        "if false no next loop",
        "fix next check",
    ),
    inputs=[{"name": "goal", "type": "string"}],
    globals={"site": "x"},
)


def offered(client: Client, node_id: str) -> dict[str, bool]:
    answer = client.post(f"/api/workflows/references?node={node_id}", FLOW)
    assert answer.status == 200, answer.body
    return {each["ref"]: each["certain"] for each in answer.json()["references"]}


@pytest.mark.parametrize(
    ("node_id", "certain", "possible", "never"),
    [
        ("start", ["inputs.goal", "globals.site"], [], ["plan.stdout", "end.stdout"]),
        ("yes", ["plan.stdout", "if.result"], [], ["no.stdout", "loop.iterations", "yes.found"]),
        ("fix", ["plan.result"], ["yes.found", "no.stdout", "check.stdout", "fix.result"],
         ["loop.iterations", "end.stdout", "left.stdout"]),
        ("left", ["loop.iterations", "plan.stdout"], ["fix.stdout"], ["right.stdout", "both.mode"]),
        ("end", ["loop.broke", "both.completed", "both.children.left.status"],
         ["left.stdout", "yes.found"], ["end.stdout"]),
        ("apart", ["inputs.goal"], ["end.stdout", "plan.stdout"], []),
    ],
)  # fmt: skip
def test_only_references_that_can_exist_are_offered(
    client: Client, node_id: str, certain: list[str], possible: list[str], never: list[str]
) -> None:
    found = offered(client, node_id)
    assert {ref: found.get(ref) for ref in certain} == dict.fromkeys(certain, True)
    assert {ref: found.get(ref) for ref in possible} == dict.fromkeys(possible, False)
    assert not set(never) & set(found)


@pytest.mark.parametrize("node_id", ["yes", "fix", "left", "end"])
def test_check_accepts_every_reference_that_is_offered(client: Client, node_id: str) -> None:
    text = " ".join(f"{{{{{ref}}}}}" for ref in offered(client, node_id))
    for each in (*FLOW["nodes"], *ROUNDS, *FLOW["nodes"][6]["children"]):
        if each["id"] == node_id:
            before, each["config"] = each["config"], {"prompt": text, "inputs": {"all": text}}
            problems = client.post("/api/workflows/check", FLOW).json()["problems"]
            each["config"] = before
    assert not [each for each in problems if "can never resolve" in each["message"]]


def test_references_of_an_unknown_node_or_workflow_are_an_error(client: Client) -> None:
    assert client.post("/api/workflows/references?node=none", FLOW).status == 404
    assert client.post("/api/workflows/references", FLOW).status == 400
    answer = client.post("/api/workflows/references?node=a", [])
    assert (answer.status, answer.json()["error"]) == (422, "invalid-workflow")


# -- catalog ----------------------------------------------------------------------------------


def test_the_catalog_says_how_an_editor_shows_each_node_type(client: Client) -> None:
    catalog = client.get("/api/catalog").json()
    nodes = {each["type"]: each for each in catalog["nodes"]}
    stamps = [each["stamp"] for each in nodes.values()]
    assert len(set(stamps)) == len(stamps)
    assert all(len(stamp) == 3 and stamp.isupper() for stamp in stamps)
    assert {name for name, each in nodes.items() if each["container"]} == {"loop", "parallel"}
    assert nodes["agent"]["title"] == "Agent"
    assert nodes["agent"]["group"] == "Agents"
    for each in nodes.values():
        for path in each["summary"]:
            assert property_at(each["config"], path), (each["type"], path)
        for part in each["variants"]:
            assert property_at(each["config"], part), (each["type"], part)
    modes = nodes["parallel"]["handlesBy"]
    assert set(modes["handles"]) == set(property_at(nodes["parallel"]["config"], "mode")["enum"])
    assert {name for handles in modes["handles"].values() for name in handles} == set(
        nodes["parallel"]["handles"]
    )
    sources = catalog["settings"]["sources"]
    assert sources["api_token"] == "environment"
    assert set(sources) == set(catalog["settings"]["values"])


@pytest.mark.parametrize(
    ("kind", "path", "widget"),
    [
        ("agent", "prompt", "text"),
        ("agent", "providerId", "provider"),
        ("agent", "profile", "profile"),
        ("agent", "timeoutMs", "duration"),
        ("agent", "cwd", "directory"),
        ("script", "code", "code"),
        ("command", "cmd", "shell"),
        ("command", "env", "variables"),
        ("condition", "sentinel.pattern", "pattern"),
        ("condition", "command.cmd", "shell"),
        ("subworkflow", "workflowId", "workflow"),
    ],
)
def test_a_field_says_how_a_form_edits_it(
    client: Client, kind: str, path: str, widget: str
) -> None:
    nodes = {each["type"]: each for each in client.get("/api/catalog").json()["nodes"]}
    assert property_at(nodes[kind]["config"], path)["widget"] == widget


def property_at(schema: dict[str, Any], path: str) -> dict[str, Any]:
    """The schema of a field of a configuration."""
    here = schema
    for name in path.split("."):
        here = here["properties"][name]
        if "$ref" in here:
            here = {**schema["$defs"][here["$ref"].rpartition("/")[2]], **here}
    return here
