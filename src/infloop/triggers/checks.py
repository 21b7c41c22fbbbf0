"""Checks a trigger against its plugin and its workflow.

- The checks of its kind: whether the plugin exists, whether the schedule is valid, and so on.
- Whether the workflow exists and declares the inputs that the trigger sets.
- Whether untrusted values may reach the fields that they would reach.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.model.problems import Report, short_repr
from infloop.model.references import implicit_inputs
from infloop.model.template import Template
from infloop.policy.taint import find_violations
from infloop.triggers import kind_named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infloop.errors import Problem
    from infloop.model.plugin import Plugin
    from infloop.model.trigger import Trigger
    from infloop.model.values import JsonObject
    from infloop.model.workflow import Workflow


def check_trigger(
    trigger: Trigger,
    plugin: Plugin | None,
    workflow: Workflow | None,
    called: Mapping[str, JsonObject] | None = None,
) -> list[Problem]:
    """Return all problems; `called` holds the workflow and all it calls, as JSON."""
    report = Report()
    kind = kind_named(trigger.kind)
    kind.check(trigger, plugin, report)
    if workflow is None:
        report.error("workflowId", f"there is no workflow {short_repr(trigger.workflow_id)} to run")
        return report.problems
    _check_inputs(trigger, workflow, report)
    if not kind.is_trusted:
        _check_reach(trigger, workflow, called or {workflow.id: workflow.to_json()}, report)
    return report.problems


def _check_inputs(trigger: Trigger, workflow: Workflow, report: Report) -> None:
    declared = [spec.name for spec in workflow.inputs or ()]
    known = declared if workflow.inputs is not None else list(implicit_inputs(workflow))
    for name in trigger.inputs:
        if name not in known:
            report.error(
                f"inputs.{name}",
                f"workflow {workflow.id!r} has no input {short_repr(name)}",
                report.guess(name, known),
            )
    for spec in workflow.inputs or ():
        if spec.default is None and spec.name not in trigger.inputs:
            report.warning(
                f"inputs.{spec.name}", f"is missing: workflow {workflow.id!r} requires it"
            )


def _check_reach(
    trigger: Trigger, workflow: Workflow, called: Mapping[str, JsonObject], report: Report
) -> None:
    untrusted = [name for name, text in trigger.inputs.items() if Template(text).references]
    # Whether children are confined is known only when a run starts.
    for violation in find_violations(called, workflow.id, untrusted, confined=True):
        report.warning("inputs", f"its runs are refused: {violation}")
