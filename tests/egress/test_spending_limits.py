"""Limits on cost against agents that hide what they spend: real runs, children and sockets."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from infloop.egress.broker import CallRefused
from infloop.model.events import Notice
from infloop.policy.routes import FREE_ROUTES, ROUTES, Route
from infloop.providers.http.dialects import dialect_of
from infloop.runtime.spending.broker_usage import BrokerUsage
from support.brokered_agent import asking, install_agent, statuses
from support.eventually import eventually_async
from support.runs import World, world

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

MODEL = "claude-opus-4-8"
MTOK = 1_000_000
INPUT_USD, OUTPUT_USD = 5 / MTOK, 25 / MTOK
MOST_INPUT_USD = 10 / MTOK
"""Writing a token to the cache that lasts an hour costs the most."""

SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
PATIENCE_S = 60


def body(text: str = "hi", **fields: Any) -> str:
    messages = [{"role": "user", "content": text}]
    asked = {"model": MODEL, "max_tokens": 1_000, "messages": messages, **fields}
    return json.dumps(asked, separators=(",", ":"))


@dataclass
class BillingApi:
    """A Messages API that bills every request that reached it, whoever reads the answer.

    It bills a token for every byte and the longest answer, unless `written` says how much it
    writes. With `open` it answers only when that is set; with `begins`, it begins before.
    """

    written: int | None = None
    model: str = MODEL
    open: asyncio.Event | None = None
    begins: bool = False
    breaks: bool = False
    billed_usd: float = 0.0
    bodies: list[bytes] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
            data = await reader.readexactly(length)
            self.at_once += 1
            self.most_at_once = max(self.at_once, self.most_at_once)
            try:
                await self._answer(data, writer)
            finally:
                self.at_once -= 1
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        self.bodies.append(data)
        written = self.written or int(json.loads(data).get("max_tokens", 0))
        self.billed_usd += len(data) * INPUT_USD + written * OUTPUT_USD
        if self.open is not None and not self.begins:
            await self.open.wait()
        used = {"input_tokens": len(data), "output_tokens": 1}
        start = {"type": "message_start", "message": {"model": self.model, "usage": used}}
        writer.write(SSE + event(start))
        if self.open is not None:
            await self.open.wait()
        for _ in range(5):
            await writer.drain()
            await asyncio.sleep(0)
            writer.write(event({"type": "content_block_delta", "delta": {"text": "word"}}))
        if not self.breaks:
            writer.write(event({"type": "message_delta", "usage": {"output_tokens": written}}))
            writer.write(event({"type": "message_stop"}))
        await writer.drain()


def event(data: object) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


@asynccontextmanager
async def limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: BillingApi, **settings: Any
) -> AsyncIterator[World]:
    """A world whose agents use this API through the broker."""
    server = await asyncio.start_server(api.serve, "127.0.0.1", 0, backlog=1_000)
    async with server:
        install_agent(
            tmp_path, monkeypatch, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        )
        async with world(tmp_path, snapshots=False, **settings) as here:
            yield here


CLIENT = """
import asyncio, json, os, random
from urllib.parse import urlsplit
place = urlsplit(os.environ["BASE"])
def request(body, path="/v1/messages", *fields):
    head = (f"POST {place.path}{path} HTTP/1.1", f"host: {place.netloc}",
            f"x-api-key: {os.environ['THE_KEY']}", f"content-length: {len(body)}", *fields, "", "")
    return "\\r\\n".join(head).encode() + body.encode()
async def ask(body, path="/v1/messages"):
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write(request(body, path))
    answer = await reader.read(-1)
    writer.close()
    with open("statuses", "ab") as file:
        file.write(answer[9:12] + b"\\n")
    return answer
