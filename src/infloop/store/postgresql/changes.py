"""Change notification on PostgreSQL: LISTEN and NOTIFY on a connection of its own.

Versions are numbers of this process. One grows with each commit of its own about the subject, with
each notification of another process, and when the connection was lost: something may have been
missed then.

Three channels keep processes from waking each other for nothing:

- All processes listen to the first. It says that the queue has changed, that a run is to be
  stopped, or that somebody begins to follow runs.
- All listen to Procrastinate's own, too. It says that something was added to the queue, at once:
  the notification is part of the transaction that adds it.
- Only processes that follow runs of others listen to the third. It names the runs in which
  something happened. A process that follows holds a shared lock meanwhile. Others notify only while
  somebody holds it; when they find that nobody does, they stop until somebody begins again.

Any other commit is announced by a separate transaction right after it. PostgreSQL lets only one
transaction that notifies commit at a time, and waits for the disk meanwhile; the announcement has
nothing to wait for. Every notification wakes the server's side of every listening connection,
whatever it listens to, so announcements gather: the first goes out at once, and those that follow
within a few milliseconds go together. A process that dies between a commit and its announcement
leaves it unannounced.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg

from infloop.errors import StoreError
from infloop.store.interfaces.changes import QUEUE, RUNS, Changes, run_subject
from infloop.store.postgresql.connections import close_quietly
from infloop.store.postgresql.errors import is_lost

if TYPE_CHECKING:
    from collections.abc import Iterable

    from infloop.store.postgresql.connections import Connection, Database

ALL_CHANNEL = "infloop_all"
JOBS_CHANNEL = "procrastinate_any_queue_v1"
RUNS_CHANNEL = "infloop_runs"
FOLLOWED = "followed"
FOLLOW_LOCK = 0x696E66_04

GATHER_SECONDS = 0.01
GATHER_RUNS_SECONDS = 0.05
"""How far apart two announcements are at least."""

FORGET_SECONDS = 30.0
"""How long runs are followed after nobody waits for one any more."""

MOST_RUNS = 150
"""How many runs one notification names: its payload is limited to 8,000 bytes."""

_PAUSE_SECONDS = 1.0
_RUN = run_subject("")
_ANY = ""
"""Announced instead of names: it may be any run."""

# An exclusive lock can be had if nobody else holds the shared one: then nobody is told.
_TELL_FOLLOWERS = (
    f"SELECT pg_notify('{RUNS_CHANNEL}', %s) WHERE NOT pg_try_advisory_xact_lock({FOLLOW_LOCK})"
)


class PostgresqlChanges(Changes):
    """Listens for the commits of other processes and announces those of this one."""

    def __init__(self, database: Database, connection: Connection) -> None:
        self._database = database
        self._connection: Connection | None = connection
        self._loop = asyncio.get_running_loop()
        # The last number given out, that of subjects without an own one, and those of the others.
        self._last = 1
        self._floor = 1
        self._versions: dict[str, int] = {}
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        # What others have to be told, and when they were last told.
        self._subjects: set[str] = set()
        self._runs: set[str] = set()
        self._told = self._told_runs = -1.0
        # Whether another process may follow runs, and how often one said that it begins.
        self._is_followed = True
        self._begun = 0
        self._is_something_untold = False
        # Whether this process follows runs of others, and how long it wants to.
        self._follows = False
        self._followed_until = -1.0
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._serve(), name="postgresql-changes")

    # -- reading -------------------------------------------------------------------------------

    def version(self, subject: str) -> int:
        if _is_about_runs(subject):
            self._follow_runs()
            return self._versions.setdefault(subject, self._floor)
        return self._versions.get(subject, self._floor)

    async def wait(self, subject: str, version: int, seconds: float) -> None:
        if self.version(subject) != version:
            return
        changed: asyncio.Future[None] = self._loop.create_future()
        waiting = self._waiting.setdefault(subject, set())
        waiting.add(changed)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await changed
        finally:
            waiting.discard(changed)
            if not waiting and self._waiting.get(subject) is waiting:
                del self._waiting[subject]
            if _is_about_runs(subject):
                self._follow_runs()

    def _follow_runs(self) -> None:
        """Follow runs of other processes for a while."""
        self._followed_until = self._loop.time() + FORGET_SECONDS
        if not self._follows:
            self._wake.set()

    def _wants_to_follow(self) -> bool:
        return self._loop.time() < self._followed_until or any(map(_is_about_runs, self._waiting))

    def _bump(self, subject: str) -> None:
        if _is_about_runs(subject) and subject not in self._versions:
            return  # nobody has asked
        self._last += 1
        self._versions[subject] = self._last
        self._release(self._waiting.pop(subject, ()))

    def _bump_all(self) -> None:
        self._last += 1
        self._floor = self._last
        self._versions.clear()
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            self._release(each)

    def _release(self, waiting: Iterable[asyncio.Future[None]]) -> None:
        for each in waiting:
            if not each.done():
                each.set_result(None)

    # -- announcing ----------------------------------------------------------------------------

    def committed(self, subjects: Iterable[str] = (), runs: Iterable[str] = ()) -> None:
        """Note commits of this process about subjects and runs; others are told soon."""
        for subject in subjects:
            self._bump(subject)
            self._subjects.add(subject)
        runs = [*runs]
        for run_id in runs:
            self._bump(run_subject(run_id))
        if runs:
            self._bump(RUNS)
        if self._is_followed:
            self._runs.update(runs)
        elif runs:
            self._is_something_untold = True
        if self._subjects or self._runs:
            self._wake.set()

    async def close(self) -> None:
        """Announce what is unannounced, then stop listening."""
        if self._connection is not None:
            self._wake.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    while self._subjects or self._runs:  # noqa: ASYNC110  (the task clears them)
                        await asyncio.sleep(0.001)
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await close_quietly(self._connection)

    # -- the connection ------------------------------------------------------------------------

    async def _serve(self) -> None:
        while True:
            try:
                await self._serve_connection()
            except StoreError:  # unreachable for long: whoever writes or reads says so
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _serve_connection(self) -> None:
        is_new = self._connection is None
        if self._connection is None:
            self._connection = await self._database.reconnect(synced=False)
        connection = self._connection
        self._follows = False
        try:
            connection.add_notify_handler(self._heard)
            if is_new:
                await listen(connection)
                self._is_followed = True
                self._bump_all()  # what happened meanwhile was not announced to this connection
            while True:
                await self._announce(connection)
                await self._begin_or_end_following(connection)
                await self._receive(connection)
        except psycopg.Error as error:
            if not is_lost(error, connection):
                raise
        self._connection = None
        await close_quietly(connection)

    async def _announce(self, connection: Connection) -> None:
        now = self._loop.time()
        if self._subjects and now >= self._told + GATHER_SECONDS:
            subjects, self._subjects = self._subjects, set()
            self._told = now
            try:
                await connection.execute(
                    f"SELECT pg_notify('{ALL_CHANNEL}', it) FROM unnest(%s::text[]) AS it",  # noqa: S608
                    ([*subjects],),
                )
            except psycopg.Error:
                self._subjects |= subjects
                raise
        if self._runs and now >= self._told_runs + GATHER_RUNS_SECONDS:
            runs, self._runs = self._runs, set()
            self._told_runs, begun = now, self._begun
            names = " ".join(runs) if len(runs) <= MOST_RUNS and _ANY not in runs else _ANY
            try:
                told = await connection.execute(_TELL_FOLLOWERS.encode(), (names,))
            except psycopg.Error:
                self._runs |= runs
                raise
            if told.rowcount == 0 and begun == self._begun:
                self._is_followed = False
                self._runs.clear()

    async def _begin_or_end_following(self, connection: Connection) -> None:
        wanted = self._wants_to_follow()
        if wanted and not self._follows:
            await connection.execute(f"LISTEN {RUNS_CHANNEL}")
            await connection.execute(f"SELECT pg_advisory_lock_shared({FOLLOW_LOCK})")
            await connection.execute(f"NOTIFY {ALL_CHANNEL}, '{FOLLOWED}'")
            self._follows = True
            for subject in filter(_is_about_runs, [*self._versions]):
                self._bump(subject)  # what happened before was not announced to this connection
        elif self._follows and not wanted:
            await connection.execute(f"UNLISTEN {RUNS_CHANNEL}")
            await connection.execute(f"SELECT pg_advisory_unlock_shared({FOLLOW_LOCK})")
            self._follows = False
            self._bump_all()  # forgets the runs

    async def _receive(self, connection: Connection) -> None:
        """Take in what arrived, or wait until something arrives or is to be done."""
        connection.pgconn.consume_input()
        while (notified := connection.pgconn.notifies()) is not None:
            self._note(
                notified.be_pid, notified.relname.decode(), notified.extra.decode(errors="replace")
            )
        # psycopg watches the socket itself while it executes, so this begins anew each time.
        self._loop.add_reader(connection.fileno(), self._wake.set)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._next_time()):
                    await self._wake.wait()
        finally:
            self._loop.remove_reader(connection.fileno())
        self._wake.clear()

    def _next_time(self) -> float | None:
        """Return when there is something to do although nothing arrives."""
        times: list[float] = []
        if self._subjects:
            times.append(self._told + GATHER_SECONDS)
        if self._runs:
            times.append(self._told_runs + GATHER_RUNS_SECONDS)
        if self._follows:
            times.append(max(self._followed_until, self._loop.time() + 1))
        return min(times, default=None)

    def _heard(self, notified: psycopg.Notify) -> None:
        """Note what arrived while psycopg was executing something."""
        self._note(notified.pid, notified.channel, notified.payload)

    def _note(self, sender: int, channel: str, payload: str) -> None:
        """Note a notification of another process."""
        assert self._connection is not None
        if sender == self._connection.pgconn.backend_pid:
            return
        if channel == JOBS_CHANNEL:
            self._bump(QUEUE)
        elif channel == RUNS_CHANNEL:
            named = [run_subject(run_id) for run_id in payload.split()]
            for subject in filter(_is_a_run, [*self._versions]) if payload == _ANY else named:
                self._bump(subject)
            self._bump(RUNS)
        elif payload == FOLLOWED:
            self._is_followed = True
            self._begun += 1
            if self._is_something_untold:
                self._is_something_untold = False
                self._runs.add(_ANY)
        else:
            self._bump(payload)


async def listen(connection: Connection) -> None:
    """Receive from now on what all processes are told."""
    await connection.execute(f"LISTEN {ALL_CHANNEL}")
    await connection.execute(f"LISTEN {JOBS_CHANNEL}")


def _is_a_run(subject: str) -> bool:
    return subject.startswith(_RUN)


def _is_about_runs(subject: str) -> bool:
    return subject == RUNS or _is_a_run(subject)
