"""How the interfaces reach the database: reads and writes, whichever thread they happen on.

With an event loop these are `readers.ReaderThreads` and `writer.WriterThread`; a command that only
reads does without one (`read_only`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio
    import sqlite3
    from collections.abc import Callable
    from typing import Concatenate

T = TypeVar("T")
P = ParamSpec("P")


class Readers(Protocol):
    """Runs functions that read, each on one snapshot of the database."""

    async def run(
        self,
        read: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Call `read` with a connection and these arguments; return its result."""


class Writer(Protocol):
    """Runs functions that write, in the order in which they were submitted."""

    single_run: bool

    def submit(
        self,
        work: Callable[[sqlite3.Connection], T],
        *,
        on_failure: Callable[[Exception], None] | None = None,
        outside_transaction: bool = False,
        small: bool = False,
        patient: bool = False,
    ) -> asyncio.Future[T]:
        """Queue `work`; the future has its result once that is committed."""

    def defer(
        self, collect: Callable[[], Callable[[sqlite3.Connection], object]], *, urgent: bool
    ) -> None:
        """Run the work that `collect` returns a little later."""

    async def flush_deferred(self) -> None:
        """Commit the deferred work now, if there is any."""
