"""Every decision about a connection is told: in the run, in the audit log, to who counts."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from infloop.app.storage import audit_dir
from infloop.application.health import Load
from infloop.model.audit import AuditFilter
from infloop.model.events import Notice
from infloop.store.audit.reading import newest
from infloop.web.metrics import Metrics
from support import forkserver
from support.eventually import eventually_async
from support.runs import world
from support.service_user import SERVICE_USER, folder_for_children
from support.terminal import on_terminal
from support.workflows import edges, node, workflow

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 55.0
START = node("s", "start")
REFUSED = "refused evil.example:443, not in the allowlist of provider claude"


@contextmanager
def answering() -> Iterator[int]:
    """Serve on loopback; yield the port."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def place() -> Iterator[Path]:
    """Give a folder that the children's user can enter and whose `work` belongs to them."""
    with folder_for_children("work") as made:
        yield made


# -- for people --------------------------------------------------------------------------------


def environment(place: Path, level: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(place),
        "LANG": "C.UTF-8",
        "TERM": "xterm",
        "COLUMNS": "120",
        "LINES": "40",
        "INFLOOP_DATA_DIR": str(place / "data"),
        "INFLOOP_ISOLATION": level,
        "INFLOOP_SERVICE_USER": SERVICE_USER,
        "INFLOOP_SNAPSHOTS": "false",
        "INFLOOP_EGRESS_ENFORCE": "1",
    }


def infloop(place: Path, level: str, *arguments: str) -> str:
    done = forkserver.run(arguments, place / "work", environment(place, level), PATIENCE)
    done.check_returncode()
    return done.stdout


def agent(place: Path) -> str:
    """Make `claude` a script that asks for a host it must not; return a workflow's file."""
    program = place / "agent"
    program.write_text(
        "#!/bin/sh\n/usr/bin/curl -sS --max-time 20 https://evil.example/ 2>&1\n"
        "while [ ! -e go ]; do sleep 0.05; done\n"
    )
    program.chmod(0o755)
    folder = place / "data/providers"
    folder.mkdir(parents=True)
    manifest = {"id": "claude", "label": "It", "description": "asks", "promptVia": "stdin"}
    manifest |= {"bin": str(program), "egressAllowlist": ["api.example"]}  # type: ignore[dict-item]
    (folder / "claude.json").write_text(json.dumps(manifest))
    asks = node("a", "agent", providerId="claude", prompt="go")
    (place / "w.workflow.json").write_text(json.dumps(workflow([START, asks], edges("s next a"))))
    return str(place / "w.workflow.json")


@pytest.mark.parametrize("level", ["guard", "sandbox"])
def test_a_refusal_is_told_on_the_terminal_in_the_logs_and_by_why(place: Path, level: str) -> None:
    command = ("run", agent(place))
    with on_terminal(command, place / "work", environment(place, level)) as terminal:
        terminal.read_until(f"warning: [egress] {REFUSED}")
        (place / "work/go").touch()
        assert terminal.end() == 0
    assert f"a  warning: [egress] {REFUSED}\n" in infloop(place, level, "logs", "last")
    assert f"warning: [egress] {REFUSED}\n" in infloop(place, level, "why", "last")
    audit = infloop(place, level, "audit", "--json", "--event", "egress")
    (entry,) = map(json.loads, audit.splitlines())
    assert entry["event"] == "egress.refused"
    assert entry["outcome"] == "not in the allowlist of provider claude"
    where = {"path": "a", "host": "evil.example", "port": 443, "count": 1}
    assert where.items() <= entry["details"].items()


# -- for programs ------------------------------------------------------------------------------

MANY = """
import os, urllib.error, urllib.request
def run(here):
    for name in ("NO_PROXY", "no_proxy"):
        os.environ.pop(name, None)
    def ask(url):
        try:
            return urllib.request.urlopen(url, timeout=20).status
        except urllib.error.HTTPError as error:
            return error.code
    asked = [ask(here) for _ in range(30)]
    asked += [ask("http://evil.example/") for _ in range(20)]
    asked += [ask(f"http://n{number}.evil.example/") for number in range(80)]
    return {"statuses": asked}
"""


async def test_every_decision_is_counted_and_no_child_can_fill_a_log(tmp_path: Path) -> None:
    metrics = Metrics()
    with answering() as port:
        settings = {"egress_enforce": True, "egress_allowlist": f"127.0.0.1:{port}"}
        script = node("f", "script", language="py", code=MANY, outputs=["statuses"])
        script["config"]["inputs"] = {"here": f"http://127.0.0.1:{port}/"}
        async with world(tmp_path, **settings) as here:
            here.service.event_bus.subscribe(metrics.watch)
            ended = await here.run(workflow([START, script], edges("s next f")))
            await here.service.settle_audit()
            found = newest(audit_dir(here.settings), AuditFilter(event="egress"), 1_000).entries
    assert ended.status == "succeeded", ended.result
    assert json.loads(ended.scope["f"]["statuses"]) == [204] * 30 + [403] * 100
    allowed = [entry for entry in found if entry.event == "egress.allowed"]
    refused = [entry for entry in found if entry.event == "egress.refused"]
    assert sum(entry.details["count"] for entry in allowed) == 30  # type: ignore[misc]
    assert sum(entry.details["count"] for entry in refused) == 100  # type: ignore[misc]
    assert {entry.run_id for entry in found} == {ended.run_id}
    assert allowed[0].outcome == "in the allowlist of the operator"
    assert len({str(entry.details["host"]) for entry in refused}) < 60
    notices = [event for event in ended.events if isinstance(event, Notice)]
    assert 40 < len(notices) < 60
    page = metrics.page(Load(live_runs=0, queued_runs=0, cost_usd=0.0), streams=0).decode()
    assert 'infloop_egress_refused_total{reason="not-listed"} 100.0' in page
    assert "infloop_egress_allowed_total 30.0" in page


