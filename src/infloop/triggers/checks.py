"""What is wrong with a trigger that its own file cannot show.

Whether its plugin and its workflow exist, whether what it names is declared there, whether it can
be due, and whether what comes from outside may go where it would go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.model.problems import Report, short_repr
from infloop.model.references import implicit_inputs
from infloop.model.template import Template
from infloop.policy.taint import refusals
from infloop.triggers.filewatch import BadGlob, FileFilter
from infloop.triggers.schedule import BadSchedule, Timetable
from infloop.triggers.signatures import is_secret

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infloop.errors import Problem
    from infloop.model.plugin import Plugin
    from infloop.model.trigger import Trigger
    from infloop.model.values import JsonObject
    from infloop.model.workflow import Workflow


def needs_secret(trigger: Trigger, plugin: Plugin) -> bool:
    """Say whether a trigger lacks the secret without which its requests are refused."""
    return plugin.signature is not None and not trigger.secret and not trigger.verify_optional


def check_trigger(
    trigger: Trigger,
    plugin: Plugin | None,
    workflow: Workflow | None,
    called: Mapping[str, JsonObject] | None = None,
) -> list[Problem]:
    """Return everything that is wrong; `called` holds the workflow and all it calls, as JSON."""
    report = Report()
    if trigger.kind == "webhook":
        _check_sender(trigger, plugin, report)
    elif trigger.kind == "schedule":
        _check_schedule(trigger, report)
    else:
        _check_files(trigger, report)
    if workflow is None:
        report.error("workflowId", f"there is no workflow {short_repr(trigger.workflow_id)} to run")
        return report.problems
    _check_inputs(trigger, workflow, report)
    if trigger.kind != "schedule":
        _check_reach(trigger, workflow, called or {workflow.id: workflow.to_json()}, report)
    return report.problems


def _check_sender(trigger: Trigger, plugin: Plugin | None, report: Report) -> None:
    if plugin is None:
        report.error("pluginId", f"there is no plugin {short_repr(trigger.plugin_id)}")
        return
    known = [event.type for event in plugin.events]
    if (plugin.event_header or plugin.event_path) and not trigger.event_type:
        report.error("eventType", "is missing", f"{plugin.id!r} has: {', '.join(known[:20])}")
    elif trigger.event_type and trigger.event_type not in known:
        report.error(
            "eventType",
            f"{plugin.id!r} has no event {short_repr(trigger.event_type)}",
            report.guess(trigger.event_type, known),
        )
    _check_secret(trigger, plugin, report)


def _check_secret(trigger: Trigger, plugin: Plugin, report: Report) -> None:
    signature = plugin.signature
    if needs_secret(trigger, plugin):
        report.error(
            "secret",
            f"is missing: {plugin.id!r} signs its requests",
            "set the sender's secret, or verifyOptional to take unsigned requests",
        )
    elif signature is None and trigger.secret:
        report.error(
            "secret", f"proves nothing: {plugin.id!r} does not sign", "remove it, or use a plugin"
        )
    elif signature is not None and trigger.secret and not is_secret(signature, trigger.secret):
        report.error("secret", f"is none of {plugin.id!r}", "it is whsec_ and base64")
    elif signature is not None and not trigger.secret:
        report.warning("verifyOptional", "nothing proves who sends the requests")


def _check_schedule(trigger: Trigger, report: Report) -> None:
    assert trigger.schedule is not None
    try:
        Timetable(trigger.schedule)
    except BadSchedule as error:
        report.error("schedule", str(error))


def _check_files(trigger: Trigger, report: Report) -> None:
    assert trigger.files is not None
    try:
        FileFilter(trigger.files)
    except BadGlob as error:
        report.error("files", str(error))


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
    outside = [name for name, text in trigger.inputs.items() if Template(text).references]
    # Whether children are confined is known when a run starts.
    for refusal in refusals(called, workflow.id, outside, confined=True):
        report.warning("inputs", f"its runs are refused: {refusal}")
