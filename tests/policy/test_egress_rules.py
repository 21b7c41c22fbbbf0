"""What tools may reach: rules by tool, host, scheme, port, path and method."""

from __future__ import annotations

import tomllib
from typing import Any

import msgspec
import pytest

from infloop.model.agent_config import AgentConfig, EgressRule
from infloop.model.capabilities import Need, ToolRule
from infloop.model.url_paths import joined_url
from infloop.policy.egress_rules import decide_request, private_network_rules
from infloop.policy.tool_policy import DEFAULT_RULES, ToolPolicy, decide_call

DOCS = EgressRule(tool="web_fetch", host="docs.test", path_prefix="/serde", methods=("GET",))
PLAIN = EgressRule(host="plain.test", schemes=("http",), ports=(80, 8080))
IPV6 = EgressRule(host="2001:4860::1")
RULES = (DOCS, PLAIN, IPV6)


@pytest.mark.claim("L17")
@pytest.mark.parametrize(
    "url",
    [
        "https://docs.test/serde",
        "https://docs.test/serde/",
        "https://docs.test/serde/de/index.html?x=/../y",
        "https://DOCS.test:443/serde",
        "https://docs.test/%73erde/%C3%BC",
        "https://docs.test/serde#/../part",
        "http://plain.test/any/../thing",
        "http://plain.test:8080",
        "https://[2001:4860::1]/x",
        "wss://[2001:4860::1]/socket",
    ],
)
def test_a_request_that_one_rule_matches_is_allowed(url: str) -> None:
    decision = decide_request(RULES, "web_fetch", "get", url)
    assert decision.allowed, decision
    assert not decision.mismatch


@pytest.mark.claim("L17")
@pytest.mark.parametrize(
    ("tool", "method", "url", "mismatch", "reason"),
    [
        ("a2a_send", "GET", "https://docs.test/serde", "host", "host docs.test"),
        ("web_fetch", "GET", "https://other.test/serde", "host", "host other.test"),
        ("web_fetch", "GET", "https://docs.test.other.test/serde", "host", "docs.test.other.test"),
        ("web_fetch", "GET", "https://xdocs.test/serde", "host", "host xdocs.test"),
        ("web_fetch", "GET", "https://other.test/?x=docs.test/serde", "host", "host other.test"),
        ("web_fetch", "GET", "https://[2001:4860::2]/", "host", "host 2001:4860::2"),
        ("web_fetch", "GET", "http://docs.test/serde", "scheme", "scheme http"),
        ("web_fetch", "GET", "https://plain.test:8080/", "scheme", "scheme https"),
        ("web_fetch", "GET", "ws://plain.test/", "scheme", "scheme ws"),
        ("web_fetch", "GET", "https://docs.test:8443/serde", "port", "port 8443"),
        ("web_fetch", "GET", "http://plain.test:8081/", "port", "port 8081"),
        ("web_fetch", "POST", "https://docs.test/serde", "method", "method POST"),
        ("web_fetch", "HEAD", "https://docs.test/serde/x", "method", "method HEAD"),
        *(
            ("web_fetch", "GET", f"https://docs.test{path}", "path", "path ")
            for path in (
                "",
                "/",
                "/serde-evil",
                "/serd",
                "/Serde",
                "//serde",
                "/x/serde",
                "/serde/../admin",
                "/serde/%2e%2e/admin",
                "/serde/.%2E/admin",
                "/serde/..;a=b/admin",
                "/serde/./x",
                "/serde%2f..%2fadmin",
                "/serde/%2Fadmin",
                "/serde/%5c..%5cadmin",
                "/serde/%252e%252e/admin",
                "/serde/%00",
                "/serde/%0d%0aHost:x",
                "/serde/%ff",
                "/serde/%zz",
                "/serde/%2",
                "?/serde",
            )
        ),
    ],
)
def test_each_mismatch_is_named(
    tool: str, method: str, url: str, mismatch: str, reason: str
) -> None:
    decision = decide_request(RULES, tool, method, url)
    assert (decision.allowed, decision.mismatch) == (False, mismatch)
    assert decision.reason.startswith("no egress rule for ")
    assert reason in decision.reason


@pytest.mark.claim("L17")
def test_a_tool_without_a_rule_is_named() -> None:
    decision = decide_request((DOCS,), "a2a_send", "GET", "https://docs.test/serde")
    assert (decision.mismatch, decision.reason) == ("tool", "no egress rule for tool a2a_send")


@pytest.mark.claim("L17")
def test_parts_of_different_rules_do_not_add_up() -> None:
    rules = (
        EgressRule(host="a.test", path_prefix="/read", methods=("GET",)),
        EgressRule(host="a.test", path_prefix="/write", methods=("POST",)),
    )
    assert decide_request(rules, "t", "GET", "https://a.test/read").allowed
    assert decide_request(rules, "t", "POST", "https://a.test/write/x").allowed
    assert decide_request(rules, "t", "POST", "https://a.test/read").mismatch == "method"