"""

HOSTILE = """
async def client(number):
    chance = random.Random(number)
    body = json.dumps({"model": "MODEL", "max_tokens": 2_000,
                       "messages": [{"role": "user", "content": "x" * chance.randrange(4_000)}]})
    data = request(body)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        moment = chance.choice(["body", "sent", "head", "part", "end"])
        writer.write(data[: len(data) // 2] if moment == "body" else data)
        await writer.drain()
        if moment == "sent":
            await asyncio.sleep(chance.random() / 20)
        if moment in ("head", "part"):
            await reader.readuntil(b"\\r\\n\\r\\n")
        if moment == "part":
            await reader.read(chance.randrange(1, 200))
        if moment == "end":
            await reader.read(-1)
    except (OSError, EOFError):
        pass
    finally:
        writer.transport.abort()
async def main():
    await asyncio.gather(*(client(FIRST + each) for each in range(250)), return_exceptions=True)
asyncio.run(main())
"""


@pytest.mark.claim("I49", "I50")
async def test_a_thousand_clients_that_hang_up_do_not_spend_more_than_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cap, api = 2.0, BillingApi()
    largest = 4_200 * MOST_INPUT_USD + 2_000 * OUTPUT_USD
    async with limited(tmp_path, monkeypatch, api, max_total_cost_usd=cap) as here:
        runs = [
            await here.start(
                asking(CLIENT + HOSTILE.replace("FIRST", str(first)).replace("MODEL", MODEL))
            )
            for first in range(0, 1_000, 250)
        ]
        ended = await asyncio.gather(*(here.finish(run_id) for run_id in runs))
        spent = await here.settled(4)
    assert any("all runs of this process together" in each.result.error for each in ended)
    assert len(api.bodies) > 10, "some came through"
    assert api.billed_usd <= cap + largest
    assert api.billed_usd <= spent.usd + 1e-9, "nothing that was billed is missing"
    assert spent.usd <= cap + largest


PARALLEL = """
async def main():
    await asyncio.gather(*(ask(BODY) for _ in range(TIMES)))
asyncio.run(main())
report(TIMES, 0.0)
"""


def parallel(times: int, asked: str) -> str:
    return CLIENT + PARALLEL.replace("TIMES", str(times)).replace("BODY", repr(asked))


async def test_parallel_calls_hold_money_against_one_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cap, asked = 1.0, body(max_tokens=4_000)
    largest = len(asked) * MOST_INPUT_USD + 4_000 * OUTPUT_USD
    api = BillingApi(open=asyncio.Event())
    async with limited(tmp_path, monkeypatch, api, max_run_cost_usd=cap) as here:
        run_id = await here.start(asking(parallel(200, asked)))
        most = int(cap / largest) + 1
        await eventually_async(lambda: api.at_once == most)
        assert api.open is not None
        api.open.set()
        ended = await here.finish(run_id)
    assert api.most_at_once == most
    assert api.billed_usd <= cap + largest
    assert ended.status == "failed"
    assert "INFLOOP_MAX_RUN_COST_USD" in ended.result.error


async def test_calls_wait_for_each_other_instead_of_failing_while_money_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = body(max_tokens=32_000)  # each holds $0.80 and costs less than a cent
    api = BillingApi(written=10)
    async with limited(tmp_path, monkeypatch, api, max_total_cost_usd=1.0) as here:
        runs = [await here.start(asking(parallel(10, asked))) for _ in range(2)]
        ended = await asyncio.gather(*(here.finish(run_id) for run_id in runs))
        spent = await here.settled(2)
    assert [each.status for each in ended] == ["succeeded"] * 2, ended[0].result
    assert set(statuses(tmp_path)) == {200}
    assert len(api.bodies) == 20
    assert api.most_at_once <= 2
    assert spent.usd == pytest.approx(api.billed_usd)


HANG_UPS = {
    "nobody read the answer": "writer.write(request(BODY)); await done('asked')",
    "the head was read": ("writer.write(request(BODY)); await reader.readuntil(b'\\r\\n\\r\\n')"),
    "half of the body was sent": "writer.write(request(BODY)[:-5]); await writer.drain()",
}


@pytest.mark.parametrize("way", HANG_UPS)
async def test_a_call_whose_usage_nobody_waited_for_is_charged_the_most_it_can_have_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    asked = body(max_tokens=10_000)
    code = f"""
async def done(name):
    while not os.path.exists(name):
        await asyncio.sleep(0.01)
async def main():
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    {HANG_UPS[way].replace("BODY", repr(asked))}
    writer.transport.abort()
    await ask({body()!r})
asyncio.run(main())
report(0, 0.0)
"""
    api = BillingApi(
        open=None if "half" in way else asyncio.Event(), begins=way == "the head was read"
    )

    async def notice(here: World) -> None:
        await eventually_async(lambda: api.bodies)
        (here.folder / "asked").touch()
        if api.open is not None:
            await eventually_async(lambda: len(api.bodies) == 2)
            api.open.set()

    async with limited(tmp_path, monkeypatch, api, max_run_cost_usd=50.0) as here:
        run_id = await here.start(asking(CLIENT + code))
        noticing = asyncio.create_task(notice(here))
        ended = await here.finish(run_id)
        await noticing
        spent = await here.settled(1)
    whole_usd = len(body()) * INPUT_USD + 1_000 * OUTPUT_USD
    lowest, highest = (
        len(asked) * price + 10_000 * OUTPUT_USD for price in (INPUT_USD, MOST_INPUT_USD)
    )
    assert ended.status == "succeeded", ended.result
    if "half" in way:
        assert len(api.bodies) == 1, "the other one was not sent"
        assert spent.usd == pytest.approx(whole_usd)
        assert spent.incomplete == 0
    else:
        assert lowest <= spent.usd - whole_usd <= highest + 1e-9
        assert (spent.unknown, ended.scope["a"]["costUsd"]) == (1, pytest.approx(spent.usd))
        notices = [each for each in ended.events if isinstance(each, Notice)]
        (warning,) = (each for each in notices if each.level == "warning")
        assert warning.node == "a"
        assert "1 answers ended before their usage was known" in warning.message


async def test_answers_that_break_off_use_up_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"""
for _ in range(100):
    asyncio.run(ask({body()!r}))
"""
    api = BillingApi(breaks=True)
    async with limited(tmp_path, monkeypatch, api, max_run_cost_usd=0.1) as here:
        ended = await here.run(asking(CLIENT + code))
    assert ended.status == "failed"
    assert len(api.bodies) == 4
    assert 0.1 <= api.billed_usd <= 0.1 + 1_000 * OUTPUT_USD + 200 * MOST_INPUT_USD


@pytest.mark.parametrize("usd_per_mtok", [100.0, 20.0, 0.0])
async def test_a_model_without_a_price_is_stopped_at_the_price_that_the_operator_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usd_per_mtok: float
) -> None:
    asked = body(model="a-model-on-no-list")
    code = f"""
for _ in range(40):
    asyncio.run(ask({asked!r}))
report(0, 0.0)
"""
    api = BillingApi(model="a-model-on-no-list")
    async with limited(
        tmp_path,
        monkeypatch,
        api,
        max_run_cost_usd=0.5,
        unpriced_usd_per_mtok=usd_per_mtok,
    ) as here:
        ended = await here.run(asking(CLIENT + code))
    call_usd = (len(asked) + 1_000) * usd_per_mtok / MTOK
    if usd_per_mtok:
        assert ended.status == "failed"
        assert len(api.bodies) == int(0.5 / call_usd) + 1
    else:
        assert (ended.status, len(api.bodies)) == ("succeeded", 40)


NO_BOUND = {
    "not JSON": b"model=x",
    "compressed": b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
    "a list": b"[]",
    "empty": b" ",
    "a number": b"1e999",
    "cut off": body().encode()[:-1],
    "two values": body().encode() * 2,
    "audio": body(modalities=["text", "audio"]).encode(),
    "a voice": body(audio={"voice": "alloy"}).encode(),
    "spoken": body(messages=[{"role": "user", "content": [{"type": "input_audio"}]}]).encode(),
    "many values": b'{"messages":[' + b"{}," * 600_000 + b"{}]}",
}


async def test_a_call_without_an_upper_bound_is_refused_in_the_words_of_the_api(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bodies"
    folder.mkdir()
    for number, data in enumerate(NO_BOUND.values()):
        (folder / f"{number:02}").write_bytes(data)
    code = f"""
import http.client
answers = []
for name in sorted(os.listdir({str(folder)!r})):
    connection = http.client.HTTPConnection(place.hostname, place.port)
    data = open({str(folder)!r} + "/" + name, "rb").read()
    key = {{"x-api-key": os.environ["THE_KEY"]}}
    connection.request("POST", place.path + "/v1/messages", data, key)
    answer = connection.getresponse()
    answers.append([answer.status, answer.getheader("content-type"), json.loads(answer.read())])
open("answers", "w").write(json.dumps(answers))
report(0, 0.0)
"""
    api = BillingApi()
    async with limited(tmp_path, monkeypatch, api, max_run_cost_usd=1.0) as here:
        ended = await here.run(asking(CLIENT + code))
        spent = await here.settled(1)
    assert ended.status == "succeeded", ended.result
    assert (api.bodies, spent.usd) == ([], 0.0)
    answers = json.loads((tmp_path / "work/answers").read_text())
    assert len(answers) == len(NO_BOUND)
    for status, kind, error in answers:
        assert (status, kind, error["type"]) == (400, "application/json", "error")
        assert error["error"]["type"] == "invalid_request_error"
        assert (
            "there is a cost limit, and this call has no upper bound" in error["error"]["message"]
        )


@pytest.mark.parametrize(
    ("cap", "words"),
    [
        ({"max_run_cost_usd": 0.01}, "the run spent"),
        ({"max_total_cost_usd": 0.01}, "all runs of this process together have spent"),
        ({"limits": 0.01}, "limits.maxCostUsd in the workflow"),
    ],
)
async def test_every_limit_ends_the_run_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cap: dict[str, float], words: str
) -> None:
    code = f"""
async def main():
    await asyncio.gather(*(ask({body()!r}) for _ in range(9)))
asyncio.run(main())
time.sleep(60)
"""
    api, root = BillingApi(), asking(CLIENT + code)
    settings = {name: usd for name, usd in cap.items() if name != "limits"}
    if "limits" in cap:
        root["limits"] = {"maxCostUsd": cap["limits"]}
    async with limited(tmp_path, monkeypatch, api, **settings) as here:
        ended = await here.run(root)
    assert (ended.status, len(api.bodies)) == ("failed", 1)
    assert words in ended.result.error


def test_every_call_that_may_be_made_is_counted_or_known_to_be_free() -> None:
    for routes in ROUTES.values():
        for route in routes:
            assert (dialect_of(route.path) is None) == (route in FREE_ROUTES), route


BILLED_ELSEWHERE = (
    *("/v1/messages/batches", "/v1/batches", "/v1/files", "/v1/fine_tuning/jobs", "/v1/images"),
    *("/v1/embeddings", "/v1/audio/speech", "/v1/videos", "/v1/completions", "/v1/realtime"),
)


@pytest.mark.parametrize("path", BILLED_ELSEWHERE)
async def test_a_call_that_is_billed_in_another_way_is_refused_under_a_limit(path: str) -> None:
    async def hold(_: float) -> str:
        return ""

    async def charge() -> str:
        return ""

    usage = BrokerUsage()
    usage.begin(charge, hold)
    with pytest.raises(CallRefused, match="it is not known what POST"):
        await usage.admit("openai", Route("POST", path), b"{}")
    usage.begin(charge)
    assert (await usage.admit("openai", Route("POST", path), None)).meter is None
