"""The newest events of a run, as many as its record may hold."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from infloop.model.messages import RunFinished, expand
from infloop.model.values import compact_json

if TYPE_CHECKING:
    from infloop.model.messages import Message
    from infloop.store.interfaces.run_log import RunLog, RunRow

MAX_CHARS = 64 << 20
"""How large the events may be together."""
EVENTS_AT_ONCE = 10_000


async def newest_events(log: RunLog, row: RunRow, limit: int) -> tuple[list[Message], bool]:
    """Return the newest events of a run, and whether there are older ones."""
    after = max(0, row.last_seq - limit)
    truncated = after > 0 and bool(await log.events(row.id, 0, after, limit=1))
    pages: deque[tuple[list[Message], int]] = deque()
    total = 0
    while batch := await log.events(row.id, after, limit=EVENTS_AT_ONCE):
        after = batch[-1].seq
        page = [message for recorded in batch for message in expand(recorded)]
        if page and isinstance(page[-1], RunFinished):
            page[-1].scope = await log.scope(row.id) or {}
        size = len(await asyncio.to_thread(compact_json, page))
        pages.append((page, size))
        total += size
        while total > MAX_CHARS and len(pages) > 1:
            total -= pages.popleft()[1]
            truncated = True
    found = [message for page, _ in pages for message in page]
    return found[-limit:], truncated or len(found) > limit
