"""The HTTP server: finds a port, answers until it is told to stop."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn

from infloop.errors import SettingsError
from infloop.model.hosts import authority
from infloop.web.connection import BoundedProtocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import ASGIApp

    from infloop.web.streams import Streams

MORE_PORTS = 20
MOST_CONNECTIONS = 1_024
KEEP_ALIVE_SECONDS = 15
DRAIN_SECONDS = 2


def listen(host: str, port: int) -> socket.socket:
    """Return a socket at the first free port from `port` on; 0 means any."""
    last = port + MORE_PORTS if port else port
    for number in range(port, min(last, 65_535) + 1):
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            return socket.create_server((host, number), family=family, backlog=512)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise SettingsError(
                    f"cannot listen on {authority(host, number)}: {error.strerror or error}; "
                    "choose another --host or --port"
                ) from None
    raise SettingsError(f"the ports {port} to {last} are all in use; choose another --port")


def listen_for_metrics(port: int) -> socket.socket:
    """Return a socket at exactly that port, for this machine alone: who reads it knows the port."""
    try:
        return socket.create_server(("127.0.0.1", port), backlog=16)
    except OSError as error:
        raise SettingsError(
            f"cannot listen on 127.0.0.1:{port}: {error.strerror or error}; "
            "choose another INFLOOP_METRICS_PORT"
        ) from None


def address(listening: socket.socket, host: str) -> str:
    """Return the URL under which the server is found."""
    return f"http://{authority(host, listening.getsockname()[1], 80)}"


async def serve(
    app: ASGIApp,
    streams: Streams,
    listening: socket.socket,
    stopping: asyncio.Event,
    ready: Callable[[], None],
    metrics: tuple[ASGIApp, socket.socket] | None = None,
) -> None:
    """Answer requests until `stopping` is set; then end all streams and take no more requests.

    `metrics` is answered on a socket of its own.
    """
    servers = [(_Server(_config(app), ready), listening)]
    if metrics is not None:
        servers.append((_Server(_config(metrics[0]), lambda: None), metrics[1]))
    async with asyncio.TaskGroup() as group:
        for server, where in servers:
            group.create_task(server.serve([where]))
        await stopping.wait()
        streams.close()
        for server, _ in servers:
            server.should_exit = True


def _config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        interface="asgi3",  # it would be guessed, and wrongly
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
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
