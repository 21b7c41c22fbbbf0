"""What a run returned, and what it changed, page by page."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pydantic import Field

from infloop.errors import UsageError
from infloop.mcp_server.answers import with_untrusted
from infloop.mcp_server.runs import outputs_of
from infloop.mcp_server.tools import Arguments, utility
from infloop.model.values import compact_json
from infloop.runtime.timeline import spans
from infloop.store.queue import QueueEntry
from infloop.workspace.applying.review import protected_changes
from infloop.workspace.snapshots.changes import printable

if TYPE_CHECKING:
    from infloop.mcp_server.dependencies import McpParts
    from infloop.mcp_server.tools import Call
    from infloop.model.values import JsonObject
    from infloop.runtime.timeline import Span
    from infloop.store.base import RunRow

PAGE_CHARACTERS = 20_000
MOST_CHARACTERS = 100_000


class Page(Arguments):
    """A run, and which part of a long text."""

    run_id: str = Field(description="The run's id.", min_length=1, max_length=200)
    offset: int = Field(0, description="`nextOffset` of the page before.", ge=0, lt=1 << 53)
    limit: int = Field(PAGE_CHARACTERS, description="Characters.", ge=1, le=MOST_CHARACTERS)


class WhichResult(Page):
    """Which result is read."""

    node: str = Field("", description="Only what this node returned last.", max_length=200)


class WhichDiff(Page):
    """Which changes are read."""

    step: str = Field("", description="Only what this step or round changed.", max_length=1_000)


async def read_result(parts: McpParts, given: WhichResult, _: Call) -> JsonObject:
    """Return what the steps of a run that is over returned, by node.

    What is longer than a page comes as JSON text in `text`, with the `nextOffset` to go on.
    """
    row = await _run(parts, given.run_id)
    if row.finished_at is None:
        raise UsageError(f"run {row.id!r} is not over; use infloop_wait_for_run first")
    outputs = await outputs_of(parts, row.id)
    if given.node and given.node not in outputs:
        there = ", ".join(list(outputs)[:50]) or "none"
        raise UsageError(f"no node {given.node!r} returned anything; these did: {there}")
    chosen = {given.node: outputs[given.node]} if given.node else outputs
    head: JsonObject = {"runId": row.id, "status": row.status}
    text = await asyncio.to_thread(compact_json, chosen)
    if given.offset == 0 and len(text) <= given.limit:
        return with_untrusted({**head, "outputs": chosen}, "outputs")
    return with_untrusted({**head, **_page(text, given)}, "text")


async def read_diff(parts: McpParts, given: WhichDiff, _: Call) -> JsonObject:
    """Return what a run, or one step or round of it, changed in files, as a unified diff.

    `protected` names changed files that other programs act on without being asked.
    """
    row = await _run(parts, given.run_id)
    found = await spans(parts.service.journal, row.id, given.step)
    changed = [span for span in found if span.before != span.after]
    store = parts.workspaces.store
    patches = [
        f"# in {span.directory}\n{await store.patch(span.before, span.after)}" for span in changed
    ]
    answer: JsonObject = {
        "runId": row.id,
        "directories": [span.directory for span in found],
        "protected": [line for span in changed for line in await _protected(parts, span)],
        **_page("".join(patches), given),
    }
    return with_untrusted(answer, "text", "protected")


async def _protected(parts: McpParts, span: Span) -> list[str]:
    store = parts.workspaces.store
    before, after = await store.stored_tree(span.before), await store.stored_tree(span.after)
    changed = await store.trees.leaves(before.files, after.files)
    risky = await protected_changes(store.trees, before.files, changed)
    return [f"{printable(path)} ({why})" for path, why in risky.items()]


async def _run(parts: McpParts, run_id: str) -> RunRow:
    found = await parts.dispatcher.find(run_id)
    if isinstance(found, QueueEntry):
        raise UsageError(f"run {run_id!r} has not begun; use infloop_wait_for_run first")
    return found


def _page(text: str, given: Page) -> JsonObject:
    """Return part of a text, and where the next one begins if there is more."""
    end = given.offset + given.limit
    page: JsonObject = {
        "text": text[given.offset : end],
        "offset": given.offset,
        "totalCharacters": len(text),
    }
    return page | ({"nextOffset": end} if end < len(text) else {})


READ_RESULT = utility(
    "read_result", "What a run returned", WhichResult, read_result, reads_only=True
)
READ_DIFF = utility("read_diff", "What a run changed", WhichDiff, read_diff, reads_only=True)
