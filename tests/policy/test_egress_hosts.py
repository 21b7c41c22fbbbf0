"""Which hosts and addresses a connection may go to: pure decisions, in tables."""

from __future__ import annotations

import json
from importlib.resources import files
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infloop.errors import EgressError, SettingsError
from infloop.model.hosts import canonical_host, is_address, parse_authority, parse_url
from infloop.model.texts import host_pattern
from infloop.policy.addresses import refuse_answer, refused_range
from infloop.policy.hosts import Allowlist, parse_rule, parse_rules
from infloop.policy.routes import ROUTES, find_route


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("api.example.test", "api.example.test"),
        ("API.Example.TEST", "api.example.test"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("localhost", "localhost"),
        ("a.b-c.d3", "a.b-c.d3"),
        ("3com.test", "3com.test"),
        ("1e100.net", "1e100.net"),
        ("a" * 63 + ".test", "a" * 63 + ".test"),
        ("192.0.2.7", "192.0.2.7"),
        ("2001:DB8::7", "2001:db8::7"),
        ("::1", "::1"),
    ],
)
def test_a_host_has_one_way_to_be_written(written: str, canonical: str) -> None:
    assert canonical_host(written) == canonical


@pytest.mark.parametrize(
    "written",
    [
        "",
        ".",
        "example.test.",
        ".example.test",
        "a..test",
        "-a.test",
        "a-.test",
        "a_b.test",
        "_x.test",
        "a" * 64 + ".test",
        ".".join(["a" * 49] * 5) + ".toolong",
        "exa mple.test",
        "example.test ",
        "example.test\n",
        "example.test\r\nhost: evil.test",
        "example.test\0.evil.test",
        "example%2etest",
        "example.test%00.evil.test",
        "user@example.test",
        "example.test\\evil.test",
        "example.test/evil",
        "example.test#evil",
        "*.example.test",
        "[example.test]",
        "[::1]",
        "::1%lo",
        "fe80::1%25eth0",
        "аllowed.test",  # noqa: RUF001  the first letter is Cyrillic
        "①②⑦.⓪.⓪.①",
        "127。0。0。1",
        "bücher.example",
        "127.1",
        "127.0.1",
        "127.0.0.1.",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0x7f.1",
        "0177.0.0.1",
        "127.0.0.01",
        "127.0.0.256",
        "1.2.3.4.5",
        "0",
        "0x",
        "a.0x1",
        "evil.1",
        "0:0:0:0:0:0:0:1",
        "::ffff:127.0.0.1",
        "::ffff:7f00:1",
        "2001:db8::0",
        "1::2::3",
        ":",
        "example.test:443",
    ],
)
def test_what_two_programs_could_read_differently_is_no_host(written: str) -> None:
    with pytest.raises(EgressError):
        canonical_host(written)


@given(st.text(max_size=300))
def test_whatever_passes_is_its_own_canonical_form(text: str) -> None:
    try:
        host = canonical_host(text)
    except EgressError:
        return
    assert canonical_host(host) == host
    assert host.isascii()
    assert host == text.lower()
    assert set(host) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-:")
    assert is_address(host) == _reads_as_address(host)


def _reads_as_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("example.test:443", ("example.test", 443)),
        ("EXAMPLE.test:1", ("example.test", 1)),
        ("192.0.2.7:65535", ("192.0.2.7", 65535)),
        ("[2001:db8::7]:443", ("2001:db8::7", 443)),
    ],
)
def test_an_authority_is_host_and_port(written: str, meant: tuple[str, int]) -> None:
    assert parse_authority(written) == meant


