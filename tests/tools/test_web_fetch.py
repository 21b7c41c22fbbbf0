"""`web_fetch`, through the gate, against real servers."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Callable, Sequence

import pytest

from infloop.lowlevel.own_ports import OwnPorts
from infloop.model.agent_config import EgressRule
from infloop.model.capabilities import ToolRule
from infloop.policy.egress_rules import REFUSAL, private_network_rules
from support.egress_proxy import Far, always, answer_ok, far_side, read_request
from support.http_thread import certified, trusting
from support.own_network import in_own_network
from support.tools import Person
from support.web_tools import answers, redirects, web_bench

PAGE = b"<html><title>A &amp; B</title><script>x()</script><p>Hello <a href='/next'>next</a></html>"
HTML = "content-type: text/html; charset=utf-8"


def rule_for(far: Far, host: str = "far.test", **more: object) -> EgressRule:
    return EgressRule(host=host, schemes=("http",), ports=(far.port,), **more)  # type: ignore[arg-type]


async def test_a_page_is_returned_with_what_is_known_about_it() -> None:
    async with far_side(answers(PAGE, HTML)) as far, web_bench() as bench:
        url = f"http://far.test:{far.port}/a?b#c"
        fetched = await bench.fetch(url, allow_private=True)
        readable = await bench.fetch(url, allow_private=True, readable=True)
    assert fetched == {
        "status": 200,
        "content_type": "text/html; charset=utf-8",
        "url": f"http://far.test:{far.port}/a?b",
        "truncated": False,
        "bytes": len(PAGE),
        "body": PAGE.decode(),
    }
    assert readable["body"] == "A & B\n\nHello next (/next)"


async def test_an_answer_that_is_an_error_is_an_answer() -> None:
    async with far_side(answers(b"gone", status=410)) as far, web_bench() as bench:
        fetched = await bench.fetch(f"http://far.test:{far.port}/", allow_private=True)
    assert (fetched["status"], fetched["body"]) == (410, "gone")


@pytest.mark.claim("L14")
@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/",
        "http://127.255.255.254:{port}/",
        "http://[::1]:{port}/",
        "http://[::]:{port}/",
        "http://0.0.0.0:{port}/",
        "http://0.1.2.3:{port}/",
        "http://10.0.0.1/",
        "http://172.31.255.255/",
        "http://192.168.0.1/",
        "http://100.64.0.1/",
        "http://169.254.1.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://100.100.100.200/latest/meta-data/",
        "http://168.63.129.16/",
        "http://192.0.0.192/",
        "http://192.0.0.8/",
        "http://192.0.2.1/",
        "http://198.18.0.1/",
        "http://198.51.100.1/",
        "http://203.0.113.1/",
        "http://224.0.0.1/",
        "http://240.0.0.1/",
        "http://255.255.255.255/",
        "http://[fc00::1]/",
        "http://[fd00:ec2::254]/",
        "http://[fe80::1]/",
        "http://[fec0::1]/",
        "http://[ff02::1]/",
        "http://[64:ff9b::7f00:1]:{port}/",
        "http://[2002:7f00:1::]:{port}/",
        "http://[2001:0:7f00:1::]:{port}/",
        "http://[2001:db8::1]/",
        "http://[4000::1]/",
    ],
)
async def test_an_address_that_is_not_public_is_refused(url: str) -> None:
    async with far_side(answer_ok) as far, web_bench() as bench:
        result = await bench.call("web_fetch", url=url.format(port=far.port))
        assert result.code == "network-refused"
        assert far.untouched
        assert not bench.person.questions


@pytest.mark.claim("L14")
@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1.:{port}/",
        "http://127.0.1:{port}/",
        "http://127.1:{port}/",
        "http://2130706433:{port}/",
        "http://0x7f000001:{port}/",
        "http://0x7f.0.0.1:{port}/",
        "http://0177.0.0.1:{port}/",
        "http://0:{port}/",
        "http://[0:0:0:0:0:0:0:1]:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/",
        "http://[::ffff:7f00:1]:{port}/",
        "http://[::127.0.0.1]:{port}/",
        "http://[::1%25lo]:{port}/",
        "http://[fe80::1%25eth0]:{port}/",
        "http://localhost.:{port}/",
        "http://①②⑦.⓪.⓪.①:{port}/",
        "http://127。0。0。1:{port}/",
        "http://user@127.0.0.1:{port}/",
        "http://user:word@far.test:{port}/",
        "http://far.test:{port}\\@127.0.0.1/",
        "http://far.test:{port}\t/",
        "http://far.test:{port}/ HTTP/1.1\r\nX-Other: 1",
        "http:far.test:{port}/",
        "http:/\\far.test:{port}/",
        "//far.test:{port}/",
        "far.test:{port}/",
        "ftp://far.test:{port}/",
        "ws://far.test:{port}/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:{port}/_FLUSHALL",
        "unix:///run/docker.sock",
        "javascript:alert(1)",
        "blob:http://far.test:{port}/x",
        "",
    ],
)
async def test_a_url_that_could_be_read_in_two_ways_is_refused(url: str) -> None:
    looked_up: list[str] = []

    async def lookup(host: str) -> Sequence[str]:
        looked_up.append(host)
        return ["127.0.0.1"]

    async with far_side(answer_ok) as far, web_bench(lookup=lookup) as bench:
        result = await bench.call("web_fetch", url=url.format(port=far.port), allow_private=True)
        assert result.code == "bad-url"
        assert far.untouched
        assert not looked_up
        assert not bench.person.questions


@pytest.mark.claim("L14")
@pytest.mark.parametrize(
    "answer",
    [
        ["127.0.0.1"],
        ["::1"],
        ["10.0.0.1"],
        ["169.254.169.254"],
        ["::ffff:127.0.0.1"],
        ["64:ff9b::7f00:1"],
        ["2002:7f00:1::"],
        ["2001:0:7f00:1::"],
        ["100.64.0.1"],
        ["fec0::1"],
        ["8.8.8.8", "127.0.0.1"],
        ["not an address"],
        [],
    ],
)
async def test_a_name_with_an_address_that_is_not_public_is_refused(answer: list[str]) -> None:
    async with far_side(answer_ok) as far, web_bench(lookup=always(*answer)) as bench:
        result = await bench.call("web_fetch", url=f"http://far.test:{far.port}/")
        assert result.code == "network-refused"
        assert not any(address in result.text for address in answer)
        assert far.untouched


@pytest.mark.claim("L14")
async def test_the_address_that_was_checked_is_the_one_that_is_dialled() -> None:
    """A second answer of the resolver, for the same name, changes nothing."""
    looked_up: list[str] = []

    async def rebinding(host: str) -> Sequence[str]:
        looked_up.append(host)
        return ["127.0.0.1"] if len(looked_up) == 1 else ["127.0.0.2"]

    async with (
        far_side(answers(b"checked")) as far,
        web_bench(lookup=rebinding) as bench,
    ):
        fetched = await bench.fetch(f"http://far.test:{far.port}/", allow_private=True)
    assert fetched["body"] == "checked"
    assert looked_up == ["far.test"]


@pytest.mark.claim("L14")
def test_a_public_address_is_reached_and_its_redirect_to_this_machine_is_not() -> None:
    """In a network of its own, where a public address is this machine's."""
    public = "9.9.9.1"

    async def fetch() -> None:
        async with (
            far_side(answer_ok) as inner,
            far_side(redirects(f"http://127.0.0.1:{inner.port}/"), host=public) as outer,
            far_side(answers(b"public"), host=public) as page,
            web_bench(lookup=always(public)) as bench,
        ):
            fetched = await bench.fetch(f"http://page.test:{page.port}/")
            assert fetched["body"] == "public"
            result = await bench.call("web_fetch", url=f"http://far.test:{outer.port}/")
            assert result.code == "network-refused"
            assert (outer.connections, inner.connections) == (1, 0)

    in_own_network(public, fetch)


