"""The fence around a run's children, through whole runs."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from infloop.engine.graph import Definition
from infloop.errors import SettingsError, WorkflowError
from infloop.model.events import Cause, Notice, RunResumed, RunStarted, StepStarted
from support.eventually import eventually_async
from support.runs import Finished, World, scripted, world
from support.service_user import CHILD_UID, SERVICE_USER, folder_for_children
from support.workflows import edges, node, workflow

if TYPE_CHECKING:
    from collections.abc import Iterator

START = node("s", "start")

FETCH = """
import os, urllib.request, urllib.error
def run(url):
    for name in ("NO_PROXY", "no_proxy"):  # which keep loopback out, where the tests' servers are
        os.environ.pop(name, None)
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return {"status": answer.status}
    except urllib.error.HTTPError as error:
        return {"status": error.code}
    except OSError as error:
        return {"status": 0, "error": str(error)}
"""


@contextmanager
def upstream() -> Iterator[tuple[int, list[str]]]:
    """Serve on loopback; yield the port and the paths that were asked for."""
    hits: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hits.append(self.path)
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1], hits
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def fetching(url: str, **more: Any) -> dict[str, Any]:
    script = node("f", "script", language="py", code=FETCH, inputs={"url": url}, outputs=["status"])
    return workflow([START, script], edges("s next f"), **more)


def warnings(ended: Finished) -> list[str]:
    found = [r.event for r in ended.recorded if isinstance(r.event, Notice)]
    return [event.message for event in found if event.level == "warning"]


@pytest.mark.claim("I44")
async def test_without_the_setting_no_proxy_is_put_in_a_childs_way(tmp_path: Path) -> None:
    with upstream() as (port, hits):
        async with world(tmp_path, isolation="host") as here:
            ended = await here.run(fetching(f"http://127.0.0.1:{port}/a"))
    assert ended.scope["f"]["status"] == "200", ended.scope
    assert hits == ["/a"]
    assert isinstance(ended.recorded[0].event, RunStarted)
    assert ended.recorded[0].event.egress == "open"


@pytest.mark.claim("I39", "I40")
async def test_with_the_setting_a_child_reaches_only_what_is_listed_and_the_run_tells(
    tmp_path: Path,
) -> None:
    with upstream() as (port, hits):
        listed = f"127.0.0.1:{port}"
        for allowlist, status in (("", "403"), (listed, "200")):
            async with world(
                tmp_path, isolation="host", egress_enforce=True, egress_allowlist=allowlist
            ) as here:
                ended = await here.run(fetching(f"http://127.0.0.1:{port}/{status}"))
            assert ended.scope["f"]["status"] == status, ended.scope
            assert bool(warnings(ended)) == (status == "403")
    assert hits == ["/200"]
    refused = [line for line in warnings(ended) if "refused" in line]
    assert refused == []


async def test_a_workflow_can_close_the_network_and_not_open_it(tmp_path: Path) -> None:
    with upstream() as (port, hits):
        url = f"http://127.0.0.1:{port}/"
        async with world(tmp_path, isolation="host") as here:
            closed = await here.run(fetching(url, egress="none"))
        async with world(tmp_path, isolation="host", egress_enforce=True) as here:
            opened = await here.run(fetching(url, egress="open"))
    assert closed.scope["f"]["status"] == "403"
    assert opened.scope["f"]["status"] == "403"
    assert hits == []
    assert f"refused 127.0.0.1:{port}" in warnings(opened)[0]


async def test_what_the_operator_denies_no_list_allows(tmp_path: Path) -> None:
    with upstream() as (port, hits):
        address = f"127.0.0.1:{port}"
        async with world(
            tmp_path,
            isolation="host",
            egress_enforce=True,
            egress_allowlist=address,
            egress_denylist="127.0.0.1",
        ) as here:
            ended = await here.run(fetching(f"http://{address}/", egressAllowlist=[address]))
    assert ended.scope["f"]["status"] == "403"
    assert hits == []


async def test_a_list_that_is_no_list_is_refused_before_anything_runs(tmp_path: Path) -> None:
    async with world(tmp_path, egress_enforce=True, egress_allowlist="http://x") as here:
        with pytest.raises(WorkflowError, match="http://x"):
            await here.start(fetching("http://127.0.0.1/"))


async def test_a_proxy_that_dies_ends_the_child_and_fails_the_run(tmp_path: Path) -> None:
    waits = "import pathlib, time\ndef run():\n    pathlib.Path('up').touch()\n    time.sleep(60)\n"
    script = node("w", "script", language="py", code=waits)
    onward = node("e", "end")
    stays = workflow([START, script, onward], edges("s next w", "w error e"))
    async with world(tmp_path, isolation="host", egress_enforce=True) as here:
        before = listening()
        run_id = await here.start(stays)
        await eventually_async(lambda: (here.folder / "up").exists())
        (mine,) = set(listening()) - set(before)
        copy = socket.socket(fileno=os.dup(mine))
        copy.shutdown(socket.SHUT_RDWR)
        copy.close()
        ended = await asyncio.wait_for(here.finish(run_id), 20)
    assert ended.result.status == "failed", "although the step has an edge for its error"
    assert "the proxy of this run stopped" in ended.result.error
    assert not [p for p in psutil.process_iter(["cmdline"]) if _is_ours(p, here.folder)]


def listening() -> list[int]:
    """Return the descriptors of this process that listen on loopback."""
    connections = psutil.Process().net_connections("tcp4")
    return [c.fd for c in connections if c.status == "LISTEN" and c.laddr.ip == "127.0.0.1"]


def _is_ours(process: psutil.Process, folder: Path) -> bool:
    try:
        return process.cwd() == str(folder)
    except (psutil.Error, OSError):
        return False


# -- runs that somebody outside causes -------------------------------------------------------

TELLS = node("c", "condition", kind="command", command={"cmd": "echo {{inputs.t}}"})
ENV = node(
    "c", "condition", kind="command", command={"cmd": 'echo "$T"', "env": {"T": "{{inputs.t}}"}}
)
WEBHOOK = Cause("webhook", untrusted=("t",))


def outside(check: dict[str, Any], **more: Any) -> Definition:
    inputs = [{"name": "t", "type": "string"}]
    tree = workflow([START, check], edges("s next c"), inputs=inputs, **more)
    return Definition("w", {"w": tree})


async def test_text_from_outside_never_stands_in_a_shell_line(tmp_path: Path) -> None:
    async with world(tmp_path, isolation="host") as here:
        with pytest.raises(WorkflowError, match=r"command\.cmd"):
            await here.service.start(
                outside(TELLS), {"t": "$(touch owned)"}, workdir=str(here.folder), cause=WEBHOOK
            )
        run_id = await here.service.start(
            outside(ENV), {"t": "$(touch owned)"}, workdir=str(here.folder), cause=WEBHOOK
        )
        ended = await here.finish(run_id)
    assert ended.scope["c"]["stdout"] == "$(touch owned)\n"
    assert not (here.folder / "owned").exists()
    assert ended.recorded[0].event.egress == "allowlist"  # type: ignore[union-attr]


ASKS = node("c", "agent", providerId="fake", prompt="{{inputs.t}}")
JUDGES = node(
    "c",
    "condition",
    kind="judge",
    judge={"rubric": "good?", "agent": "fake"},
    against="{{inputs.t}}",
)


@pytest.mark.parametrize("step", [ASKS, JUDGES], ids=["agent", "judge"])
async def test_text_from_outside_reaches_no_agent_that_is_not_confined(
    tmp_path: Path, step: dict[str, Any]
) -> None:
    scripted(tmp_path / "data/providers", "fake", {"do": [{"text": "MET"}]})
    async with world(tmp_path, isolation="host") as here:
        for rule in ({}, {"untrusted": {"agents": "sandboxed-only"}}):
            with pytest.raises(WorkflowError, match="agents are not confined here") as refused:
                await here.service.start(
                    outside(step, **rule), {"t": "x"}, workdir=str(here.folder), cause=WEBHOOK
                )
            assert '"untrusted": {"agents": "text"}' in str(refused.value)
        opened = outside(step, untrusted={"agents": "text"})
        run_id = await here.service.start(
            opened, {"t": "x"}, workdir=str(here.folder), cause=WEBHOOK
        )
        assert (await here.finish(run_id)).status == "succeeded"


async def test_a_run_is_not_continued_with_less_confinement_than_it_needs(place: Path) -> None:
    confined: dict[str, Any] = {
        "isolation": "guard",
        "service_user": SERVICE_USER,
        "snapshots": False,
    }
    scripted(place / "data/providers", "fake", {"do": [{"delayMs": 600_000}]})
    isolated = node("c", "agent", providerId="fake", prompt="go")
    needs = {
        "agents are not confined here": outside(ASKS),
        "asks for isolation 'guard'": outside(isolated, isolation="guard"),
    }
    runs = {}
    async with world(place, **confined) as here:
        for reason, definition in needs.items():
            run_id = runs[reason] = await here.service.start(
                definition, {"t": "x"}, workdir=str(here.folder), cause=WEBHOOK
            )
            await eventually_async(partial(has_step, here, run_id))
    async with world(place, isolation="host") as here:
        for reason, run_id in runs.items():
            with pytest.raises(WorkflowError, match=reason):
                await here.service.resume(run_id)
            with pytest.raises(WorkflowError, match=reason):
                await here.service.rewind(run_id, "c")
        assert await here.service.store.run_log.count() == len(runs)


async def has_step(here: World, run_id: str) -> bool:
    events = await here.service.store.run_log.events(run_id)
    return any(isinstance(each.event, StepStarted) and each.event.path == "c" for each in events)


async def test_what_came_from_outside_is_still_from_outside_after_a_rewind(tmp_path: Path) -> None:
    async with world(tmp_path, isolation="host") as here:
        run_id = await here.service.start(
            outside(ENV), {"t": "hi"}, workdir=str(here.folder), cause=WEBHOOK
        )
        await here.finish(run_id)
        again = await here.finish(await here.service.rewind(run_id, "c"))
        row = await here.service.store.run_log.run(again.run_id)
    assert (row.cause.kind, row.cause.untrusted) == ("rewind", WEBHOOK.untrusted)
    (resumed,) = [each for each in again.events if isinstance(each, RunResumed)]
    assert resumed.egress == "allowlist"


# -- confined by the kernel ------------------------------------------------------------------


@pytest.fixture
def place() -> Iterator[Path]:
    """Give a folder that the children's user can enter and whose `work` belongs to them."""
    with folder_for_children("work") as made:
        yield made


