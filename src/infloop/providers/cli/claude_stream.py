"""Output format `claude-stream-json`: what `claude --print --output-format stream-json` prints.

One JSON object a line: `system`, `stream_event` (with --include-partial-messages), `assistant`,
`user`, `rate_limit_event`, and `result` at the end, after which nothing counts. With partial
messages each text comes twice, as deltas and in an `assistant` frame; it is taken once. The token
counts of `usage` leave sub-agents out, those of `modelUsage` do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from infloop.providers.base import (
    Cost,
    Done,
    Notice,
    Part,
    RateLimited,
    Session,
    Text,
    Tool,
    ToolResult,
    Usage,
)
from infloop.providers.json_lines import (
    MOST_TEXT,
    as_count,
    as_dollars,
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
    from infloop.model.values import JsonObject
    from infloop.providers.lines import Line

MOST_REMEMBERED = 10_000
MOST_DENIALS_SHOWN = 5
RATE_LIMITED = 429

# The input that says most about a call of a tool.
_TELLING = {
    "Bash": ("command",),
    "Read": ("file_path",),
    "Write": ("file_path",),
    "Edit": ("file_path",),
    "NotebookEdit": ("file_path", "notebook_path"),
    "Grep": ("pattern",),
    "Glob": ("pattern",),
    "WebFetch": ("url",),
    "WebSearch": ("query",),
}
_SUBAGENT = ("Task", "Agent")


class ClaudeStream:
    """Reads one conversation, frame by frame."""

    def __init__(self) -> None:
        self._begun = self._ended = False
        self._session = ""
        self._model = ""
        self._message = ""
        self._message_spoken = False
        self._block_spoken = False
        self._at_line_start = True
        self._subagents: set[str] = set()
        self._messages: set[str] = set()
        self._output_tokens = 0
        self._counted = Usage()
        self._limit_ends_ms = 0

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
        session, parts = self._note_session(frame), self._read_frame(frame)
        return [*session, *(parts or [])] if session else parts

    def diagnose(self, line: Line) -> list[Part]:
        """Return what a line of diagnostics means: nothing."""
        return []

    def _read_frame(self, frame: JsonObject) -> list[Part] | None:
        match frame.get("type"):
            case "stream_event":
                return self._read_event(frame)
            case "content_block_delta":
                return self._read_event({"event": frame})
            case "keep_alive":
                return None
            case "system":
                return self._read_system(frame)
            case "assistant":
                return self._read_assistant(frame)
            case "user":
                return self._read_user(frame)
            case "rate_limit_event":
                self._note_limit(as_object(frame.get("rate_limit_info")))
            case "result":
                return self._read_result(frame)
            case _:
                pass
        return []

    # -- who speaks ----------------------------------------------------------------------------

    def _note_session(self, frame: JsonObject) -> list[Part]:
        session = as_session(frame.get("session_id"))
        if not session or session == self._session:
            return []
        self._session = session
        return [Session(session)]

    def _read_system(self, frame: JsonObject) -> list[Part]:
        match frame.get("subtype"):
            case "init":
                self._model = as_words(frame.get("model"))
            case "api_retry":
                why = one_line(as_words(frame.get("error")) or "no reason given")
                attempt, most = as_count(frame.get("attempt")), as_count(frame.get("max_retries"))
                seconds = round(as_count(frame.get("retry_delay_ms")) / 1000)
                return [Notice(f"[retry] {why}: attempt {attempt} of {most} in {seconds} s")]
            case _:
                pass
        return []

    # -- text ----------------------------------------------------------------------------------

    def _read_event(self, frame: JsonObject) -> list[Part] | None:
        if _is_inner(frame):
            return []
        event = as_object(frame.get("event"))
        match event.get("type"):
            case "ping":
                return None
            case "message_start":
                message = as_object(event.get("message"))
                self._message, self._message_spoken = as_words(message.get("id")), False
                self._output_tokens = 0
                return self._count_input(message)
            case "content_block_start":
                self._block_spoken = False
            case "content_block_delta":
                delta = as_object(event.get("delta"))
                if delta.get("type") == "text_delta":
                    parts = self._speak(as_words(delta.get("text")), anew=not self._block_spoken)
                    self._block_spoken = self._message_spoken = True
                    return parts
            case "message_delta":
                return self._count_output(as_object(event.get("usage")))
            case _:
                pass
        return []

    def _speak(self, text: str, *, anew: bool) -> list[Part]:
        """Say a text; a new message or block begins on a line of its own."""
        if not text:
            return []
        parts: list[Part] = [Text("\n")] if anew and not self._at_line_start else []
        self._at_line_start = text.endswith("\n")
        return [*parts, Text(text)]

    def _read_assistant(self, frame: JsonObject) -> list[Part]:
        message = as_object(frame.get("message")) or frame
        # An error is put into the mouth of the agent; the result says it again.
        speaks = not _is_inner(frame) and not frame.get("error")
        was_streamed = self._message_spoken and as_words(message.get("id")) == self._message
        parts = self._count_input(message)
        for block in as_objects(message.get("content")):
            if block.get("type") == "tool_use":
                parts.append(self._read_tool(block))
            elif block.get("type") == "text" and speaks and not was_streamed:
                parts += self._speak(as_words(block.get("text")), anew=True)
        return parts

    # -- tools ---------------------------------------------------------------------------------

    def _read_tool(self, block: JsonObject) -> Tool:
        name = as_words(block.get("name"))
        given = as_object(block.get("input"))
        if name in _SUBAGENT and "prompt" in given:
            if len(self._subagents) < MOST_REMEMBERED:
                self._subagents.add(as_words(block.get("id")))
            task = as_words(given.get("description")) or as_words(given.get("prompt"))
            kind = as_words(given.get("subagent_type")) or "general-purpose"
            return Tool(one_line(kind), one_line(task), "subagent")
        return Tool(one_line(name), _summary(name, given))

    def _read_user(self, frame: JsonObject) -> list[Part]:
        results: list[Part] = []
        for block in as_objects(as_object(frame.get("message")).get("content")):
            if block.get("type") == "tool_result":
                answer = one_line(_content(block.get("content")))
                is_subagent = as_words(block.get("tool_use_id")) in self._subagents
                results.append(ToolResult(answer, "subagent" if is_subagent else "tool"))
        return results

    # -- what it cost --------------------------------------------------------------------------

    def _count_input(self, message: JsonObject) -> list[Part]:
        """Count what a message read, once, so that an agent that is ended has been counted."""
        name = as_words(message.get("id"))
        if not name or name in self._messages or len(self._messages) >= MOST_REMEMBERED:
            return []
        self._messages.add(name)
        usage = _usage(as_object(message.get("usage")), as_words(message.get("model")))
        return self._count(replace(usage, output_tokens=0))

    def _count_output(self, usage: JsonObject) -> list[Part]:
        written = as_count(usage.get("output_tokens"))
        more, self._output_tokens = max(0, written - self._output_tokens), written
        return self._count(Usage(output_tokens=more, model=self._counted.model or self._model))

    def _count(self, usage: Usage) -> list[Part]:
        if not usage.counts:
            return []
        self._counted += usage
        return [usage]

    # -- the end -------------------------------------------------------------------------------

    def _note_limit(self, info: JsonObject) -> None:
        if info.get("status") == "rejected" and info.get("isUsingOverage") is not True:
            self._limit_ends_ms = as_count(info.get("resetsAt") or info.get("resets_at")) * 1000

    def _read_result(self, frame: JsonObject) -> list[Part]:
        self._ended = True
        model = self._counted.model or self._model
        total = _models_usage(as_object(frame.get("modelUsage")), model)
        if not total.counts:
            total = _usage(as_object(frame.get("usage")), model)
        parts = self._count(total.beyond(self._counted))
        cost = as_dollars(frame.get("total_cost_usd"))
        if cost is not None:
            parts.append(Cost(cost))
        parts += _denials(as_objects(frame.get("permission_denials")))
        error = _error(frame)
        if error and self._limit_ends_ms and frame.get("api_error_status") == RATE_LIMITED:
            limited = RateLimited(self._limit_ends_ms)
            parts.append(limited)
            error = limited.reason
        result = frame.get("result")
        return [*parts, Done(None, result if isinstance(result, str) else None, error)]


def _is_inner(frame: JsonObject) -> bool:
    """Say whether a sub-agent is behind a frame."""
    return isinstance(frame.get("parent_tool_use_id"), str)


def _summary(name: str, given: JsonObject) -> str:
    for key in _TELLING.get(name, ()):
        if isinstance(value := given.get(key), str):
            return one_line(value)
    return one_line(as_json(given))


def _content(content: object) -> str:
    if isinstance(content, str):
        return content
    blocks = as_objects(content)
    texts = [as_words(block.get("text")) for block in blocks if block.get("type") == "text"]
    return "\n".join(texts) or as_json(content)


def _usage(raw: JsonObject, model: str) -> Usage:
    """Return the counts of an API message, whose `input_tokens` leave the cache out."""
    cached = as_count(raw.get("cache_read_input_tokens"))
    stored = as_count(raw.get("cache_creation_input_tokens"))
    read = as_count(raw.get("input_tokens")) + cached + stored
    return Usage(read, as_count(raw.get("output_tokens")), cached, stored, model)


def _models_usage(models: JsonObject, model: str) -> Usage:
    total = Usage(model=model)
    for raw in map(as_object, models.values()):
        cached = as_count(raw.get("cacheReadInputTokens"))
        stored = as_count(raw.get("cacheCreationInputTokens"))
        read = as_count(raw.get("inputTokens")) + cached + stored
        total += Usage(read, as_count(raw.get("outputTokens")), cached, stored)
    return total


def _denials(denials: list[JsonObject]) -> list[Part]:
    if not denials:
        return []
    shown = [
        f"{one_line(as_words(denial.get('tool_name')))} "
        f"{_summary(as_words(denial.get('tool_name')), as_object(denial.get('tool_input')))}"
        for denial in denials[:MOST_DENIALS_SHOWN]
    ]
    more = len(denials) - len(shown)
    return [
        Notice(
            f"[permissions] denied: {'; '.join(shown)}{f'; and {more} more' if more else ''} "
            "(allow it in the agent's own settings, or skip permission prompts for this node)"
        )
    ]


def _error(frame: JsonObject) -> str:
    """Return why the agent failed by its own account, or nothing."""
    if frame.get("is_error") is not True and frame.get("subtype") == "success":
        return ""
    errors = frame.get("errors")
    listed = [as_words(error) for error in errors] if isinstance(errors, list) else []
    said = "; ".join(filter(None, listed)) or as_words(frame.get("result"))
    return one_line(said or as_words(frame.get("subtype")) or "the agent failed", MOST_TEXT)
