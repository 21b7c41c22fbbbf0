"""What a run returned, and what it changed, page by page."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from infloop.application.runs.models import QueuedRun
from infloop.errors import UsageError
from infloop.mcp_server.answers import with_untrusted
from infloop.mcp_server.tools import Arguments, utility
from infloop.model.values import compact_json

if TYPE_CHECKING:
    from infloop.application.runs.models import RunSummary
    from infloop.mcp_server.dependencies import McpDependencies
    from infloop.mcp_server.tools import Call
    from infloop.model.values import JsonObject

PAGE_CHARACTERS = 20_000
MOST_CHARACTERS = 100_000
MOST_LEFT_OUT = 200


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
    everything: bool = Field(
        default=False,
        alias="all",
        description="Also files that only a check made or that git ignores.",
    )
    include: list[Annotated[str, Field(max_length=1_000)]] = Field(
        [], description="Paths or patterns of such files to show.", max_length=100
    )


async def read_result(mcp: McpDependencies, given: WhichResult, _: Call) -> JsonObject:
    """Return what the steps of a finished run returned, by node.

    What is longer than a page comes as JSON text in `text`, with the `nextOffset` to go on.
    """
    run = await _begun(mcp, given.run_id)
    if run.finished_at is None:
        raise UsageError(f"run {run.run_id!r} is not over; use infloop_wait_for_run first")
    outputs = await mcp.application.history.outputs(run.run_id)
    if given.node and given.node not in outputs:
        there = ", ".join(list(outputs)[:50]) or "none"
        raise UsageError(f"no node {given.node!r} returned anything; these did: {there}")
    chosen = {given.node: outputs[given.node]} if given.node else outputs
    head: JsonObject = {"runId": run.run_id, "status": run.status}
    text = await asyncio.to_thread(compact_json, chosen)
    if given.offset == 0 and len(text) <= given.limit:
        return with_untrusted({**head, "outputs": chosen}, "outputs")
    return with_untrusted({**head, **_page(text, given)}, "text")


async def read_diff(mcp: McpDependencies, given: WhichDiff, _: Call) -> JsonObject:
    """Return what a run, or one step or round of it, changed in files, as a unified diff.

    `protected` names changed files that other programs act on without being asked. `secrets` names
    files to which a secret was added, which is redacted. `leftOut` names changed files that are not
    shown, with the reason.
    """
    run = await _begun(mcp, given.run_id)
    diff = await mcp.application.history.diff(
        run.run_id,
        given.step,
        everything=given.everything,
        include=given.include,
        redacted=True,
    )
    changed = [each for each in diff.directories if each.changed]
    text = "".join(f"# in {each.directory}\n{each.patch}" for each in changed)
    left_out = [
        f"{path} ({why})" for each in diff.directories for path, why in each.left_out.items()
    ]
    answer: JsonObject = {
        "runId": run.run_id,
        "directories": [each.directory for each in diff.directories],
        "protected": [
            f"{path} ({why})" for each in changed for path, why in each.protected.items()
        ],
        "secrets": [
            f"{path} ({', '.join(names)})"
            for each in changed
            for path, names in each.secrets.items()
        ],
        "leftOut": [*left_out[:MOST_LEFT_OUT]],
        **_page(text, given),
    }
    return with_untrusted(answer, "text", "protected", "secrets", "leftOut")


async def _begun(mcp: McpDependencies, run_id: str) -> RunSummary:
    found = await mcp.application.history.summary(run_id)
    if isinstance(found, QueuedRun):
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
