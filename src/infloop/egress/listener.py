"""A place to accept connections of this machine alone, for children that share its network."""

from __future__ import annotations

import socket
from typing import TypeAlias

Listener: TypeAlias = socket.socket

_BACKLOG = 128


def listen_on_loopback() -> Listener:
    """Return a socket that listens on a free port of 127.0.0.1; whoever asks closes it."""
    return socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
