"""How much a run may do through its proxy."""

from __future__ import annotations

import msgspec


class ProxyLimits(msgspec.Struct, frozen=True):
    """Limits of one proxy; times in seconds, sizes in bytes.

    A call may wait for `budget_s` while others hold the rest of the budget. `buffered_bodies`
    limits the bodies that are read before they are sent. After more than `max_rejected` rejected
    connections in a row the proxy is overloaded and ends.
    """

    head_s: float = 10
    hello_s: float = 10
    resolve_s: float = 5
    connect_s: float = 15
    idle_s: float = 900
    connection_s: float = 6 * 3600
    run_s: float = 24 * 3600
    connections: int = 256
    max_rejected: int = 256
    upload_per_connection: int = 1 << 30
    upload_per_run: int = 4 << 30
    call_body: int = 32 << 20
    buffered_bodies: int = 128 << 20
    budget_s: float = 600


class UploadBudget:
    """Counts what a run has sent; a used-up budget stays used up."""

    def __init__(self, limits: ProxyLimits) -> None:
        self._limits = limits
        self.total = 0

    def refuse(self, size: int, sent_before: int) -> str:
        """Count `size` more bytes of a connection; return why it must end, if it must."""
        self.total += size
        if self.total > self._limits.upload_per_run:
            return f"the run has sent more than {self._limits.upload_per_run} bytes"
        if sent_before + size > self._limits.upload_per_connection:
            return f"the connection has sent more than {self._limits.upload_per_connection} bytes"
        return ""
