"""What a child may say to its proxy, and what a TLS client says first: pure reading, in tables."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infloop.egress.client_hello import NotHello, hello_refusal, read_hello
from infloop.egress.protocol import (
    MAX_HEAD,
    Forward,
    Head,
    Local,
    Refusal,
    Tunnel,
    has_token,
    parse_request,
    read_head,
)
from support.egress_proxy import client_hello


def head_of(data: str) -> Head | Refusal | None:
    read = read_head(data.encode("latin-1"))
    return read[0] if isinstance(read, tuple) else read


def meaning(data: str) -> object:
    head = head_of(data)
    return parse_request(head) if isinstance(head, Head) else head


# -- requests --------------------------------------------------------------------------------------


def test_connect_asks_for_a_tunnel() -> None:
    asked = "CONNECT API.example.test:443 HTTP/1.1\r\nHost: api.example.test:443\r\n\r\n"
    assert meaning(asked) == Tunnel("api.example.test", 443)


@pytest.mark.parametrize(
    "host", ["Host: example.test\r\n", "Host: Example.TEST:8443\r\n", "hOsT:example.test:8443 \r\n"]
)
def test_the_host_field_of_a_tunnel_may_leave_the_port_out(host: str) -> None:
    asked = f"CONNECT example.test:8443 HTTP/1.1\r\n{host}\r\n"
    assert meaning(asked) == Tunnel("example.test", 8443)


def test_a_client_of_the_old_version_need_not_name_the_host_twice() -> None:
    assert meaning("CONNECT example.test:443 HTTP/1.0\r\n\r\n") == Tunnel("example.test", 443)


def test_a_whole_url_asks_for_plain_http() -> None:
    order = meaning("POST http://example.test/a?b HTTP/1.1\r\nHost: example.test\r\n\r\n")
    assert isinstance(order, Forward)
    assert (order.place.host, order.place.port, order.place.target) == ("example.test", 80, "/a?b")


def test_a_path_is_for_the_proxy_itself() -> None:
    asked = "POST /broker/claude/v1/messages HTTP/1.1\r\nHost: 127.0.0.1:3128\r\n\r\n"
    assert meaning(asked) == Local("/broker/claude/v1/messages")


H = "Host: example.test\r\n"
CHUNKED = "Transfer-Encoding: chunked\r\n"


@pytest.mark.parametrize(
    "data",
    [
        "CONNECT example.test HTTP/1.1\r\nHost: example.test\r\n\r\n",
        "CONNECT example.test: HTTP/1.1\r\nHost: example.test\r\n\r\n",
        "CONNECT example.test:0443 HTTP/1.1\r\nHost: example.test:0443\r\n\r\n",
        "CONNECT example.test:443x HTTP/1.1\r\nHost: example.test\r\n\r\n",
        "CONNECT example.test:443@evil.test:443 HTTP/1.1\r\nHost: example.test\r\n\r\n",
        "CONNECT http://example.test:443 HTTP/1.1\r\nHost: example.test\r\n\r\n",
        "CONNECT [example.test]:443 HTTP/1.1\r\nHost: example.test\r\n\r\n",
        "CONNECT example.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n",
        "CONNECT example.test:443 HTTP/1.1\r\nHost: example.test:444\r\n\r\n",
        "CONNECT example.test:443 HTTP/1.1\r\n\r\n",
        "CONNECT example.test:443 HTTP/1.1\r\nHost: example.test\r\nHost: example.test\r\n\r\n",
        "CONNECT example.test:443 HTTP/1.1\r\nHost: example.test\r\nContent-Length: 3\r\n\r\n",
        f"CONNECT example.test:443 HTTP/1.1\r\n{H}Transfer-Encoding: chunked\r\n\r\n",
        f"GET http://example.test/ HTTP/1.1\r\n{H}{H}\r\n",
        "GET http://example.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
        "GET http://example.test:80/ HTTP/1.1\r\nHost: example.test:81\r\n\r\n",
        "GET http://example.test/ HTTP/1.1\r\nHost: example.test, evil.test\r\n\r\n",
        "GET http://user@example.test/ HTTP/1.1\r\nHost: example.test\r\n\r\n",
        "GET http://example.test\\@evil.test/ HTTP/1.1\r\nHost: example.test\r\n\r\n",
        "GET http://example.test/#@evil.test HTTP/1.1\r\nHost: example.test\r\n\r\n",
        "GET http:example.test/ HTTP/1.1\r\nHost: example.test\r\n\r\n",
        "GET https://example.test/ HTTP/1.1\r\nHost: example.test\r\n\r\n",
        "GET ftp://example.test/ HTTP/1.1\r\nHost: example.test\r\n\r\n",
        f"GET example.test HTTP/1.1\r\n{H}\r\n",
        f"OPTIONS * HTTP/1.1\r\n{H}\r\n",
        f"GET  http://example.test/ HTTP/1.1\r\n{H}\r\n",
        f"GET http://example.test/  HTTP/1.1\r\n{H}\r\n",
        f"GET http://example.test/\tHTTP/1.1\r\n{H}\r\n",
        f" GET http://example.test/ HTTP/1.1\r\n{H}\r\n",
        f"get http://example.test/ HTTP/1.1\r\n{H}\r\n",
        f"GET http://example.test/ HTTP/2.0\r\n{H}\r\n",
        f"GET http://example.test/ HTTP/1.2\r\n{H}\r\n",
        f"GET http://example.test/ http/1.1\r\n{H}\r\n",
        "GET http://example.test/\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        f"POST http://example.test/ HTTP/1.1\r\n{H}Content-Length: 5\r\n{CHUNKED}\r\n",
        f"POST http://example.test/ HTTP/1.1\r\n{H}Content-Length: 5\r\nContent-Length: 5\r\n\r\n",
        f"POST http://example.test/ HTTP/1.1\r\n{H}Content-Length: 5, 5\r\n\r\n",
        f"POST http://example.test/ HTTP/1.1\r\n{H}Content-Length: +5\r\n\r\n",
        f"POST http://example.test/ HTTP/1.1\r\n{H}Content-Length: -1\r\n\r\n",
        f"POST http://example.test/ HTTP/1.1\r\n{H}Content-Length: 0x5\r\n\r\n",
        f"POST http://example.test/ HTTP/1.1\r\n{H}Content-Length: 05\r\n\r\n",
        f"POST http://example.test/ HTTP/1.1\r\n{H}Content-Length:\r\n\r\n",
        f"POST http://example.test/ HTTP/1.1\r\n{H}Transfer-Encoding: identity\r\n\r\n",
        f"POST http://example.test/ HTTP/1.1\r\n{H}Transfer-Encoding: gzip, chunked\r\n\r\n",
        f"POST http://example.test/ HTTP/1.1\r\n{H}Transfer-Encoding: xchunked\r\n\r\n",
        f"POST http://example.test/ HTTP/1.1\r\n{H}Transfer-Encoding : chunked\r\n\r\n",
        "POST http://example.test/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        f"GET http://example.test/ HTTP/1.1\r\n{H} folded: x\r\n\r\n",
        f"GET http://example.test/ HTTP/1.1\r\n{H}X: a\r\n b\r\n\r\n",
        f"GET http://example.test/ HTTP/1.1\r\n{H}X: a\nY: b\r\n\r\n",
        f"GET http://example.test/ HTTP/1.1\r\n{H}X: a\rY: b\r\n\r\n",
        f"GET http://example.test/ HTTP/1.1\r\n{H}X: a\0b\r\n\r\n",
        f"GET http://example.test/ HTTP/1.1\r\n{H}X Y: a\r\n\r\n",
        f"GET http://example.test/ HTTP/1.1\r\n{H}: a\r\n\r\n",
        f"GET http://example.test/ HTTP/1.1\r\n{H}no colon\r\n\r\n",
        "GET http://example.test/ HTTP/1.1\nHost: example.test\n\n",
        f"GET http://example.test/\xff HTTP/1.1\r\n{H}\r\n",
        "\x05\x01\x00",
        "\x16\x03\x01\x02\x00",
        "\r\n\r\nGET",
    ],
)
def test_what_is_not_plainly_an_order_is_a_bad_request(data: str) -> None:
    refused = meaning(data)
    assert isinstance(refused, Refusal), refused
    assert refused.status == 400


@pytest.mark.parametrize(
    ("data", "status"),
    [
        ("TRACE http://example.test/ HTTP/1.1\r\nHost: example.test\r\n\r\n", 405),
        (f"GET http://example.test/ HTTP/1.1\r\n{H}Expect: a miracle\r\n\r\n", 417),
        (f"GET http://example.test/ HTTP/1.1\r\n{H}" + "A: b\r\n" * 101 + "\r\n", 431),
        ("GET http://example.test/" + "a" * MAX_HEAD, 431),
        (f"GET http://example.test/ HTTP/1.1\r\n{H}X: " + "a" * MAX_HEAD + "\r\n\r\n", 431),
    ],
)
def test_other_refusals_have_a_status_of_their_own(data: str, status: int) -> None:
    refused = meaning(data)
    assert isinstance(refused, Refusal)
    assert refused.status == status


def test_a_head_is_waited_for_until_it_is_complete() -> None:
    data = b"CONNECT example.test:443 HTTP/1.1\r\nHost: example.test\r\n\r\n"
    for size in range(len(data)):
        assert read_head(data[:size]) is None
    read = read_head(data + b"more")
    assert isinstance(read, tuple)
    assert read[1] == len(data)


@given(st.binary(max_size=400))
def test_no_bytes_make_the_reader_fail(data: bytes) -> None:
    for begin in (b"", b"CONNECT ", b"GET http://a.test/ HTTP/1.1\r\n"):
        read = read_head(begin + data + b"\r\n\r\n")
        if isinstance(read, tuple):
            parse_request(read[0])


def test_fields_between_neighbours_are_not_passed_on() -> None:
    head = head_of(
        "GET http://example.test/ HTTP/1.1\r\nHost: example.test\r\nConnection: close, X-Mine\r\n"
        "Proxy-Authorization: Bearer t\r\nProxy-Connection: keep-alive\r\nTE: trailers\r\n"
        "Upgrade: h2c\r\nX-Mine: 1\r\nAccept: */*\r\nKeep-Alive: 5\r\n\r\n"
    )
    assert isinstance(head, Head)
    assert head.forwarded_fields() == {"accept": "*/*"}


@pytest.mark.parametrize(
    ("shown", "holds"),
    [
        ("Bearer secret", True),
        ("bearer  secret ", True),
        (f"Basic {base64.b64encode(b'run:secret').decode()}", True),
        (f"Basic {base64.b64encode(b':secret').decode()}", True),
        ("Bearer secre", False),
        ("Bearer secretx", False),
        ("Bearer ", False),
        ("Bearer sécret", False),
        ("secret", False),
        ("Digest secret", False),
        (f"Basic {base64.b64encode(b'secret').decode()}", False),
        (f"Basic {base64.b64encode(b'secret:').decode()}", False),
        ("Basic !!!", False),
        ("", False),
    ],
)
def test_the_token_is_a_password_or_a_bearer(shown: str, *, holds: bool) -> None:
    head = head_of(f"GET http://example.test/ HTTP/1.1\r\n{H}Proxy-Authorization: {shown}\r\n\r\n")
    assert isinstance(head, Head)
    assert has_token(head, "secret") is holds
    assert has_token(head, "") is False


# -- hellos ----------------------------------------------------------------------------------------


def in_records(message: bytes, *sizes: int) -> bytes:
    """Cut a handshake message into records of these sizes, and the rest."""
    records = bytearray()
    for size in (*sizes, len(message)):
        piece, message = message[:size], message[size:]
        if piece:
            records += b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece
    return bytes(records)


def hello_message(*extensions: tuple[int, bytes]) -> bytes:
    """Build a ClientHello with these extensions."""
    listed = b"".join(
        kind.to_bytes(2, "big") + len(content).to_bytes(2, "big") + content
        for kind, content in extensions
    )
    body = b"\x03\x03" + bytes(32) + b"\0" + b"\0\2\x13\x01" + b"\1\0"
    body += len(listed).to_bytes(2, "big") + listed
    return b"\x01" + len(body).to_bytes(3, "big") + body


def server_name(*names: bytes, kind: int = 0) -> tuple[int, bytes]:
    entries = b"".join(bytes([kind]) + len(name).to_bytes(2, "big") + name for name in names)
    return 0, len(entries).to_bytes(2, "big") + entries


def test_a_real_hello_is_read() -> None:
    hello = read_hello(client_hello("api.example.test"))
    assert hello is not None
    assert (hello.server_name, hello.hidden) == ("api.example.test", False)
    nameless = read_hello(client_hello(None))
    assert nameless is not None
    assert nameless.server_name == ""


@pytest.mark.parametrize("sizes", [(), (1,), (3, 1), (4, 5, 6), (100, 100), (1,) * 20])
def test_a_hello_may_come_in_pieces(sizes: tuple[int, ...]) -> None:
    data = in_records(client_hello("api.example.test")[5:], *sizes)
    for size in range(len(data)):
        assert read_hello(data[:size]) is None
    assert hello_refusal(data, "api.example.test") == ""
    assert hello_refusal(data + b"early data", "api.example.test") == ""


@pytest.mark.parametrize(
    ("data", "host"),
    [
        (client_hello("api.example.test"), "other.example.test"),
        (client_hello("api.example.test"), "192.0.2.7"),
        (client_hello(None), "api.example.test"),
        (client_hello("evil.test"), "api.example.test"),
        (in_records(hello_message(server_name(b"api.example.test"), (0xFE0D, b"x"))), ""),
        (in_records(hello_message(server_name(b"api.example.test"), (0xFFCE, b"x"))), ""),
        (in_records(hello_message(server_name(b"api.example.test", b"evil.test"))), ""),
        (in_records(hello_message(*[server_name(b"api.example.test")] * 2)), ""),
        (in_records(hello_message(server_name(b"api.example.test", kind=1))), ""),
        (in_records(hello_message(server_name(b""))), ""),
        (in_records(hello_message(server_name("ä".encode()))), ""),
        (in_records(hello_message(server_name(b"api.example.test\0.evil.test"))), ""),
        (in_records(hello_message(server_name(b"api.example.test."))), ""),
        (in_records(hello_message((0, b""))), ""),
        (in_records(hello_message((0, b"\0\5\0\0"))), ""),
        (in_records(hello_message(), *[1] * 40), ""),
        (in_records(b"\x01\x00\x00\x02\x03\x03"), ""),
        (in_records(b"\x01\xff\xff\xff\x03\x03"), ""),
        (in_records(b"\x02\x00\x00\x00"), ""),
        (in_records(hello_message(server_name(b"api.example.test")) + b"\x01"), ""),
        (in_records(hello_message(server_name(b"api.example.test")) * 2), ""),
        (in_records(hello_message()[:-2] + b"\xff\xff"), ""),
        (b"\x16\x03\x01\x00\x00", ""),
        (b"\x16\x03\x01\xff\xff", ""),
        (b"\x16\x02\x00\x00\x05", ""),
        (b"\x17\x03\x03\x00\x05hello", ""),
        (b"SSH-2.0-x\r\n", ""),
        (b"GET / HTTP/1.1\r\n\r\n", ""),
        (b"\x80\x2e\x01\x03\x01", ""),
        (b"\0" * 100, ""),
    ],
)
def test_a_tunnel_must_not_begin_like_this(data: bytes, host: str) -> None:
    assert hello_refusal(data, host or "api.example.test")


def test_a_hello_to_an_address_has_no_name() -> None:
    assert hello_refusal(client_hello(None), "192.0.2.7") == ""


def test_a_hidden_name_is_allowed_only_where_that_is_chosen() -> None:
    hidden = hello_message(server_name(b"api.example.test"), (0xFE0D, b""))
    data = in_records(hidden)
    assert "ECH" in str(hello_refusal(data, "api.example.test"))
    assert hello_refusal(data, "api.example.test", hidden_allowed=True) == ""
    assert hello_refusal(data, "other.example.test", hidden_allowed=True)


def test_the_name_in_a_hello_is_compared_without_case() -> None:
    data = in_records(hello_message(server_name(b"API.Example.test")))
    assert hello_refusal(data, "api.example.test") == ""


@given(st.binary(max_size=600))
def test_no_bytes_make_the_hello_reader_fail(data: bytes) -> None:
    for begin in (b"", b"\x16\x03\x01\x01\x00\x01\x00\x00\xfc\x03\x03"):
        try:
            read_hello(begin + data)
        except NotHello:
            continue
