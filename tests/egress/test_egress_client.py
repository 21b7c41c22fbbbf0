"""The server's own HTTP client, against real servers on loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from infloop.egress.client import Client, Destination, Response
from infloop.egress.resolve import Lookup
from infloop.errors import EgressError
from infloop.policy.hosts import Allowlist, parse_rules
from support.egress_proxy import always, answer_ok, far_side, read_request
from support.http_thread import certified, trusting


@asynccontextmanager
async def asked(
    client: Client,
    url: str,
    method: str = "GET",
    *,
    headers: dict[str, str] | None = None,
    content: bytes | AsyncIterator[bytes] | None = None,
    patience_s: float = 10,
    most: int = 1 << 20,
) -> AsyncIterator[Response]:
    async with (
        client,
        client.stream(
            method,
            url,
            headers=headers,
            content=content,
            connect_timeout_s=patience_s,
            read_timeout_s=patience_s,
            max_response_bytes=most,
        ) as response,
    ):
        yield response


def here(port: int, host: str = "far.test", lookup: Lookup | None = None) -> Client:
    """Return a client that may ask one place on this machine."""
    destination = Destination("http", host, port, private_ok=True)
    return Client([destination], lookup=lookup or always("127.0.0.1"))


async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer with the request itself."""
    said = b"".join(await read_request(reader))
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(said) + said)


async def test_it_sends_what_it_is_given_under_the_name_of_the_host() -> None:
    async with far_side(record) as far:
        url = f"http://far.test:{far.port}/a?b=c"
        headers = {"X-Mine": "1", "Host": "evil.test"}
        async with asked(here(far.port), url, "POST", headers=headers, content=b"abc") as response:
            said = (await response.read()).decode()
    assert response.status == 200
    assert said.startswith("POST /a?b=c HTTP/1.1\r\n")
    assert f"host: far.test:{far.port}\r\n" in said
    assert "evil.test" not in said
    assert "x-mine: 1\r\n" in said
    assert said.endswith("\r\n\r\nabc")


async def test_content_may_come_in_pieces() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"abc"
        yield b"def"

    async with far_side(record) as far:
        url = f"http://far.test:{far.port}/"
        async with asked(here(far.port), url, "POST", content=pieces()) as response:
            assert (await response.read()).endswith(b"3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n")
        known = {"content-length": "6"}
        client = here(far.port)
        async with asked(client, url, "POST", headers=known, content=pieces()) as response:
            assert (await response.read()).endswith(b"\r\n\r\nabcdef")


async def test_header_names_of_an_answer_are_in_lower_case_and_repeated_ones_joined() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 429 Slow Down\r\nRetry-After: 3\r\nVary: a\r\nvary: b\r\n\r\n")

    async with (
        far_side(serve) as far,
        asked(here(far.port), f"http://far.test:{far.port}/") as response,
    ):
        assert await response.read() == b""
    assert response.status == 429
    assert response.headers == {"retry-after": "3", "vary": "a, b"}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_answer_and_is_not_followed(status: int) -> None:
    async with far_side(answer_ok) as elsewhere:
        place = f"http://127.0.0.1:{elsewhere.port}/"

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            head = f"HTTP/1.1 {status} x\r\nlocation: {place}\r\ncontent-length: 0\r\n\r\n"
            writer.write(head.encode())

        async with far_side(serve) as far:
            client = here(far.port)
            async with asked(client, f"http://far.test:{far.port}/") as response:
                assert response.status == status
                assert response.headers["location"] == place
        assert elsewhere.untouched


async def test_proxy_variables_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    async with far_side(answer_ok) as proxy, far_side(answer_ok) as far:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        async with asked(here(far.port), f"http://far.test:{far.port}/") as response:
            assert await response.read() == b"ok"
        assert proxy.untouched


async def test_cookies_are_not_kept() -> None:
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nset-cookie: a=b\r\ncontent-length: 0\r\n\r\n")

    async with far_side(serve) as far, here(far.port) as client:
        for _ in range(2):
            async with client.stream(
                "GET",
                f"http://far.test:{far.port}/",
                connect_timeout_s=10,
                read_timeout_s=10,
                max_response_bytes=10,
            ) as response:
                await response.read()
    assert len(heard) == 2
    assert not any(b"cookie" in head.lower() for head in heard)


