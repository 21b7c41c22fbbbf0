"""Workflows: list, read, check, save, delete."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import field
from msgspec.structs import replace

from infloop.application.models import Model
from infloop.application.problems import ShownProblem, shown_problems
from infloop.catalog import Bundle
from infloop.catalog.converting import Converted, convert_built, convert_workflow
from infloop.catalog.loop_files import is_loop_file
from infloop.catalog.saving import (
    as_count,
    changed_at,
    check_to_save,
    content_of,
    delete_workflow,
    save_workflow,
)
from infloop.catalog.workflows import is_workflow_id, python_file
from infloop.errors import NotFound, Problem, UsageError, WorkflowError
from infloop.model.check.available import available_references
from infloop.model.inputs import InputError
from infloop.model.parsing import parse_workflow
from infloop.model.problems import short_repr
from infloop.model.references import implicit_inputs, workflow_inputs
from infloop.model.values import JsonObject, compact_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.application.caller import Caller
    from infloop.application.resources import FileResources
    from infloop.catalog.python_files import Built
    from infloop.model.parsing import Parsed
    from infloop.model.workflow import Workflow

MAX_INPUT_BYTES = 1 << 20


class WorkflowEntry(Model, kw_only=True):
    """A workflow in a list; it has so many problems, and `errors` of them keep it from running."""

    id: str
    name: str
    version: int
    updated_at: int
    source: Literal["user", "library"]
    format: Literal["json", "yaml"]
    file: str
    problems: int
    errors: int


class WorkflowList(Model, kw_only=True):
    """All workflows, newest first; yours hide presets of the same id."""

    workflows: list[WorkflowEntry]


class WorkflowDetail(Model, kw_only=True):
    """A workflow as its file says, and what is wrong with it; with an error it cannot run."""

    workflow: JsonObject
    problems: list[ShownProblem]


class ProblemList(Model, kw_only=True):
    """Everything that is wrong with a workflow."""

    problems: list[ShownProblem]


class OfferedReference(Model, kw_only=True):
    """A reference that a node may use; `from` is a node, `inputs` or `globals`.

    `certain` means that it has a value whenever the node runs.
    """

    ref: str
    source: str = field(name="from")
    certain: bool
    description: str


class ReferenceList(Model, kw_only=True):
    """The references that exist at a node."""

    references: list[OfferedReference]


class CheckedFile(NamedTuple):
    """The problems of a workflow, and what a person should know about how it was read."""

    problems: list[Problem]
    notes: tuple[str, ...] = ()


class LoadedFile(NamedTuple):
    """A workflow that can run, and what a person should know about how it was read."""

    bundle: Bundle
    notes: tuple[str, ...] = ()


class Workflows:
    """The workflow files of the user and the library."""

    def __init__(self, resources: FileResources) -> None:
        self._resources = resources
        self._files = resources.folders.workflows

    async def all(self) -> WorkflowList:
        found = await asyncio.to_thread(self._entries)
        return WorkflowList(workflows=sorted(found, key=lambda each: (-each.updated_at, each.id)))

    async def read(self, workflow_id: str) -> WorkflowDetail:
        """Return a workflow, migrated to the current format."""
        return await asyncio.to_thread(self._read, workflow_id)

    async def check(self, data: bytes) -> ProblemList:
        """Return everything that is wrong with a workflow, without saving it."""
        _, found = await asyncio.to_thread(self._examine, data)
        return ProblemList(problems=shown_problems(found))

    async def references(self, data: bytes, node_id: str) -> ReferenceList:
        """Return what a node of a workflow, also of an unfinished one, may refer to.

        Raises NotFound without such a node, and WorkflowError for what is no workflow.
        """
        return await asyncio.to_thread(_references, data, node_id)

    async def save(self, data: bytes, caller: Caller, expected_id: str = "") -> WorkflowDetail:
        """Save a workflow, also one that cannot run yet: the answer has its problems.

        Raises Stale unless its `version` is the one on disk.
        """
        parsed, found = await asyncio.to_thread(self._examine, data)
        checked = check_to_save(parsed, found, expected_id)
        await self._resources.audit().record(
            "workflow.saved",
            caller.actor,
            correlation_id=caller.correlation_id,
            workflow_id=checked.id,
        )
        now = self._resources.clock.now_ms()
        saved = await asyncio.to_thread(save_workflow, self._files, checked, now)
        return WorkflowDetail(workflow=saved, problems=shown_problems(checked.problems))

    async def delete(self, workflow_id: str, caller: Caller) -> None:
        """Delete one of the user's workflows; presets cannot be deleted."""
        _refuse_bad_id(workflow_id)
        await self._resources.audit().record(
            "workflow.deleted",
            caller.actor,
            correlation_id=caller.correlation_id,
            workflow_id=workflow_id,
        )
        await asyncio.to_thread(delete_workflow, self._files, workflow_id)

    async def convert(self, name: str, target: str = "") -> Converted:
        """Return a workflow, by id or path, in the other language; `target` names the new file."""
        built = await self._built(name)
        if built is None:
            return await asyncio.to_thread(convert_workflow, self._files, name, target)
        converted = convert_built(built.path, built.parsed, target)
        return replace(converted, notes=built.notes)

    async def check_file(self, name: str) -> CheckedFile:
        """Return everything that is wrong with a workflow, by id or path, and with what it calls.

        A file that cannot be read is one problem. A file in Python is built.
        """
        known, machine = self._resources.folders.known_providers(), self._resources.machine
        try:
            built = await self._built(name)
            if built is None:
                return CheckedFile(
                    self._files.check(name, known_providers=known, machine=machine)[1]
                )
            found = self._files.problems(
                built.path, built.parsed, known_providers=known, machine=machine
            )
            return CheckedFile(found, built.notes)
        except UsageError as error:
            return CheckedFile([Problem("file", str(error))])

    async def load_file(self, name: str) -> LoadedFile:
        """Return a workflow as `load` does; a file in Python is built."""
        built = await self._built(name)
        if built is None:
            return LoadedFile(self.load(name))
        known = self._resources.folders.known_providers()
        bundle = self._files.bundle(built.path, built.parsed, known_providers=known)
        return LoadedFile(bundle, built.notes)

    async def _built(self, name: str) -> Built | None:
        """Build a file in Python; None for a workflow in another language."""
        if self._resources.build is None or python_file(name) is None:
            return None
        return await self._resources.build(name)

    def load(self, name: str) -> Bundle:
        """Return a workflow by id or path, with every workflow it calls, checked."""
        return self._files.load_bundle(
            name, known_providers=self._resources.folders.known_providers()
        )

    def ids(self) -> Sequence[str]:
        return [entry.id for entry in self._files.entries()]

    def _entries(self) -> Sequence[WorkflowEntry]:
        entries = []
        for entry in self._files.entries():
            header = content_of(entry.path)
            found = entry.problems or self._problems(entry.id)
            entries.append(
                WorkflowEntry(
                    id=entry.id,
                    name=entry.name,
                    version=as_count(header.get("version")) or 1,
                    updated_at=as_count(header.get("updatedAt")) or changed_at(entry.path),
                    source=entry.origin,
                    format="yaml" if is_loop_file(entry.path.name) else "json",
                    file=str(entry.path),
                    problems=len(found),
                    errors=sum(one.severity == "error" for one in found),
                )
            )
        return entries

    def _problems(self, workflow_id: str) -> Sequence[Problem]:
        known = self._resources.folders.known_providers()
        return self._files.check(workflow_id, known_providers=known)[1]

    def _examine(self, data: bytes) -> tuple[Parsed, list[Problem]]:
        known = self._resources.folders.known_providers()
        return self._files.examine(data, known_providers=known)

    def _read(self, workflow_id: str) -> WorkflowDetail:
        _refuse_bad_id(workflow_id)
        try:
            known = self._resources.folders.known_providers()
            path, parsed, problems = self._files.read_and_check(workflow_id, known_providers=known)
        except UsageError as error:
            raise NotFound(str(error)) from None
        if parsed.workflow is None:
            raise WorkflowError(f"{path.name!r} cannot be read", problems)
        content = {**parsed.content, "version": parsed.content.get("version", 1)}
        return WorkflowDetail(workflow=content, problems=shown_problems(problems))


