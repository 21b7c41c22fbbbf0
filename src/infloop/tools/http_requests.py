"""HTTP requests of tools. Web, agent and MCP tools send theirs here.

Every request, and every redirect that it leads to, passes the same checks in this order:

    URL       plain http(s), without credentials
    rules     `policy.egress_rules`, before a name is resolved
    address   resolved once, all its addresses checked, a checked one dialled (`egress.client`)

A redirect from https to http is not followed. A private address is reached only if the call needed
`private-network`, so that the gate has asked for it, and only at the host and port of the call.
Nothing is shared between calls: no connections, no cookies.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from infloop.egress.client import Client
from infloop.egress.public_hosts import PublicHosts
from infloop.errors import EgressError
from infloop.model.capabilities import Need
from infloop.model.hosts import HttpUrl, parse_url
from infloop.model.url_paths import joined_url
from infloop.policy.egress_rules import REFUSAL, decide_request
from infloop.tools.base import ToolError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from infloop.egress.client import Response, Tls
    from infloop.egress.resolve import Lookup
    from infloop.model.agent_config import EgressRule
    from infloop.model.capabilities import Capability
    from infloop.policy.hosts import Allowlist

MAX_REDIRECTS = 5

_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_USER_AGENT = "infloop"


class Answer(NamedTuple):
    """A response and the URL that gave it, after redirects."""

    url: str
    response: Response


class ToolRequests:
    """Sends requests within the operator's rules."""

    def __init__(
        self,
        rules: Sequence[EgressRule],
        hosts: Allowlist | None = None,
        *,
        lookup: Lookup | None = None,
        tls: Tls | None = None,
    ) -> None:
        """Hold requests to `rules`, and to the `hosts` of the run if these are not all.

        `lookup` and `tls` replace the system's resolver and trust.
        """
        self._rules = tuple(rules)
        self._hosts = hosts
        self._lookup = lookup
        self._tls = tls

    def check(self, tool: str, method: str, url: str) -> None:
        """Raise ToolError if the rules do not allow a request."""
        decision = decide_request(self._rules, tool, method, url, self._hosts)
        if decision.mismatch == "url":
            raise ToolError("bad-url", decision.reason)
        if not decision.allowed:
            raise ToolError("egress-refused", REFUSAL, decision.reason)

    @asynccontextmanager
    async def send(
        self,
        tool: str,
        method: str,
        url: str,
        *,
        timeout_s: float,
        max_bytes: int,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        private_ok: bool = False,
        max_redirects: int = 0,
    ) -> AsyncGenerator[Answer]:
        """Send a request and yield the answer while its body is received.

        `timeout_s` limits each wait; the caller sets the deadline for the whole. Beyond
        `max_redirects` a redirect is an error; with 0 it is an answer.
        """
        place = plain_url(url)
        client = Client(
            PublicHosts((place.host, place.port) if private_ok else None, self._hosts),
            check_request=lambda verb, target: self.check(tool, verb, target),
            lookup=self._lookup,
            tls=self._tls,
        )
        current = url.partition("#")[0]
        async with client:
            for left in range(max_redirects, -1, -1):
                async with client.stream(
                    method,
                    current,
                    headers={"user-agent": _USER_AGENT, **(headers or {})},
                    content=content,
                    connect_timeout_s=timeout_s,
                    read_timeout_s=timeout_s,
                    max_response_bytes=max_bytes,
                ) as response:
                    target = _redirect(response) if max_redirects else ""
                    if not target:
                        yield Answer(current, response)
                        return
                if not left:
                    raise ToolError(
                        "too-many-redirects", f"there are more than {max_redirects} redirects"
                    )
                current = _next_url(current, target)


def plain_url(url: str) -> HttpUrl:
    """Parse a URL that a model wrote; raise ToolError if it is not a plain http(s) URL."""
    try:
        return parse_url(url.partition("#")[0])
    except EgressError as error:
        raise ToolError("bad-url", str(error)) from None


def network_needs(url: str, capability: Capability, *, private: bool) -> tuple[Need, ...]:
    """Return what a request to a URL needs."""
    place = plain_url(url)
    subject = f"{place.scheme}://{place.authority}{place.target}"
    needs = (Need(capability, subject),)
    return (*needs, Need("private-network", subject)) if private else needs


def _redirect(response: Response) -> str:
    return response.headers.get("location", "") if response.status in _REDIRECTS else ""


def _next_url(current: str, location: str) -> str:
    target = joined_url(current, location.partition("#")[0])
    if plain_url(current).scheme == "https" and plain_url(target).scheme == "http":
        raise ToolError("redirect-refused", "the server redirects from https to http")
    return target