@pytest.mark.parametrize(
    ("scheme", "host", "same_port"),
    [("http", "other.test", True), ("https", "far.test", True), ("http", "far.test", False)],
)
async def test_only_what_was_named_is_asked(scheme: str, host: str, *, same_port: bool) -> None:
    async with far_side(answer_ok) as far, far_side(answer_ok) as other:
        port = far.port if same_port else other.port
        with pytest.raises(EgressError, match="not a configured destination") as caught:
            async with asked(here(far.port), f"{scheme}://{host}:{port}/"):
                pass
        assert caught.value.failure == "refused"
        assert far.untouched
        assert other.untouched


async def test_an_allowlist_decides_as_well() -> None:
    async with far_side(answer_ok) as far:
        rules = [f"far.test:{far.port}", f"127.0.0.1:{far.port}"]
        allowed = Allowlist((parse_rules("the operator", rules),))
        client = Client(allowed, lookup=always("127.0.0.1"))
        async with asked(client, f"http://far.test:{far.port}/") as response:
            assert await response.read() == b"ok"
        with pytest.raises(EgressError, match="not in the allowlist of the operator"):
            async with asked(client, f"http://evil.test:{far.port}/"):
                pass
    assert far.connections == 1


@pytest.mark.parametrize(
    ("private_ok", "answer", "refused"),
    [
        (False, ["127.0.0.1"], "loopback"),
        (False, ["10.0.0.1"], "private"),
        (False, ["8.8.8.8", "127.0.0.1"], "loopback"),
        (True, ["169.254.169.254"], "cloud metadata"),
        (True, ["127.0.0.1", "169.254.169.254"], "cloud metadata"),
        (True, ["127.0.0.1", "::ffff:127.0.0.1"], "IPv4 inside IPv6"),
        (True, ["0.0.0.0"], "unspecified"),
    ],
)
async def test_an_address_that_may_not_be_dialled_refuses_the_name(
    answer: Sequence[str], refused: str, *, private_ok: bool
) -> None:
    async with far_side(answer_ok) as far:
        destination = Destination("http", "far.test", far.port, private_ok=private_ok)
        client = Client([destination], lookup=always(*answer))
        with pytest.raises(EgressError, match=f"far.test has a {refused} address"):
            async with asked(client, f"http://far.test:{far.port}/"):
                pass
        assert far.untouched


async def test_the_address_that_was_checked_is_the_one_that_is_dialled() -> None:
    async with far_side(answer_ok) as far, far_side(answer_ok, "127.0.0.2") as inside:
        answers = iter([["127.0.0.1"], ["127.0.0.2"]])
        asked_for: list[str] = []

        async def rebinding(name: str) -> Sequence[str]:
            asked_for.append(name)
            return next(answers)

        client = here(far.port, lookup=rebinding)
        async with asked(client, f"http://far.test:{far.port}/") as response:
            assert await response.read() == b"ok"
        assert asked_for == ["far.test"]
        assert (far.connections, inside.connections) == (1, 0)


async def test_an_address_that_does_not_answer_is_followed_by_the_next() -> None:
    async with far_side(answer_ok) as far:
        client = here(far.port, lookup=always("127.0.0.9", "127.0.0.1"))
        async with asked(client, f"http://far.test:{far.port}/") as response:
            assert await response.read() == b"ok"


async def test_the_certificate_is_verified_for_the_name_and_not_the_address() -> None:
    names: list[str | None] = []
    context = certified()
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    async with far_side(answer_ok, tls=context) as far:
        port = far.port
        for host, trust in (("far.test", trusting()), ("far.test", None), ("b.test", trusting())):
            destination = Destination("https", host, port, private_ok=True)
            client = Client([destination], lookup=always("127.0.0.1"), tls=trust)
            if host == "far.test" and trust:
                async with asked(client, f"https://far.test:{port}/") as response:
                    assert await response.read() == b"ok"
                continue
            with pytest.raises(EgressError, match="certificate verify failed") as caught:
                async with asked(client, f"https://{host}:{port}/"):
                    pass
            assert caught.value.failure == "unreachable"
    assert names == ["far.test", "far.test", "b.test"]


