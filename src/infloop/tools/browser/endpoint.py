"""A browser that somebody else runs, reached by its DevTools endpoint on this machine.

This is weaker than a browser of our own. Its pages get a context of their own whose connections go
through our proxy, and each of its requests is judged, those of other tabs too. But nothing keeps
the browser itself from connecting past the proxy, as WebRTC does, and every program of this machine
that reaches the endpoint can use it.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

import msgspec

from infloop.egress.client import Client, Destination
from infloop.egress.loopback_listener import listen_on_loopback
from infloop.egress.websocket import WebSocket
from infloop.errors import EgressError
from infloop.model.hosts import authority, parse_url, quoted
from infloop.tools.base import ToolError
from infloop.tools.browser.devtools import MAX_MESSAGE_CHARS
from infloop.tools.browser.links import browser_proxy

if TYPE_CHECKING:
    from infloop.policy.browser_hosts import BrowserHosts
    from infloop.tools.browser.links import BrowserOptions, OnMessage

_LOOPBACK = {"127.0.0.1": "127.0.0.1", "::1": "::1", "localhost": "127.0.0.1"}
_MAX_ANSWER_BYTES = 1 << 16
_TIMEOUT_S = 5.0


class EndpointLink:
    """The browser behind a DevTools endpoint."""

    def __init__(self, hosts: BrowserHosts, options: BrowserOptions) -> None:
        """Raise ToolError if the endpoint is not on this machine."""
        self._hosts = hosts
        self._options = options
        self._host, self._port, self._target = parse_endpoint(options.cdp_url)
        self._websocket: WebSocket | None = None
        self._unsent: list[str] = []
        self.token = secrets.token_urlsafe(24)
        self.proxy = ""

    def send(self, text: str) -> None:
        """Send a message to the browser."""
        if self._websocket is None:
            self._unsent.append(text)
        else:
            self._websocket.send(text)

    async def run(self, on_message: OnMessage) -> str:
        """Stay connected until the browser ends; see `Link`."""
        listener = listen_on_loopback()
        port = listener.getsockname()[1]
        self.proxy = f"127.0.0.1:{port}"
        proxy = browser_proxy(self._hosts, self._options, self.token, port)
        reason = "the browser has closed its DevTools endpoint"
        try:
            async with asyncio.TaskGroup() as tasks:
                serving = tasks.create_task(proxy.serve(listener))
                await self._talk(on_message)
                serving.cancel()
        except* (EgressError, ValueError) as group:
            reason = f"the browser cannot be used: {group.exceptions[0]}"
        return reason

    async def _talk(self, on_message: OnMessage) -> None:
        target = self._target or await self._find_target()
        async with await WebSocket.connect(
            self._port, target, host=self._host, max_bytes=MAX_MESSAGE_CHARS
        ) as self._websocket:
            while self._unsent:
                self._websocket.send(self._unsent.pop(0))
            while (message := await self._websocket.receive()) is not None:
                on_message(message)

    async def _find_target(self) -> str:
        """Ask the browser for the path of its endpoint."""
        base = f"http://{authority(self._host, self._port)}"
        async with (
            Client([Destination.of(base, private_ok=True)]) as client,
            client.stream(
                "GET",
                f"{base}/json/version",
                connect_timeout_s=_TIMEOUT_S,
                read_timeout_s=_TIMEOUT_S,
                max_response_bytes=_MAX_ANSWER_BYTES,
            ) as response,
        ):
            answer = msgspec.json.decode(await response.read(), type=dict[str, object])
        url = str(answer.get("webSocketDebuggerUrl", ""))
        target = url.removeprefix("ws://").partition("/")[2]
        if not url.startswith("ws://") or not target:
            raise EgressError(f"{base} is no DevTools endpoint", "broken")
        return f"/{target}"


def parse_endpoint(url: str) -> tuple[str, int, str]:
    """Return the address and port of an endpoint, and its path if the URL has one.

    Raises ToolError if it is not on this machine.
    """
    try:
        place = parse_url(f"http{url[2:]}" if url.startswith("ws:") else url)
    except EgressError as error:
        raise ToolError("bad-endpoint", f"browser_cdp_url: {error}") from None
    if place.scheme != "http" or place.host not in _LOOPBACK:
        raise ToolError(
            "bad-endpoint",
            f"browser_cdp_url is {quoted(url)}: it must be an address of this machine, such as "
            "http://127.0.0.1:9222, because its browser must reach our proxy",
        )
    target = place.target if url.startswith("ws:") else ""
    return _LOOPBACK[place.host], place.port, target
