"""A new node, and the first workflow of a new user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.model.nodes import NODE_MODELS

if TYPE_CHECKING:
    from infloop.model.values import JsonObject

PROMPT = """\
{{inputs.task}}

The check is: {{inputs.check}}

What it said last (nothing before the first round):
{{check.stdout}}
{{check.stderr}}"""


def new_node(kind: str, node_id: str, /, **config: object) -> JsonObject:
    """Return a new node of a type, with its usual configuration and the given one."""
    chosen: JsonObject = {**NODE_MODELS[kind].new_config, **config}  # type: ignore[dict-item]
    return {"id": node_id, "type": kind, "config": chosen}


def starter_workflow(workflow_id: str) -> JsonObject:
    """Return a loop: an agent works in a worktree until a command succeeds there."""
    work = new_node("agent", "work", prompt=PROMPT)
    check = new_node(
        "condition",
        "check",
        kind="command",
        command={
            "cmd": 'sh -c "$CHECK"',
            "env": {"CHECK": "{{inputs.check}}"},
            "cwd": "{{work.worktreePath}}",
            "timeoutMs": 600_000,
        },
    )
    rounds: JsonObject = {**new_node("loop", "rounds"), "children": [work, check]}
    return {
        "id": workflow_id,
        "name": "Until the check succeeds",
        "description": "An agent works on a task, in a git worktree of its own, until a command "
        "succeeds there.",
        "inputs": [
            {
                "name": "task",
                "type": "text",
                "default": "Find out why the check fails and fix the cause.",
                "description": "What the agent should do.",
            },
            {
                "name": "check",
                "type": "string",
                "default": "make test",
                "description": "The shell command that must succeed.",
            },
        ],
        "nodes": [
            new_node("start", "start"),
            rounds,
            new_node("branch", "succeeded", lhs="{{rounds.broke}}", op="==", rhs="true"),
            new_node("end", "done", outcome="succeeded"),
            new_node("end", "gave-up", outcome="failed"),
        ],
        "edges": [
            {"source": "start", "target": "rounds"},
            {"source": "work", "target": "check"},
            {"source": "rounds", "target": "succeeded"},
            {"source": "rounds", "sourceHandle": "error", "target": "gave-up"},
            {"source": "succeeded", "sourceHandle": "true", "target": "done"},
            {"source": "succeeded", "sourceHandle": "false", "target": "gave-up"},
        ],
    }
