"""A real browser in a step of a run: it works inside the fence, and no page leads it out."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from support.attack_tables import Attack, AttackTable
from support.canaries import place
from support.confinement import need_bubblewrap, need_guard
from support.parts import need_program, ruled_out
from support.runs import World, world
from support.server import workflow
from support.thorough import FACTOR

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

# Not `chromium`: that one listens on a Unix socket, which no confined child can have.
BROWSER = "chromium-headless-shell"
USER = "nobody" if os.geteuid() == 0 else ""
TABLE = AttackTable("browser")
# Asked for by a script, so that its server knows that the page was more than fetched.
RENDERED = """<script>
const ask = new XMLHttpRequest()
ask.open("GET", "/rendered", false)
ask.send()
</script>
"""
METADATA = "169.254.169.254"
SWITCHES = {"sandbox": "--no-sandbox", "guard": "--no-sandbox --disable-dev-shm-usage"}
REFUSALS = {
    "sandbox": {"ERR_CONNECTION_REFUSED", "ERR_INTERNET_DISCONNECTED"},
    "guard": {"ERR_NETWORK_ACCESS_DENIED"},
}
"""How a browser calls it when the fence holds: at `sandbox` there is nobody, and no way."""

pytestmark = pytest.mark.browser
levels = pytest.mark.parametrize("level", ["sandbox", "guard"])


def test_every_row_is_tried() -> None:
    TABLE.check()


class Scene:
    """A workspace two directories deep in a place that belongs to the same user."""

    def __init__(self, top: Path, level: str) -> None:
        self.level = level
        self.browser = need_program(BROWSER)
        self.here: World
        self.outside = top / "outside"
        self.workspace = self.outside / "between/workspace"
        self.workspace.mkdir(parents=True)
        (self.outside / "victim.png").write_text("intact")
        if USER:
            for path in (self.outside, *self.outside.rglob("*")):
                shutil.chown(path, USER)

    async def browse(self, switch: str, page: Server, **more: Any) -> str:
        """Let a step open a page whose server is allowed; return what the browser says of it."""
        line = f"{self.browser} {SWITCHES[self.level]} {switch} --virtual-time-budget=5000"
        line += f" --log-net-log=network.json http://127.0.0.1:{page.port}/"
        fence = {"egress": "allowlist", "allowLocal": [page.port], **more}
        ended = await self.here.run(workflow("w", line, **fence))
        assert ended.status == "succeeded", ended.said("stderr")
        assert "/rendered" in page.asked
        page.asked.clear()
        return ended.said("stderr")

    def make(self, attack: Attack) -> None:
        """Run the shell line that comes before an attack."""
        subprocess.run(["/bin/sh", "-c", attack.get("make", "")], cwd=self.workspace, check=True)

    def around(self) -> dict[str, bytes]:
        """The files outside of the workspace."""
        files = [path for path in self.outside.iterdir() if path.is_file()]
        return {path.name: path.read_bytes() for path in files}

    def requests(self, to: str) -> dict[str, str]:
        """What the browser asked a server for, by path, and why it failed if it did."""
        log = json.loads((self.workspace / "network.json").read_text())
        kind = log["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"]
        reasons = {number: name for name, number in log["constants"]["netError"].items()}
        urls: dict[int, str] = {}
        ended: dict[str, str] = {}
        for event in (each for each in log["events"] if each["type"] == kind):
            request, said = event["source"]["id"], event.get("params", {})
            if "url" in said:
                urls[request] = said["url"]
            else:
                ended[urls[request]] = reasons.get(said.get("net_error"), "")
        return {urlsplit(url).path: reason for url, reason in ended.items() if to in url}


@pytest.fixture
async def scene(level: str) -> AsyncIterator[Scene]:
    if level == "sandbox":
        need_bubblewrap()
    else:
        need_guard()
    with place() as top:
        scene = Scene(top, level)
        settings = {"isolation": level, "service_user": USER, "snapshots": False}
        async with world(top, **settings) as scene.here:
            scene.here.folder = scene.workspace
            yield scene


class Server:
    """A server on loopback that answers everything alike and knows what it was asked for."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.asked: list[str] = []


@contextmanager
def serving(answer: str, address: str = "127.0.0.1") -> Iterator[Server]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.asked.append(self.path)
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer.encode())

        def log_message(self, *_: object) -> None:
            pass

    class Listening(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in address else socket.AF_INET

    try:
        listening = Listening((address, 0), Answer)
    except OSError as error:
        ruled_out(f"nobody can listen on {address}: {error}")
    server = Server(listening.server_address[1])
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()


# Where a page leads


@levels
@pytest.mark.thorough
@pytest.mark.parametrize("attack", TABLE.at("local"))
async def test_a_page_leads_to_no_server_that_is_not_allowed(scene: Scene, attack: Attack) -> None:
    with (
        serving("reached", attack.get("address", "127.0.0.1")) as canary,
        serving(RENDERED + attack["page"].replace("{P}", str(canary.port))) as page,
    ):
        await scene.browse("--dump-dom", page)
        refused = scene.requests(f":{canary.port}/")
        assert canary.asked == []
        assert set(refused) == set(attack["asks"])
        assert set(refused.values()) <= REFUSALS[scene.level]
        if FACTOR:  # The same page gets there where it may: what refused it was the fence.
            await scene.browse("--dump-dom", page, egress="open")
            assert set(canary.asked) == set(attack["asks"])


@levels
@pytest.mark.parametrize("attack", TABLE.at("metadata"))
async def test_a_page_leads_to_no_address_of_a_cloud(scene: Scene, attack: Attack) -> None:
    with serving(RENDERED + attack["page"]) as page:
        await scene.browse("--dump-dom", page)
    refused = scene.requests(f"//{METADATA}/")
    assert set(refused) == set(attack["asks"])
    assert set(refused.values()) <= REFUSALS[scene.level]


# What it writes


@levels
@pytest.mark.thorough
@pytest.mark.parametrize("attack", TABLE.at("picture"))
async def test_a_picture_of_a_page_is_written_nowhere_outside(scene: Scene, attack: Attack) -> None:
    scene.make(attack)
    before = scene.around()
    switch = f"--screenshot={attack['path']}"
    with serving(RENDERED) as page:
        said = await scene.browse(switch, page)
        assert f"file {attack['path']}" in said
        assert scene.around() == before
        if FACTOR:
            await scene.browse(switch, page, writePaths=[str(scene.outside)])
            assert scene.around() != before


@levels
async def test_a_picture_of_a_page_is_written_in_the_workspace(scene: Scene) -> None:
    with serving(RENDERED + "<h1>a title</h1>") as page:
        said = await scene.browse("--screenshot=page.png", page)
    assert (scene.workspace / "page.png").read_bytes().startswith(b"\x89PNG")
    assert "Fontconfig" not in said
