"""A connection to one of several checked addresses, each tried in its share of the time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from infloop.errors import EgressError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

Connection = TypeVar("Connection")


async def dial(
    addresses: Sequence[str],
    deadline: float,
    connect: Callable[[str], Awaitable[Connection]],
) -> Connection:
    """Return what `connect` makes of the first address that takes a connection.

    `connect` raises OSError where one does not; the last one has all the time that is left, and it
    is for the caller to end it at the deadline. Raises EgressError when no address took it.
    """
    loop = asyncio.get_running_loop()
    *others, last = addresses
    for left, address in zip(range(len(addresses), 1, -1), others, strict=True):
        try:
            async with asyncio.timeout((deadline - loop.time()) / left):
                return await connect(address)
        except OSError:
            continue
    try:
        return await connect(last)
    except OSError as error:
        said = f"it cannot be reached: {error.strerror or error}"
        raise EgressError(said, "unreachable") from None
