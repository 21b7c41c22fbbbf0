"""The tools of a browser, through the gate, with a real browser."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import struct
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from infloop.egress.websocket import WebSocket
from infloop.errors import EgressError
from infloop.sandbox.levels.host import HostSandbox
from infloop.tools.base import ToolError
from infloop.tools.browser.browser_tool import NOT_STARTED
from infloop.tools.browser.devtools import Messages
from infloop.tools.browser.endpoint import parse_endpoint
from infloop.tools.browser.family import BrowserTools
from infloop.tools.browser.keys import parse_key
from infloop.tools.browser.links import BrowserOptions
from infloop.tools.browser.page import MAX_PAGE_CHARS
from infloop.tools.workspace import open_workspace
from support.browsers import PERMITTED, browser_bench, browser_processes
from support.eventually import eventually_async
from support.tools import Person, gate_for
from support.web_site import web_site

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

START = """<title>start</title><h1>Welcome</h1><a href=/next>The next page</a>
<form action=/found method=post><input name=q value=old><button>Search</button></form>
<button onclick="setTimeout(() => document.body.append('appeared'), 200)">Later</button>
<a href=/popup target=_blank rel=noopener>A new window</a>
<button onclick="alert('stop'); document.title = 'went on'">Dialog</button>
<p hidden id=hidden>hidden</p>"""


@pytest.mark.browser
@pytest.mark.claim("L22", "L24", "L25", "L26", "L27", "L28", "L29", "L30", "L31", "L34")
async def test_a_page_is_opened_used_read_and_closed() -> None:
    with web_site() as site:
        here = f"http://site.test:{site.port}"
        site.pages = {
            "/": START,
            "/next": f"<title>next</title>{'word ' * 20_000}",
            "/found": "<title>found</title><p>results</p>",
        }
        async with browser_bench("sandbox") as bench:
            for tool in ("read_page", "back", "screenshot", "scroll"):
                assert await bench.code(tool) == "browser-not-started"
            assert (await bench.gate.call("browser_read_page", {})).text == NOT_STARTED
            said = await bench.text("navigate", url=f"{here}/", allow_private=True)
            assert said == f"title: start\nurl: {here}/"
            assert "Welcome" in await bench.text("read_page")

            assert "url: " in await bench.text("type", selector="[name=q]", text="grüße")
            value = "document.querySelector('[name=q]').value"
            assert '"grüße"' in await bench.text("run_js", expression=value)
            said = await bench.text("press_key", key="Enter", selector="[name=q]")
            assert said == f"title: found\nurl: {here}/found"
            assert "POST /found" in site.asked
            assert "title: start" in await bench.text("back")
            assert "title: found" in await bench.text("click", selector="Search")
            assert "title: start" in await bench.text("back")

            await bench.text("click", selector="later")
            await bench.text("wait_for", selector="h1", text="appeared", timeout_ms=5_000)
            assert await bench.code("wait_for", text="never", timeout_ms=1) == "timed-out"
            assert await bench.code("wait_for") == "bad-arguments"
            assert "went on" in await bench.text("click", selector="Dialog")
            said = await bench.text("click", selector="A new window")
            assert f"not opened in a new window: {here}/popup" in said
            assert "/popup" not in site.asked
            assert await bench.code("click", selector="#nothing") == "not-found"
            assert await bench.code("click", selector="#hidden") == "not-visible"
            assert await bench.code("press_key", key="Hyper") == "unknown-key"
            assert await bench.code("run_js", expression="throw Error('no')") == "script-failed"

            said = await bench.text("click", selector="a[href='/next']")
            assert said == f"title: next\nurl: {here}/next"
            read = await bench.text("read_page")
            assert MAX_PAGE_CHARS <= len(read.partition("\n\n")[2]) < MAX_PAGE_CHARS + 50
            await bench.text("scroll", amount=300)
            assert "300" in await bench.text("run_js", expression="scrollY")

            assert await bench.text("screenshot") == ".browser/screenshot.png"
            shot = bench.directory / ".browser/screenshot.png"
            assert shot.read_bytes().startswith(b"\x89PNG")
            (bench.directory / "out").symlink_to("/tmp")
            for path, code in (
                ("/tmp/a.png", "path-is-absolute"),
                ("../a.png", "path-has-parent"),
                ("out/a.png", "path-is-link"),
                (".git/a.png", "protected-path"),
                ("", "path-is-empty"),
            ):
                assert await bench.code("screenshot", path=path) == code, path

            assert browser_processes()
            assert await bench.text("close") == "ok"
            assert browser_processes() == []
            assert await bench.text("close") == "ok"
            assert await bench.code("read_page") == "browser-not-started"


@pytest.mark.browser
@pytest.mark.claim("L31")
@pytest.mark.parametrize("backend", ["guard", "host"])
async def test_nothing_is_left_of_a_browser_that_has_crashed(backend: str) -> None:
    """The bench itself checks that the directories of the children are gone."""
    with web_site() as site:
        here = f"http://site.test:{site.port}/"
        async with browser_bench(backend) as bench:
            await bench.text("navigate", url=here, allow_private=True)
            browser_processes()[0].kill()
            result = await bench.gate.call("browser_read_page", {})
            assert result.code == "browser-ended"
            await eventually_async(lambda: browser_processes() == [])
            assert await bench.code("read_page") in ("browser-ended", "browser-not-started")
            assert "url: " in await bench.text("navigate", url=here, allow_private=True)
            assert browser_processes()
        assert browser_processes() == []  # the end of the gate is the end of the browser


async def test_without_a_browser_it_is_said_how_to_get_one(tmp_path: Path) -> None:
    sandbox = HostSandbox()
    try:
        with open_workspace(tmp_path) as workspace:
            tools = BrowserTools(sandbox, BrowserOptions(path=str(tmp_path)), workspace)
            async with gate_for(tools) as gate:
                result = await gate.call("browser_navigate", {"url": "https://docs.test/"})
                assert result.code == "browser-missing"
                assert "apt-get install chromium-headless-shell" in result.text
    finally:
        await sandbox.close()


async def test_what_can_send_something_is_asked_for(tmp_path: Path) -> None:
    sandbox = HostSandbox()
    try:
        with open_workspace(tmp_path) as workspace:
            tools = BrowserTools(sandbox, BrowserOptions(), workspace)
            person = Person(allows=False)
            async with gate_for(tools, ask=person) as gate:
                for tool, arguments in (
                    ("click", {"selector": "a"}),
                    ("type", {"selector": "a", "text": "x"}),
                    ("press_key", {"key": "a"}),
                    ("run_js", {"expression": "1"}),
                    ("navigate", {"url": "http://127.0.0.1/", "allow_private": True}),
                ):
                    result = await gate.call(f"browser_{tool}", json.dumps(arguments).encode())
                    assert result.code == "denied", tool
                assert len(person.questions) == 5
            async with gate_for(tools, rules=PERMITTED) as gate:
                result = await gate.call("browser_click", {"selector": "a"})
                assert result.code == "browser-not-started"
    finally:
        await sandbox.close()


@pytest.mark.parametrize(
    "url",
    [
        "http://192.0.2.1:9222",
        "http://browser.test:9222",
        "https://127.0.0.1:9222",
        "ftp://127.0.0.1",
        "http://127.0.0.1@evil.test",
        "",
        "9222",
    ],
)
def test_an_endpoint_is_on_this_machine(url: str) -> None:
    with pytest.raises(ToolError, match="browser_cdp_url"):
        parse_endpoint(url)


def test_endpoints_are_written_as_browsers_print_them() -> None:
    assert parse_endpoint("http://localhost:9222") == ("127.0.0.1", 9222, "")
    assert parse_endpoint("ws://[::1]:9222/devtools/x") == ("::1", 9222, "/devtools/x")


@pytest.mark.parametrize("name", ["", "Hyper+A", "Control+", "Enterr", "ab", "\n", "Control"])
def test_a_key_has_a_known_name(name: str) -> None:
    with pytest.raises(ToolError, match="there is no key"):
        parse_key(name)


def test_keys_have_their_codes() -> None:
    assert parse_key("Enter")[2:] == (13, "\r", 0)
    assert parse_key("Control+a") == ("a", "KeyA", 65, "", 2)
    assert parse_key("Shift+A").text == "A"
    assert parse_key("+").text == "+"
    assert parse_key("é").text == "é"


def test_messages_are_cut_out_of_a_stream() -> None:
    messages = Messages()
    got = [each for part in ("a\0b", "", "c\0\0", "d") for each in messages.feed(part)]
    assert got == ["a", "bc", ""]
    assert messages.feed("e\0") == ["de"]


# A WebSocket that is not trusted


@asynccontextmanager
async def answering(frames: bytes, head: bytes = b"") -> AsyncIterator[int]:
    """Accept one WebSocket and send these bytes, then echo what comes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        key = request.split(b"Sec-WebSocket-Key: ")[1].split(b"\r\n")[0]
        digest = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        accept = b"Upgrade: WebSocket\r\nSec-WebSocket-Accept: " + base64.b64encode(digest)
        writer.write(head or b"HTTP/1.1 101 Switching Protocols\r\n" + accept + b"\r\n\r\n")
        writer.write(frames)
        first, second = (await reader.readexactly(2)) if not frames else (0, 0)
        if first:
            size = second & 0x7F
            size = struct.unpack("!H", await reader.readexactly(2))[0] if size == 126 else size
            mask = await reader.readexactly(4)
            data = await reader.readexactly(size)
            plain = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
            writer.write(struct.pack("!BBQ", 0x81, 127, size) + plain)
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        (b"\x81\x02hi", "hi"),
        (b"\x01\x01h\x89\x00\x80\x01i", "hi"),
        (b"\x81\x7e\x00\x02hi", "hi"),
        (b"\x88\x00", None),
    ],
)
async def test_a_websocket_returns_whole_messages(frames: bytes, expected: str | None) -> None:
    async with (
        answering(frames) as port,
        await WebSocket.connect(port, "/", max_bytes=100) as websocket,
    ):
        assert await websocket.receive() == expected


@pytest.mark.parametrize(
    "frames", [b"\x81\x82abcdhi", b"\x83\x00", b"\x81\x65", b"\x81\x7f" + b"\xff" * 8]
)
async def test_a_websocket_refuses_what_is_malformed_or_too_long(frames: bytes) -> None:
    async with (
        answering(frames) as port,
        await WebSocket.connect(port, "/", max_bytes=100) as websocket,
    ):
        with pytest.raises(EgressError):
            await websocket.receive()


@pytest.mark.parametrize("text", ["", "a", "grüße", "x" * 125, "x" * 126, "x" * 60_000])
async def test_a_websocket_masks_what_it_sends(text: str) -> None:
    async with (
        answering(b"") as port,
        await WebSocket.connect(port, "/", max_bytes=100_000) as websocket,
    ):
        websocket.send(text)
        assert await websocket.receive() == text


@pytest.mark.parametrize(
    "head",
    [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"],
)
async def test_a_server_that_speaks_no_websocket_is_refused(head: bytes) -> None:
    async with answering(b"x", head) as port:
        with pytest.raises(EgressError):
            await WebSocket.connect(port, "/", max_bytes=100)
