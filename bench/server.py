"""`infloop serve` under load: a process of its own, asked over loopback by a light client.

A request that a predicate refuses is answered 204, and is in the audit log by then. A webhook that
is taken is answered 202 when its run is durable in the queue; it is counted when the run has
finished, and a run here is a start, a branch and an end. The rest is as the server has it by
default: four runs at once, a hundred runs kept of a workflow. Only how much may come a minute, and
how much may wait, is not limited. The same is measured with one run at a time, and under overload:
for some seconds, clients send as much as they can, and what counts is how many runs finish then.

The peer is the least that the same HTTP server can do: an application that answers 204 to
everything. Its rate also says that the client is not what is measured.

The first answer is one that needs none of the API, as webhooks do not; the API is made ready after
it. Memory is what the process has resident. It is looked at when the API has answered once, and
then before and after a thousand clients: half of them ask once, half follow all events and go.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count, repeat, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import uvicorn

import original
from application import agent, line, node, script
from benchmark import Benchmark, Contender, Sample, Target, each, memory, rate, slow, wall
from http_load import Answers, ask_all, get, post
from infloop.app import run_async
from infloop.web.connection import BoundedProtocol
from infloop.web.connections import Connections
from infloop.web.http_server import address, bind_port
from program import INFLOOP
from proxy import cpu_of

if TYPE_CHECKING:
    from benchmark import Rounds

CLIENTS = 16
LISTENERS = 10
DELTAS, DELTA = 20_000, "token "
WARM_UP = 100
RUNS_SHARE = 10  # runs cost more than refusals, so fewer of them are enough
VISITORS = 1_000
AT_ONCE = 50
PATIENCE_S = 60.0
OVERLOAD_S = 5.0
TRIGGERS = {"ignored": "x" * 24, "taken": "y" * 24}
MEGABYTE = 1e6

Act: TypeAlias = Callable[["Server"], Awaitable[Sample]]


@dataclass(frozen=True, slots=True)
class Server:
    """A server, when its process was begun, and how much it is asked."""

    process: int
    port: int
    began: float
    size: int

    def memory(self) -> int:
        """Return how many bytes the process has resident."""
        pages = int(Path(f"/proc/{self.process}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


# -- the servers -----------------------------------------------------------------------------------


@contextmanager
def infloop_server(folder: Path, size: int, **settings: str) -> Iterator[Server]:
    """Give `infloop serve` in a folder with two triggers and a workflow for each purpose."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        here = Path(name)
        write_files(here)
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": name,
            "LANG": "C.UTF-8",
            "INFLOOP_DATA_DIR": str(here / "data"),
            "INFLOOP_ISOLATION": "host",
            "INFLOOP_QUEUE_LIMIT": "1000000",
            "INFLOOP_WEBHOOK_RATE_LIMIT": "0",
            **settings,
        }
        with child([INFLOOP, "serve", "--port", "0"], here, environment, size) as server:
            yield server


@contextmanager
def bare_server(folder: Path, size: int) -> Iterator[Server]:
    """Give an application that answers 204 to everything, on the same HTTP server."""
    with child([sys.executable, __file__], folder, dict(os.environ), size) as server:
        yield server


