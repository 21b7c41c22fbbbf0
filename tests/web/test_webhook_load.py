"""Many webhooks at once, while runs go on and the server is killed: nothing is lost or done twice.

`make test-thorough` sends ten thousand; `make test` sends fewer, because the machine has other
tests to run at the same time.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any, Self

import pytest

from infloop.app.storage import open_store
from infloop.model.events import RunStarted
from infloop.settings import Settings
from infloop.store.audit.reading import verify
from infloop.store.interfaces.run_log import RunLog
from support.eventually import eventually_async
from support.server import Process, put_workflow
from support.thorough import amount

WEBHOOKS = amount(400, thorough=10_000)
CONNECTIONS = 50
KILLS = 2
TRIGGER = "t" * 24
PATIENCE_S = 60 + WEBHOOKS / 20

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(2 * PATIENCE_S)]


def instant() -> dict[str, Any]:
    """A workflow without effects, which goes on after a crash."""
    branch = {"lhs": "{{inputs.number}}", "op": "!=", "rhs": ""}
    return {
        "id": "instant",
        "name": "instant",
        "onCrash": "resume",
        "inputs": [{"name": "number", "type": "string"}],
        "nodes": [
            {"id": "start", "type": "start"},
            {"id": "any", "type": "branch", "config": branch},
            {"id": "end", "type": "end", "config": {"outcome": "succeeded"}},
        ],
        "edges": [
            {"source": "start", "sourceHandle": "next", "target": "any"},
            {"source": "any", "sourceHandle": "true", "target": "end"},
        ],
    }


def put_trigger(data: Path) -> None:
    content = {
        "id": TRIGGER,
        "enabled": True,
        "workflowId": "instant",
        "inputs": {"number": "{{body.number}}"},
    }
    path = data / "triggers" / f"{TRIGGER}.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(content))
    path.chmod(0o600)


class Servers:
    """One server after another on the same data; who finds none waits for the next."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._up = asyncio.Event()
        self._process: Process | None = None

    async def begin(self) -> None:
        self._process = await asyncio.to_thread(
            Process,
            self._folder,
            queue_limit=str(WEBHOOKS // 2),
            webhook_rate_limit="0",
            run_history_limit="1000000",
        )
        self._up.set()

    async def port(self) -> int:
        await self._up.wait()
        assert self._process is not None
        return self._process.client.port

    async def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal to the one there is, and return its exit code."""
        assert self._process is not None
        self._up.clear()
        try:
            return await asyncio.to_thread(self._process.end, number)
        finally:
            assert self._process.process.stdout is not None
            self._process.process.stdout.close()
            self._process = None

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process is not None:
            await self.end(signal.SIGKILL)


async def send(servers: Servers, numbers: list[int], acknowledged: dict[int, str]) -> None:
    """Send webhooks on one connection; each is sent again until it is acknowledged."""
    writer: asyncio.StreamWriter | None = None
    while numbers:
        number = numbers.pop()
        while number not in acknowledged:
            try:
                if writer is None:
                    port = await servers.port()
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                status, body = await ask(reader, writer, number)
            except (OSError, asyncio.IncompleteReadError):
                if writer is not None:  # it was killed, whatever it had done by then
                    writer.close()
                writer = None
                continue
            assert status in (202, 503), (status, body)
            if status == 202:
                acknowledged[number] = body["queueId"]
            else:
                await asyncio.sleep(0.1)  # as a sender does that is told to come back later
    if writer is not None:
        writer.close()


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
) -> tuple[int, dict[str, Any]]:
    body = json.dumps({"number": str(number)}).encode()
    head = (
        f"POST /api/webhook/{TRIGGER} HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: {number}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(answer.partition("content-length: ")[2].split("\r\n")[0])
    return int(answer.split()[1]), json.loads(await reader.readexactly(length))


async def settled(run_log: RunLog) -> None:
    """Wait until as many runs have succeeded as webhooks were sent."""

    async def all_succeeded() -> bool:
        return await run_log.count(status="succeeded") >= WEBHOOKS

    await eventually_async(all_succeeded, within_s=PATIENCE_S, every_s=0.1)


async def numbers_run(run_log: RunLog) -> Counter[str]:
    """How often there was a run for each number, whatever became of it."""
    found: Counter[str] = Counter()
    before = None
    while rows := await run_log.runs(limit=500, before=before):
        for row in rows:
            (first,) = await run_log.events(row.id, limit=1)
            assert isinstance(first.event, RunStarted)
            found[str(first.event.inputs["number"])] += 1
        before = rows[-1].cursor
    return found


async def test_what_is_acknowledged_under_load_runs_exactly_once_although_the_server_is_killed(
    tmp_path: Path,
) -> None:
    put_workflow(tmp_path / "data", instant())
    put_trigger(tmp_path / "data")
    numbers, acknowledged = list(range(WEBHOOKS)), dict[int, str]()
    async with asyncio.timeout(PATIENCE_S), Servers(tmp_path) as servers:
        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(send(servers, numbers, acknowledged))
            for kill in range(1, KILLS + 1):
                enough = WEBHOOKS * kill // (KILLS + 1)
                await eventually_async(
                    lambda enough=enough: len(acknowledged) >= enough,  # type: ignore[misc]
                    within_s=PATIENCE_S,
                )
                await servers.end(signal.SIGKILL)
                await servers.begin()
        async with open_store(Settings(data_dir=tmp_path / "data")) as store:
            await settled(store.run_log)
            assert await servers.end() == 0
            ran = await numbers_run(store.run_log)
    assert len(set(acknowledged.values())) == WEBHOOKS
    assert ran == Counter(map(str, range(WEBHOOKS)))
    assert verify(tmp_path / "data/audit").flaw is None
