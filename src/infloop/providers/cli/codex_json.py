"""Output format `codex-json`: what `codex exec --json` prints.

One JSON object a line: `thread.started`, `turn.started`, `item.started|updated|completed` with a
message, a command, a patch and so on, and `turn.completed` or `turn.failed` at the end, after
which nothing counts. Tokens are totals of the thread, over resumed sessions too; money and the
model are never named. What its sandbox refused is told in the diagnostics alone, if at all.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from infloop.providers.base import (
    Done,
    Notice,
    Part,
    RateLimited,
    Session,
    Stderr,
    Text,
    Tool,
    ToolResult,
    Usage,
)
from infloop.providers.json_lines import (
    MOST_TEXT,
    as_count,
    as_json,
    as_object,
    as_objects,
    as_session,
    as_words,
    not_a_frame,
    one_line,
    read_frame,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from infloop.model.values import JsonObject
    from infloop.providers.lines import Line

MOST_REMEMBERED = 10_000
MOST_CHANGES_SHOWN = 20
SAME_MINUTE = timedelta(minutes=1)

# Our own fixed patterns: no nested repeats.
_REFUSED = re.compile(r"codex_core::tools::\w+: error=(.*\breject.*)", re.ASCII)  # noqa: TID251
_AGAIN = re.compile(  # noqa: TID251
    r"usage limit.*\btry again at (?:([A-Z][a-z]{2}) (\d{1,2})(?:st|nd|rd|th), (\d{4}) )?"
    r"(\d{1,2}:\d{2} [AP]M)",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)


class CodexJson:
    """Reads one conversation; `now` is the local time, by which the limit's end is told."""

    def __init__(self, now: Callable[[], datetime], model: str = "", before: Usage | None = None):
        self._now = now
        self._model = model
        self._counted = before or Usage()
        self._begun = self._ended = False
        self._said: str | None = None
        self._started: set[str] = set()

    @property
    def is_owed(self) -> bool:
        """Whether the conversation has begun and its result has not come."""
        return self._begun and not self._ended

    def read(self, line: Line) -> list[Part] | None:
        """Return what a line says; None when it is no more than a sign of life."""
        if self._ended:
            return None
        frame = read_frame(line)
        if frame is None:
            return not_a_frame(line) or None
        self._begun = True
        match frame.get("type"):
            case "thread.started":
                session = as_session(frame.get("thread_id"))
                return [Session(session)] if session else []
            case "item.started" | "item.updated":
                return self._read_begun(as_object(frame.get("item")))
            case "item.completed":
                return self._read_completed(as_object(frame.get("item")))
            case "turn.completed":
                return self._read_end(as_object(frame.get("usage")))
            case "turn.failed":
                return self._read_failure(as_object(frame.get("error")))
            case "error":
                return [Stderr(f"{one_line(as_words(frame.get('message')), MOST_TEXT)}\n")]
            case _:
                return []

    def diagnose(self, line: Line) -> list[Part]:
        """Return the notice that a line of diagnostics gives reason for."""
        refused = _REFUSED.search(line.text[:MOST_TEXT])
        return [_permissions(refused[1])] if refused else []

    # -- items ---------------------------------------------------------------------------------

    def _read_begun(self, item: JsonObject) -> list[Part]:
        name = as_words(item.get("id"))
        tool = _tool(item)
        if tool is None or name in self._started:
            return []
        if len(self._started) < MOST_REMEMBERED:
            self._started.add(name)
        return [tool]

    def _read_completed(self, item: JsonObject) -> list[Part]:
        match item.get("type"):
            case "agent_message":
                return self._speak(as_words(item.get("text")))
            case "error":
                return [Stderr(f"{one_line(as_words(item.get('message')), MOST_TEXT)}\n")]
            case _:
                return self._read_tool_end(item)

    def _read_tool_end(self, item: JsonObject) -> list[Part]:
        tool = _tool(item)
        if tool is None:
            return []
        parts = [*self._read_begun(item), ToolResult(_answer(item), tool.kind)]
        self._started.discard(as_words(item.get("id")))
        if item.get("status") == "declined":
            parts.append(_permissions(tool.summary))
        return parts

    def _speak(self, text: str) -> list[Part]:
        """Say a message; each begins on a line of its own."""
        apart = self._said is not None and not self._said.endswith("\n")
        self._said = text
        return [Text(f"\n{text}" if apart else text)] if text else []

    # -- the end -------------------------------------------------------------------------------

    def _read_end(self, raw: JsonObject) -> list[Part]:
        self._ended = True
        total = Usage(
            as_count(raw.get("input_tokens")),
            as_count(raw.get("output_tokens")),
            as_count(raw.get("cached_input_tokens")),
            as_count(raw.get("cache_write_input_tokens")),
            self._model,
        )
        usage = total.beyond(self._counted)
        return [*([usage] if usage.counts else []), Done(None, self._said)]

    def _read_failure(self, error: JsonObject) -> list[Part]:
        self._ended = True
        message = as_words(error.get("message"))
        until_ms = limit_ends(message, self._now())
        if until_ms is not None:
            limited = RateLimited(until_ms)
            return [limited, Done(None, self._said, limited.reason)]
        return [Done(None, self._said, one_line(message, MOST_TEXT) or "the turn failed")]


