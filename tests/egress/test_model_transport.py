"""The client of libraries that speak to model APIs: one destination, one key, few repetitions."""

from __future__ import annotations

import httpx2
import pytest

from infloop.egress.model_transport import FailedResponse, ModelTransport, model_client
from infloop.errors import BudgetError, EgressError
from support.fake_model import FakeModel, Refuse, Say

BODY = {"model": "m", "stream": True, "tools": [1]}


async def admit(_: bytes) -> None:
    """Let everything pass."""


async def ask(transport: ModelTransport, url: str, **more: str) -> httpx2.Response:
    async with transport, model_client(transport) as client:
        return await client.post(f"{url}/v1/chat/completions", json=BODY, headers=more)


async def test_only_a_few_headers_are_sent_and_the_key_is_added() -> None:
    async with FakeModel([Say("fine")]) as model:
        transport = ModelTransport(
            model.url, {"authorization": "Bearer right"}, before_sending=admit
        )
        response = await ask(transport, model.url, **{"authorization": "wrong", "x-api-key": "no"})
        assert response.status_code == 200
        assert "fine" in response.text
        headers = model.asked[0].headers
        assert headers["authorization"] == "Bearer right"
        assert "x-api-key" not in headers
        assert "cookie" not in headers


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "http://localhost:{port}", "https://127.0.0.1:{port}"]
)
async def test_another_destination_is_not_reached(url: str) -> None:
    async with FakeModel([Say("fine")]) as model:
        transport = ModelTransport(model.url, {}, before_sending=admit)
        with pytest.raises(httpx2.ConnectError):
            await ask(transport, url.format(port=model.url.rpartition(":")[2]))
        assert isinstance(transport.failure, EgressError)
        assert not model.asked


@pytest.mark.parametrize(
    ("status", "retry_after", "tries", "waits"),
    [
        (503, "", 3, [1.0, 2.0]),
        (429, "7", 3, [7.0, 7.0]),
        (429, "3600", 1, []),
        (429, "tomorrow", 1, []),
        (529, "0", 3, [0.0, 0.0]),
        (400, "1", 1, []),
        (401, "", 1, []),
    ],
)
async def test_only_an_overloaded_server_is_asked_again(
    status: int, retry_after: str, tries: int, waits: list[float]
) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    headers = {"retry-after": retry_after} if retry_after else {}
    async with FakeModel(Refuse(status, {"error": "no"}, headers)) as model:
        transport = ModelTransport(model.url, {}, before_sending=admit, sleep=sleep)
        response = await ask(transport, model.url)
        assert response.status_code == status
        assert len(model.asked) == tries
        assert waited == waits
        assert isinstance(transport.failure, FailedResponse)


async def test_what_is_not_admitted_is_not_sent() -> None:
    async def refuse(body: bytes) -> None:
        assert b'"model"' in body
        raise BudgetError("spent")

    async with FakeModel([Say("fine")]) as model:
        transport = ModelTransport(model.url, {}, before_sending=refuse)
        with pytest.raises(BudgetError):
            await ask(transport, model.url)
        assert isinstance(transport.failure, BudgetError)
        assert not model.asked


async def test_a_redirect_is_an_error_response() -> None:
    async with FakeModel(Refuse(302, {}, {"location": "http://192.0.2.1/"})) as model:
        transport = ModelTransport(model.url, {}, before_sending=admit)
        response = await ask(transport, model.url)
        assert response.status_code == 302
        assert len(model.asked) == 1
