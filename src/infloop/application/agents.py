"""Runs of the built-in agent without a file: one prompt in a directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from infloop.errors import UsageError
from infloop.model.starter import agent_workflow

if TYPE_CHECKING:
    from infloop.application.resources import FileResources
    from infloop.catalog import Bundle

WORKFLOW_ID = "agent"
STEP = "agent"
BUILTIN = "builtin"


class AgentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody asks for.

    profile  the model: a kind of task, or PROVIDER:MODEL
    tools    the only tools that the agent has; None for all of them
    """

    prompt: str
    profile: str = ""
    session: str = ""
    tools: tuple[str, ...] | None = None
    max_cost_usd: float | None = None


class Agents:
    """Makes a workflow of a prompt."""

    def __init__(self, resources: FileResources) -> None:
        self._resources = resources

    def prepare(self, request: AgentRequest) -> Bundle:
        """Return a workflow with one step. Raises UsageError for what cannot work."""
        if not request.prompt.strip():
            raise UsageError("the prompt is empty; say what the agent should do")
        source = agent_workflow(
            workflow_id=WORKFLOW_ID,
            step=STEP,
            agent=BUILTIN,
            prompt=request.prompt,
            profile=request.profile,
            session=request.session,
            tools=request.tools,
        )
        if request.max_cost_usd is not None:
            source["limits"] = {"maxCostUsd": request.max_cost_usd}
        folders = self._resources.folders
        return folders.workflows.bundle_of(
            json.dumps(source).encode(),
            Path(f"infloop {WORKFLOW_ID}"),
            known_providers=folders.known_providers(),
        )
