"""Output format `codex-json`: the output of `codex exec --json`.

- Each line is a JSON object, an event: `thread.started`, `turn.started`,
  `item.started|updated|completed` with a message, a command or a patch, and `turn.completed` or
  `turn.failed` at the end. Everything after the end is ignored.
- Token counts are totals of the thread, including resumed sessions. Cost and model are not
  reported.
- A refusal appears as a declined item, as a patch that failed, in the output of a command that its
  sandbox stopped, or in the diagnostics.
- There is no item for a command that its sandbox stopped at once. `CODEX_LOG_LEVELS` makes codex
  log every tool call that has ended. If there are more of them than items, commands were stopped.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from infloop.providers.base import (
    CLI_REMEDY,
    AnswerPart,
    Done,
    RateLimited,
    Session,
    Stderr,
    Text,
    Tool,
    ToolResult,
    Usage,
    denied,
)
from infloop.providers.json_lines import (
    MAX_MESSAGE_CHARS,
    as_count,
    as_json,
    as_object,
    as_objects,
    as_session_id,
    as_str,
    json_object,
    non_json_line,
    one_line,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from infloop.model.values import JsonObject
    from infloop.providers.lines import Line

MAX_REMEMBERED = 10_000
MAX_CHANGES_SHOWN = 20
SAME_MINUTE = timedelta(minutes=1)

CODEX_LOG_LEVELS = "error,codex_core::tools::parallel=info"
"""`RUST_LOG` of codex: errors as usual, and a line for every tool call that has ended."""

_CALL_ENDED = "codex_core::tools::parallel: tool call completed "
_CALL_FAILED = "codex_core::tools::router: error="
_LOGGED_TOOLS = (" tool_name=exec_command ", " tool_name=apply_patch ")
_LISTED_ITEMS = ("command_execution", "file_change")
_NOT_STARTED = -1
"""The exit code of a command that could not be started; the log has an error for it."""

# What programs print when codex's sandbox keeps them from writing or from the network.
_BLOCKED = ("Read-only file system", "Permission denied", "Operation not permitted", "bwrap: ")

# Our own fixed patterns: no nested repeats.
_REFUSED = re.compile(r"codex_core::tools::\w+: error=(.*\breject.*)", re.ASCII)  # noqa: TID251
_AGAIN = re.compile(  # noqa: TID251
    r"usage limit.*\btry again at (?:([A-Z][a-z]{2}) (\d{1,2})(?:st|nd|rd|th), (\d{4}) )?"
    r"(\d{1,2}:\d{2} [AP]M)",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)


class CodexJson:
    """Parses one conversation; `now` returns the local time, in which limits are reported."""

    def __init__(self, now: Callable[[], datetime], model: str = "", before: Usage | None = None):
        self._now = now
        self._model = model
        self._counted = before or Usage()
        self._ended = False
        self._last_message: str | None = None
        self._started: set[str] = set()
        self._calls_logged = 0
        self._calls_listed = 0

    filters_stderr = True

    @property
    def expects_result(self) -> bool:
        """Whether the result is missing."""
        return not self._ended

    def read(self, line: Line) -> list[AnswerPart] | None:
        if self._ended:
            return None
        event = json_object(line)
        if event is None:
            return non_json_line(line) or None
        match event.get("type"):
            case "thread.started":
                session = as_session_id(event.get("thread_id"))
                return [Session(session)] if session else []
            case "item.started" | "item.updated":
                return self._read_begun(as_object(event.get("item")))
            case "item.completed":
                return self._read_completed(as_object(event.get("item")))
            case "turn.completed":
                return self._read_end(as_object(event.get("usage")))
            case "turn.failed":
                return self._read_failure(as_object(event.get("error")))
            case "error":
                return [Stderr(f"{one_line(as_str(event.get('message')), MAX_MESSAGE_CHARS)}\n")]
            case _:
                return []

    def read_stderr(self, line: Line) -> list[AnswerPart] | None:
        text = line.text[:MAX_MESSAGE_CHARS]
        if _CALL_ENDED in text:
            self._calls_logged += any(tool in text for tool in _LOGGED_TOOLS)
            return None
        self._calls_logged -= _CALL_FAILED in text
        refused = _REFUSED.search(text)
        return [denied(one_line(refused[1]), CLI_REMEDY)] if refused else []

    def finish(self) -> list[AnswerPart]:
        stopped = self._calls_logged - self._calls_listed
        if not self._ended or stopped <= 0:
            return []
        what = "a command" if stopped == 1 else f"{stopped} commands"
        reason = "which codex's own sandbox stopped at once; codex does not print it"
        return [denied(f"{what}, {reason}", CLI_REMEDY)]

    # -- items ---------------------------------------------------------------------------------

    def _read_begun(self, item: JsonObject) -> list[AnswerPart]:
        name = as_str(item.get("id"))
        tool = _tool(item)
        if tool is None or name in self._started:
            return []
        if len(self._started) < MAX_REMEMBERED:
            self._started.add(name)
        self._calls_listed += item.get("type") in _LISTED_ITEMS
        return [tool]

    def _read_completed(self, item: JsonObject) -> list[AnswerPart]:
        match item.get("type"):
            case "agent_message":
                return self._add_text(as_str(item.get("text")))
            case "error":
                return [Stderr(f"{one_line(as_str(item.get('message')), MAX_MESSAGE_CHARS)}\n")]
            case _:
                return self._read_tool_end(item)

    def _read_tool_end(self, item: JsonObject) -> list[AnswerPart]:
        tool = _tool(item)
        if tool is None:
            return []
        result = ToolResult(_answer(item), tool.kind, tool.id, _has_failed(item))
        parts = [*self._read_begun(item), result]
        self._started.discard(as_str(item.get("id")))
        self._calls_listed -= item.get("exit_code") == _NOT_STARTED
        if _was_denied(item):
            parts.append(denied(tool.summary, CLI_REMEDY))
        return parts

    def _add_text(self, text: str) -> list[AnswerPart]:
        """Return a message; each begins on its own line."""
        new_line = self._last_message is not None and not self._last_message.endswith("\n")
        self._last_message = text
        return [Text(f"\n{text}" if new_line else text)] if text else []

    # -- result --------------------------------------------------------------------------------

    def _read_end(self, raw: JsonObject) -> list[AnswerPart]:
        self._ended = True
        total = Usage(
            as_count(raw.get("input_tokens")),
            as_count(raw.get("output_tokens")),
            as_count(raw.get("cached_input_tokens")),
            as_count(raw.get("cache_write_input_tokens")),
            self._model,
        )
        usage = total.since(self._counted)
        return [*([usage] if usage.has_tokens else []), Done(None, self._last_message)]

    def _read_failure(self, error: JsonObject) -> list[AnswerPart]:
        self._ended = True
        message = as_str(error.get("message"))
        until_ms = limit_lifted_ms(message, self._now())
        if until_ms is not None:
            limited = RateLimited(until_ms)
            return [limited, Done(None, self._last_message, limited.reason)]
        reason = one_line(message, MAX_MESSAGE_CHARS) or "the turn failed"
        return [Done(None, self._last_message, reason)]


def limit_lifted_ms(message: str, now: datetime) -> int | None:
    """Return when a usage limit is lifted, from a message such as "try again at 9:51 PM"."""
    found = _AGAIN.search(message[:MAX_MESSAGE_CHARS])
    if found is None:
        return None
    month, day, year, clock = found.groups()
    try:
        if month:
            lifted = datetime.strptime(f"{month} {day} {year} {clock}", "%b %d %Y %I:%M %p")  # noqa: DTZ007
        else:
            time = datetime.strptime(clock, "%I:%M %p")  # noqa: DTZ007  (its zone is set below)
            lifted = now.replace(hour=time.hour, minute=time.minute, second=0, microsecond=0)
    except ValueError:
        return None
    lifted = lifted.replace(tzinfo=now.tzinfo)
    if not month and lifted < now - SAME_MINUTE:
        lifted += timedelta(days=1)
    return int(lifted.timestamp() * 1000)


def _was_denied(item: JsonObject) -> bool:
    match item.get("type"), item.get("status"):
        case _, "declined":
            return True
        case "file_change", "failed":
            return True
        case "command_execution", "failed":
            output = as_str(item.get("aggregated_output"))
            return any(sign in output for sign in _BLOCKED)
        case _:
            return False


def _tool(item: JsonObject) -> Tool | None:
    """Return the tool call that an item describes, or None for any other item."""
    call = as_str(item.get("id"))
    match item.get("type"):
        case "command_execution":
            return Tool("shell", one_line(as_str(item.get("command"))), id=call)
        case "file_change":
            changes = as_objects(item.get("changes"))[:MAX_CHANGES_SHOWN]
            files = [f"{as_str(one.get('kind'))} {as_str(one.get('path'))}" for one in changes]
            return Tool("patch", one_line("; ".join(files)), id=call)
        case "mcp_tool_call":
            name = f"{as_str(item.get('server'))}.{as_str(item.get('tool'))}"
            return Tool(one_line(name), one_line(as_json(item.get("arguments"))), id=call)
        case "web_search":
            return Tool("web_search", one_line(as_str(item.get("query"))), id=call)
        case "collab_tool_call":
            name, prompt = as_str(item.get("tool")), as_str(item.get("prompt"))
            return Tool(one_line(name), one_line(prompt), "subagent", call)
        case _:
            return None


def _has_failed(item: JsonObject) -> bool:
    return item.get("status") in ("failed", "declined") or item.get("exit_code") not in (0, None)


def _answer(item: JsonObject) -> str:
    """Return the answer of a tool: its output or its error, else its status."""
    code = item.get("exit_code")
    output = as_str(item.get("aggregated_output"))
    if code not in (0, None):
        output = f"exit {as_count(code)} {output}"
    blocks = as_objects(as_object(item.get("result")).get("content"))
    texts = [as_str(block.get("text")) for block in blocks]
    error = as_str(as_object(item.get("error")).get("message"))
    answer = error or output or "\n".join(filter(None, texts))
    return one_line(answer or as_str(item.get("status")) or "done")
