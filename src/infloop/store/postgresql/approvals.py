"""Questions that wait for a person, in the database."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

from infloop.errors import NotFound
from infloop.model.approval import STATES, AllowOrDeny, Approval, ApprovalState
from infloop.store.encoding.compression import pack
from infloop.store.encoding.records import APPROVAL_COLUMNS
from infloop.store.encoding.records import approval as to_approval
from infloop.store.encoding.values import to_json
from infloop.store.interfaces.approvals import (
    KEPT_MS,
    AlreadySettled,
    ApprovalStore,
    refusal,
)

if TYPE_CHECKING:
    import asyncio

    from infloop.model.audit import Actor
    from infloop.store.postgresql.connections import Connection
    from infloop.store.postgresql.readers import Readers
    from infloop.store.postgresql.writer import Writer

_PRUNED_PER_QUESTION = 200

_SELECT = f"SELECT {APPROVAL_COLUMNS} FROM approval"  # noqa: S608  (a constant)
_NOTHING = pack(b"{}")


class PostgresqlApprovals(ApprovalStore):
    """The questions of all processes that use the same database."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def ask(self, approval: Approval, owner: str) -> None:
        await self._writer.submit(partial(_ask, approval=approval, owner=owner))

    async def take_over(
        self, run_id: str, path: str, action: str, owner: str, time: int
    ) -> Approval | None:
        step = (run_id, path, action)
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


async def _ask(connection: Connection, approval: Approval, owner: str) -> None:
    await connection.execute(
        "DELETE FROM approval WHERE key IN (SELECT key FROM approval WHERE asked_at < %s"
        " AND state <> 'waiting' LIMIT %s)",
        (approval.asked_at - KEPT_MS, _PRUNED_PER_QUESTION),
    )
    await connection.execute(
        "INSERT INTO approval (id, run, workflow, path, kind, title, details, asked_at, expires_at,"
        " owner, action) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (
            approval.id,
            approval.run_id,
            approval.workflow_id,
            approval.path,
            approval.kind,
            approval.title,
            pack(to_json(approval.details)),
            approval.asked_at,
            approval.expires_at,
            owner,
            approval.action,
        ),
    )


async def _take_over(
    connection: Connection, step: tuple[str, str, str], owner: str, time: int
) -> Approval | None:
    cursor = await connection.execute(
        f"{_SELECT} WHERE run = %s AND path = %s AND action = %s"
        " AND expires_at > %s AND used_at IS NULL AND (state IN ('allowed', 'denied')"
        " OR state = 'waiting' AND owner <> %s) ORDER BY key LIMIT 1 FOR UPDATE".encode(),
        (*step, time, owner),
        binary=True,
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    found = to_approval(row)
    await connection.execute("UPDATE approval SET owner = %s WHERE id = %s", (owner, found.id))
    return found


async def _use(connection: Connection, name: str, time: int) -> bool:
    used = await connection.execute(
        "UPDATE approval SET used_at = %s WHERE id = %s AND used_at IS NULL"
        " AND state IN ('allowed', 'denied')",
        (time, name),
    )
    return used.rowcount == 1


async def _answer(
    connection: Connection,
    name: str,
    answer: AllowOrDeny,
    actor: Actor,
    note: str,
    time: int,
) -> Approval:
    changed = await connection.execute(
        "UPDATE approval SET state = %s, answered_by = %s, answered_at = %s, note = %s"
        " WHERE id = %s AND state = 'waiting' AND expires_at > %s",
        (STATES[answer], to_json(actor).decode(), time, note, name, time),
    )
    found = await _read(connection, name)
    if not changed.rowcount:
        raise AlreadySettled(refusal(found))
    return found


async def _expire(connection: Connection, name: str, time: int) -> Approval:
    await connection.execute(
        "UPDATE approval SET state = 'expired', answered_at = %s"
        " WHERE id = %s AND state = 'waiting'",
        (time, name),
    )
    return await _read(connection, name)


async def _expire_due(connection: Connection, time: int) -> None:
    await connection.execute(
        "UPDATE approval SET state = 'expired', answered_at = %(time)s"
        " WHERE state = 'waiting' AND expires_at <= %(time)s",
        {"time": time},
    )


async def _withdraw(connection: Connection, name: str, note: str, time: int) -> None:
    await connection.execute(
        "UPDATE approval SET state = 'withdrawn', note = %s, answered_at = %s, details = %s"
        " WHERE state = 'waiting' AND id = %s",
        (note, time, _NOTHING, name),
    )


async def _read(connection: Connection, name: str) -> Approval:
    cursor = await connection.execute(f"{_SELECT} WHERE id = %s".encode(), (name,), binary=True)
    row = await cursor.fetchone()
    if row is None:
        raise NotFound(f"there is no question {name!r}; `infloop approvals` lists those that wait")
    return to_approval(row)


async def _read_all(
    connection: Connection, state: ApprovalState, order: Literal["ASC", "DESC"], limit: int
) -> list[Approval]:
    cursor = await connection.execute(
        f"{_SELECT} WHERE state = %s ORDER BY key {order} LIMIT %s".encode(),
        (state, limit),
        binary=True,
    )
    return list(map(to_approval, await cursor.fetchall()))


async def _read_waiting_for(connection: Connection, owner: str) -> list[Approval]:
    cursor = await connection.execute(
        f"{_SELECT} WHERE state = 'waiting' AND owner = %s ORDER BY key".encode(),
        (owner,),
        binary=True,
    )
    return list(map(to_approval, await cursor.fetchall()))


async def _read_owners(connection: Connection) -> list[str]:
    cursor = await connection.execute("SELECT DISTINCT owner FROM approval WHERE state = 'waiting'")
    return [owner for (owner,) in await cursor.fetchall()]
