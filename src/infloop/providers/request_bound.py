"""The most tokens that a request to a model API can use, from its body.

Rules
  * A token is at least one byte of text, so a text has at most as many tokens as bytes.
  * An image has a fixed number of tokens, however well it is compressed.
  * What is not in the body has the size of the largest context: documents, files and
    conversations that the API keeps, and every field or kind of content that is not known here.
  * With tools that the API runs by itself, the input is read several times.
  * The answer is as long as the request allows; if it names no limit, as long as any model's.
  * A field that is named twice counts as its last value, and the request is rebuilt like that. So
    the API gets what was counted.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Raw

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infloop.model.provider import DialectName

MAX_INPUT_TOKENS = 1_100_000
"""The largest context of the models on the price lists."""

MAX_OUTPUT_TOKENS = 128_000
"""The longest answer of the models on the price lists."""

TOOL_ROUNDS = 10
"""How often an API reads the input while it uses its own tools."""

MAX_CHOICES = 128
MAX_VALUES = 500_000
"""A body with more objects and fields is refused: parsing it would take much memory."""

_MAX_DEPTH = 4

_IMAGE_TOKENS: Mapping[DialectName, int] = {
    "anthropic": 5_000,
    "openai": 50_000,
    "openai-responses": 50_000,
}
_LENGTH_FIELDS: Mapping[DialectName, tuple[str, ...]] = {
    "anthropic": ("max_tokens",),
    "openai": ("max_tokens", "max_completion_tokens"),
    "openai-responses": ("max_output_tokens",),
}
_CONTENT = ("messages", "input", "system", "instructions")

_KNOWN_FIELDS = frozenset(
    (
        *("model", *_CONTENT, "max_tokens", "max_completion_tokens", "max_output_tokens", "n"),
        *("tools", "tool_choice", "parallel_tool_calls", "max_tool_calls", "functions"),
        *("function_call", "stop", "stop_sequences", "temperature", "top_p", "top_k", "seed"),
        *("presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs"),
        *("stream", "stream_options", "store", "background", "include", "truncation", "user"),
        *("metadata", "client_metadata", "safety_identifier", "prompt_cache_key"),
        *("prompt_cache_retention", "cache_control", "context_management", "prediction"),
        *("thinking", "reasoning", "reasoning_effort", "verbosity", "text", "response_format"),
        *("output_config", "output_format", "service_tier", "speed", "inference_geo"),
    )
)
_TOOL_FIELDS = ("mcp_servers", "container", "web_search_options")
"""Fields that let the API use tools of its own."""

_OWN_PRICE = ("audio", "modalities")
"""Fields of requests whose tokens have another price than text."""

_TEXT_BLOCKS = frozenset(
    (
        *("", "text", "thinking", "redacted_thinking", "tool_use", "tool_result", "search_result"),
        *("server_tool_use", "web_search_tool_result", "web_search_result", "tool_reference"),
        *("message", "input_text", "output_text", "summary_text", "reasoning_text", "refusal"),
        *("reasoning", "function_call", "function_call_output", "custom_tool_call"),
        *("custom_tool_call_output", "local_shell_call", "local_shell_call_output", "shell_call"),
        *("shell_call_output", "apply_patch_call", "apply_patch_call_output", "web_search_call"),
        *("compaction", "compaction_summary"),
    )
)
_IMAGE_BLOCKS = frozenset(("image", "image_url", "input_image", "computer_screenshot"))
_AUDIO_BLOCKS = frozenset(("audio", "input_audio", "output_audio"))

_OWN_TOOLS = frozenset(("", "function", "custom", "local_shell", "apply_patch", "namespace"))
_OWN_TOOL_PREFIXES = ("bash_", "text_editor_", "computer_", "memory_", "tool_search_tool_")
"""Tools that the client runs; every other tool is the API's own."""

_USUAL_TIERS = frozenset(("auto", "default", "flex", "standard", "standard_only", "batch"))
_FAST_TIMES, _PRIORITY_TIMES, _REGION_TIMES = 6.0, 2.5, 1.1
"""How much dearer than the list: Anthropic's fast mode, a priority tier, a chosen region."""

T = TypeVar("T")


class UnboundedRequest(Exception):
    """It cannot be said what a request costs at most; the text says why."""


class RequestBound(msgspec.Struct, frozen=True):
    """The most that a request can use, and the body that is sent instead of the one that came.

    `price_times` is how much dearer than the list the request is. With `rereads` the API may
    read the input again after it reported its size.
    """

    model: str
    input_tokens: int
    output_tokens: int
    price_times: float = 1.0
    rereads: bool = False
    body: bytes = b""


class _Block(msgspec.Struct):
    """A message, an item or a part of one."""

    type: str = ""
    content: Raw = Raw()
    output: Raw = Raw()
    source: Raw = Raw()
    image_url: Raw = Raw()
    audio: Raw = Raw()


class _Named(msgspec.Struct):
    type: str = ""


class _Thinking(msgspec.Struct):
    budget_tokens: float | None = None


class _ContextManagement(msgspec.Struct):
    edits: list[_Named] = []


