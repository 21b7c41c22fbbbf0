"""The server as a process of its own, or in this one with a clock that tests set; and a client."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from infloop.app import OwnPorts, Server, open_server
from infloop.runtime.clock import SetClock
from infloop.settings import Settings
from infloop.web.http_server import address, bind_port, serve
from support import forkserver
from support.eventually import eventually

TOKEN = "a-token-for-tests-0123456789abcdef"
PATIENCE = 30.0


@dataclass(frozen=True)
class Answer:
    """What the server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    cookies: tuple[str, ...] = ()

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Client:
    """Asks one server; `token` goes with every request unless it is empty."""

    port: int
    token: str = ""

    def ask(
        self,
        method: str,
        path: str,
        content: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        sent = {"authorization": f"Bearer {self.token}"} if self.token else {}
        if content is not None:
            body = json.dumps(content).encode()
            sent["content-type"] = "application/json"
        try:
            connection.request(method, path, body, {**sent, **(headers or {})})
            got = connection.getresponse()
            named = {name.lower(): value for name, value in got.getheaders()}
            cookies = tuple(got.headers.get_all("set-cookie") or ())
            return Answer(got.status, named, got.read(), cookies)
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, content: Any = None) -> Answer:
        return self.ask("POST", path, content)

    def finished(self, run_id: str) -> dict[str, Any]:
        """The run, once it has ended."""

        def ended() -> dict[str, Any] | None:
            run: dict[str, Any] = self.get(f"/api/runs/{run_id}").json()["run"]
            return run if run["status"] not in ("queued", "running") else None

        found: dict[str, Any] = eventually(ended)
        return found

    def run(self, workflow_id: str, **inputs: Any) -> dict[str, Any]:
        """A run from its start to its end."""
        asked = self.post("/api/run", {"workflowId": workflow_id, "inputs": inputs})
        assert asked.status == 202, asked.body
        return self.finished(asked.json()["runId"])


def workflow(name: str, *commands: str, **more: Any) -> dict[str, Any]:
    """A workflow that runs shell lines one after the other."""
    nodes: list[dict[str, Any]] = [{"id": "start", "type": "start"}]
    edges = []
    for number, command in enumerate(commands, 1):
        config = {"kind": "command", "command": {"cmd": command}}
        nodes.append({"id": f"c{number}", "type": "condition", "config": config})
        edges.append(
            {
                "source": nodes[-2]["id"],
                "sourceHandle": "next" if number == 1 else "met",
                "target": f"c{number}",
            }
        )
    return {"id": name, "name": name, "nodes": nodes, "edges": edges, **more}


def put_workflow(data: Path, content: dict[str, Any]) -> None:
    folder = data / "workflows"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{content['id']}.json").write_text(json.dumps(content))


def environment(folder: Path, **settings: str) -> dict[str, str]:
    """What a server of a test finds in its environment."""
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder / "home"),
        "INFLOOP_DATA_DIR": str(folder / "data"),
        "INFLOOP_ISOLATION": "host",
        "INFLOOP_PORT": "0",
        **{f"INFLOOP_{name.upper()}": value for name, value in settings.items()},
    }


