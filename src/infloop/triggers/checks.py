"""Checks a trigger against its plugin and its workflow.

- The checks of its kind: whether the plugin exists, whether the schedule is valid, and so on.
- Whether its working directory exists.
- Whether the workflow exists and declares the inputs that the trigger sets.
- Whether untrusted values may reach the fields that they would reach.
- Whether the workflow may run with the confinement of this machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from infloop.model.events import Cause
from infloop.model.isolation import LEVELS
from infloop.model.problems import Report, short_repr
from infloop.model.references import implicit_inputs
from infloop.model.template import Template
from infloop.policy.confinement import Confinement, isolation_refusal
from infloop.policy.taint import find_violations
from infloop.triggers import kind_named

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
    confinement: Confinement | None = None,
) -> list[Problem]:
    """Return all problems; `called` holds the workflow and all it calls, as JSON.

    Without `confinement` children are taken to be confined.
    """
    report = Report()
    kind = kind_named(trigger.kind)
    kind.check(trigger, plugin, report)
    if trigger.cwd and not Path(trigger.cwd).is_dir():
        report.error("cwd", f"there is no directory {short_repr(trigger.cwd)}")
    if workflow is None:
        report.error("workflowId", f"there is no workflow {short_repr(trigger.workflow_id)} to run")
        return report.problems
    _check_inputs(trigger, workflow, report)
    untrusted = () if kind.is_trusted else _filled_in(trigger)
    for place, refusal in start_refusals(
        called or {workflow.id: workflow.to_json()},
        workflow.id,
        Cause(trigger.kind, untrusted=untrusted),
        confinement or Confinement(LEVELS[0]),
    ):
        report.warning(place, f"its runs are refused: {refusal}")
    return report.problems


def start_refusals(
    called: Mapping[str, JsonObject], workflow_id: str, cause: Cause, confinement: Confinement
) -> Iterator[tuple[str, str]]:
    """Yield why a run with this cause may not start, each with the field that it concerns."""
    if refusal := isolation_refusal(called[workflow_id], confinement):
        yield "workflowId", refusal
    confined = confinement.is_confined
    for violation in find_violations(called, workflow_id, cause.untrusted, confined=confined):
        yield "inputs", str(violation)


def _filled_in(trigger: Trigger) -> tuple[str, ...]:
    return tuple(name for name, text in trigger.inputs.items() if Template(text).references)


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
