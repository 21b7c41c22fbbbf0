"""Output format `claude-stream-json`: the output of `claude --print --output-format stream-json`.

- Each line is a JSON object, here called a record: `system`, `assistant`, `user`,
  `rate_limit_event`, `stream_event` (with --include-partial-messages), and `result` at the end.
  Everything after `result` is ignored.
- With partial messages each text comes twice, as deltas and in an `assistant` record. It is used
  once.
- The token counts of `usage` do not include sub-agents; those of `modelUsage` do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from infloop.providers.base import (
    CLI_REMEDY,
    AnswerPart,
    Cost,
    Done,
    ProviderNotice,
    RateLimited,
    Session,
    Text,
    Tool,
    ToolResult,
    Usage,
    denied,
)
from infloop.providers.json_lines import (
    MAX_MESSAGE_CHARS,
    as_count,
    as_dollars,
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
    from infloop.model.events import ToolKind
    from infloop.model.values import JsonObject
    from infloop.providers.lines import Line

MAX_REMEMBERED = 10_000
MAX_DENIALS_SHOWN = 5
RATE_LIMITED = 429

# The input that describes a call of a tool best.
_SUMMARY_KEYS = {
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
    """Parses one conversation, record by record.

    A judge's answer is a JSON object too. With `is_judge`, one without a type is text: a program
    that is started as claude may print its answer plainly.
    """

    def __init__(self, *, is_judge: bool = False) -> None:
        self._is_judge = is_judge
        self._ended = False
        self._session = ""
        self._model = ""
        self._message = ""
        self._message_has_text = False
        self._block_has_text = False
        self._at_line_start = True
        self._subagents: set[str] = set()
        self._messages: set[str] = set()
        self._output_tokens = 0
        self._counted = Usage()
        self._limit_lifted_ms = 0

    @property
    def expects_result(self) -> bool:
        """Whether the result is missing."""
        return not self._ended

    def read(self, line: Line) -> list[AnswerPart] | None:
        if self._ended:
            return None
        record = json_object(line)
        if record is None:
            return non_json_line(line) or None
        if self._is_judge and "type" not in record:
            return [Text(line.text)]
        session, parts = self._note_session(record), self._read_record(record)
        return [*session, *(parts or [])] if session else parts

    filters_stderr = False

    def read_stderr(self, line: Line) -> list[AnswerPart]:
        return []

    def finish(self) -> list[AnswerPart]:
        return []

    def _read_record(self, record: JsonObject) -> list[AnswerPart] | None:
        match record.get("type"):
            case "stream_event":
                return self._read_event(record)
            case "content_block_delta":
                return self._read_event({"event": record})
            case "keep_alive":
                return None
            case "system":
                return self._read_system(record)
            case "assistant":
                return self._read_assistant(record)
            case "user":
                return self._read_user(record)
            case "rate_limit_event":
                self._note_limit(as_object(record.get("rate_limit_info")))
            case "result":
                return self._read_result(record)
            case _:
                pass
        return []

    # -- session and system records ------------------------------------------------------------

    def _note_session(self, record: JsonObject) -> list[AnswerPart]:
        session = as_session_id(record.get("session_id"))
        if not session or session == self._session:
            return []
        self._session = session
        return [Session(session)]

    def _read_system(self, record: JsonObject) -> list[AnswerPart]:
        match record.get("subtype"):
            case "init":
                self._model = as_str(record.get("model"))
            case "api_retry":
                why = one_line(as_str(record.get("error")) or "no reason given")
                attempt, most = as_count(record.get("attempt")), as_count(record.get("max_retries"))
                seconds = round(as_count(record.get("retry_delay_ms")) / 1000)
                return [
                    ProviderNotice(f"[retry] {why}: attempt {attempt} of {most} in {seconds} s")
                ]
            case _:
                pass
        return []

    # -- text ----------------------------------------------------------------------------------

    def _read_event(self, record: JsonObject) -> list[AnswerPart] | None:
        if _is_subagent(record):
            return []
        event = as_object(record.get("event"))
        match event.get("type"):
            case "ping":
                return None
            case "message_start":
                message = as_object(event.get("message"))
                self._message, self._message_has_text = as_str(message.get("id")), False
                self._output_tokens = 0
                return self._count_input(message)
            case "content_block_start":
                self._block_has_text = False
            case "content_block_delta":
                delta = as_object(event.get("delta"))
                if delta.get("type") == "text_delta":
                    new_line = not self._block_has_text
                    self._block_has_text = self._message_has_text = True
                    return self._add_text(as_str(delta.get("text")), new_line=new_line)
            case "message_delta":
                return self._count_output(as_object(event.get("usage")))
            case _:
                pass
        return []

    def _add_text(self, text: str, *, new_line: bool) -> list[AnswerPart]:
        """Return a text; a new message or block begins on its own line."""
        if not text:
            return []
        parts: list[AnswerPart] = [Text("\n")] if new_line and not self._at_line_start else []
        self._at_line_start = text.endswith("\n")
        return [*parts, Text(text)]

    def _read_assistant(self, record: JsonObject) -> list[AnswerPart]:
        message = as_object(record.get("message")) or record
        # An error also comes as the text of a message; the result repeats it.
        is_text = not _is_subagent(record) and not record.get("error")
        was_streamed = self._message_has_text and as_str(message.get("id")) == self._message
        parts = self._count_input(message)
        for block in as_objects(message.get("content")):
            if block.get("type") == "tool_use":
                parts.append(self._read_tool(block))
            elif block.get("type") == "text" and is_text and not was_streamed:
                parts += self._add_text(as_str(block.get("text")), new_line=True)
        return parts

    # -- tools ---------------------------------------------------------------------------------

    def _read_tool(self, block: JsonObject) -> Tool:
        name = as_str(block.get("name"))
        given = as_object(block.get("input"))
        if name in _SUBAGENT and "prompt" in given:
            if len(self._subagents) < MAX_REMEMBERED:
                self._subagents.add(as_str(block.get("id")))
            task = as_str(given.get("description")) or as_str(given.get("prompt"))
            kind = as_str(given.get("subagent_type")) or "general-purpose"
            return Tool(one_line(kind), one_line(task), "subagent", as_str(block.get("id")))
        return Tool(one_line(name), _summary(name, given), id=as_str(block.get("id")))

    def _read_user(self, record: JsonObject) -> list[AnswerPart]:
        results: list[AnswerPart] = []
        for block in as_objects(as_object(record.get("message")).get("content")):
            if block.get("type") == "tool_result":
                answer = one_line(_content(block.get("content")))
                call = as_str(block.get("tool_use_id"))
                kind: ToolKind = "subagent" if call in self._subagents else "tool"
                failed = block.get("is_error") is True
                results.append(ToolResult(answer, kind, call, failed))
        return results

    # -- usage ---------------------------------------------------------------------------------

    def _count_input(self, message: JsonObject) -> list[AnswerPart]:
        """Count the input of a message once, as it comes: the agent may be stopped at any time."""
        name = as_str(message.get("id"))
        if not name or name in self._messages or len(self._messages) >= MAX_REMEMBERED:
            return []
        self._messages.add(name)
        usage = _usage(as_object(message.get("usage")), as_str(message.get("model")))
        return self._count(replace(usage, output_tokens=0))

    def _count_output(self, usage: JsonObject) -> list[AnswerPart]:
        written = as_count(usage.get("output_tokens"))
        more, self._output_tokens = max(0, written - self._output_tokens), written
        return self._count(Usage(output_tokens=more, model=self._counted.model or self._model))

    def _count(self, usage: Usage) -> list[AnswerPart]:
        if not usage.has_tokens:
            return []
        self._counted += usage
        return [usage]

    # -- result --------------------------------------------------------------------------------

    def _note_limit(self, info: JsonObject) -> None:
        if info.get("status") == "rejected" and info.get("isUsingOverage") is not True:
            self._limit_lifted_ms = as_count(info.get("resetsAt") or info.get("resets_at")) * 1000

    def _read_result(self, record: JsonObject) -> list[AnswerPart]:
        self._ended = True
        model = self._counted.model or self._model
        total = _models_usage(as_object(record.get("modelUsage")), model)
        if not total.has_tokens:
            total = _usage(as_object(record.get("usage")), model)
        parts = self._count(total.since(self._counted))
        cost = as_dollars(record.get("total_cost_usd"))
        if cost is not None:
            parts.append(Cost(cost))
        parts += _denials(as_objects(record.get("permission_denials")))
        error = _error(record)
        if error and self._limit_lifted_ms and record.get("api_error_status") == RATE_LIMITED:
            limited = RateLimited(self._limit_lifted_ms)
            parts.append(limited)
            error = limited.reason
        result = record.get("result")
        return [*parts, Done(None, result if isinstance(result, str) else None, error)]


def _is_subagent(record: JsonObject) -> bool:
    """Say whether a record is from a sub-agent."""
    return isinstance(record.get("parent_tool_use_id"), str)


def _summary(name: str, given: JsonObject) -> str:
    for key in _SUMMARY_KEYS.get(name, ()):
        if isinstance(value := given.get(key), str):
            return one_line(value)
    return one_line(as_json(given))


def _content(content: object) -> str:
    if isinstance(content, str):
        return content
    blocks = as_objects(content)
    texts = [as_str(block.get("text")) for block in blocks if block.get("type") == "text"]
    return "\n".join(texts) or as_json(content)


def _usage(raw: JsonObject, model: str) -> Usage:
    """Return the counts of an API message, whose `input_tokens` do not include the cache."""
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


def _denials(denials: list[JsonObject]) -> list[AnswerPart]:
    if not denials:
        return []
    listed = [
        f"{one_line(as_str(denial.get('tool_name')))} "
        f"{_summary(as_str(denial.get('tool_name')), as_object(denial.get('tool_input')))}"
        for denial in denials[:MAX_DENIALS_SHOWN]
    ]
    more = len(denials) - len(listed)
    return [denied(f"{'; '.join(listed)}{f'; and {more} more' if more else ''}", CLI_REMEDY)]


def _error(record: JsonObject) -> str:
    """Return the reason that the agent gives for its failure, or an empty string."""
    if record.get("is_error") is not True and record.get("subtype") == "success":
        return ""
    errors = record.get("errors")
    listed = [as_str(error) for error in errors] if isinstance(errors, list) else []
    reason = "; ".join(filter(None, listed)) or as_str(record.get("result"))
    reason = reason or as_str(record.get("subtype")) or "the agent failed"
    return one_line(reason, MAX_MESSAGE_CHARS)