LOOK = """
import os, pathlib
def run(secret):
    home = pathlib.Path.home()
    try:
        seen = pathlib.Path(secret).read_text()
    except OSError as error:
        seen = type(error).__name__
    pathlib.Path("made.txt").write_text("by the child")
    return {"seen": seen, "uid": os.getuid(), "processes": len(os.listdir("/proc"))}
"""


@pytest.mark.parametrize("level", ["guard", "sandbox"])
async def test_a_run_is_confined_at_the_level_that_the_operator_names(
    place: Path, level: str
) -> None:
    secret = place / "secret.txt"
    secret.write_text("canary")
    secret.chmod(0o644)
    script = node(
        "l",
        "script",
        language="py",
        code=LOOK,
        inputs={"secret": str(secret)},
        outputs=["seen", "uid"],
    )
    settings: dict[str, Any] = {
        "isolation": level,
        "service_user": SERVICE_USER,
        "snapshots": False,
    }
    settings["python_bin"] = "/usr/bin/python3"
    async with world(place, **settings) as here:
        ended = await here.run(workflow([START, script], edges("s next l")))
    assert ended.result.status == "succeeded", ended.result
    assert ended.recorded[0].event.isolation == level  # type: ignore[union-attr]
    assert ended.scope["l"]["seen"] != "canary"
    assert ended.scope["l"]["uid"] == str(CHILD_UID)
    assert (place / "work/made.txt").read_text() == "by the child"


