"""What the files beside a workflow have in common: provider, trigger, plugin, connection.

Infinite Loop's files load as they are. An unknown key at the top of a file is only a warning, so
that a file made for another version still loads; inside the parts that decide whom to trust
(`auth`, `signature`) it is an error, and a list that opens something (`envPassthrough`,
`egressAllowlist`) refuses every entry it does not understand.
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

Made = TypeVar("Made", bound=FileModel)


def parse_definition(
    data: bytes,
    choose: Callable[[Mapping[str, JsonValue], Report], type[Made] | None],
    rules: Callable[[Made, Report], None],
) -> tuple[Made | None, list[Problem]]:
    """Return the definition, or None when it cannot be used, and every problem of the file.

    `choose` says which model the file is written for, and `rules` reports what the model alone
    cannot see.
    """
    report = Report()
    raw = read_object(data, report)
    model = choose(raw, report) if raw is not None else None
    if model is None:
        return None, report.problems
    made = fit(model, raw, report, unknown_keys="warning")
    report_missing(model, raw, report)
    if made is not None:
        rules(made, report)
    return (None if report.failed else made), report.problems
