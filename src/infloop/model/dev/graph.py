"""Workflows as a graph: `run_workflow` edges run a workflow in place, triggers run it afterwards.

Rules
  * No workflow reaches itself.
  * No workflow is both a trigger target and run in place below one root. It would run twice, or
    once in an order that nobody wrote down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from infloop.model.dev.config import RunWorkflow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infloop.model.dev.config import DevConfig, Table, Workflow

StepType = TypeVar("StepType", bound="Table")


def inline(workflow: Workflow) -> list[str]:
    """Return the workflows that this one runs in place, in order."""
    return [step.workflow for step in workflow.steps if isinstance(step, RunWorkflow)]


def recursion(config: DevConfig, root: str) -> list[str]:
    """Return a path below `root` that meets a workflow again; empty if there is none."""
    safe: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path, name]
        if name not in safe:
            workflow = config.workflow[name]
            for following in (*inline(workflow), *workflow.triggers):
                if found := visit(following, [*path, name]):
                    return found
            safe.add(name)
        return []

    workflow = config.workflow[root]
    below = (visit(name, []) for name in (*inline(workflow), *workflow.triggers))
    return next(filter(None, below), [])


def overlap(config: DevConfig, root: str) -> str:
    """Return a workflow that is triggered and also run in place below `root`, or an empty text."""
    triggered: set[str] = set()
    in_place: set[str] = set()
    pending = [(root, False)]
    seen = set(pending)
    while pending:
        name, is_inline = pending.pop()
        workflow = config.workflow[name]
        for following in workflow.triggers:
            (in_place if is_inline else triggered).add(following)
        in_place.update(inline(workflow))
        more = [(each, is_inline) for each in workflow.triggers]
        more += [(each, True) for each in inline(workflow)]
        pending += [each for each in more if each not in seen]
        seen.update(more)
    return min(triggered & in_place, default="")


def reachable(config: DevConfig, root: str) -> set[str]:
    """Return the workflows that run when `root` runs, itself included."""
    found, pending = {root}, [root]
    while pending:
        workflow = config.workflow[pending.pop()]
        more = {*inline(workflow), *workflow.triggers} - found
        found |= more
        pending += more
    return found


def reachable_steps(config: DevConfig, root: str, *kinds: type[StepType]) -> Iterator[StepType]:
    """Yield the steps of these kinds that run when `root` runs."""
    for name in sorted(reachable(config, root)):
        for step in config.workflow[name].steps:
            if isinstance(step, kinds):
                yield step
