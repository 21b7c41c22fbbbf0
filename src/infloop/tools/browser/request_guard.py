"""Judges every request of a browser before it is sent.

Rules
  * A request that is not allowed, not understood or cannot be judged is refused.
  * The address comes from the browser's protocol, never from a script of the page.
  * The operator's rules are consulted before a name is resolved.
  * Only http and https are judged. `data:` and `blob:` need no network and may be part of a page,
    but not the page itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from infloop.egress.resolve import addresses_to_dial
from infloop.errors import EgressError
from infloop.model.hosts import quoted
from infloop.policy.browser_hosts import RULE_NAME, rules_of_pages
from infloop.policy.egress_rules import REFUSAL, decide_request, parse_request_url
from infloop.tools.base import ToolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.egress.resolve import Lookup
    from infloop.model.agent_config import EgressRule
    from infloop.policy.browser_hosts import BrowserHosts
    from infloop.policy.hosts import Allowlist

_LOOKUP_S = 5.0
_WITHOUT_NETWORK = ("data:", "blob:")


class RequestGuard:
    """The rules for the requests of one browser."""

    def __init__(
        self,
        rules: Sequence[EgressRule],
        hosts: BrowserHosts,
        lookup: Lookup,
        run_hosts: Allowlist | None = None,
    ) -> None:
        """Judge by `rules`, and by the hosts that the run may reach if these are not all."""
        self._rules = tuple(rules)
        self._page_rules = rules_of_pages(rules)
        self._hosts = hosts
        self._lookup = lookup
        self._run_hosts = run_hosts

    async def check_request(self, method: str, url: str, *, is_page: bool) -> None:
        """Return if the browser may send this request; else raise ToolError."""
        if not is_page and url.startswith(_WITHOUT_NETWORK):
            return
        await self._check(self._rules, method, url)

    async def check_page(self, url: str) -> None:
        """Return if the content of a page with this address may be used; else raise ToolError."""
        await self._check(self._page_rules, "GET", url)

    async def _check(self, rules: Sequence[EgressRule], method: str, url: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise ToolError(
                "unknown-address",
                f"{quoted(url)} is not the address of a web page, so the page is not used; "
                "call browser_navigate with an http or https URL",
            )
        decision = decide_request(rules, RULE_NAME, method, url, self._run_hosts)
        if not decision.allowed:
            raise ToolError("egress-refused", REFUSAL, f"{method} {url}: {decision.reason}")
        place = parse_request_url(url)
        try:
            async with asyncio.timeout(_LOOKUP_S):
                await addresses_to_dial(
                    place.host, place.port, policy=self._hosts, lookup=self._lookup
                )
        except TimeoutError:
            raise ToolError("unreachable", f"{place.host!r} was not resolved in time") from None
        except EgressError as error:
            code = "private-address" if error.failure == "refused" else "unreachable"
            raise ToolError(code, str(error)) from None
