"""Connects to the first of several checked addresses that accepts."""

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
    """Return the result of `connect` for the first address that accepts a connection.

    `connect` raises OSError for one that does not. The remaining time is shared between the
    addresses; the caller ends the last attempt at the deadline. Raises EgressError when no address
    accepts.
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
        message = f"it cannot be reached: {error.strerror or error}"
        raise EgressError(message, "unreachable") from None
