"""What is reported to a run: each decision about a connection, and the end of each connection."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from infloop.model.hosts import authority
from infloop.policy.hosts import HostVerdict

Kind: TypeAlias = Literal["tunnel", "request", "broker", "direct", "unknown"]
"""What a child asked for. A direct connection bypasses the proxy, so it is only reported when it is
refused."""

RefusalCause: TypeAlias = Literal[
    "",
    "not-listed",  # the host is on no list
    "denied",  # the operator denies it
    "address",  # the name has an address that is not allowed
    "own-port",  # a server of infloop listens there
    "direct",  # a connection past the proxy
    "unresolved",  # the name has no address
    "token",  # the run's token is missing or wrong
    "malformed",  # the data is not a valid request
    "hello",  # the tunnel does not carry TLS with its host
    "call",  # the broker does not allow this call
    "budget",  # the budget for calls is spent
    "limit",  # too large, too slow or too long
    "overload",  # too many connections
    "failure",  # a defect of the proxy
]
"""Why a connection was refused, as a keyword; empty if it was not."""


class Decision(msgspec.Struct, frozen=True):
    """A decision about a connection of a child. `host` is empty if it could not be parsed.

    An allowed connection can be refused later, when it is used for something else.
    """

    number: int
    kind: Kind
    host: str
    port: int
    verdict: HostVerdict
    reason: str
    rule: str = ""
    cause: RefusalCause = ""

    def __str__(self) -> str:
        where = authority(self.host, self.port) if self.host else "a connection"
        return f"{self.verdict} {where}, {self.reason}"


class ConnectionEnded(msgspec.Struct, frozen=True):
    """The end of an allowed connection: what it carried, and why it was ended, if by us."""

    number: int
    kind: Kind
    host: str
    port: int
    sent: int
    received: int
    seconds: float
    reason: str = ""
