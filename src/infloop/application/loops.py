"""Loops without a file: an agent works until a command succeeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from infloop.application.agent_choice import PREFERRED, AgentChoice
from infloop.errors import UsageError
from infloop.model.starter import loop_workflow, starter_loop_file
from infloop.model.template import Template

if TYPE_CHECKING:
    from infloop.application.resources import FileResources
    from infloop.catalog import Bundle
    from infloop.model.values import JsonObject

WORKFLOW_ID = "loop"
# What a project has, and the command that most probably checks it.
CHECKS = (
    ("Makefile", "make test"),
    ("package.json", "npm test"),
    ("Cargo.toml", "cargo test"),
    ("go.mod", "go test ./..."),
    ("pyproject.toml", "pytest -q"),
)


def _has(file: Path) -> bool:
    """Tell whether a project has a file; of a Makefile, whether it has a target `test`."""
    if file.name != "Makefile":
        return file.exists()
    try:
        lines = file.read_text("utf-8", "replace").splitlines()
    except OSError:
        return False
    targets = (line.partition(":")[0] for line in lines if ":" in line and not line[0].isspace())
    return any("test" in each.split() for each in targets)


class LoopRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody asks for: a task, and the command that says whether it is done.

    An empty `agent` means one that is installed. `include` names ignored files that the worktree
    needs; with `in_place` there is no worktree. `profile` is the agent's model, and `tools` are the
    only tools that the built-in agent has.
    """

    task: str
    check: str
    agent: str = ""
    rounds: int = 10
    max_cost_usd: float | None = None
    check_timeout_ms: int = 600_000
    include: tuple[str, ...] = ()
    in_place: bool = False
    profile: str = ""
    tools: tuple[str, ...] | None = None


class PreparedLoop(msgspec.Struct, frozen=True):
    """A checked workflow, its source, and the agent that will work.

    `missing_login` is how to log in to it, if no login was found.
    """

    bundle: Bundle
    source: JsonObject
    agent: str
    missing_login: str


class Starter(msgspec.Struct, frozen=True, kw_only=True):
    """A first workflow, its agent and its check; `missing` says that no agent is installed.

    Without `check_found` the check is only an example.
    """

    text: str
    agent: str
    check: str
    check_found: bool
    missing: str


class Loops:
    """Makes a workflow of a task and a check."""

    def __init__(self, resources: FileResources) -> None:
        self._resources = resources

    def prepare(self, request: LoopRequest) -> PreparedLoop:
        """Return a loop that can run here. Raises UsageError for what cannot work."""
        return self._prepare(request, WORKFLOW_ID, to_run=True)

    def to_save(self, request: LoopRequest, workflow_id: str) -> JsonObject:
        """Return a loop as a workflow file; the agent that it names need not be installed here."""
        return self._prepare(request, workflow_id, to_run=False).source

    def starter(self, agent: str, directory: Path, json_id: str = "") -> Starter:
        """Return a first workflow for a project; an empty `agent` means one that is installed.

        It is a loop file, or with `json_id` a JSON file of that id.
        """
        from infloop.catalog.converting import loop_file_as_json

        agents = AgentChoice(self._resources)
        chosen = agents.named(agent).id if agent else agents.installed()
        found = next((line for name, line in CHECKS if _has(directory / name)), "")
        check = found or CHECKS[0][1]
        text = starter_loop_file(chosen or PREFERRED[0], check)
        return Starter(
            text=loop_file_as_json(text, json_id) if json_id else text,
            agent=chosen or PREFERRED[0],
            check=check,
            check_found=bool(found),
            missing="" if chosen else agents.how_to_get_one(),
        )

    def missing_agent(self) -> str:
        """Return how to install an agent; empty if one is installed."""
        agents = AgentChoice(self._resources)
        return "" if agents.installed() else agents.how_to_get_one()

    def _prepare(self, request: LoopRequest, workflow_id: str, *, to_run: bool) -> PreparedLoop:
        _refuse_unusable(request)
        agents = AgentChoice(self._resources)
        needed = to_run or not request.agent
        agent = agents.find(request.agent) if needed else agents.named(request.agent).id
        worktree: JsonObject = {"includeUncommitted": True, "worktreeInclude": [*request.include]}
        source = loop_workflow(
            workflow_id=workflow_id,
            task=request.task,
            check=request.check,
            agent=agent,
            rounds=request.rounds,
            check_timeout_ms=request.check_timeout_ms,
            worktree=None if request.in_place else worktree,
            more=_agent_options(request),
        )
        if request.max_cost_usd is not None:
            source["limits"] = {"maxCostUsd": request.max_cost_usd}
        folders = self._resources.folders
        bundle = folders.workflows.bundle_of(
            json.dumps(source).encode(),
            Path(f"infloop {workflow_id}"),
            known_providers=folders.known_providers(),
        )
        return PreparedLoop(bundle, source, agent, agents.missing_login(agent))


def _agent_options(request: LoopRequest) -> JsonObject:
    chosen: JsonObject = {}
    if request.profile:
        chosen["profile"] = request.profile
    if request.tools is not None:
        chosen["tools"] = [*request.tools]
    return chosen


def _refuse_unusable(request: LoopRequest) -> None:
    if not request.task.strip():
        raise UsageError("the task is empty; say what the agent should do")
    if not request.check.strip():
        raise UsageError(
            "--check is empty; give the command that must succeed, such as 'pytest -q'"
        )
    if Template(request.check).references or Template(request.task).references:
        raise UsageError(
            "{{…}} is a reference in a workflow; write such a loop as a file (`infloop new`)"
        )
    if request.rounds < 1:
        raise UsageError(f"--rounds {request.rounds}: give at least 1")
