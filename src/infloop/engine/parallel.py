"""When a parallel is settled, and its outputs.

wait-all     every branch must succeed
race         the first branch that succeeds wins
quorum       `quorumN` branches must succeed

fail-fast    the first failure before the goal is reached settles the node as failed
best-effort  failures count only when the goal can no longer be reached
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from infloop.engine.state import Step
    from infloop.model.values import JsonObject, JsonValue

SUCCESS_HANDLE = {"wait-all": "all_done", "race": "first_done", "quorum": "quorum_met"}


def mode_of(config: JsonObject) -> str:
    """Return the node's mode."""
    mode = config.get("mode")
    return mode if isinstance(mode, str) and mode in SUCCESS_HANDLE else "wait-all"


def goal_of(config: JsonObject, branches: int) -> int:
    """Return how many branches must succeed."""
    match mode_of(config):
        case "race":
            return min(1, branches)
        case "quorum":
            quorum = config.get("quorumN")
            return max(1, int(quorum)) if isinstance(quorum, int | float) else 1
        case _:
            return branches


def settled_by(config: JsonObject, step: Step) -> Literal["", "goal", "error"]:
    """Return how the branches so far settle the node; empty if they do not."""
    statuses = [branch.status for branch in step.branches.values()]
    succeeded, running = statuses.count("succeeded"), statuses.count("running")
    failed = len(statuses) - succeeded - running
    goal = goal_of(config, len(statuses))
    if succeeded >= goal:
        return "goal"
    if failed and config.get("onError") != "best-effort":
        return "error"
    if succeeded + running < goal and (running == 0 or mode_of(config) != "wait-all"):
        return "error"
    return ""


def outputs(config: JsonObject, step: Step) -> JsonObject:
    """Return the outputs of the node."""
    mode = mode_of(config)
    listed = (
        step.branches
        if mode == "wait-all" or config.get("onError") == "best-effort" or step.settled == "error"
        else {root: step.branches[root] for root in step.winners}
    )
    statuses = [branch.status for branch in step.branches.values()]
    children: dict[str, JsonValue] = {}
    for root, branch in listed.items():
        entry: JsonObject = {"status": branch.status, "outputs": dict(branch.outputs)}
        if branch.error:
            entry["error"] = branch.error
        children[root] = entry
    result: JsonObject = {
        "mode": mode,
        "completed": statuses.count("succeeded"),
        "failed": statuses.count("failed"),
        "children": children,
    }
    if step.settled == "goal" and mode == "race" and step.winners:
        result["winner"] = step.winners[0]
    if step.settled == "goal" and mode == "quorum":
        result["winners"] = list(step.winners)
    return result


def failure(step: Step) -> str:
    """Return which branches failed and why, for the node's error."""
    failed = [
        f"branch {root!r} failed: {branch.error or 'no reason given'}"
        for root, branch in step.branches.items()
        if branch.status == "failed"
    ]
    return "; ".join(failed) or "no branch succeeded"
