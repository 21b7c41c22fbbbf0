"""A browser that the sandbox starts.

It is spoken to over a pipe, so it has no port that others could connect to. Where the level
confines, its only network is its proxy. Its profile is in its private temporary directory. Both are
gone when it ends.

Its own sandbox is off at levels that confine, because it needs what they forbid.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from infloop.egress.loopback_listener import listen_on_loopback
from infloop.errors import InfloopError
from infloop.sandbox.access import Access
from infloop.sandbox.base import ChildRequest, FlowControl
from infloop.sandbox.levels.keeper_sandbox import find_program
from infloop.sandbox.view.private_directories import private_directories
from infloop.tools.base import ToolError
from infloop.tools.browser.devtools import Messages
from infloop.tools.browser.links import browser_proxy, is_root

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from infloop.egress.loopback_listener import Listener
    from infloop.policy.browser_hosts import BrowserHosts
    from infloop.sandbox.base import ChildResult, Sandbox, Stream
    from infloop.tools.browser.links import BrowserOptions, OnMessage

PROGRAMS = ("chromium-headless-shell", "chrome-headless-shell", "headless_shell")
"""What is looked for; these need no Unix socket, which no confined child can have."""
PROGRAMS_AT_HOST = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INSTALL = (
    "no Chromium was found: install it with `apt-get install chromium-headless-shell` "
    "(Debian, Ubuntu), or put `chrome-headless-shell` on PATH"
)

_PORT = 3128
_SHELL = "/bin/sh"
# The browser reads commands from descriptor 3 and writes answers to 4.
_SCRIPT = 'exec "$0" --user-data-dir="$TMPDIR/profile" "$@" 3<&0 4>&1 0</dev/null 1>&2'
_FEATURES = (
    "BackForwardCache",
    "DnsOverHttps",
    "MediaRouter",
    "NetworkErrorLogging",
    "OptimizationHints",
    "Prerender2",
    "Reporting",
    "Translate",
)
_SWITCHES = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-pings",
    "--mute-audio",
    "--hide-scrollbars",
    "--window-size=1280,800",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-quic",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-sync",
    "--disable-breakpad",
    f"--disable-features={','.join(_FEATURES)}",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    # The proxy resolves names. Loopback is not exempt from it.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--proxy-bypass-list=<-loopback>",
)
_STDERR_BYTES = 4096
_GRACE_MS = 1000


class ChromiumLink:
    """A Chromium of our own."""

    def __init__(self, sandbox: Sandbox, hosts: BrowserHosts, options: BrowserOptions) -> None:
        """Raise ToolError if no browser is installed."""
        self._sandbox = sandbox
        self._hosts = hosts
        self._options = options
        self._program = find_browser(options, confined=sandbox.confines)
        self._outgoing: asyncio.Queue[bytes] = asyncio.Queue()
        self._messages = Messages()
        self._serving: list[asyncio.Task[None]] = []
        self.token = "" if sandbox.own_network else secrets.token_urlsafe(24)
        self.proxy = f"127.0.0.1:{_PORT}"

    def send(self, text: str) -> None:
        """Send a message to the browser."""
        self._outgoing.put_nowait(text.encode("utf-8", "replace") + b"\0")

    async def run(self, on_message: OnMessage) -> str:
        """Run the browser until it ends; see `Link`."""

        def on_output(stream: Stream, text: str) -> None:
            if stream == "stdout":
                for message in self._messages.feed(text):
                    on_message(message)

        reason = ""
        try:
            async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
                request = await self._request(stack, tasks)
                reason = _why_ended(await self._sandbox.run(request, on_output=on_output))
                for task in self._serving:
                    task.cancel()
        except* (InfloopError, ValueError) as group:
            reason = f"the browser was ended: {group.exceptions[0]}"
        return reason

    async def _request(self, stack: AsyncExitStack, tasks: asyncio.TaskGroup) -> ChildRequest:
        env = {"PATH": self._options.path, "LANG": "C.UTF-8", "TZ": "UTC"}
        if self._sandbox.confines:

            async def on_listening(listeners: Mapping[int, Listener]) -> None:
                self._serve(listeners[_PORT], tasks)

            access = Access(
                read=self._program_directory(),
                network="proxy",
                proxy_port=_PORT,
                proxy_user=f"run:{self.token}" if self.token else "",
                on_listening=on_listening,
            )
        else:
            own = private_directories(self._options.scratch, self._options.user)
            home, temp = await stack.enter_async_context(own)
            env |= {"HOME": home, "TMPDIR": temp}
            listener = listen_on_loopback()
            self.proxy = f"127.0.0.1:{listener.getsockname()[1]}"
            self._serve(listener, tasks)
            access = Access()
        own_sandbox = not self._sandbox.confines and not is_root()
        switches = (
            *_SWITCHES,
            *(() if own_sandbox else ("--no-sandbox",)),
            f"--proxy-server={self.proxy}",
            *self._options.switches,
        )
        return ChildRequest(
            argv=(_SHELL, "-c", _SCRIPT, self._program, *switches, "about:blank"),
            cwd="/",
            env=env,
            stdin=self._pieces(),
            grace_ms=_GRACE_MS,
            max_output_bytes=_STDERR_BYTES,
            flow_control=FlowControl(),
            access=access,
        )

    def _program_directory(self) -> tuple[str, ...]:
        """Return the directory with the browser's other files, if it is not a system directory."""
        directory = os.path.dirname(os.path.realpath(self._program))  # noqa: PTH120
        return () if directory.startswith("/usr/") else (directory,)

    def _serve(self, listener: Listener, tasks: asyncio.TaskGroup) -> None:
        port = int(self.proxy.rpartition(":")[2])
        proxy = browser_proxy(self._hosts, self._options, self.token, port)
        self._serving.append(tasks.create_task(proxy.serve(listener)))

    async def _pieces(self) -> AsyncIterator[bytes]:
        while True:
            yield await self._outgoing.get()


def find_browser(options: BrowserOptions, *, confined: bool) -> str:
    """Return the browser's program; ToolError that says how to install one."""
    wanted = (options.program,) if options.program else PROGRAMS
    for name in (*wanted, *(() if confined or options.program else PROGRAMS_AT_HOST)):
        program = find_program(name, options.path)
        if program is not None and os.access(program, os.X_OK):
            return program
    raise ToolError("browser-missing", INSTALL)


def _why_ended(result: ChildResult) -> str:
    if result.error:
        return f"the browser could not be started: {result.error}"
    how = f"signal {result.signal}" if result.signal else f"exit code {result.exit_code}"
    last = result.stderr.strip().rpartition("\n")[2][:300]
    return f"the browser has ended ({how}): {last}"
