"""Resolves a name once and checks all its addresses.

Connections use the checked addresses and never the name again, so that a second DNS answer cannot
change anything.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeAlias

from infloop.errors import EgressError
from infloop.model.hosts import authority, is_address
from infloop.policy.addresses import refuse_answer

if TYPE_CHECKING:
    from infloop.model.hosts import Scheme
    from infloop.policy.addresses import Address
    from infloop.policy.hosts import HostDecision

Lookup: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]
"""Returns the addresses of a name; raises OSError when there are none."""

MAX_ADDRESSES = 8
"""How many addresses are tried. All addresses of a name are checked."""

_LOOKUP_THREADS = 4


class HostPolicy(Protocol):
    """Decides about a host, and then about each of its addresses."""

    def judge(self, host: str, port: int, scheme: Scheme) -> HostDecision:
        """Decide about a canonical host."""

    def refuse_address(self, host: str, port: int, address: Address) -> str:
        """Return why an address of the host is refused; empty if it is allowed."""


class SystemLookup:
    """Uses this machine's resolver, in a few threads of its own.

    A lookup that hangs cannot be cancelled, so it must not block a shared thread.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_LOOKUP_THREADS, "lookup")

    async def __call__(self, host: str) -> Sequence[str]:
        """Return the addresses of a name; OSError when there are none."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, _getaddrinfo, host)
        return list(dict.fromkeys(found))

    def close(self) -> None:
        """Cancel pending lookups."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _getaddrinfo(host: str) -> list[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return [str(address[0]) for *_, address in found]


async def addresses_to_dial(
    host: str, port: int, *, policy: HostPolicy, lookup: Lookup
) -> Sequence[str]:
    """Return the checked addresses of a canonical host that `policy` has already allowed.

    Raises EgressError when there are none, or when one of them is refused. The caller sets the
    deadline.
    """
    try:
        addresses = [host] if is_address(host) else await lookup(host)
    except (OSError, UnicodeError) as error:
        raise EgressError(f"the name {host!r} cannot be resolved: {error}", "unreachable") from None
    reason = refuse_answer(addresses, lambda address: policy.refuse_address(host, port, address))
    if reason:
        raise EgressError(f"{authority(host, port)} is refused: {reason}")
    return addresses[:MAX_ADDRESSES]