@pytest.mark.parametrize(
    "written",
    [
        "example.test",
        "example.test:",
        "example.test:0",
        "example.test:0443",
        "example.test:443x",
        "example.test:+443",
        "example.test: 443",
        "example.test:65536",
        "example.test:443:443",
        "example.test:443@evil.test:443",
        "user@example.test:443",
        "::1:443",
        "2001:db8::7",
        "[example.test]:443",
        "[192.0.2.7]:443",
        "[::1]443",
        "[::1:443",
        "::1]:443",
        "[]:443",
        ":443",
        "",
        "example.test:\uff14\uff14\uff13",
    ],
)
def test_everything_else_is_no_authority(written: str) -> None:
    with pytest.raises(EgressError):
        parse_authority(written)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("http://example.test", ("http", "example.test", 80, "/")),
        ("HTTPS://Example.test/A?b=c", ("https", "example.test", 443, "/A?b=c")),
        ("http://example.test:8080?q", ("http", "example.test", 8080, "/?q")),
        ("https://[2001:db8::7]/x%20y", ("https", "2001:db8::7", 443, "/x%20y")),
    ],
)
def test_a_url_leads_to_one_place(written: str, meant: tuple[str, str, int, str]) -> None:
    place = parse_url(written)
    assert (place.scheme, place.host, place.port, place.target) == meant


@pytest.mark.parametrize(
    "written",
    [
        "",
        "example.test",
        "//example.test/",
        "ftp://example.test/",
        "http:/example.test/",
        "http://",
        "http:///path",
        "http://user@example.test/",
        "http://user:word@example.test/",
        "http://example.test\\@evil.test/",
        "http://example.test/\\..\\admin",
        "http://example.test/a?b=\\",
        "http://example.test/#part",
        "http://example.test#@evil.test/",
        "http://example.test/a b",
        "http://example.test/\t",
        "http://example.test/\r\nx-api-key: 1",
        "http://example.test/\x00",
        "http://example.test/\u00e9",
        "http://127.1/",
        "http://0x7f000001/",
        "http://example.test:0/",
    ],
)
def test_a_url_that_two_programs_could_read_differently_is_refused(written: str) -> None:
    with pytest.raises(EgressError):
        parse_url(written)


@pytest.mark.parametrize(
    ("allowlisted", "host", "port", "scheme", "allowed"),
    [
        ("api.example.test", "api.example.test", 443, "https", True),
        ("api.example.test", "api.example.test", 80, "http", True),
        ("api.example.test", "api.example.test", 80, "https", False),
        ("api.example.test", "api.example.test", 443, "http", False),
        ("api.example.test", "api.example.test", 8443, "https", False),
        ("api.example.test", "example.test", 443, "https", False),
        ("api.example.test", "x.api.example.test", 443, "https", False),
        ("api.example.test", "xapi.example.test", 443, "https", False),
        ("api.example.test", "api.example.test.evil.test", 443, "https", False),
        ("api.example.test:8443", "api.example.test", 8443, "https", True),
        ("api.example.test:8443", "api.example.test", 443, "https", False),
        ("*.example.test", "a.example.test", 443, "https", True),
        ("*.example.test", "a.b.example.test", 443, "https", True),
        ("*.example.test", "example.test", 443, "https", False),
        ("*.example.test", "xexample.test", 443, "https", False),
        ("*.example.test", "a.example.test.evil.test", 443, "https", False),
        ("192.0.2.7", "192.0.2.7", 443, "https", True),
        ("192.0.2.7", "192.0.2.8", 443, "https", False),
        ("2001:db8::7", "2001:db8::7", 443, "https", True),
        ("[2001:db8::7]:8443", "2001:db8::7", 8443, "https", True),
    ],
)
@pytest.mark.claim("I38")
def test_a_rule_allows_exactly_what_it_says(
    allowlisted: str, host: str, port: int, scheme: str, *, allowed: bool
) -> None:
    assert scheme in ("http", "https")
    ruling = Allowlist((parse_rules("a list", [allowlisted]),)).judge(host, port, scheme)  # type: ignore[arg-type]
    assert ruling.allowed is allowed
    assert ruling.rule == (str(parse_rule(allowlisted)) if allowed else "")


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "*",
        "*.",
        "*.test",
        "*.com:443",
        "a.*.test",
        "*example.test",
        "**.example.test",
        "*.*.example.test",
        "*.192.0.2.7",
        "*.[::1]",
        "https://example.test",
        "example.test/path",
        "example.test:0",
        "example.test:*",
        "example.test.",
        "192.0.2.0/24",
        "127.1",
    ],
)
def test_an_entry_that_is_not_exactly_a_rule_is_an_error(entry: str) -> None:
    with pytest.raises(SettingsError, match="cannot be a rule"):
        parse_rule(entry)