def run_inputs(workflow: Workflow, given: JsonObject) -> JsonObject:
    """Return the inputs of a run: what is given, and the defaults. Raises UsageError."""
    refuse_unknown_inputs(workflow, given)
    try:
        return workflow_inputs(workflow, given)
    except InputError as error:
        raise UsageError(str(error)) from None


def refuse_unknown_inputs(workflow: Workflow, given: JsonObject) -> None:
    """Raise UsageError for an input that the workflow does not have."""
    declared = workflow.inputs
    known = implicit_inputs(workflow) if declared is None else [spec.name for spec in declared]
    extra = next((name for name in given if name not in known), None)
    if extra is not None:
        takes = f"it takes: {', '.join(known)}" if known else "it takes none"
        raise UsageError(f"workflow {workflow.id!r} takes no input {extra[:60]!r}; {takes}")


def refuse_large_inputs(given: JsonObject) -> None:
    if len(compact_json(given).encode()) > MAX_INPUT_BYTES:
        raise UsageError(
            f"the inputs are larger than {MAX_INPUT_BYTES} bytes; put long texts into a file and "
            "give its path"
        )


def _references(data: bytes, node_id: str) -> ReferenceList:
    parsed = parse_workflow(data)
    if parsed.workflow is None:
        raise WorkflowError("the workflow could not be read", parsed.problems)
    found = available_references(parsed, node_id)
    if found is None:
        raise NotFound(f"there is no node {short_repr(node_id)}")
    return ReferenceList(
        references=[
            OfferedReference(
                ref=one.reference,
                source=one.source,
                certain=one.certain,
                description=one.description,
            )
            for one in found
        ]
    )


def _refuse_bad_id(workflow_id: str) -> None:
    """Raise NotFound for what cannot be a workflow's id: it must never name another file."""
    if not is_workflow_id(workflow_id):
        raise NotFound(f"there is no workflow {short_repr(workflow_id)}")


__all__ = [
    "Bundle",
    "Converted",
    "ProblemList",
    "WorkflowDetail",
    "WorkflowEntry",
    "WorkflowList",
    "Workflows",
    "refuse_large_inputs",
    "refuse_unknown_inputs",
    "run_inputs",
]
