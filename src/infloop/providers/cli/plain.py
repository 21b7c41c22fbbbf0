"""Output format `plain`: everything that the program prints is the agent's text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.providers.base import AnswerPart, Text

if TYPE_CHECKING:
    from infloop.providers.lines import Line


class PlainText:
    """Passes every line on, including blank lines."""

    expects_result = False
    filters_stderr = False

    def read(self, line: Line) -> list[AnswerPart]:
        return [Text(line.text)]

    def read_stderr(self, line: Line) -> list[AnswerPart]:
        return []

    def finish(self) -> list[AnswerPart]:
        return []