@pytest.mark.claim("L15")
async def test_a_private_address_needs_a_permission_and_not_only_the_argument() -> None:
    async with far_side(answer_ok) as far:
        url = f"http://127.0.0.1:{far.port}/"
        async with web_bench(person=Person(allows=False)) as bench:
            assert (await bench.call("web_fetch", url=url, allow_private=True)).code == "denied"
            assert len(bench.person.questions) == 1
            assert (await bench.call("web_fetch", url=url)).code == "network-refused"
            assert len(bench.person.questions) == 1
        assert far.untouched
        async with web_bench() as bench:
            assert (await bench.fetch(url, allow_private=True))["body"] == "ok"
            assert url in bench.person.questions[0].title


@pytest.mark.claim("L15", "L21")
async def test_an_operator_permits_the_private_addresses_that_rules_name() -> None:
    async with far_side(answer_ok) as far, far_side(answer_ok) as other:
        rules = [rule_for(far, "127.0.0.1"), rule_for(other, "::1")]
        url = f"http://127.0.0.1:{far.port}/"
        nobody = Person(allows=False)
        async with web_bench(
            rules, permissions=private_network_rules(rules), person=nobody
        ) as bench:
            assert (await bench.fetch(url, allow_private=True))["body"] == "ok"
            assert not nobody.questions
            elsewhere = f"http://127.0.0.1:{other.port}/"
            assert (await bench.call("web_fetch", url=elsewhere, allow_private=True)).code
        assert other.untouched


