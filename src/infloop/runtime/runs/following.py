"""Follows a run that another process drives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.runtime.runs.run_status import current_status
from infloop.store.interfaces.changes import run_subject

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from infloop.model.events import Recorded
    from infloop.store.interfaces.store import Store

CHECK_SECONDS = 5.0
"""How often to check, without new events, that the other process is still alive."""


async def follow(store: Store, run_id: str, after_seq: int = 0) -> AsyncGenerator[list[Recorded]]:
    """Yield what is stored of a run after `after_seq`, until it ends or its process dies."""
    subject = run_subject(run_id)
    while True:
        version = store.changes.version(subject)
        status = await current_status(await store.run_log.run(run_id), store.liveness)
        while batch := await store.run_log.events(run_id, after_seq):
            yield batch
            after_seq = batch[-1].seq
        if status not in ("running", "stalled"):
            return
        await store.changes.wait(subject, version, CHECK_SECONDS)