@pytest.mark.parametrize(
    "entry", ["api.example.test", "*.example.test", "192.0.2.7", "2001:db8::7"]
)
def test_what_a_manifest_may_list_is_a_rule(entry: str) -> None:
    assert str(parse_rule(host_pattern(entry))) == entry


@pytest.mark.claim("I43")
@pytest.mark.parametrize(
    ("provider", "host"), [("claude", "api.anthropic.com"), ("codex", "api.openai.com")]
)
def test_the_manifests_that_come_with_infloop_list_the_hosts_of_their_apis(
    provider: str, host: str
) -> None:
    manifest = files("infloop.providers") / "shipped" / f"{provider}.json"
    listed = json.loads(manifest.read_text(encoding="utf-8"))["egressAllowlist"]
    allowed = Allowlist((parse_rules(f"provider {provider!r}", listed),))
    assert allowed.judge(host, 443, "https").allowed
    assert not allowed.judge(f"evil.{host}", 443, "https").allowed


def test_lists_add_up_and_the_operators_denial_wins() -> None:
    allowed = Allowlist(
        (
            parse_rules("provider 'claude'", ["api.example.test", "*.example.test:8443"]),
            parse_rules("workflow 'nightly'", ["docs.example.test"]),
            parse_rules("the operator", ["mirror.example.test:8080"]),
        ),
        parse_rules("the operator", ["docs.example.test", "*.bad.example.test", "198.51.100.9"]),
    )
    assert allowed.judge("api.example.test", 443, "https").reason == (
        "in the allowlist of provider 'claude'"
    )
    assert allowed.judge("mirror.example.test", 8080, "http").allowed
    denied = allowed.judge("docs.example.test", 443, "https")
    assert (denied.verdict, denied.reason) == ("refused", "denied by the operator")
    assert denied.rule == "docs.example.test"
    assert not allowed.judge("x.bad.example.test", 8443, "https").allowed
    assert allowed.judge("evil.test", 443, "https").reason == (
        "not in the allowlist of provider 'claude' or workflow 'nightly' or the operator"
    )
    assert allowed.refuse_address("api.example.test", 443, ip_address("198.51.100.9")) == (
        "api.example.test has an address denied by the operator"
    )


@pytest.mark.parametrize("allowed", [Allowlist(), Allowlist((parse_rules("provider 'x'", []),))])
def test_an_empty_list_allows_nothing(allowed: Allowlist) -> None:
    assert not allowed.judge("example.test", 443, "https").allowed
    assert not allowed.judge("127.0.0.1", 443, "https").allowed


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "unspecified"),
        ("10.0.0.1", "private"),
        ("100.64.0.1", "carrier-grade NAT"),
        ("100.100.100.200", "cloud metadata"),
        ("100.127.255.255", "carrier-grade NAT"),
        ("127.0.0.1", "loopback"),
        ("127.255.255.255", "loopback"),
        ("168.63.129.16", "cloud metadata"),
        ("169.254.0.1", "link-local"),
        ("169.254.169.254", "cloud metadata"),
        ("169.254.255.255", "link-local"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.0.0.8", "reserved"),
        ("192.0.0.192", "cloud metadata"),
        ("192.0.2.1", "documentation"),
        ("192.88.99.1", "6to4"),
        ("192.168.255.255", "private"),
        ("198.18.0.1", "benchmarking"),
        ("198.19.255.255", "benchmarking"),
        ("198.51.100.1", "documentation"),
        ("203.0.113.1", "documentation"),
        ("224.0.0.1", "multicast"),
        ("239.255.255.255", "multicast"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("::7f00:1", "IPv4 inside IPv6"),
        ("::ffff:127.0.0.1", "IPv4 inside IPv6"),
        ("::ffff:8.8.8.8", "IPv4 inside IPv6"),
        ("::ffff:0:808:808", "IPv4 inside IPv6"),
        ("64:ff9b::7f00:1", "NAT64"),
        ("64:ff9b:1::1", "NAT64"),
        ("100::1", "reserved"),
        ("2001:0:7f00:1::", "Teredo"),
        ("2001:2::1", "benchmarking"),
        ("2001:10::1", "ORCHID"),
        ("2001:20::1", "ORCHID"),
        ("2001:100::1", "reserved"),
        ("2001:db8::1", "documentation"),
        ("2002:7f00:1::", "6to4"),
        ("3ffe::1", "reserved"),
        ("3fff::1", "documentation"),
        ("4000::1", "reserved"),
        ("5f00::1", "reserved"),
        ("fc00::1", "private"),
        ("fd00:ec2::254", "cloud metadata"),
        ("fe80::1", "link-local"),
        ("fec0::1", "site-local"),
        ("ff02::1", "multicast"),
    ],
)
def test_an_address_that_is_not_global_is_refused_by_name(address: str, name: str) -> None:
    assert refused_range(ip_address(address)) == name


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "8.8.8.8", "100.63.255.255", "172.32.0.1", "2606:4700::1111"]
)
def test_a_global_address_passes(address: str) -> None:
    assert refused_range(ip_address(address)) == ""


