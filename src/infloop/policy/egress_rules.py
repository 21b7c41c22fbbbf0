"""Decides what tools may reach, by the rules of `[[security.egress.rules]]`.

Rules
  * Without rules, every public address may be reached.
  * With rules, one of them must match the tool, host, scheme, port, path and method of a request.
  * Hosts are compared exactly, in their canonical form. Paths are compared by whole decoded
    segments: `/serde` does not admit `/serde-evil`. An ambiguous path is below no prefix.
  * The decision needs no DNS lookup, and comes before it.
  * A rule never opens a private address. That takes a permission for `private-network` as well.
  * If a run may reach only some hosts (`egress` of its workflow), its tools reach no others.

The operator learns which part of a request no rule matched. A model only gets `REFUSAL`, so that it
cannot find out what the rules are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, cast

from infloop.errors import EgressError
from infloop.model.capabilities import ToolRule
from infloop.model.hosts import authority, canonical_host, parse_url, quoted
from infloop.model.url_paths import decoded_segments, is_below

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from infloop.model.agent_config import EgressRule
    from infloop.model.hosts import Scheme
    from infloop.policy.hosts import Allowlist

UrlScheme: TypeAlias = Literal["http", "https", "ws", "wss"]
Mismatch: TypeAlias = Literal["", "url", "tool", "host", "scheme", "port", "path", "method", "run"]

REFUSAL = "the operator's rules do not allow this request"
"""What a model is told, whatever part of the request did not match."""

_PORTS: Mapping[UrlScheme, int] = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_SECURE: tuple[UrlScheme, ...] = ("https", "wss")


class RequestUrl(NamedTuple):
    """A parsed URL; `target` is its path and query."""

    scheme: UrlScheme
    host: str
    port: int
    target: str

    @property
    def path(self) -> str:
        """The path, not decoded."""
        return self.target.partition("?")[0]

    def __str__(self) -> str:
        """Return the URL in its canonical form, with the port only if it is unusual."""
        return f"{_origin(self.scheme, self.host, self.port)}{self.target}"


class EgressDecision(NamedTuple):
    """A decision; `reason` is for the operator, `mismatch` is what no rule matched."""

    allowed: bool
    reason: str
    mismatch: Mismatch = ""


def _origin(scheme: UrlScheme, host: str, port: int) -> str:
    return f"{scheme}://{authority(host, port, _PORTS[scheme])}"


def parse_request_url(url: str) -> RequestUrl:
    """Parse an http(s) or ws(s) URL; its fragment is ignored. Raises EgressError."""
    text = url.partition("#")[0]
    name = text.partition(":")[0].lower()
    if name not in _PORTS:
        raise EgressError(f"{quoted(url)} is not a URL for http, https, ws or wss")
    scheme = cast("UrlScheme", name)
    place = parse_url(f"http{text[2:]}" if scheme in ("ws", "wss") else text)
    return RequestUrl(scheme, place.host, place.port, place.target)


def decide_request(
    rules: Sequence[EgressRule], tool: str, method: str, url: str, hosts: Allowlist | None = None
) -> EgressDecision:
    """Decide whether a tool may send this request; `hosts` are those of its run, None for all."""
    try:
        request = parse_request_url(url)
    except EgressError as error:
        return EgressDecision(allowed=False, reason=str(error), mismatch="url")
    if hosts is not None:
        plain: Scheme = "http" if request.scheme in ("http", "ws") else "https"
        found = hosts.judge(request.host, request.port, plain)
        if not found.allowed:
            reason = f"host {request.host} of this run: {found.reason}"
            return EgressDecision(allowed=False, reason=reason, mismatch="run")
    if not rules:
        return EgressDecision(allowed=True, reason="there are no egress rules")
    left: Sequence[EgressRule] = rules
    for mismatch, what, matches in _parts(request, tool, method):
        left = [rule for rule in left if matches(rule)]
        if not left:
            reason = f"no egress rule for {what}"
            return EgressDecision(allowed=False, reason=reason, mismatch=mismatch)
    return EgressDecision(allowed=True, reason=f"egress rule for {describe(left[0])}")


def _parts(
    request: RequestUrl, tool: str, method: str
) -> Iterable[tuple[Mismatch, str, Callable[[EgressRule], bool]]]:
    """Yield the parts of a request in the order in which they are compared."""
    where = f"host {request.host}"
    yield "tool", f"tool {tool}", lambda rule: rule.tool in ("*", tool)
    yield "host", where, lambda rule: canonical_host(rule.host) == request.host
    yield (
        "scheme",
        f"scheme {request.scheme} of {where}",
        lambda rule: request.scheme in (rule.schemes or _SECURE),
    )
    yield (
        "port",
        f"port {request.port} of {where}",
        lambda rule: request.port in (rule.ports or (_PORTS[request.scheme],)),
    )
    yield (
        "path",
        f"path {quoted(request.path)} of {where}",
        lambda rule: _admits_path(rule.path_prefix, request.path),
    )
    yield (
        "method",
        f"method {method} of {where}",
        lambda rule: not rule.methods or method.upper() in map(str.upper, rule.methods),
    )


def _admits_path(prefix: str, path: str) -> bool:
    if not prefix:
        return True
    try:
        return is_below(decoded_segments(path), decoded_segments(prefix))
    except EgressError:
        return False


def describe(rule: EgressRule) -> str:
    """Return a rule in one line."""
    schemes = ",".join(rule.schemes or _SECURE)
    ports = f":{','.join(map(str, rule.ports))}" if rule.ports else ""
    methods = ",".join(rule.methods) or "any method"
    return f"{rule.tool} {methods} {schemes}://{rule.host}{ports}{rule.path_prefix or '/'}"


def private_network_rules(rules: Iterable[EgressRule]) -> tuple[ToolRule, ...]:
    """Return permissions for `private-network` on what the rules name.

    They belong before the default rules of an agent whose operator has set `allow_private`.
    """
    patterns = [
        f"{_origin(scheme, canonical_host(rule.host), port)}/*"
        for rule in rules
        for scheme in rule.schemes or _SECURE
        for port in rule.ports or (_PORTS[scheme],)
    ]
    return tuple(
        ToolRule("private-network", "allow", pattern) for pattern in dict.fromkeys(patterns)
    )
