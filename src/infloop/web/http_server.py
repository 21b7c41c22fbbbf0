"""The HTTP server: finds a port, answers until it is told to stop."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import uvicorn

from infloop.errors import SettingsError
from infloop.model.hosts import authority
from infloop.web.connection import BoundedProtocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import ASGIApp

    from infloop.web.connections import Connections
    from infloop.web.streams import Streams

Announce: TypeAlias = "Callable[[int], None]"
"""Makes a port known to all processes whose children must not connect to it.

Raises OSError with EADDRINUSE when another process has announced it.
"""

BoundSocket: TypeAlias = socket.socket
"""A socket with an address, for those who pass it on."""

MORE_PORTS = 20
BACKLOG = 512
KEEP_ALIVE_SECONDS = 15
DRAIN_SECONDS = 2


def bind_port(host: str, port: int, announce: Announce) -> socket.socket:
    """Return a socket bound to the first free port from `port` on; 0 means any.

    `serve` listens on it. Until then the port has been announced for a while, so no connection that
    another process has just allowed can still arrive.
    """
    last = port + MORE_PORTS if port else port
    for number in range(port, min(last, 65_535) + 1):
        try:
            return _bind(host, number, announce)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise SettingsError(
                    f"cannot listen on {authority(host, number)}: {error.strerror or error}; "
                    "choose another --host or --port"
                ) from None
    raise SettingsError(f"the ports {port} to {last} are all in use; choose another --port")


def bind_metrics_port(port: int, announce: Announce) -> socket.socket:
    """Return a socket at exactly that port, for this machine alone: who reads it knows the port."""
    try:
        return _bind("127.0.0.1", port, announce)
    except OSError as error:
        raise SettingsError(
            f"cannot listen on 127.0.0.1:{port}: {error.strerror or error}; "
            "choose another INFLOOP_METRICS_PORT"
        ) from None


def bind_address(host: str, port: int, announce: Announce) -> socket.socket:
    """Return a socket at exactly that address; port 0 means any."""
    try:
        return _bind(host, port, announce)
    except OSError as error:
        raise SettingsError(
            f"cannot listen on {authority(host, port)}: {error.strerror or error}; "
            "choose another address in the configuration"
        ) from None


def _bind(host: str, port: int, announce: Announce) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if bound.family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((host, port))
        announce(bound.getsockname()[1])
    except OSError:
        bound.close()
        raise
    return bound


def address(listening: socket.socket, host: str) -> str:
    """Return the URL under which the server is found."""
    return f"http://{authority(host, listening.getsockname()[1], 80)}"


def local_address(listening: socket.socket) -> str:
    """Return a URL under which a browser on this machine reaches the server."""
    host, port = listening.getsockname()[:2]
    return f"http://{authority(_LOOPBACK.get(host, host), port, 80)}"


_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  (what a server may listen on)


async def serve(
    app: ASGIApp,
    connections: Connections,
    streams: Streams,
    listening: socket.socket,
    stopping: asyncio.Event,
    ready: Callable[[], None],
    metrics: tuple[ASGIApp, socket.socket] | None = None,
) -> None:
    """Answer requests until `stopping` is set; then end all streams and take no more requests.

    `metrics` is answered on a socket of its own. `ready` is called when all sockets listen.
    """
    answered = [(app, listening), *([metrics] if metrics else [])]
    waiting = len(answered)

    def one_ready() -> None:
        nonlocal waiting
        waiting -= 1
        if not waiting:
            ready()

    servers = [(_Server(_config(one, connections), one_ready), where) for one, where in answered]
    async with asyncio.TaskGroup() as group:
        for server, where in servers:
            group.create_task(server.serve([where]))
        await stopping.wait()
        streams.close()
        for server, _ in servers:
            server.should_exit = True


def _config(app: ASGIApp, connections: Connections) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        interface="asgi3",  # it would be guessed, and wrongly
        http=partial(BoundedProtocol, all_connections=connections),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )


class _Server(uvicorn.Server):
    """The HTTP server; signals are the caller's."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and say so."""
        await super().startup(sockets)
        self._ready()
