"""The order in which the steps of a workflow, of those it runs and of those it triggers are taken.

Rules
  * `run_workflow` runs a workflow in place. The triggers of that workflow run right after it.
  * The triggers of a workflow run when its steps are done, the first listed first, depth first.
  * A trigger target runs once in an execution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from infloop.errors import StepError
from infloop.model.dev.config import RunWorkflow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infloop.model.dev.config import DevConfig, Step


class Begin(msgspec.Struct, frozen=True):
    """The workflow that was started, or one that was triggered, begins."""

    workflow: str


class Perform(msgspec.Struct, frozen=True):
    """A step of a workflow is next."""

    workflow: str
    step: Step


Move: TypeAlias = Begin | Perform


class _Frame(msgspec.Struct):
    workflow: str
    inline: bool
    at: int = -1


def moves(config: DevConfig, root: str) -> Iterator[Move]:
    """Yield what is to be done; raise StepError where a workflow would run inside itself."""
    stack = [_Frame(root, inline=False)]
    taken: set[str] = set()
    while stack:
        frame = stack[-1]
        workflow = config.workflow[frame.workflow]
        frame.at += 1
        if frame.at == 0 and not frame.inline:
            yield Begin(frame.workflow)
        if frame.at < len(workflow.steps):
            step = workflow.steps[frame.at]
            if isinstance(step, RunWorkflow):
                _refuse_recursion(stack, step.workflow)
                stack.append(_Frame(step.workflow, inline=True))
            else:
                yield Perform(frame.workflow, step)
            continue
        stack.pop()
        following = [name for name in dict.fromkeys(workflow.triggers) if name not in taken]
        taken.update(following)
        for name in following:
            _refuse_recursion(stack, name)
        stack += [_Frame(name, inline=False) for name in reversed(following)]


def _refuse_recursion(stack: list[_Frame], name: str) -> None:
    names = [frame.workflow for frame in stack]
    if name in names:
        path = " -> ".join([*names[names.index(name) :], name])
        raise StepError(f"workflow recursion detected at runtime: {path}")
