"""Output format `plain`: what the program prints is what the agent says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.providers.base import Part, Text

if TYPE_CHECKING:
    from infloop.providers.lines import Line


class PlainText:
    """Passes every line on, blank ones too."""

    is_owed = False

    def read(self, line: Line) -> list[Part]:
        """Return what a line of output says."""
        return [Text(line.text)]

    def diagnose(self, line: Line) -> list[Part]:
        """Return what a line of diagnostics means: nothing."""
        return []
