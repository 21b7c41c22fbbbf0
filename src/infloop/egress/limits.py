"""How much a run may do through its proxy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one proxy; times in seconds, sizes in bytes.

    When so many were `turned_away` in a row, it is overloaded and ends.
    """

    head_s: float = 10
    hello_s: float = 10
    connect_s: float = 15
    idle_s: float = 900
    connection_s: float = 6 * 3600
    run_s: float = 24 * 3600
    connections: int = 256
    turned_away: int = 256
    upload_a_connection: int = 1 << 30
    upload_a_run: int = 4 << 30
    call_body: int = 32 << 20


class Uploads:
    """What a run has sent; a budget that is used up stays so."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.total = 0

    def refuse(self, size: int, sent_before: int) -> str:
        """Count `size` more bytes of a connection that sent so many before; say if it must end."""
        self.total += size
        if self.total > self._limits.upload_a_run:
            return f"the run has sent more than {self._limits.upload_a_run} bytes"
        if sent_before + size > self._limits.upload_a_connection:
            return f"the connection has sent more than {self._limits.upload_a_connection} bytes"
        return ""