@pytest.mark.parametrize("rules", [(), RULES])
@pytest.mark.parametrize(
    "url",
    [
        "",
        "docs.test/serde",
        "file:///etc/passwd",
        "gopher://docs.test/",
        "javascript:alert(1)",
        "blob:https://docs.test/x",
        "data:text/html,x",
        "unix:///run/docker.sock",
        "https:docs.test/serde",
        "https:/\\docs.test/serde",
        "https://user@docs.test/serde",
        "https://user:word@docs.test/serde",
        "https://docs.test@127.0.0.1/serde",
        "https://127.0.0.1\\@docs.test/serde",
        "https://[docs.test]/serde",
        "https://docs.test./serde",
        "https://docs%2etest/serde",
        "https://docs.test%00.other.test/serde",
        "https://d\u043ecs.test/serde",
        "https://docs\u3002test/serde",
        "https://docs.test\t/serde",
        "https://docs.test\r\nHost: x/serde",
        "https://docs.test:0443/serde",
        "https://docs.test:/serde",
        "https://docs.test:99999/serde",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://[::ffff:127.0.0.1]/",
        "https://[::1%25lo]/",
    ],
)
def test_a_url_that_could_be_read_in_two_ways_is_refused(
    url: str, rules: tuple[EgressRule, ...]
) -> None:
    decision = decide_request(rules, "web_fetch", "GET", url)
    assert (decision.allowed, decision.mismatch) == (False, "url")


def test_without_rules_every_plain_url_is_allowed() -> None:
    assert decide_request((), "web_fetch", "GET", "http://anywhere.test:81/x").allowed


@pytest.mark.claim("L16")
def test_rules_are_read_from_the_configuration() -> None:
    text = """
        [[security.egress.rules]]
        tool = "web_fetch"
        host = "Docs.test"
        path_prefix = "/serde"
        methods = ["GET", "HEAD"]
        ports = [8443]
        schemes = ["https"]
    """
    config = msgspec.convert(tomllib.loads(text), AgentConfig)
    (rule,) = config.security.egress.rules
    assert rule == EgressRule(
        tool="web_fetch",
        host="Docs.test",
        path_prefix="/serde",
        methods=("GET", "HEAD"),
        ports=(8443,),
        schemes=("https",),
    )
    assert decide_request([rule], "web_fetch", "GET", "https://docs.test:8443/serde").allowed


@pytest.mark.claim("L16")
@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"host": "a.test", "path": "/x"}, "unknown field `path`"),
        ({"host": "a.test", "pathPrefix": "/x"}, "unknown field `pathPrefix`"),
        ({"host": "a.test", "method": ["GET"]}, "unknown field `method`"),
        ({"tool": "web_fetch"}, "missing required field `host`"),
        ({"host": ""}, "is not a host"),
        ({"host": "*"}, "is not a host"),
        ({"host": "*.a.test"}, "is not a host"),
        ({"host": "https://a.test"}, "not an IP address|not a host"),
        ({"host": "a.test:443"}, "not an IP address"),
        ({"host": "a.test."}, "is not a host"),
        ({"host": "127.1"}, "not an IP address"),
        ({"host": "a.test", "tool": ""}, "`tool` is empty"),
        ({"host": "a.test", "path_prefix": "serde"}, "does not begin with a slash"),
        ({"host": "a.test", "path_prefix": "/a/../b"}, "dot segments"),
        ({"host": "a.test", "path_prefix": "/a%2fb"}, "encoded slash"),
        ({"host": "a.test", "methods": "GET"}, "array"),
        ({"host": "a.test", "methods": ["GET /"]}, "not HTTP methods"),
        ({"host": "a.test", "ports": [0]}, "not ports"),
        ({"host": "a.test", "ports": ["443"]}, "int"),
        ({"host": "a.test", "schemes": ["ftp"]}, "ftp"),
    ],
)
def test_a_rule_that_is_wrong_is_an_error(rule: dict[str, Any], message: str) -> None:
    data = {"security": {"egress": {"rules": [rule]}}}
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert(data, AgentConfig)


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("http://127.0.0.1:8080/x", True),
        ("https://[::1]/x", True),
        ("http://127.0.0.1:8081/x", False),
        ("https://127.0.0.1:8080/x", False),
        ("http://127.0.0.1:80808/x", False),
        ("https://[::1]:444/x", False),
    ],
)
def test_an_operator_can_permit_the_private_addresses_that_rules_name(
    url: str, *, allowed: bool
) -> None:
    rules = (
        EgressRule(host="127.0.0.1", schemes=("http",), ports=(8080,)),
        EgressRule(host="::1"),
    )
    need = Need("private-network", url)
    policy = ToolPolicy((*private_network_rules(rules), *DEFAULT_RULES))
    assert decide_call([policy], [need]).answer == ("allow" if allowed else "ask")
    denied = ToolPolicy((ToolRule("private-network", "deny"),))
    assert decide_call([policy, denied], [need]).answer == "deny"


@pytest.mark.parametrize(
    ("base", "reference", "url"),
    [
        ("https://a.test/b/c?d", "https://x.test/", "https://x.test/"),
        ("https://a.test/b/c?d", "file:///etc/passwd", "file:///etc/passwd"),
        ("https://a.test/b/c?d", "//x.test/y", "https://x.test/y"),
        ("https://a.test:81/b/c?d", "/y?z=../..", "https://a.test:81/y?z=../.."),
        ("https://a.test/b/c?d", "y", "https://a.test/b/y"),
        ("https://a.test/b/c?d", "../y/./z", "https://a.test/y/z"),
        ("https://a.test/b/c?d", "../../../y", "https://a.test/y"),
        ("https://a.test/b/c?d", "..", "https://a.test/"),
        ("https://a.test/b/c?d", "?e", "https://a.test/b/c?e"),
        ("https://a.test/b/c?d", "", "https://a.test/b/c"),
        ("https://a.test?d/e", "y", "https://a.test/y"),
        ("https://a.test", "y", "https://a.test/y"),
    ],
)
def test_a_reference_means_what_a_browser_takes_it_for(base: str, reference: str, url: str) -> None:
    assert joined_url(base, reference) == url