def request_bound(dialect: DialectName, body: bytes) -> RequestBound:
    """Return the most that a request can use; raise UnboundedRequest if that cannot be said."""
    if body.count(b"{") + body.count(b":") > MAX_VALUES:
        raise UnboundedRequest(f"its body has more than {MAX_VALUES} values")
    try:
        fields = msgspec.json.decode(body, type=dict[str, Raw])
        rebuilt = msgspec.json.encode(fields)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise UnboundedRequest("its body is not a JSON object") from None
    for name in _OWN_PRICE:
        if _is_set(fields, name):
            raise UnboundedRequest(f"{name!r} has a price of its own")
    return _Reader(dialect, fields, rebuilt).bound()


class _Reader:
    """Reads the fields of one request."""

    def __init__(self, dialect: DialectName, fields: Mapping[str, Raw], body: bytes) -> None:
        self._dialect = dialect
        self._fields = fields
        self._body = body
        self._text_bytes = len(body)
        self._images = 0
        self._has_unsized = bool(fields.keys() - _KNOWN_FIELDS - set(_TOOL_FIELDS))

    def bound(self) -> RequestBound:
        for name in _CONTENT:
            self._read_content(self._fields.get(name, Raw()), _MAX_DEPTH)
        size = self._text_bytes + self._images * _IMAGE_TOKENS[self._dialect]
        size = MAX_INPUT_TOKENS if self._has_unsized else min(size, MAX_INPUT_TOKENS)
        rereads = self._rereads()
        return RequestBound(
            self._field("model", str) or "",
            size * (TOOL_ROUNDS if rereads else 1),
            self._output_tokens(size),
            self._price_times(),
            rereads,
            self._body,
        )

    def _read_content(self, raw: Raw, depth: int) -> None:
        """Count the images in a content, and note whether something has no known size."""
        if not _is_container(raw):
            return
        blocks = _decode(raw, list[_Block]) if _starts(raw, b"[") else None
        if blocks is None:
            block = _decode(raw, _Block) if _starts(raw, b"{") else None
            blocks = [] if block is None else [block]
        if not depth or (not blocks and not _is_empty(raw)):
            self._has_unsized = True
            return
        for block in blocks:
            self._read_block(block, depth - 1)

    def _read_block(self, block: _Block, depth: int) -> None:
        if block.type in _AUDIO_BLOCKS or _is_container(block.audio):
            raise UnboundedRequest("audio has a price of its own")
        if block.type in _IMAGE_BLOCKS:
            self._images += 1
            self._text_bytes -= len(bytes(block.source)) + len(bytes(block.image_url))
        elif block.type in _TEXT_BLOCKS:
            self._read_content(block.content, depth)
            self._read_content(block.output, depth)
        else:
            self._has_unsized = True

    def _output_tokens(self, input_tokens: int) -> int:
        given = [self._number(name) for name in _LENGTH_FIELDS[self._dialect]]
        longest = max((each for each in given if each > 0), default=MAX_OUTPUT_TOKENS)
        thinking = self._field("thinking", _Thinking)
        budget = thinking.budget_tokens if thinking else None
        tokens = min(max(longest, math.ceil(budget or 0)), MAX_INPUT_TOKENS)
        if _is_set(self._fields, "prediction"):  # what was not predicted rightly is billed too
            tokens += input_tokens
        return tokens * self._choices()

    def _choices(self) -> int:
        if self._dialect != "openai" or not _is_set(self._fields, "n"):
            return 1
        return min(max(self._number("n"), 1), MAX_CHOICES) if self._number("n") else MAX_CHOICES

    def _rereads(self) -> bool:
        if any(_is_set(self._fields, name) for name in _TOOL_FIELDS):
            return True
        tools = self._field("tools", list[_Named])
        if tools is None and _is_set(self._fields, "tools"):
            return True
        if any(not _is_own_tool(tool.type) for tool in tools or ()):
            return True
        if not _is_set(self._fields, "context_management"):
            return False
        edited = self._field("context_management", _ContextManagement)
        return edited is None or any(not edit.type.startswith("clear_") for edit in edited.edits)

    def _price_times(self) -> float:
        times = 1.0
        if _is_set(self._fields, "speed") and self._field("speed", str) != "standard":
            times *= _FAST_TIMES
        tier = self._field("service_tier", str)
        if _is_set(self._fields, "service_tier") and tier not in _USUAL_TIERS:
            times *= _PRIORITY_TIMES
        if _is_set(self._fields, "inference_geo") and self._field("inference_geo", str) != "global":
            times *= _REGION_TIMES
        return times

    def _number(self, name: str) -> int:
        """Return a field as a whole number, rounded up; 0 if it is not a number."""
        value = self._field(name, float)
        return math.ceil(value) if value is not None and math.isfinite(value) else 0

    def _field(self, name: str, kind: type[T]) -> T | None:
        raw = self._fields.get(name)
        return None if raw is None else _decode(raw, kind)


def _decode(raw: Raw, kind: type[T]) -> T | None:
    """Return a value of this kind, or None for anything else."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None


def _is_set(fields: Mapping[str, Raw], name: str) -> bool:
    return name in fields and bytes(fields[name]) != b"null"


def _starts(raw: Raw, beginning: bytes) -> bool:
    return bytes(memoryview(raw)[:1]) == beginning


def _is_container(raw: Raw) -> bool:
    return _starts(raw, b"[") or _starts(raw, b"{")


def _is_empty(raw: Raw) -> bool:
    return bytes(raw).translate(None, b" \t\r\n") in (b"[]", b"{}")


def _is_own_tool(kind: str) -> bool:
    return kind in _OWN_TOOLS or kind.startswith(_OWN_TOOL_PREFIXES)