@pytest.mark.claim("L21")
async def test_a_rule_alone_does_not_open_a_private_address() -> None:
    async with far_side(answer_ok) as far:
        url = f"http://127.0.0.1:{far.port}/"
        async with web_bench([rule_for(far, "127.0.0.1")]) as bench:
            assert (await bench.call("web_fetch", url=url)).code == "network-refused"
        async with web_bench([rule_for(far)], lookup=always("10.0.0.1")) as bench:
            named = f"http://far.test:{far.port}/"
            assert (await bench.call("web_fetch", url=named)).code == "network-refused"
        assert far.untouched


@pytest.mark.parametrize("address", ["169.254.169.254", "100.64.0.1", "0.0.0.0", "fe80::1"])
async def test_a_permission_for_private_addresses_opens_nothing_else(address: str) -> None:
    async with web_bench(lookup=always(address)) as bench:
        result = await bench.call("web_fetch", url="http://far.test/", allow_private=True)
        assert result.code == "network-refused"


async def test_a_server_of_infloop_is_never_reached() -> None:
    async with far_side(answer_ok) as far, web_bench() as bench:
        with OwnPorts() as own:
            own.announce(far.port)
            url = f"http://127.0.0.1:{far.port}/"
            result = await bench.call("web_fetch", url=url, allow_private=True)
            assert result.code == "network-refused"
            assert "a server of infloop" in result.text
        assert far.untouched


@pytest.mark.claim("L17", "L18")
@pytest.mark.parametrize(
    ("host", "path", "rule", "detail"),
    [
        ("far.test", "/api", {"tool": "a2a_send"}, "tool web_fetch"),
        ("other.test", "/api", {}, "host other.test"),
        ("far.test", "/api", {"schemes": ("https",)}, "scheme http of host far.test"),
        ("far.test", "/api", {"ports": (80,)}, "port"),
        ("far.test", "/api-evil", {"path_prefix": "/api"}, "path '/api-evil' of host far.test"),
        ("far.test", "/api/%2e%2e/x", {"path_prefix": "/api"}, "path '/api/%2e%2e/x'"),
        ("far.test", "//api", {"path_prefix": "/api"}, "path '//api'"),
        ("far.test", "/api", {"methods": ("POST",)}, "method GET of host far.test"),
    ],
)
async def test_what_no_rule_allows_is_refused_before_its_name_is_resolved(
    host: str, path: str, rule: dict[str, object], detail: str
) -> None:
    """The operator learns what did not match; the model always reads the same."""
    looked_up: list[str] = []

    async def lookup(name: str) -> Sequence[str]:
        looked_up.append(name)
        return ["127.0.0.1"]

    async with far_side(answer_ok) as far:
        fields: dict[str, object] = {"host": "far.test", "schemes": ("http",), "ports": (far.port,)}
        rules = [EgressRule(**(fields | rule))]  # type: ignore[arg-type]
        async with web_bench(rules, lookup=lookup) as bench:
            url = f"http://{host}:{far.port}{path}"
            result = await bench.call("web_fetch", url=url, allow_private=True)
            assert (result.code, result.text) == ("egress-refused", REFUSAL)
            assert f"no egress rule for {detail}" in str(bench.detail)
        assert far.untouched
        assert not looked_up


@pytest.mark.claim("L17")
async def test_what_a_rule_allows_is_fetched() -> None:
    async with far_side(answer_ok) as far:
        rules = [rule_for(far, tool="web_fetch", path_prefix="/api", methods=("GET",))]
        async with web_bench(rules) as bench:
            url = f"http://FAR.test:{far.port}/api/%75sers"
            assert (await bench.fetch(url, allow_private=True))["body"] == "ok"


@pytest.mark.claim("L18")
async def test_each_redirect_is_judged_by_the_rules() -> None:
    async with far_side(answer_ok) as inner:
        for location in (
            f"http://other.test:{inner.port}/api",
            f"//other.test:{inner.port}/api",
            "/elsewhere",
            "../elsewhere",
            "/api/../elsewhere",
        ):
            async with far_side(redirects(location)) as far:
                rules = [rule_for(far, path_prefix="/api"), rule_for(inner, "allowed.test")]
                async with web_bench(rules) as bench:
                    url = f"http://far.test:{far.port}/api/x"
                    result = await bench.call("web_fetch", url=url, allow_private=True)
                    assert (result.code, result.text) == ("egress-refused", REFUSAL), location
                    assert far.connections == 1
        assert inner.untouched


