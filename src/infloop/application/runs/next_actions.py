"""What makes sense next, given the status of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from infloop.application.models import Model

if TYPE_CHECKING:
    from infloop.application.runs.models import RunStatus
    from infloop.application.runs.view import RunView

Action: TypeAlias = Literal[
    "follow",
    "cancel",
    "resume",
    "take-over",
    "raise-limit",
    "why",
    "rewind",
    "diff",
    "apply",
    "show",
    "logs",
]


class NextAction(Model, kw_only=True):
    """Something that makes sense next; a rewind starts at `step`."""

    action: Action
    step: str = ""


def next_actions(status: RunStatus, view: RunView) -> list[NextAction]:
    """Return what makes sense next, the most useful first."""
    match status:
        case "running":
            return _actions("follow", "cancel")
        case "stalled":
            return _actions("cancel", "take-over")
        case "interrupted":
            return _actions("resume", "cancel", "show")
        case "paused":
            return _actions("raise-limit", "cancel", "show")
        case "succeeded":
            return [*_file_actions(view), *_actions("show", "logs")]
        case "failed" | "cancelled":
            interrupted = view.finished is not None and view.finished.interrupted
            return [
                *_actions("why"),
                *(_actions("resume") if interrupted else ()),
                *_rewind(view),
                *_file_actions(view),
                *_actions("show"),
            ]


def _actions(*actions: Action) -> list[NextAction]:
    return [NextAction(action=action) for action in actions]


def _file_actions(view: RunView) -> list[NextAction]:
    """Return what can be done with the files that a run changed."""
    if not view.changed:
        return []
    return _actions("diff", "apply") if view.in_worktree else _actions("diff")


def _rewind(view: RunView) -> list[NextAction]:
    step = view.failed_path()
    imported = view.started is not None and view.started.cause.kind == "import"
    if not step or imported:  # the record of an imported run does not contain the workflow
        return []
    return [NextAction(action="rewind", step=step)]
