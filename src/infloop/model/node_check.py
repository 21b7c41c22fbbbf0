"""What a node's own rules are given: where to report, and what they may look up."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from infloop.model.patterns import BadPattern, compile_pattern
from infloop.model.problems import short_repr
from infloop.model.shell_references import reference_positions
from infloop.model.template import Template

if TYPE_CHECKING:
    from collections.abc import Collection

    from infloop.model.problems import Report

# Our own fixed patterns: no nested repeats.
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)  # noqa: TID251
_NO_NAME = re.compile(r"[^A-Za-z0-9_]", re.ASCII)  # noqa: TID251


class NodeCheck(msgspec.Struct, frozen=True):
    """The check of one node.

    `place` is where the node is in the file; fields are named relative to it. `providers` are the
    known providers, None if they are not known. `branches` counts the branches of a parallel.
    `strict` is the workflow's.
    """

    place: str
    report: Report
    providers: Collection[str] | None = None
    branches: int = 0
    strict: bool = False

    def error(self, field: str, message: str, hint: str = "", *, unsafe: bool = False) -> None:
        """Report a mistake with which the node cannot run."""
        self.report.error(self._at(field), message, hint, unsafe=unsafe)

    def warning(self, field: str, message: str, hint: str = "") -> None:
        """Report something that may not be what the author meant."""
        self.report.warning(self._at(field), message, hint)

    def mistake(self, field: str, message: str, hint: str = "") -> None:
        """Report what fails only when the node runs: an error in a strict workflow."""
        (self.error if self.strict else self.warning)(field, message, hint)

    def not_negative(self, field: str, value: object) -> None:
        """Report a number below zero."""
        self.report.not_negative(self._at(field), value)

    def provider(self, field: str, name: str) -> None:
        """Report a provider that is missing or not known."""
        if not name.strip():
            self.mistake(field, "is empty", "name a provider, such as 'claude'")
        elif self.providers is not None and name not in self.providers:
            hint = self.report.guess(name, self.providers)
            self.warning(
                field,
                f"there is no provider {short_repr(name)} here",
                hint or "add its manifest to the providers folder",
            )

    def variable(self, field: str, name: str) -> None:
        """Report a name that an environment variable of a child cannot have."""
        if not _VARIABLE.fullmatch(name):
            self.error(
                field,
                f"{short_repr(name)} cannot be the name of a variable",
                "use letters, digits and underscores, not a digit first",
            )
        elif name.upper().startswith("INFLOOP_"):
            self.error(field, f"{name!r} never reaches a child", "use a name without INFLOOP_")

    def shell_line(self, field: str, line: str) -> None:
        """Report references that stand where their values would not be one word."""
        template = Template(line)
        positions = reference_positions(template.pieces())
        for reference, position in zip(template.references, positions, strict=True):
            if position.problem:
                shown = f"{{{{{'.'.join(reference)}}}}}"
                name = _NO_NAME.sub("_", reference[-1]).upper().lstrip("0123456789") or "VALUE"
                self.error(
                    field,
                    f"line {position.line}: {shown} {position.problem}",
                    f'add "env": {{"{name}": "{shown}"}} to the command, and write "${name}" in '
                    "its place",
                    unsafe=True,
                )

    def pattern(self, field: str, pattern: str) -> None:
        """Report a regular expression that cannot be used; one with references is not judged."""
        if Template(pattern).references:
            return
        try:
            compile_pattern(pattern)
        except BadPattern as error:
            self.error(
                field,
                f"not a pattern that can run in linear time: {error}",
                "RE2 syntax has no look-around and no back-references",
                unsafe=True,
            )

    def _at(self, field: str) -> str:
        return f"{self.place} {field}" if field else self.place