@pytest.mark.claim("L14", "L18")
@pytest.mark.parametrize(
    ("location", "code"),
    [
        ("http://127.0.0.1:{port}/", "network-refused"),
        ("http://localhost:{port}/", "network-refused"),
        ("//127.0.0.1:{port}/", "network-refused"),
        ("http://other.test:{port}/", "network-refused"),
        ("http://169.254.169.254/latest/api/token", "network-refused"),
        ("http://user:word@far.test:{port}/", "bad-url"),
        ("http://[::ffff:127.0.0.1]:{port}/", "bad-url"),
        ("file:///etc/passwd", "bad-url"),
        ("gopher://127.0.0.1:{port}/", "bad-url"),
    ],
)
async def test_each_redirect_is_judged_by_its_address_and_scheme(location: str, code: str) -> None:
    """A permission for one private place does not reach to another one."""
    async with (
        far_side(answer_ok) as inner,
        far_side(redirects(location.format(port=inner.port), status=307)) as far,
        web_bench() as bench,
    ):
        url = f"http://far.test:{far.port}/"
        result = await bench.call("web_fetch", url=url, allow_private=True)
        assert result.code == code
        assert inner.untouched


async def test_five_redirects_are_followed_and_not_one_more() -> None:
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, _ = await read_request(reader)
        asked.append(head)
        number = int(head.split(b" ")[1].removeprefix(b"/"))
        if number == 0:
            writer.write(b"HTTP/1.1 200 x\r\ncontent-length: 4\r\n\r\ndone")
        else:
            location = b"location: %d" % (number - 1)
            writer.write(b"HTTP/1.1 301 x\r\ncontent-length: 0\r\n" + location + b"\r\n\r\n")

    async with far_side(serve) as far, web_bench() as bench:
        fetched = await bench.fetch(f"http://far.test:{far.port}/5", allow_private=True)
        assert (fetched["body"], fetched["url"][-2:]) == ("done", "/0")
        assert len(asked) == 6
        result = await bench.call(
            "web_fetch", url=f"http://far.test:{far.port}/50", allow_private=True
        )
        assert result.code == "too-many-redirects"
        assert len(asked) == 12


async def test_a_redirect_from_https_to_http_is_refused() -> None:
    async with (
        far_side(answer_ok) as plain,
        far_side(redirects(f"http://far.test:{plain.port}/"), tls=certified()) as far,
        web_bench(tls=trusting()) as bench,
    ):
        url = f"https://far.test:{far.port}/"
        result = await bench.call("web_fetch", url=url, allow_private=True)
        assert result.code == "redirect-refused"
        assert plain.untouched


async def test_a_large_page_is_cut_while_it_arrives() -> None:
    sent = 0

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 x\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            sent += 65536
            await writer.drain()

    async with far_side(endless) as far, web_bench() as bench:
        url = f"http://far.test:{far.port}/"
        fetched = await bench.fetch(url, allow_private=True, max_bytes=1000)
        await far.ended.wait()
    assert (fetched["truncated"], fetched["bytes"], fetched["body"]) == (True, 1000, "x" * 1000)
    assert sent < 64 << 20


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [("gzip", gzip.compress), ("x-gzip", gzip.compress), ("deflate", zlib.compress)],
)
async def test_a_compressed_bomb_is_cut_while_it_is_unpacked(
    encoding: str, compress: Callable[[bytes], bytes]
) -> None:
    bomb = compress(b"a" * (8 << 20))
    async with (
        far_side(answers(bomb, f"content-encoding: {encoding}")) as far,
        web_bench() as bench,
    ):
        url = f"http://far.test:{far.port}/"
        fetched = await bench.fetch(url, allow_private=True, max_bytes=5000)
    assert (fetched["truncated"], fetched["body"]) == (True, "a" * 5000)


@pytest.mark.parametrize(
    "encoding", ["br", "zstd", "gzip, gzip", "compress", "gzip\tx", "aes128gcm"]
)
async def test_an_encoding_that_was_not_asked_for_is_refused(encoding: str) -> None:
    async with (
        far_side(answers(b"x", f"content-encoding: {encoding}")) as far,
        web_bench() as bench,
    ):
        result = await bench.call(
            "web_fetch", url=f"http://far.test:{far.port}/", allow_private=True
        )
    assert result.code == "unsupported-encoding"


