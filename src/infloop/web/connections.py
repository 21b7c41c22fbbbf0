"""All open connections: how many there may be, and where they come from.

- One sender may hold half of all connections, so that there is room for others. A sender is a user
  of this machine, another machine, or an IPv6 network.
- When its half is used up, its oldest waiting connection is closed for the new one. When all are
  used up, the sender that holds most loses its oldest waiting one. A connection waits while its
  client has to send something: a request, or the rest of one. So a client that opens connections
  and sends nothing, or sends slowly, displaces its own.
- A connection whose request is complete is never closed for another, an event stream included. If
  none waits, the new one is answered 503.

All clients behind a reverse proxy are one sender. They share the proxy's half and do not lock each
other out, because the proxy's idle connections give way.
"""

from __future__ import annotations

import resource
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from infloop.model.hosts import sender_network

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_CONNECTIONS = 1_024
_FEWEST_CONNECTIONS = 64

Address: TypeAlias = tuple[str, int]
FindUser: TypeAlias = "Callable[[Address, Address], int | None]"
"""Returns the user at the far end of a connection of this machine, by both addresses."""


class Sender(NamedTuple):
    """Where a connection comes from; `user` is known for a connection of this machine."""

    name: str
    user: int | None = None


class Connection(Protocol):
    """An open connection."""

    sender: Sender

    @property
    def waiting(self) -> bool:
        """Whether the client has to send something first: a request, or the rest of one."""

    def drop(self) -> None:
        """Close at once."""


class Connections:
    """The open connections of one server."""

    def __init__(
        self, find_user: FindUser, *, most: int = 0, refused: Callable[[], object]
    ) -> None:
        self._find_user = find_user
        self._most = most or most_connections()
        self._refused = refused
        # The connections of each sender, oldest first.
        self._open: dict[str, dict[Connection, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def sender(self, peer: Address | None, own: Address | None) -> Sender:
        """Return who is at the other end of a connection."""
        if peer is None or own is None:  # it is closed already
            return Sender("gone")
        try:
            local = ip_address(peer[0].partition("%")[0]).is_loopback
        except ValueError:
            local = False
        if not local:
            return Sender(sender_network(peer[0]))
        user = self._find_user(peer, own)
        return Sender("user unknown" if user is None else f"user {user}", user)

    def admit(self, connection: Connection) -> bool:
        """Count a connection, and make room for it; say whether there is any."""
        own = self._open.get(connection.sender.name, {})
        if (len(own) >= self._most // 2 and not self._drop_oldest_waiting(own)) or (
            self._count >= self._most
            and not self._drop_oldest_waiting(max(self._open.values(), key=len))
        ):
            self._refused()
            return False
        self._open.setdefault(connection.sender.name, {})[connection] = None
        self._count += 1
        return True

    def release(self, connection: Connection) -> None:
        """Forget a connection that was closed, or was never admitted."""
        own = self._open.get(connection.sender.name, {})
        if connection in own:
            del own[connection]
            self._count -= 1
            if not own:
                del self._open[connection.sender.name]

    def _drop_oldest_waiting(self, connections: dict[Connection, None]) -> bool:
        oldest = next((each for each in connections if each.waiting), None)
        if oldest is None:
            return False
        self.release(oldest)
        oldest.drop()
        return True


def most_connections() -> int:
    """Return how many connections this process may hold: half of its file descriptors."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return min(MOST_CONNECTIONS, max(_FEWEST_CONNECTIONS, descriptors // 2))
