"""What a proxy tells the run it works for: each decision when it is made, each connection's end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from infloop.policy.hosts import HostVerdict, authority

Kind: TypeAlias = Literal["tunnel", "request", "broker", "unknown"]

Why: TypeAlias = Literal[
    "",
    "not-listed",  # no list has the host
    "denied",  # the operator's denial has it
    "address",  # the name leads to an address that is not dialled
    "unresolved",  # the name leads nowhere
    "token",  # it was not shown, or another one
    "malformed",  # what came is not plainly a request
    "hello",  # a tunnel was used for something else than TLS with its host
    "call",  # the broker does not make such calls
    "budget",  # what calls may cost is spent
    "limit",  # too much, too slow or too long
    "overload",  # too many connections at once
    "failure",  # we have a defect
]
"""Why a connection was refused, in one word; nothing if it was not."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about a connection of the child. `host` is empty if it was not understood.

    An allowed connection can be refused later, when it turns out to be used for something else.
    """

    number: int
    kind: Kind
    host: str
    port: int
    verdict: HostVerdict
    reason: str
    rule: str = ""
    why: Why = ""

    def __str__(self) -> str:
        where = authority(self.host, self.port) if self.host else "a connection"
        return f"{self.verdict} {where}, {self.reason}"


@dataclass(frozen=True, slots=True)
class Ended:
    """An allowed connection is over: what it carried, and why we or the far side ended it."""

    number: int
    kind: Kind
    host: str
    port: int
    sent: int
    received: int
    seconds: float
    reason: str = ""