@contextmanager
def child(
    argv: list[str], folder: Path, environment: dict[str, str], size: int
) -> Iterator[Server]:
    began = time.perf_counter()
    with subprocess.Popen(
        argv, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            said = process.stdout.readline()
            if not said:
                raise RuntimeError(f"{argv} did not start")
            yield Server(process.pid, int(said.rpartition(":")[2]), began, size)
        finally:
            process.kill()


def write_files(folder: Path) -> None:
    """Write the workflows, the triggers and what the agent says."""
    data = folder / "data"
    branch = node("fast", "branch", lhs="{{inputs.mode}}", op="==", rhs="fast")
    for made in (line([branch], "true"), {**line([agent("a")], "next"), "id": "talk"}):
        put(data / "workflows" / f"{made['id']}.json", made)
    for name, mode in (("ignored", "other"), ("taken", "fast")):
        trigger = {
            "id": TRIGGERS[name],
            "name": name,
            "enabled": True,
            "workflowId": "bench",
            "match": [{"lhs": "{{body.mode}}", "op": "==", "rhs": mode}],
            "inputs": {"mode": "{{body.mode}}"},
        }
        put(data / "triggers" / f"{TRIGGERS[name]}.json", trigger)
    script(folder, {"text": DELTA, "times": DELTAS})


def put(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    path.chmod(0o600)


def serve_bare() -> None:
    """Be the peer."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    connections = Connections(lambda peer, own: None, refused=lambda: None)
    config = uvicorn.Config(
        application,
        http=partial(BoundedProtocol, all_connections=connections),  # type: ignore[arg-type]
        lifespan="off",
        log_level="critical",
        access_log=False,
        server_header=False,
    )
    listening = bind_port("127.0.0.1", 0, lambda _: None)
    listening.listen()  # whoever reads the address connects at once
    print(address(listening, "127.0.0.1"), flush=True)
    run_async(uvicorn.Server(config).serve([listening]))


# -- the load --------------------------------------------------------------------------------------


async def refused(server: Server) -> Sample:
    """Send webhooks that the predicate does not want."""
    request = webhook(server, "ignored", 0)
    await ask_all(server.port, repeat(get(server.port, "/metrics"), WARM_UP), 1)
    await ask_all(server.port, repeat(request, WARM_UP), CLIENTS)
    before, began = cpu_of(server.process), time.perf_counter()
    answers = await ask_all(server.port, repeat(request, server.size), CLIENTS)
    sample = Sample(server.size, time.perf_counter() - began, cpu_of(server.process) - before)
    expect(answers, 204, server.size)
    sample.slow = answers.slowest_hundredth()
    return sample


async def taken(server: Server) -> Sample:
    """Send webhooks that are taken, and wait until all their runs have succeeded."""
    await take(server, range(WARM_UP))
    runs = server.size // RUNS_SHARE
    before, began = cpu_of(server.process), time.perf_counter()
    answers = await take(server, range(WARM_UP, WARM_UP + runs))
    sample = Sample(runs, time.perf_counter() - began, cpu_of(server.process) - before)
    sample.slow = answers.slowest_hundredth()
    return sample


async def take(server: Server, numbers: range) -> Answers:
    requests = [webhook(server, "taken", number) for number in numbers]
    answers = await ask_all(server.port, iter(requests), CLIENTS)
    expect(answers, 202, len(numbers))
    deadline = time.perf_counter() + PATIENCE_S
    while await succeeded(server) < numbers.stop:
        if time.perf_counter() > deadline:
            raise RuntimeError(f"{await succeeded(server)} runs of {numbers.stop} have succeeded")
        await asyncio.sleep(0.05)
    return answers


async def overloaded(server: Server) -> Sample:
    """Send webhooks without a pause; count the runs that finish meanwhile."""
    await take(server, range(WARM_UP))
    end = time.perf_counter() + OVERLOAD_S
    requests = (webhook(server, "taken", number) for number in count(WARM_UP))
    before, began = cpu_of(server.process), time.perf_counter()
    await ask_all(server.port, takewhile(lambda _: time.perf_counter() < end, requests), CLIENTS)
    finished = await succeeded(server) - WARM_UP
    return Sample(finished, time.perf_counter() - began, cpu_of(server.process) - before)


async def succeeded(server: Server) -> int:
    """Return how many runs have succeeded, as the server counts them."""
    page = (await fetched(server, "/metrics")).decode()
    found = [each for each in page.splitlines() if each.startswith('infloop_runs_total{status="su')]
    return int(float(found[0].split()[-1])) if found else 0


async def streamed(server: Server, listeners: int = LISTENERS) -> Sample:
    """Let an agent talk while clients follow its run; its first run loads what later ones have."""
    await talk(server, listeners)
    return await talk(server, listeners)


async def talk(server: Server, listeners: int) -> Sample:
    """Let an agent talk once; count what each client gets."""
    body = json.dumps({"workflowId": "talk", "inputs": {"mode": "fast"}}).encode()
    async with following(server, "/api/events", listeners) as readers:
        listening = [asyncio.create_task(hear(reader)) for reader in readers]
        before, began = cpu_of(server.process), time.perf_counter()
        expect(await ask_all(server.port, iter([post(server.port, "/api/run", body)]), 1), 202, 1)
        heard = await asyncio.gather(*listening)
    if set(heard) != {DELTAS}:
        raise RuntimeError(f"the clients got {heard} deltas")
    took = time.perf_counter() - began
    return Sample(DELTAS * listeners, took, cpu_of(server.process) - before)


async def hear(reader: asyncio.StreamReader) -> int:
    """Return how many deltas came before the end of the run; one message can hold several."""
    heard, rest = 0, b""
    while piece := await reader.read(1 << 18):
        rest += piece
        whole, _, rest = rest.rpartition(b"\n\n")
        for message in whole.split(b"\n\n"):
            if b'"type":"stdout_chunk"' in message:
                heard += message.count(DELTA.encode())
        if b'"type":"run_finished"' in whole:
            return heard
    raise RuntimeError(f"the stream ended after {heard} deltas")


async def first_answer(path: str, server: Server) -> Sample:
    """Ask once; what is measured begins before the process does."""
    await fetched(server, path)
    sample = Sample(1, time.perf_counter() - server.began, cpu_of(server.process))
    await fetched(server, "/api/runs")
    await asyncio.sleep(1)
    sample.memory = server.memory()
    return sample


async def visited(server: Server) -> Sample:
    """Let a thousand clients come and go; the memory is what they leave behind."""
    await visit(server, VISITORS // 5)  # what the first clients need is kept for all
    before, began, used = server.memory(), time.perf_counter(), cpu_of(server.process)
    await visit(server, VISITORS)
    sample = Sample(VISITORS, time.perf_counter() - began, cpu_of(server.process) - used)
    await asyncio.sleep(1)
    sample.memory = max(0, server.memory() - before)
    return sample


async def visit(server: Server, clients: int) -> None:
    for _ in range(clients // AT_ONCE // 2):
        async with following(server, "/api/events", AT_ONCE):
            pass
        await asyncio.gather(*(fetched(server, "/api/runs") for _ in range(AT_ONCE)))


@asynccontextmanager
async def following(
    server: Server, path: str, clients: int
) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Give connections that follow an event stream and have its snapshot."""
    made = [
        await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 24)
        for _ in range(clients)
    ]
    try:
        for _, writer in made:
            writer.write(get(server.port, path))
        for reader, _ in made:
            await reader.readuntil(b"state_snapshot")
            await reader.readuntil(b"\n\n")  # it ends with the latest events
        yield [reader for reader, _ in made]
    finally:
        for _, writer in made:
            writer.close()


async def fetched(server: Server, path: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(get(server.port, path).replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
    answer = await reader.read()
    writer.close()
    if not answer.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"{path} was answered {answer[:500]!r}")
    return answer


def webhook(server: Server, name: str, number: int) -> bytes:
    body = json.dumps({"mode": "fast", "number": number}).encode()
    path = f"/api/webhook/{TRIGGERS[name]}"
    return post(server.port, path, body, f"idempotency-key: {number}\r\n")


def expect(answers: Answers, status: int, count: int) -> None:
    if answers.statuses != {status: count}:
        raise RuntimeError(f"answers by status: {dict(answers.statuses)}")


def measure(start: Any, act: Act, size: int, folder: Path) -> Sample:
    """Start a server, ask it, and end it."""

    async def asked(server: Server) -> Sample:
        return await act(server)

    with start(folder, size) as server:
        return run_async(asked(server))


# -- the comparison --------------------------------------------------------------------------------

one_at_a_time = partial(infloop_server, INFLOOP_MAX_CONCURRENT_RUNS="1")

REFUSED, BARE = "infloop, 204 by predicate", "bare ASGI application, 204"
TAKEN, STREAMED = "infloop, webhook to finished run", "infloop, deltas to 10 event streams"
TAKEN_ONE, OVERLOADED = "infloop, the same, one run at a time", "infloop, runs under overload"
STREAMED_ONE = "infloop, deltas to one event stream"
FIRST, FIRST_API = "infloop, start to first answer", "infloop, start to first list of runs"
FIRST_WORKFLOWS = "infloop, start to first list of workflows"
VISITED = "infloop, a thousand clients"

BENCHMARK = Benchmark(
    title="Server",
    unit="request, run, delivery, start or client",
    contenders=(
        Contender(REFUSED, partial(measure, infloop_server, refused)),
        Contender(BARE, partial(measure, bare_server, refused)),
        Contender(TAKEN, partial(measure, infloop_server, taken)),
        Contender(TAKEN_ONE, partial(measure, one_at_a_time, taken)),
        Contender(OVERLOADED, partial(measure, infloop_server, overloaded)),
        Contender(STREAMED, partial(measure, infloop_server, streamed)),
        Contender(STREAMED_ONE, partial(measure, infloop_server, partial(streamed, listeners=1))),
        Contender(FIRST, partial(measure, infloop_server, partial(first_answer, "/healthz"))),
        Contender(FIRST_API, partial(measure, infloop_server, partial(first_answer, "/api/runs"))),
        Contender(
            FIRST_WORKFLOWS,
            partial(measure, infloop_server, partial(first_answer, "/api/workflows")),
        ),
        Contender(VISITED, partial(measure, infloop_server, visited)),
    ),
    targets=(
        Target("204 by predicate, 16 clients", each(REFUSED, rate), 3_000, "/s", at_least=True),
        Target("204 by predicate, slowest hundredth", each(REFUSED, slow, 1e3), 20, "ms"),
        Target("webhook to finished run", each(TAKEN, rate), 300, "/s", at_least=True),
        Target(
            "20,000 deltas to 10 event streams", each(STREAMED, wall, DELTAS * LISTENERS), 1, "s"
        ),
        Target("first answer after the start", each(FIRST, wall), 1, "s"),
        Target("memory, idle", each(FIRST, memory, 1 / MEGABYTE), 110, "MB"),
        Target("memory left by 1,000 clients", each(VISITED, memory, 1 / MEGABYTE), 3, "MB"),
    ),
    size=20_000,
    quick_size=5_000,
    rounds=5,
    alike=False,
)


def rows(rounds: Rounds) -> list[original.Row]:
    """Return the rows of the table of Infinite Loop that are measured here."""
    return [
        original.row(original.TOKEN_STREAM, each(STREAMED_ONE, rate)(rounds)),
        original.row(original.WEBHOOK_RUNS, each(TAKEN_ONE, rate)(rounds)),
        original.row(original.WEBHOOK_RUNS_BY_FOUR, each(TAKEN, rate)(rounds)),
        original.row(original.OVERLOAD, each(OVERLOADED, rate)(rounds)),
        original.row(original.SERVE_START, each(FIRST_WORKFLOWS, wall)(rounds)),
    ]


if __name__ == "__main__":
    serve_bare()
