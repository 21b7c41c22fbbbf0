"""Questions that wait for a person, in the database."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from infloop.errors import NotFound
from infloop.model.approval import STATES, AllowOrDeny, Approval, ApprovalState
from infloop.store.encoding.compression import pack
from infloop.store.encoding.records import APPROVAL_COLUMNS
from infloop.store.encoding.records import approval as to_approval
from infloop.store.encoding.values import replace_surrogates, to_json
from infloop.store.interfaces.approvals import (
    KEPT_MS,
    AlreadySettled,
    ApprovalStore,
    refusal,
)

if TYPE_CHECKING:
    import asyncio
    import sqlite3

    from infloop.model.audit import Actor
    from infloop.store.sqlite.access import Readers, Writer

_PRUNED_PER_QUESTION = 200

_NOTHING = pack(b"{}")


class SqliteApprovals(ApprovalStore):
    """The questions of all processes of this machine that open the same database."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def ask(self, approval: Approval, owner: str) -> None:
        await self._writer.submit(partial(_ask, approval=approval, owner=owner))

    async def take_over(
        self, run_id: str, path: str, action: str, owner: str, time: int
    ) -> Approval | None:
        step = (run_id, replace_surrogates(path), action)
        return await self._writer.submit(partial(_take_over, step=step, owner=owner, time=time))

    async def use(self, approval_id: str, time: int) -> bool:
        return await self._writer.submit(partial(_use, name=approval_id, time=time))

    async def answer(
        self, approval_id: str, answer: AllowOrDeny, actor: Actor, note: str, time: int
    ) -> Approval:
        work = partial(_answer, name=approval_id, answer=answer, actor=actor, note=note, time=time)
        return await self._writer.submit(work)

    async def expire(self, approval_id: str, time: int) -> Approval:
        return await self._writer.submit(partial(_expire, name=approval_id, time=time))

    async def expire_due(self, time: int) -> None:
        await self._writer.submit(partial(_expire_due, time=time))

    def withdraw(self, approval_id: str, note: str, time: int) -> asyncio.Future[None]:
        return self._writer.submit(partial(_withdraw, name=approval_id, note=note, time=time))

    async def waiting_for(self, owner: str) -> list[Approval]:
        return await self._readers.run(_read_waiting_for, owner)

    async def read(self, approval_id: str) -> Approval:
        return await self._readers.run(_read, approval_id)

    async def waiting(self, *, limit: int = 1_000) -> list[Approval]:
        return await self._readers.run(_read_all, "waiting", "ASC", limit)

    async def settled(self, state: ApprovalState, *, limit: int = 1_000) -> list[Approval]:
        return await self._readers.run(_read_all, state, "DESC", limit)

    async def owners(self) -> list[str]:
        return await self._readers.run(_read_owners)


def _ask(connection: sqlite3.Connection, approval: Approval, owner: str) -> None:
    connection.execute(
        "DELETE FROM approval WHERE key IN (SELECT key FROM approval WHERE asked_at < ?"
        " AND state <> 'waiting' LIMIT ?)",
        (approval.asked_at - KEPT_MS, _PRUNED_PER_QUESTION),
    )
    connection.execute(
        "INSERT INTO approval (id, run, workflow, path, kind, title, details, asked_at, expires_at,"
        " owner, action) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            approval.id,
            approval.run_id,
            approval.workflow_id,
            replace_surrogates(approval.path),
            replace_surrogates(approval.kind),
            replace_surrogates(approval.title),
            pack(to_json(approval.details)),
            approval.asked_at,
            approval.expires_at,
            owner,
            approval.action,
        ),
    )


def _take_over(
    connection: sqlite3.Connection, step: tuple[str, str, str], owner: str, time: int
) -> Approval | None:
    row = connection.execute(
        f"SELECT {APPROVAL_COLUMNS} FROM approval WHERE run = ? AND path = ? AND action = ?"  # noqa: S608  (constants)
        " AND expires_at > ? AND used_at IS NULL AND (state IN ('allowed', 'denied')"
        " OR state = 'waiting' AND owner <> ?) ORDER BY key LIMIT 1",
        (*step, time, owner),
    ).fetchone()
    if row is None:
        return None
    found = to_approval(row)
    connection.execute("UPDATE approval SET owner = ? WHERE id = ?", (owner, found.id))
    return found


def _use(connection: sqlite3.Connection, name: str, time: int) -> bool:
    used = connection.execute(
        "UPDATE approval SET used_at = ? WHERE id = ? AND used_at IS NULL"
        " AND state IN ('allowed', 'denied')",
        (time, name),
    )
    return used.rowcount == 1


def _answer(
    connection: sqlite3.Connection,
    name: str,
    answer: AllowOrDeny,
    actor: Actor,
    note: str,
    time: int,
) -> Approval:
    changed = connection.execute(
        "UPDATE approval SET state = ?, answered_by = ?, answered_at = ?, note = ?"
        " WHERE id = ? AND state = 'waiting' AND expires_at > ?",
        (STATES[answer], to_json(actor).decode(), time, replace_surrogates(note), name, time),
    ).rowcount
    found = _read(connection, name)
    if not changed:
        raise AlreadySettled(refusal(found))
    return found


def _expire(connection: sqlite3.Connection, name: str, time: int) -> Approval:
    connection.execute(
        "UPDATE approval SET state = 'expired', answered_at = ? WHERE id = ? AND state = 'waiting'",
        (time, name),
    )
    return _read(connection, name)


def _expire_due(connection: sqlite3.Connection, time: int) -> None:
    connection.execute(
        "UPDATE approval SET state = 'expired', answered_at = ?1"
        " WHERE state = 'waiting' AND expires_at <= ?1",
        (time,),
    )


def _withdraw(connection: sqlite3.Connection, name: str, note: str, time: int) -> None:
    connection.execute(
        "UPDATE approval SET state = 'withdrawn', note = ?, answered_at = ?, details = ?"
        " WHERE state = 'waiting' AND id = ?",
        (replace_surrogates(note), time, _NOTHING, name),
    )


def _read(connection: sqlite3.Connection, name: str) -> Approval:
    row = connection.execute(
        f"SELECT {APPROVAL_COLUMNS} FROM approval WHERE id = ?",  # noqa: S608  (constants)
        (replace_surrogates(name),),
    ).fetchone()
    if row is None:
        raise NotFound(f"there is no question {name!r}; `infloop approvals` lists those that wait")
    return to_approval(row)


def _read_all(
    connection: sqlite3.Connection, state: ApprovalState, order: str, limit: int
) -> list[Approval]:
    rows = connection.execute(
        f"SELECT {APPROVAL_COLUMNS} FROM approval WHERE state = ? ORDER BY key {order} LIMIT ?",  # noqa: S608  (constants)
        (state, limit),
    )
    return list(map(to_approval, rows))


def _read_waiting_for(connection: sqlite3.Connection, owner: str) -> list[Approval]:
    rows = connection.execute(
        f"SELECT {APPROVAL_COLUMNS} FROM approval"  # noqa: S608  (constants)
        " WHERE state = 'waiting' AND owner = ? ORDER BY key",
        (owner,),
    )
    return list(map(to_approval, rows))


def _read_owners(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT DISTINCT owner FROM approval WHERE state = 'waiting'")
    return [owner for (owner,) in rows]
