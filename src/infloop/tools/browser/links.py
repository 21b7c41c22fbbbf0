"""A link: the way to one browser, and the proxy that this browser has to use."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from infloop.egress.proxy import Proxy

if TYPE_CHECKING:
    from infloop.egress.reports import Decision
    from infloop.egress.resolve import HostPolicy, Lookup
    from infloop.model.agent_config import EgressRule
    from infloop.policy.hosts import Allowlist

OnMessage: TypeAlias = Callable[[str], None]
"""Gets a message of the browser; an exception of it ends the link."""


class Link(Protocol):
    """One browser that is running or about to."""

    @property
    def proxy(self) -> str:
        """The host and port where the browser finds its proxy, once it has answered."""

    @property
    def token(self) -> str:
        """What the proxy wants from the browser; empty if nobody else can reach the proxy."""

    def send(self, text: str) -> None:
        """Send a message to the browser."""

    async def run(self, on_message: OnMessage) -> str:
        """Keep the browser and its proxy until the browser ends; return why it has ended.

        When this is cancelled, everything that was started is gone.
        """


class BrowserOptions(msgspec.Struct, frozen=True):
    """How a browser runs.

    rules        what its requests may reach
    hosts        the hosts that the run may reach; None for all
    cdp_url      the DevTools endpoint of a browser that somebody else runs; empty to start one
    program      the browser's program; empty to look for one
    path         where programs are looked up
    scratch      where an unconfined browser gets its directories
    user         the uid and gid of an unconfined browser, if root has named one
    switches     more switches for the browser
    on_decision  gets what the proxy has decided
    lookup       resolves names; the system's resolver if missing
    """

    rules: tuple[EgressRule, ...] = ()
    hosts: Allowlist | None = None
    cdp_url: str = ""
    program: str = ""
    path: str = "/usr/local/bin:/usr/bin:/bin"
    scratch: str = "/tmp"  # noqa: S108  (private directories are made in it)
    user: tuple[int, int] | None = None
    switches: tuple[str, ...] = ()
    on_decision: Callable[[Decision], None] = lambda _: None
    lookup: Lookup | None = None


def browser_proxy(hosts: HostPolicy, options: BrowserOptions, token: str, port: int) -> Proxy:
    """Return the proxy of a browser, which finds it on a port of loopback."""
    return Proxy(
        hosts,
        token=token,
        on_decision=options.on_decision,
        lookup=options.lookup,
        port=port,
        # Without DNS of its own a browser has no keys to hide a name, and its requests are judged.
        hidden_names_allowed=True,
    )


def is_root() -> bool:
    """Tell whether a browser that we start runs as root, unless a level changes that."""
    return os.geteuid() == 0