async def test_who_listens_to_all_runs_is_told_what_was_refused(tmp_path: Path) -> None:
    heard: list[Any] = []
    code = MANY.replace("range(30)", "()").replace("range(80)", "()")
    async with world(tmp_path, egress_enforce=True) as here:
        here.service.event_bus.subscribe(heard.append)
        script = node("f", "script", language="py", code=code, inputs={"here": ""})
        ended = await here.run(workflow([START, script], edges("s next f")))
    told = [said for said in heard if isinstance(said, dict)]
    first, *rest = told
    assert (first["type"], first["runId"], first["count"]) == ("egress_decided", ended.run_id, 1)
    assert (first["host"], first["port"], first["nodeId"]) == ("evil.example", 80, "f")
    assert (first["verdict"], first["why"]) == ("refused", "not-listed")
    assert first["reason"] == "no host is listed"
    assert sum(said["count"] for said in rest) == 19


# -- failing closed ----------------------------------------------------------------------------


def settings_of(level: str) -> dict[str, Any]:
    confined = {"service_user": SERVICE_USER, "python_bin": "/usr/bin/python3"}
    return {
        "isolation": level,
        "snapshots": False,
        "egress_enforce": True,
        **(confined if level != "host" else {}),
    }


def listeners() -> set[int]:
    """Return the inodes of the sockets that this process listens on, in whatever network."""
    found = set()
    for name in (entry.name for entry in Path("/proc/self/fd").iterdir()):
        try:
            with socket.socket(fileno=os.dup(int(name))) as copy:
                if copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    found.add(os.fstat(int(name)).st_ino)
        except OSError:
            continue
    return found


def shut(inode: int) -> None:
    """Let a listener of this process break."""
    for name in (entry.name for entry in Path("/proc/self/fd").iterdir()):
        try:
            if os.fstat(int(name)).st_ino == inode:
                with socket.socket(fileno=os.dup(int(name))) as copy:
                    copy.shutdown(socket.SHUT_RDWR)
                return
        except OSError:
            continue


def going_on(code: str) -> dict[str, Any]:
    """A script's workflow that would go on although the script failed."""
    script = node("w", "script", language="py", code=code)
    onward = node("e", "end")
    return workflow([START, script, onward], edges("s next w next e", "w error e"))


WAITS = "import pathlib, time\ndef run():\n    pathlib.Path('up').touch()\n    time.sleep(60)\n"

FLOODS = """
import os, pathlib, socket, time, urllib.parse
def run():
    address = urllib.parse.urlsplit(os.environ["HTTP_PROXY"])
    held = []
    while True:
        held.append(socket.create_connection((address.hostname, address.port), timeout=20))
"""


@pytest.mark.parametrize("level", ["guard", "sandbox"])
async def test_a_proxy_that_dies_ends_its_confined_child_and_fails_the_run(
    place: Path, level: str
) -> None:
    async with world(place, **settings_of(level)) as here:
        before = listeners()
        run_id = await here.start(going_on(WAITS))
        await eventually_async((here.folder / "up").exists)
        (mine,) = listeners() - before
        shut(mine)
        ended = await here.finish(run_id)
    assert ended.status == "failed", "although the step has an edge for its error"
    assert "the proxy of this run stopped" in ended.result.error


@pytest.mark.parametrize("level", ["host", "guard", "sandbox"])
async def test_a_child_that_overloads_its_proxy_fails_its_run(place: Path, level: str) -> None:
    async with world(place, **settings_of(level)) as here:
        ended = await here.run(going_on(FLOODS))
    assert ended.status == "failed", "although the step has an edge for its error"
    assert "it is overloaded: there are too many connections at once" in ended.result.error
    warnings = [e.message for e in ended.events if isinstance(e, Notice) and e.level == "warning"]
    assert warnings == ["[egress] refused a connection, there are too many connections at once"]


# Puts on a Landlock domain in which nobody may bind a TCP port, then becomes what it is told.
WITHOUT_LISTENING = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
bind_tcp = struct.pack("=QQ", 0, 1)
rules = libc.syscall(444, bind_tcp, len(bind_tcp), 0)
assert rules >= 0 and libc.prctl(38, 1, 0, 0, 0) == 0 and libc.syscall(446, rules, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.claim("I42")
@pytest.mark.parametrize("level", ["host", "guard", "sandbox"])
def test_a_proxy_that_cannot_start_fails_the_run(place: Path, level: str) -> None:
    file = place / "w.workflow.json"
    check = node("c", "condition", kind="command", command={"cmd": "touch ran"})
    after = node("e", "end")
    file.write_text(json.dumps(workflow([START, check, after], edges("s next c", "c error e"))))
    infloop(place, level, "run", str(file))  # by now it is known what holds on this machine
    (place / "work/ran").unlink()
    done = subprocess.run(
        [
            *(sys.executable, "-c", WITHOUT_LISTENING),
            *(sys.executable, "-m", "infloop", "run", str(file)),
        ],
        cwd=place / "work",
        env=environment(place, level),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "the proxy of this run cannot start" in done.stdout
    assert not (place / "work/ran").exists()
