"""Reads the files that are not workflows: providers, triggers, plugins, connections.

- Files of Infinite Loop load as they are.
- An unknown key is only a warning, so a file of another version still loads.
- Inside a part that decides about trust (`auth`, `signature`, `match`) it is an error.
- A list that permits something (`envPassthrough`, `egressAllowlist`) refuses entries that are not
  understood.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from infloop.model.problems import Report
from infloop.model.reading import read_object
from infloop.model.schema import FileModel, fit, report_missing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from infloop.errors import Problem
    from infloop.model.values import JsonValue

Definition = TypeVar("Definition", bound=FileModel)


def parse_definition(
    data: bytes,
    choose: Callable[[Mapping[str, JsonValue], Report], type[Definition] | None],
    rules: Callable[[Definition, Report], None],
) -> tuple[Definition | None, list[Problem]]:
    """Return the definition, or None if it cannot be used, and every problem of the file.

    `choose` selects the model for the file. `rules` reports what the model alone cannot detect.
    """
    report = Report()
    raw = read_object(data, report)
    model = choose(raw, report) if raw is not None else None
    if model is None:
        return None, report.problems
    definition = fit(model, raw, report, unknown_keys="warning")
    report_missing(model, raw, report)
    if definition is not None:
        rules(definition, report)
    return (None if report.failed else definition), report.problems
