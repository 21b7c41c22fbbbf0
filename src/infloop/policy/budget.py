"""Merges the operator's limits with those of a workflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from infloop.model.events import RunBudget

if TYPE_CHECKING:
    from infloop.model.values import JsonObject


Number = TypeVar("Number", int, float)


def tighter(operator: Number, workflow: object) -> Number:
    """Return the stricter of two limits; 0 or a missing value means no limit."""
    kind = type(operator)
    wanted = kind(workflow) if isinstance(workflow, int | float) and workflow > 0 else kind(0)
    if not operator or not wanted:
        return operator or wanted
    return min(operator, wanted)


def merge_limits(
    operator: RunBudget, workflow: JsonObject, granted_usd: float | None = None
) -> RunBudget:
    """Return what a run may use: a workflow can only lower what the operator allows.

    A cost limit that a person grants to the run replaces that of the workflow.
    """
    limits = workflow.get("limits")
    asked = limits if isinstance(limits, dict) else {}
    return RunBudget(
        max_node_executions=tighter(operator.max_node_executions, asked.get("maxNodeExecutions")),
        max_duration_ms=tighter(operator.max_duration_ms, asked.get("maxDurationMs")),
        max_cost_usd=tighter(
            operator.max_cost_usd,
            asked.get("maxCostUsd") if granted_usd is None else granted_usd,
        ),
        on_budget="pause" if workflow.get("onBudget") == "pause" else "fail",
    )
