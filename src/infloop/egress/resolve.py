"""A name becomes the addresses to dial: once, all of them checked.

Whoever dials uses what was checked here and never the name again, so that a second answer of the
name service can change nothing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeAlias

from infloop.errors import EgressError
from infloop.policy.addresses import refuse_answer
from infloop.policy.hosts import authority, is_address

if TYPE_CHECKING:
    from infloop.policy.addresses import Address
    from infloop.policy.hosts import HostDecision, Scheme

Lookup: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]
"""Ask the name service for a name's addresses; OSError when it has no answer."""

MOST_ADDRESSES = 8
"""So many addresses are tried; all that a name has are checked."""

_LOOKUPS_AT_ONCE = 4


class Gate(Protocol):
    """Who decides: first about a host, then about each address it turns out to have."""

    def judge(self, host: str, port: int, scheme: Scheme) -> HostDecision:
        """Decide about a canonical host."""

    def refuse_address(self, host: str, port: int, address: Address) -> str:
        """Return why an address of the host is not dialled, or nothing."""


class SystemLookup:
    """Asks this machine's name service, in few threads of its own.

    A lookup that hangs cannot be ended; so it must not hold a thread that others need.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_LOOKUPS_AT_ONCE, "lookup")

    async def __call__(self, host: str) -> Sequence[str]:
        """Return the addresses of a name; OSError when there are none."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, _getaddrinfo, host)
        return list(dict.fromkeys(found))

    def close(self) -> None:
        """Ask nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _getaddrinfo(host: str) -> list[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return [str(address[0]) for *_, address in found]


async def addresses_to_dial(host: str, port: int, *, gate: Gate, lookup: Lookup) -> Sequence[str]:
    """Return the checked addresses of a canonical host that `gate` has already allowed.

    Raises EgressError when there is no answer, or one address in it is refused. The caller has a
    deadline for this and for dialling.
    """
    try:
        answer = [host] if is_address(host) else await lookup(host)
    except (OSError, UnicodeError) as error:
        raise EgressError(f"the name {host!r} cannot be resolved: {error}", "unreachable") from None
    why = refuse_answer(answer, lambda address: gate.refuse_address(host, port, address))
    if why:
        raise EgressError(f"{authority(host, port)} is refused: {why}")
    return answer[:MOST_ADDRESSES]
