"""A listener on loopback, for children that share this machine's network."""

from __future__ import annotations

import socket
from typing import TypeAlias

from infloop.errors import EgressError

Listener: TypeAlias = socket.socket

_BACKLOG = 128


def listen_on_loopback() -> Listener:
    """Return a socket that listens on a free port of 127.0.0.1; the caller closes it.

    Raises EgressError when that is not possible.
    """
    try:
        return socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
    except OSError as error:
        raise EgressError(f"the proxy of this run cannot start: {error}", "broken") from None