@pytest.mark.parametrize("level", ["guard", "sandbox"])
async def test_a_confined_child_reaches_only_its_proxy(place: Path, level: str) -> None:
    settings: dict[str, Any] = {
        "isolation": level,
        "service_user": SERVICE_USER,
        "snapshots": False,
    }
    settings["python_bin"] = "/usr/bin/python3"
    direct = """
import socket
def run(port):
    try:
        socket.create_connection(("127.0.0.1", int(port)), timeout=5).close()
        return {"direct": "reached"}
    except OSError as error:
        return {"direct": type(error).__name__}
"""
    with upstream() as (port, hits):
        address = f"127.0.0.1:{port}"
        raw = node(
            "r", "script", language="py", code=direct, inputs={"p": port}, outputs=["direct"]
        )
        ask = node("f", "script", language="py", code=FETCH, outputs=["status"])
        ask["config"]["inputs"] = {"url": f"http://{address}/"}
        both = workflow([START, raw, ask], edges("s next r next f"))
        async with world(place, **settings, egress_enforce=True, egress_allowlist=address) as here:
            listed = await here.run(both)
        async with world(place, **settings, egress_enforce=True) as here:
            unlisted = await here.run(both)
    assert listed.scope["r"]["direct"] != "reached"
    assert unlisted.scope["r"]["direct"] != "reached"
    assert (listed.scope["f"]["status"], unlisted.scope["f"]["status"]) == ("200", "403")
    assert hits == ["/"]


async def test_a_service_user_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="nosuchuser"):
        async with world(tmp_path, service_user="nosuchuser"):
            pass


def test_the_shipped_manifest_of_claude_says_how_its_key_is_brokered() -> None:
    from infloop.providers import SHIPPED_DIR

    manifest = json.loads((Path(SHIPPED_DIR) / "claude.json").read_text())
    assert manifest["broker"]["keyVariable"] == "ANTHROPIC_API_KEY"
