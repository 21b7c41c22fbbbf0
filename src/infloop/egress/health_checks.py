"""Finds out whether a server is up, at a place that the configuration of a dev loop names.

Redirects are followed within the places that are named, and nowhere else.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from infloop.egress.client import Client, Destination, Destinations
from infloop.egress.dial import dial
from infloop.egress.resolve import SystemLookup, addresses_to_dial
from infloop.errors import EgressError
from infloop.model.hosts import parse_authority

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from collections.abc import Iterable

_MAX_REDIRECTS = 10
_MAX_RESPONSE_BYTES = 1 << 30


def destinations(urls: Iterable[str]) -> list[Destination]:
    """Return the places of URLs; one that is no plain http(s) URL has none."""
    found = []
    for url in urls:
        try:
            found.append(Destination.of(url.strip(), private_ok=True))
        except EgressError:
            continue  # its check fails
    return found


async def answers(client: Client, url: str, timeout_s: float) -> bool:
    """Tell whether a GET request is answered with 2xx in time."""
    url = url.strip()
    try:
        async with asyncio.timeout(timeout_s):
            for _ in range(_MAX_REDIRECTS):
                async with client.stream(
                    "GET",
                    url,
                    connect_timeout_s=timeout_s,
                    read_timeout_s=timeout_s,
                    max_response_bytes=_MAX_RESPONSE_BYTES,
                ) as response:
                    status, location = response.status, response.headers.get("location", "")
                if not (300 <= status < 400 and location):
                    return 200 <= status < 300
                url = urljoin(url, location)
    except (EgressError, TimeoutError, ValueError):
        return False
    return False


async def accepts(address: str, timeout_s: float) -> bool:
    """Tell whether a TCP connection to HOST:PORT is accepted in time."""
    lookup = SystemLookup()
    try:
        async with asyncio.timeout(timeout_s):
            await _connect(address, timeout_s, lookup)
    except (EgressError, OSError):
        return False
    finally:
        lookup.close()
    return True


async def _connect(address: str, timeout_s: float, lookup: SystemLookup) -> None:
    host, port = parse_authority(address, 0)
    policy = Destinations([Destination("http", host, port, private_ok=True)])
    deadline = asyncio.get_running_loop().time() + timeout_s

    async def connect(found: str) -> tuple[StreamReader, StreamWriter]:
        return await asyncio.open_connection(found, port)  # noqa: TID251  (this is egress)

    addresses = await addresses_to_dial(host, port, policy=policy, lookup=lookup)
    _, writer = await dial(addresses, deadline, connect)
    writer.close()