def limit_ends(message: str, now: datetime) -> int | None:
    """Return when a usage limit is lifted by a message such as "try again at 9:51 PM"."""
    found = _AGAIN.search(message[:MOST_TEXT])
    if found is None:
        return None
    month, day, year, clock = found.groups()
    try:
        if month:
            told = datetime.strptime(f"{month} {day} {year} {clock}", "%b %d %Y %I:%M %p")  # noqa: DTZ007
        else:
            time = datetime.strptime(clock, "%I:%M %p")  # noqa: DTZ007  (its zone is set below)
            told = now.replace(hour=time.hour, minute=time.minute, second=0, microsecond=0)
    except ValueError:
        return None
    told = told.replace(tzinfo=now.tzinfo)
    if not month and told < now - SAME_MINUTE:
        told += timedelta(days=1)
    return int(told.timestamp() * 1000)


def _permissions(what: str) -> Notice:
    return Notice(
        f"[permissions] denied: {one_line(what)} "
        "(allow it in the agent's own settings, or skip permission prompts for this node)"
    )


def _tool(item: JsonObject) -> Tool | None:
    """Return the use of a tool that an item is, or None for any other item."""
    match item.get("type"):
        case "command_execution":
            return Tool("shell", one_line(as_words(item.get("command"))))
        case "file_change":
            changes = as_objects(item.get("changes"))[:MOST_CHANGES_SHOWN]
            told = [f"{as_words(one.get('kind'))} {as_words(one.get('path'))}" for one in changes]
            return Tool("patch", one_line("; ".join(told)))
        case "mcp_tool_call":
            name = f"{as_words(item.get('server'))}.{as_words(item.get('tool'))}"
            return Tool(one_line(name), one_line(as_json(item.get("arguments"))))
        case "web_search":
            return Tool("web_search", one_line(as_words(item.get("query"))))
        case "collab_tool_call":
            name, prompt = as_words(item.get("tool")), as_words(item.get("prompt"))
            return Tool(one_line(name), one_line(prompt), "subagent")
        case _:
            return None


def _answer(item: JsonObject) -> str:
    """Return what a tool answered: its output or its error, else how it ended."""
    code = item.get("exit_code")
    output = as_words(item.get("aggregated_output"))
    if code not in (0, None):
        output = f"exit {as_count(code)} {output}"
    blocks = as_objects(as_object(item.get("result")).get("content"))
    texts = [as_words(block.get("text")) for block in blocks]
    error = as_words(as_object(item.get("error")).get("message"))
    answer = error or output or "\n".join(filter(None, texts))
    return one_line(answer or as_words(item.get("status")) or "done")
