"""A new node, and the first workflow of a new user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.model.nodes import NODE_MODELS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.model.values import JsonObject

STARTER = """\
# An agent works until a command succeeds. The command runs first: if it succeeds already,
# nothing is spent. The run succeeds only if the command does.
#
#   infloop check FILE        finds mistakes, with line and column
#   infloop run FILE          runs it
#   infloop apply last        applies the agent's changes to your files
#   infloop docs loop-files   explains every key of this file

name: Until the check succeeds
limits:
  cost: $5 # what the run may spend at most
  time: 2h

inputs:
  # For one run: infloop run FILE --input task="Add a test for the parser."
  task: Find out why the check fails, and fix the cause. Do not weaken the check.

steps:
  - loop: rounds
    max: 10 # after so many rounds the run fails
    noProgressLimit: true # stops earlier if rounds do not change anything
    until: %(check)s # the command that must succeed
    steps:
      - agent: %(agent)s # `infloop providers` lists the others
        useWorktree: true # it works on a copy, in a git worktree; your files stay as they are
        includeUncommitted: true # the copy has your uncommitted changes
        timeout: 30m
        prompt: |
          {{inputs.task}}

          You are done when this command succeeds: %(check)s

          What it printed last:
          {{rounds.check.tail}}
"""


MAX_NAME_CHARS = 60
LOOP_PROMPT = """\
{{inputs.task}}

You are done when this command succeeds: %s
You work in a copy of the repository. Do not change what the command checks only to make it succeed.

What it printed last:
{{check.tail}}"""


def new_node(kind: str, node_id: str, /, **config: object) -> JsonObject:
    """Return a new node of a type, with its usual configuration and the given one."""
    chosen: JsonObject = {**NODE_MODELS[kind].new_config, **config}  # type: ignore[dict-item]
    return {"id": node_id, "type": kind, "config": chosen}


def starter_loop_file(agent: str, check: str) -> str:
    """Return a first loop file, with comments: an agent works until a command succeeds."""
    return STARTER % {"agent": agent, "check": check}


def agent_workflow(
    *,
    workflow_id: str,
    step: str,
    agent: str,
    prompt: str,
    profile: str,
    session: str,
    tools: Sequence[str] | None,
) -> JsonObject:
    """Return a strict workflow with one step: an agent answers a prompt in the directory itself."""
    chosen: JsonObject = {"providerId": agent, "prompt": "{{inputs.task}}", "useWorktree": False}
    if profile:
        chosen["profile"] = profile
    if session:
        chosen["sessionId"] = session
    if tools is not None:
        chosen["tools"] = [*tools]
    return {
        "id": workflow_id,
        "name": " ".join(prompt.split())[:MAX_NAME_CHARS],
        "strict": True,
        "inputs": [
            {
                "name": "task",
                "type": "text",
                "default": prompt,
                "description": "What the agent should do.",
            }
        ],
        "nodes": [new_node("start", "start"), new_node("agent", step, timeoutMs=0, **chosen)],
        "edges": [{"source": "start", "target": step}],
    }


def loop_workflow(
    *,
    workflow_id: str,
    task: str,
    check: str,
    agent: str,
    rounds: int,
    check_timeout_ms: int,
    worktree: JsonObject | None,
    more: JsonObject | None = None,
) -> JsonObject:
    """Return a strict loop: a command is run, and an agent works until it succeeds.

    `worktree` says how the worktree is made in which both work; None means the directory itself.
    `more` is added to the configuration of the agent.
    """
    shared: JsonObject = {"useWorktree": False}
    if worktree is not None:
        shared = {"useWorktree": True, "worktree": "work", **worktree}
    prompt = LOOP_PROMPT % check
    chosen: JsonObject = {"providerId": agent, "prompt": prompt, "timeoutMs": 0, **(more or {})}
    work = new_node("agent", "work", **chosen, **shared)
    command: JsonObject = {"cmd": check, "timeoutMs": check_timeout_ms, "mustRun": True, **shared}
    checking = new_node("condition", "check", kind="command", command=command)
    rounds_node = new_node("loop", "rounds", maxIterations=rounds, checkFirst=True)
    return {
        "id": workflow_id,
        "name": " ".join(task.split())[:MAX_NAME_CHARS],
        "strict": True,
        "inputs": [
            {
                "name": "task",
                "type": "text",
                "default": task,
                "description": "What the agent should do.",
            }
        ],
        "nodes": [new_node("start", "start"), {**rounds_node, "children": [work, checking]}],
        "edges": [{"source": "start", "target": "rounds"}, {"source": "work", "target": "check"}],
    }
