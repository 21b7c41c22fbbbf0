"""Workflows that are not saved yet: a first one, and one from a file that somebody sends."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.application.models import Model
from infloop.application.problems import shown_problems
from infloop.application.workflows import WorkflowDetail
from infloop.catalog.converting import loop_file_content, workflow_as_loop_file
from infloop.catalog.loop_files import loop_file_id
from infloop.catalog.workflows import is_workflow_id
from infloop.errors import UsageError, WorkflowError
from infloop.model.names import FILE_NAME_RULE
from infloop.model.parsing import parse_workflow
from infloop.model.reading import repeats_a_key
from infloop.model.values import JsonObject

if TYPE_CHECKING:
    from infloop.application.loops import Loops
    from infloop.application.resources import FileResources

YAML_SUFFIXES = (".yaml", ".yml")


class StarterWorkflow(Model, kw_only=True):
    """A first workflow that can run as it is: an agent works until a command succeeds.

    `missing` says how to install an agent, if there is none. Without `check_found` the check is
    only an example.
    """

    workflow: JsonObject
    agent: str
    check: str
    check_found: bool
    missing: str


class LoopFileText(Model, kw_only=True):
    """A workflow as a loop file, and what it leaves out."""

    text: str
    notes: list[str]


class WorkflowDrafts:
    """Makes workflows that a person looks at before they are saved."""

    def __init__(self, resources: FileResources, loops: Loops) -> None:
        self._resources = resources
        self._loops = loops

    async def starter(self, workflow_id: str, agent: str = "") -> StarterWorkflow:
        """Return a first workflow for the directory of this process, where runs begin.

        An empty `agent` means one that is installed.
        """
        if not is_workflow_id(workflow_id):
            raise UsageError(f"{workflow_id[:80]!r} cannot be a workflow's id: {FILE_NAME_RULE}")
        made = await asyncio.to_thread(self._loops.starter, agent, Path(), workflow_id)
        return StarterWorkflow(
            workflow=json.loads(made.text),
            agent=made.agent,
            check=made.check,
            check_found=made.check_found,
            missing=made.missing,
        )

    async def read_file(self, name: str, text: str) -> WorkflowDetail:
        """Return the workflow of a file: JSON, or a loop file if its name ends in .yaml or .yml.

        Raises WorkflowError with everything that is wrong with what is no workflow. A loop file
        must hold all its texts: files of this machine that it names are not read.
        """
        return await asyncio.to_thread(self._read_file, name, text)

    async def as_loop_file(self, data: bytes) -> LoopFileText:
        """Return a workflow as a loop file. Raises WorkflowError for one with mistakes."""
        made = await asyncio.to_thread(workflow_as_loop_file, parse_workflow(data))
        return LoopFileText(text=made.text, notes=[*made.notes])

    def _read_file(self, name: str, text: str) -> WorkflowDetail:
        data = text.removeprefix("\ufeff").encode("utf-8", "surrogatepass")
        if name.endswith(YAML_SUFFIXES):
            data = json.dumps(loop_file_content(data, _id_of(name))).encode()
        known = self._resources.folders.known_providers()
        parsed, problems = self._resources.folders.workflows.examine(data, known_providers=known)
        if parsed.workflow is None or repeats_a_key(parsed.content):
            raise WorkflowError("the file holds no usable workflow", problems)
        return WorkflowDetail(workflow=parsed.content, problems=shown_problems(problems))


def _id_of(name: str) -> str:
    """Return the id that a file's name gives a workflow."""
    bare = loop_file_id(name)
    for suffix in YAML_SUFFIXES:
        bare = bare.removesuffix(suffix)
    return bare if is_workflow_id(bare) else "imported"
