"""The output formats of agents that are programs, one line each."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from infloop.providers.cli.claude_stream import ClaudeStream
from infloop.providers.cli.codex_json import CODEX_LOG_LEVELS, CodexJson
from infloop.providers.cli.plain import PlainText
from infloop.providers.prices import PriceList

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from infloop.model.provider import OutputFormatName
    from infloop.providers.base import Request
    from infloop.providers.output_reader import OutputParser


class OutputFormat(NamedTuple):
    """How the output of a program is read.

    `parser` makes the parser of one answer; the second argument returns the local time. A format
    that reports tokens and no cost names the `price_list` that applies. `environment` are variables
    with which the program prints what the parser needs; the manifest's own come first.
    """

    parser: Callable[[Request, Callable[[], datetime]], OutputParser]
    price_list: PriceList | None = None
    environment: Mapping[str, str] = MappingProxyType({})


def _claude(request: Request, now: Callable[[], datetime]) -> OutputParser:
    return ClaudeStream(is_judge=request.kind == "judge")


def _codex(request: Request, now: Callable[[], datetime]) -> OutputParser:
    return CodexJson(now, request.requested_model, request.session_usage)


OUTPUT_FORMATS: Mapping[OutputFormatName, OutputFormat] = {
    "claude-stream-json": OutputFormat(_claude),
    "codex-json": OutputFormat(
        _codex, PriceList("openai", summed=True), {"RUST_LOG": CODEX_LOG_LEVELS}
    ),
    "plain": OutputFormat(lambda request, now: PlainText()),
}