@given(st.ip_addresses())
def test_nothing_that_python_calls_not_global_passes(address: object) -> None:
    read = ip_address(str(address))
    if not read.is_global or read.is_multicast:
        assert refused_range(read)


@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        (["8.8.8.8", "2606:4700::1111"], False),
        (["8.8.8.8", "127.0.0.1"], True),
        (["127.0.0.1", "8.8.8.8"], True),
        (["8.8.8.8", "::ffff:10.0.0.1"], True),
        ([], True),
        (["not an address"], True),
    ],
)
@pytest.mark.claim("I41")
def test_one_bad_address_refuses_the_whole_answer(answer: list[str], *, refused: bool) -> None:
    allowed = Allowlist((parse_rules("a list", ["example.test"]),))
    why = refuse_answer(answer, lambda one: allowed.refuse_address("example.test", 443, one))
    assert bool(why) is refused


@pytest.mark.parametrize(
    ("rule", "refused"),
    [("10.0.0.5", ""), ("10.0.0.5:443", ""), ("10.0.0.5:80", "private"), ("10.0.0.6", "private")],
)
@pytest.mark.claim("I41")
def test_a_listed_address_is_the_only_exception(rule: str, refused: str) -> None:
    allowed = Allowlist((parse_rules("a list", ["inside.example.test", rule]),))
    assert refused in allowed.refuse_address("inside.example.test", 443, ip_address("10.0.0.5"))
    assert allowed.refuse_address("inside.example.test", 443, ip_address("10.0.0.7"))


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("POST", "/v1/messages", 0),
        ("POST", "/v1/messages?beta=true", 0),
        ("POST", "/v1/messages/count_tokens", 0),
        ("GET", "/v1/messages", 403),
        ("POST", "/v1/messages/", 400),
        ("POST", "/v1/Messages", 403),
        ("POST", "/v1/messagesx", 403),
        ("POST", "/v1/files", 403),
        ("POST", "/v1/messages/batches", 403),
        ("POST", "/v1/messages/../files", 400),
        ("POST", "/v1/./messages", 400),
        ("POST", "/v1/%2e%2e/v1/messages", 400),
        ("POST", "/v1%2fmessages", 400),
        ("POST", "//v1/messages", 400),
        ("POST", "/v1//messages", 400),
        ("POST", "/v1/messages;x=1", 400),
        ("POST", "/v1/messages\\..", 400),
        ("POST", "/v1/messages?x=%0d%0a", 400),
        ("POST", "/v1/messages?u=http://evil.test", 400),
    ],
)
def test_a_call_is_pinned_to_method_and_path(method: str, target: str, status: int) -> None:
    routing = find_route(method, target, ROUTES["anthropic"])
    assert routing.status == status
    assert (routing.route is not None) is (status == 0)
