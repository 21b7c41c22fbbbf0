"""Event streams: what is told, what is not lost, and what a client can cost."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from infloop.model.events import Recorded, StepFinished
from infloop.runtime.event_bus import RING_CHARS, RING_ITEMS, EventBus
from infloop.web.streams import EventStream, Streams
from support.eventually import eventually, eventually_async
from support.runs import world
from support.server import TOKEN, Client, Events, Here, here, put_workflow, workflow


async def in_thread(served: Here, act: Any) -> Any:
    return await asyncio.to_thread(act, served.client)


async def test_all_runs_are_told_by_their_names_with_run_time_and_sequence(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", workflow("tiny", "echo hello", "false"))

    def look(client: Client) -> None:
        with Events(client, "/api/events") as events:
            first = next(iter(events))
            assert first["type"] == "state_snapshot"
            assert first["state"]["status"] == "idle"
            run_id = client.post("/api/run", {"workflowId": "tiny"}).json()["runId"]
            told = events.until("run_finished")
        kinds = [event["type"] for event in told]
        assert kinds[0] == "trigger_enqueued"
        for kind in (
            "trigger_started",
            "run_started",
            "node_started",
            "stdout_chunk",
            "node_finished",
            "condition_checked",
        ):
            assert kind in kinds
        assert {event["runId"] for event in told} == {run_id}
        assert all(event["time"] and event["correlationId"] for event in told)
        numbers = [event["seq"] for event in told if "seq" in event]
        assert numbers == sorted(numbers)
        assert told[-1]["scope"]["c1"]["stdout"] == "hello\n"
        chunks = [event["line"] for event in told if event["type"] == "stdout_chunk"]
        assert "".join(chunks) == "hello\n"

    async with here(tmp_path, api_token=TOKEN) as served:
        await in_thread(served, look)


async def test_a_client_that_wants_no_output_gets_everything_else(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", workflow("tiny", "echo hello", "false"))

    def look(client: Client) -> None:
        client.run("tiny")
        with Events(client, "/api/events?output=false") as events:
            first = next(iter(events))
            assert first["state"]["status"] == "succeeded"
            assert "events" not in first["state"]
            client.post("/api/run", {"workflowId": "tiny"})
            kinds = [event["type"] for event in events.until("run_finished")]
        assert "stdout_chunk" not in kinds
        assert {"run_started", "node_started", "node_finished", "run_finished"} <= set(kinds)

    async with here(tmp_path) as served:
        await in_thread(served, look)


async def test_a_client_that_comes_back_goes_on_where_it_was(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", workflow("tiny", *["echo x"] * 5))

    def look(client: Client) -> None:
        with Events(client, "/api/events") as events:
            next(iter(events))
            client.run("tiny")
            seen = events.until("run_started")
            last = events.last
        with Events(client, "/api/events", last) as events:
            rest = events.until("run_finished")
        assert "state_snapshot" not in [event["type"] for event in rest]
        run_id = rest[-1]["runId"]
        with Events(client, f"/api/runs/{run_id}/events") as whole:
            all_of_it = list(whole)
        both = [event for event in seen + rest if "seq" in event]
        assert [(e["seq"], e["type"]) for e in both] == [(e["seq"], e["type"]) for e in all_of_it]

    async with here(tmp_path) as served:
        await in_thread(served, look)


@pytest.mark.parametrize("last", ["", "i-0000000000000000.5", "nonsense", "9" * 100, "i-x.-1", "."])
async def test_who_was_away_for_too_long_gets_a_snapshot(tmp_path: Path, last: str) -> None:
    def look(client: Client) -> dict[str, Any]:
        with Events(client, "/api/events", last) as events:
            return next(iter(events))

    async with here(tmp_path) as served:
        assert (await in_thread(served, look))["type"] == "state_snapshot"


async def test_a_run_is_told_whole_from_any_place_and_then_ends(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", workflow("tiny", "echo a", "echo b", "echo c"))

    def look(client: Client) -> None:
        run_id = client.run("tiny")["runId"]
        path = f"/api/runs/{run_id}/events"
        with Events(client, path) as events:
            whole = list(events)
            end = events.last
        assert whole[0]["type"] == "run_started"
        assert whole[-1]["type"] == "run_finished"
        for place in {event["seq"] for event in whole[:-1]}:
            for events in (
                Events(client, path, str(place)),
                Events(client, f"{path}?after={place}"),
            ):
                with events:
                    assert list(events) == [event for event in whole if event["seq"] > place]
        assert client.get(path, **{"last-event-id": end}).status == 204
        assert client.get("/api/runs/nobody/events").status == 404

    async with here(tmp_path) as served:
        await in_thread(served, look)


async def test_a_run_that_waits_is_told_from_its_beginning(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", workflow("waits", f"until [ -e {tmp_path}/gate ]; do :; done"))
    put_workflow(tmp_path / "data", workflow("tiny", "true"))

    def look(client: Client) -> None:
        client.post("/api/run", {"workflowId": "waits"})
        waiting, removed = (
            client.post("/api/run", {"workflowId": "tiny"}).json()["runId"] for _ in range(2)
        )
        with (
            Events(client, f"/api/runs/{waiting}/events") as events,
            Events(client, f"/api/runs/{removed}/events") as nothing,
        ):
            assert client.post(f"/api/runs/{removed}/cancel").status == 202
            (tmp_path / "gate").touch()
            assert events.until("run_finished")[0]["type"] == "run_started"
            assert list(nothing) == []
        assert client.get(f"/api/runs/{removed}/events").status == 204

    async with here(tmp_path, max_concurrent_runs=1) as served:
        await in_thread(served, look)


async def test_many_small_events_reach_all_clients_in_few_writes(tmp_path: Path) -> None:
    lines, clients = 5_000, 4
    command = f"i=0; while [ $i -lt {lines} ]; do echo line $i; i=$((i+1)); done"
    put_workflow(tmp_path / "data", workflow("loud", command))

    def look(client: Client) -> None:
        streams = [Events(client, "/api/events") for _ in range(clients)]
        texts: list[str] = [""] * clients

        def read(number: int) -> None:
            for event in streams[number].until("run_finished"):
                if event["type"] == "stdout_chunk":
                    texts[number] += event["line"]

        readers = [threading.Thread(target=read, args=(number,)) for number in range(clients)]
        for reader in readers:
            reader.start()
        client.run("loud")
        for reader in readers:
            reader.join(30)
        for stream in streams:
            stream.close()
        assert texts == ["".join(f"line {n}\n" for n in range(lines))] * clients

    async with here(tmp_path) as served:
        await in_thread(served, look)


async def test_clients_that_went_away_leave_nothing_behind(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", workflow("long", "sleep 600"))

    def look(client: Client) -> str:
        run_id = str(client.post("/api/run", {"workflowId": "long"}).json()["runId"])
        eventually(lambda: client.get(f"/api/runs/{run_id}").json()["run"]["status"] == "running")
        for path in itertools.chain(["/api/events", f"/api/runs/{run_id}/events"] * 20):
            with Events(client, path) as events:
                next(iter(events))
        return run_id

    async with here(tmp_path) as served:
        run_id = await in_thread(served, look)
        await eventually_async(lambda: len(served.server.web.streams) == 0)
        live = served.server.service._live.get(run_id)
        assert live is not None
        assert live.feed._ring.waiting == 0
        assert served.server.service.event_bus._ring.waiting == 0


async def test_only_so_many_streams_are_open_at_once() -> None:
    streams = Streams(limit=2)
    statuses: list[int] = []

    async def nothing() -> Any:
        await asyncio.Event().wait()
        yield b""

    async def stream() -> None:
        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        await EventStream(nothing(), streams)({"type": "http"}, asyncio.Event().wait, send)  # type: ignore[arg-type]

    open_ones = [asyncio.create_task(stream()) for _ in range(2)]
    await eventually_async(lambda: len(statuses) == 2)
    async with asyncio.timeout(10):
        with pytest.raises(Exception, match="2 event streams are open") as refused:
            await stream()
        assert getattr(refused.value, "status", 0) == 503
        streams.close()
        await asyncio.gather(*open_ones)
    assert len(streams) == 0


async def test_a_client_that_never_reads_costs_one_batch(tmp_path: Path) -> None:
    """The run goes on at its own pace, and nothing of what it says piles up for that client."""
    command = "head -c 30000000 /dev/zero | tr '\\0' x | fold -w 100"
    put_workflow(tmp_path / "data", workflow("loud", command))

    def look(client: Client) -> None:
        with socket.create_connection(("127.0.0.1", client.port)) as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            deaf.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.run("loud")["status"] == "succeeded"

    async with here(tmp_path) as served:
        await in_thread(served, look)
        assert len(served.server.service.event_bus._ring) <= 2 * RING_ITEMS


async def test_a_listener_that_falls_behind_is_told_by_a_gap() -> None:
    bus = EventBus()
    bus.subscribe(lambda _: None)
    for number in range(3 * RING_ITEMS):
        bus.publish({"type": "x", "number": number})
    listening = bus.listen(0)
    first = (await anext(listening))[0]
    assert first.number > 1
    assert isinstance(first.message, dict)
    assert first.message["number"] == first.number - 1
    await listening.aclose()


async def test_what_steps_return_counts_as_memory_too() -> None:
    bus = EventBus()
    bus.subscribe(lambda _: None)
    large = StepFinished("a", "a", "agent", "next", {"stdout": "x" * 100_000})
    for number in range(1, 1_001):
        bus.publish(Recorded("r", number, 0, "cid", large))
    assert len(bus._ring) * 100_000 <= 2 * RING_CHARS


async def test_a_process_without_listeners_keeps_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as here_is:
        await here_is.run(workflow("tiny", "true"))
        assert here_is.service.event_bus.last == 0
