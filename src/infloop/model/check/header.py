"""The rules for the workflow itself: id, name, globals, limits, and declared inputs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from infloop.model.inputs import InputError, resolve_inputs
from infloop.model.names import FILE_NAME_RULE, is_file_name
from infloop.model.problems import short_repr
from infloop.model.references import input_names

if TYPE_CHECKING:
    from infloop.model.check.context import CheckContext

# Our own fixed pattern: no nested repeats.
_REACHABLE_NAME = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)  # noqa: TID251


def check_header(check: CheckContext) -> None:
    """Report an invalid id, name, global or limit."""
    workflow, report = check.graph.workflow, check.report
    if not workflow.id:
        report.error("id", "is missing", FILE_NAME_RULE)
    elif not is_file_name(workflow.id):
        report.error("id", f"{short_repr(workflow.id)} is not a plain file name", FILE_NAME_RULE)
    if not workflow.name.strip():
        report.error("name", "is missing", "say what the workflow is called")
    for name in workflow.globals:
        if not _REACHABLE_NAME.fullmatch(name):
            report.warning(
                f"globals {short_repr(name)}",
                "no reference can reach this name",
                "use letters, digits, dashes and underscores",
            )
    if workflow.workspace is not None and not workflow.workspace.repository:
        report.error("workspace.repository", "is missing", "write the address of a repository")
    limits = workflow.limits
    if limits is not None:
        for key, value in limits.to_json().items():
            report.not_negative(f"limits.{key}", value)


def check_inputs(check: CheckContext) -> None:
    """Report inputs that no reference can reach, and defaults of the wrong type."""
    report, seen = check.report, set[str]()
    for index, spec in enumerate(check.graph.workflow.inputs or ()):
        place = f"inputs[{index}]" + (f" {short_repr(spec.name)}" if spec.name else "")
        if not _REACHABLE_NAME.fullmatch(spec.name):
            check.mistake(
                place,
                f"no reference can reach the name {short_repr(spec.name)}",
                "use letters, digits, dashes and underscores",
            )
        if spec.name in seen:
            check.mistake(place, "is declared twice", "rename one of them")
        seen.add(spec.name)
        if spec.default is not None:
            try:
                resolve_inputs([spec.to_json()], {})
            except InputError as error:
                check.mistake(
                    f"{place} default",
                    f"{short_repr(spec.default)} is not a {error.expected}",
                    f"write a {error.expected}, or change the type",
                )
    if check.graph.workflow.inputs is None:
        implicit = input_names(template for _, _, template in check.graph.templates)
        if implicit:
            report.warning(
                "inputs",
                f"none are declared, so these are optional texts: {', '.join(implicit[:20])}",
                "declare them to give them types and defaults",
            )