async def test_a_body_that_is_too_large_is_cut_off() -> None:
    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    async with far_side(pour) as far:
        with pytest.raises(EgressError, match="larger than 100000 bytes") as caught:
            async with asked(
                here(far.port), f"http://far.test:{far.port}/", most=100_000
            ) as response:
                await response.read()
        assert caught.value.failure == "too-large"
        async with asyncio.timeout(10):
            await far.ended.wait()


async def test_a_head_that_never_ends_is_cut_off() -> None:
    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"x: " + b"y" * 1000 + b"\r\n")
            await writer.drain()

    async with far_side(pour) as far:
        with pytest.raises(EgressError) as caught:
            async with asked(here(far.port), f"http://far.test:{far.port}/"):
                pass
        assert caught.value.failure == "broken"


async def test_a_silent_server_is_not_waited_for_longer_than_asked() -> None:
    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with far_side(silence) as far:
        with pytest.raises(EgressError, match="did not answer in time") as caught:
            async with asked(here(far.port), f"http://far.test:{far.port}/", patience_s=0.05):
                pass
        assert caught.value.failure == "timeout"


async def test_a_name_service_that_hangs_is_not_waited_for() -> None:
    async def hang(_: str) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    with pytest.raises(EgressError, match="in time") as caught:
        async with asked(here(80, lookup=hang), "http://far.test:80/", patience_s=0.05):
            pass
    assert caught.value.failure == "timeout"


async def test_a_name_without_an_answer_is_unreachable() -> None:
    async def unknown(_: str) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(EgressError, match="cannot be resolved") as caught:
        async with asked(here(80, lookup=unknown), "http://far.test:80/"):
            pass
    assert caught.value.failure == "unreachable"


async def test_a_closed_port_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(EgressError, match="cannot be reached") as caught:
        async with asked(here(port), f"http://far.test:{port}/"):
            pass
    assert caught.value.failure == "unreachable"


async def test_the_machines_own_name_service_is_asked_by_default() -> None:
    async with far_side(answer_ok) as far:
        client = Client([Destination("http", "localhost", far.port, private_ok=True)])
        async with asked(client, f"http://localhost:{far.port}/") as response:
            assert await response.read() == b"ok"


@pytest.mark.parametrize(
    "headers",
    [
        {"X": "a\r\nEvil: b"},
        {"X\r\nEvil": "b"},
        {"X": "a\0b"},
        {"X": "☃"},
        {"X y": "a"},
        {"Authorization": "Bearer sk-secret "},
    ],
)
async def test_a_header_cannot_smuggle_another_and_is_not_shown(headers: dict[str, str]) -> None:
    async with far_side() as far:
        with pytest.raises(EgressError) as caught:
            async with asked(here(far.port), f"http://far.test:{far.port}/", headers=headers):
                pass
        assert "Evil" not in str(caught.value)
        assert "sk-secret" not in str(caught.value)
        assert not far.heard


async def test_a_reader_that_stops_early_leaves_nothing_open() -> None:
    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    async with far_side(pour) as far:
        client = here(far.port)
        async with client:
            async with client.stream(
                "GET",
                f"http://far.test:{far.port}/",
                connect_timeout_s=10,
                read_timeout_s=10,
                max_response_bytes=1 << 30,
            ) as response:
                async for _ in response.chunks:
                    break
            async with asyncio.timeout(10):
                await far.ended.wait()


async def test_a_closed_client_asks_nobody() -> None:
    client = here(80)
    with pytest.raises(EgressError, match="closed"):
        async with client.stream(
            "GET",
            "http://far.test:80/",
            connect_timeout_s=1,
            read_timeout_s=1,
            max_response_bytes=1,
        ):
            pass