def infloop(
    folder: Path, *arguments: str, code: int = 0, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end beside a server of `folder`; it must end as expected."""
    done = forkserver.run(arguments, folder, environment(folder, **settings), 2 * PATIENCE)
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    return done


class Process:
    """A server process of its own."""

    def __init__(self, folder: Path, *arguments: str, **settings: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.data = folder / "data"
        self.token = settings.get("api_token", "")
        with (folder / "stderr").open("w") as complaints:
            self.process = forkserver.Command(
                ("serve", *arguments),
                folder,
                environment(folder, **settings),
                stderr=complaints.fileno(),
            )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()

    @property
    def client(self) -> Client:
        assert self.said, (self.folder / "stderr").read_text()
        return Client(int(self.said.rpartition(":")[2]), self.token)

    def end(self, number: int = 15) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@contextmanager
def process(folder: Path, *arguments: str, **settings: str) -> Iterator[Process]:
    """A server process, ended when the test is over."""
    made = Process(folder, *arguments, **settings)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
        made.process.wait(PATIENCE)
        assert made.process.stdout is not None
        made.process.stdout.close()


@dataclass(frozen=True)
class Here:
    """A server in this process."""

    client: Client
    server: Server
    clock: SetClock
    data: Path

    async def ask(self, method: str, path: str, content: Any = None, **more: Any) -> Answer:
        return await asyncio.to_thread(self.client.ask, method, path, content, **more)

    async def run(self, workflow_id: str, **inputs: Any) -> dict[str, Any]:
        return await asyncio.to_thread(self.client.run, workflow_id, **inputs)


@asynccontextmanager
async def here(folder: Path, **settings: Any) -> AsyncIterator[Here]:
    """Serve in this process, by a clock that the test sets."""
    data = folder / "data"
    chosen = Settings(data_dir=data, isolation="host", **settings)
    clock, stopping, ready = SetClock(int(time.time() * 1000)), asyncio.Event(), asyncio.Event()
    with OwnPorts() as own_ports, bind_port("127.0.0.1", 0, own_ports.announce) as listening:
        async with open_server(chosen, clock) as server:
            serving = asyncio.create_task(_serve(server, listening, stopping, ready))
            await ready.wait()
            port = int(address(listening, "127.0.0.1").rpartition(":")[2])
            try:
                yield Here(Client(port, chosen.api_token), server, clock, data)
            finally:
                stopping.set()
                async with asyncio.timeout(PATIENCE):
                    await serving


async def _serve(
    server: Server, listening: socket.socket, stopping: asyncio.Event, ready: asyncio.Event
) -> None:
    async with asyncio.TaskGroup() as group:
        web = server.web
        group.create_task(
            serve(server.answers, web.connections, web.streams, listening, stopping, ready.set)
        )
        async with server.daemon.running("the server was stopped"):
            await stopping.wait()


def raw(port: int, data: bytes, *, wait: float = PATIENCE) -> bytes:
    """Send bytes as they are; return everything until the server hangs up or falls silent."""
    with socket.create_connection(("127.0.0.1", port), timeout=wait) as connection:
        got = b""
        with suppress(ConnectionError):  # it may answer and hang up before it has read everything
            connection.sendall(data)
        try:
            while piece := connection.recv(65_536):
                got += piece
        except (TimeoutError, ConnectionResetError):
            pass
        return got


class Events:
    """A client of an event stream."""

    def __init__(self, client: Client, path: str, last: str = "") -> None:
        self._connection = socket.create_connection(("127.0.0.1", client.port), timeout=PATIENCE)
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\n"
        if client.token:
            head += f"Authorization: Bearer {client.token}\r\n"
        if last:
            head += f"Last-Event-ID: {last}\r\n"
        self._connection.sendall(f"{head}\r\n".encode())
        self._file = self._connection.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        while self._file.readline().strip():
            pass
        self.last = last
        self._events = self._read()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The events from where one is, until the stream ends."""
        return self._events

    def _read(self) -> Iterator[dict[str, Any]]:
        for chunk in self._chunks():
            for line in chunk.split(b"\n"):
                if line.startswith(b"id: "):
                    self.last = line[4:].decode()
                elif line.startswith(b"data: "):
                    yield json.loads(line[6:])

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self._file.readline() or b"0", 16):
            yield self._file.read(size)
            self._file.readline()

    def until(self, kind: str) -> list[dict[str, Any]]:
        """The events up to the first of a kind."""
        found = []
        for event in self:
            found.append(event)
            if event["type"] == kind:
                return found
        raise AssertionError(f"no {kind} among {[event['type'] for event in found]}")

    def close(self) -> None:
        self._file.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def refused(folder: Path, *arguments: str, **settings: str) -> str:
    """What a server says that does not start."""
    folder.mkdir(exist_ok=True)
    ran = forkserver.run(("serve", *arguments), folder, environment(folder, **settings), 60)
    assert ran.returncode == 2, ran.stderr
    assert ran.stdout == ""
    return ran.stderr