async def test_a_damaged_compressed_page_is_an_error() -> None:
    async with (
        far_side(answers(b"not gzip", "content-encoding: gzip")) as far,
        web_bench() as bench,
    ):
        result = await bench.call(
            "web_fetch", url=f"http://far.test:{far.port}/", allow_private=True
        )
    assert result.code == "bad-encoding"


@pytest.mark.parametrize(
    ("data", "content_type", "body"),
    [
        (b"PK\x03\x04\0\0", "text/plain", "[6 bytes that are not text]"),
        ("grün".encode("latin-1"), "text/plain; charset=ISO-8859-1", "grün"),
        ("grün".encode(), "text/plain", "grün"),
        (b"\xff\xfe", "text/plain; charset=utf-8", "��"),
        (b"a+AGE-", "text/plain; charset=utf-7", "a+AGE-"),
        (b"xn--", "text/plain; charset=idna", "xn--"),
        (b"\x1b[2J", "text/plain; charset='unicode_escape'", "\x1b[2J"),
    ],
)
async def test_a_body_is_decoded_as_its_charset_says(
    data: bytes, content_type: str, body: str
) -> None:
    async with (
        far_side(answers(data, f"content-type: {content_type}")) as far,
        web_bench() as bench,
    ):
        fetched = await bench.fetch(f"http://far.test:{far.port}/", allow_private=True)
    assert fetched["body"] == body


@pytest.mark.parametrize(
    "response",
    [
        b"hello without a head\r\n\r\n",
        b"HTTP/1.1 200 x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"HTTP/1.1 200 x\r\n" + b"x-many: 1\r\n" * 100_000 + b"\r\n",
        b"HTTP/1.1 200 x\r\nx-long: " + b"1" * (1 << 20) + b"\r\n\r\n",
        b"HTTP/1.1 200 x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 x\r\ncontent-length: 100\r\n\r\nshort",
    ],
    ids=["no head", "two lengths", "many headers", "a long header", "bad chunk", "cut off"],
)
async def test_what_is_not_http_is_an_error(response: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(response)
        await writer.drain()

    async with far_side(serve) as far, web_bench() as bench:
        result = await bench.call(
            "web_fetch", url=f"http://far.test:{far.port}/", allow_private=True
        )
    assert result.code == "network-broken"
    assert len(result.text) < 1000


@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 200 x\r\n\r\n", b"HTTP/1.1 102 x\r\n\r\n"])
async def test_a_server_that_only_drips_meets_the_deadline(first: bytes) -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(first)
        while True:
            writer.write(b"x" if first.endswith(b"200 x\r\n\r\n") else first)
            await writer.drain()
            await asyncio.sleep(0.02)

    async with far_side(drip) as far, web_bench() as bench:
        result = await bench.call(
            "web_fetch", url=f"http://far.test:{far.port}/", allow_private=True, timeout_ms=200
        )
    assert result.code in ("timed-out", "network-timeout")


async def test_proxies_and_cookies_play_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append((await read_request(reader))[0].lower())
        writer.write(b"HTTP/1.1 200 x\r\nset-cookie: a=b\r\ncontent-length: 0\r\n\r\n")

    async with far_side(answer_ok) as proxy, far_side(serve) as far, web_bench() as bench:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        for _ in range(2):
            await bench.fetch(f"http://far.test:{far.port}/", allow_private=True)
        assert proxy.untouched
    assert len(heard) == 2
    assert not any(b"cookie" in head or b"authorization" in head for head in heard)


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_bytes": 0},
        {"max_bytes": 10**9},
        {"timeout_ms": 0},
        {"timeout_ms": 10**9},
        {"method": "POST"},
        {"headers": {"authorization": "x"}},
        {"allow_private": "yes"},
        {"url": "http://far.test/" + "a" * 10_000},
    ],
)
async def test_arguments_have_bounds(arguments: dict[str, object]) -> None:
    async with web_bench() as bench:
        given = {"url": "http://far.test/", **arguments}
        assert (await bench.gate.call("web_fetch", given)).code == "bad-arguments"  # type: ignore[arg-type]


async def test_an_operator_can_deny_addresses_by_pattern() -> None:
    deny = ToolRule("network-read", "deny", "http://far.test:*")
    async with far_side(answer_ok) as far, web_bench(permissions=[deny]) as bench:
        url = f"http://FAR.test:{far.port}/"
        assert (await bench.call("web_fetch", url=url, allow_private=True)).code == "denied"
        assert far.untouched
