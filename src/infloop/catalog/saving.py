"""Saves workflows: checks them, counts their versions, and detects conflicting edits.

A client states the version that it edited. If the file has another version, nothing is written. A
library preset is never changed: saving under its id makes a copy of the user's own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infloop.catalog.files import find_in_folder, read_bounded
from infloop.catalog.workflows import SUFFIXES
from infloop.errors import NotFound, Problem, Stale, UsageError, WorkflowError
from infloop.lowlevel.directory_lock import lock_directory
from infloop.model.names import FILE_NAME_RULE, is_file_name
from infloop.model.problems import short_repr
from infloop.store.files import private_directory, write_private

if TYPE_CHECKING:
    from pathlib import Path

    from infloop.catalog.workflows import WorkflowCatalog
    from infloop.model.values import JsonObject

_LOCK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Checked:
    """A workflow that may be saved: its id, its content, and warnings."""

    id: str
    content: JsonObject
    warnings: tuple[Problem, ...] = ()


def check_to_save(catalog: WorkflowCatalog, data: bytes, expected_id: str = "") -> Checked:
    """Return a workflow that can run; raise WorkflowError with all its problems. Blocks."""
    parsed, problems = catalog.examine(data)
    workflow = parsed.workflow
    if workflow is None or any(problem.severity == "error" for problem in problems):
        raise WorkflowError("the workflow was not saved, because it could not run", problems)
    if not is_file_name(workflow.id):
        raise UsageError(f"{short_repr(workflow.id)} is not a workflow id: {FILE_NAME_RULE}")
    if expected_id and workflow.id != expected_id:
        raise UsageError(f"the workflow's id is {workflow.id!r}, not {expected_id!r}")
    return Checked(workflow.id, json.loads(data), tuple(problems))


def save_workflow(catalog: WorkflowCatalog, checked: Checked, now_ms: int) -> JsonObject:
    """Write a workflow into the user's folder and return its new content. Blocks.

    Raises Stale, and writes nothing, if its `version` is not the one on disk.
    """
    content, name = checked.content, checked.id
    private_directory(catalog.user_dir)
    with lock_directory(catalog.user_dir, _LOCK_SECONDS, "saving a workflow"):
        own = _own_file(catalog.user_dir, name)
        before = content_of(own or _own_file(catalog.library_dir, name))
        if own:
            _refuse_stale(name, content.get("version"), before)
        made: JsonObject = {
            **content,
            "version": as_count(before.get("version", 1 if before else 0)) + 1,
            "createdAt": before.get("createdAt") or now_ms,
            "updatedAt": now_ms,
        }
        path = own or catalog.user_dir / f"{name}.json"
        write_private(path, (json.dumps(made, indent=2, ensure_ascii=False) + "\n").encode())
    return made


def delete_workflow(catalog: WorkflowCatalog, workflow_id: str) -> None:
    """Delete one of the user's workflows; raise NotFound for any other."""
    path = _own_file(catalog.user_dir, workflow_id) if is_file_name(workflow_id) else None
    if path is None:
        raise NotFound(f"you have no workflow {short_repr(workflow_id)}; presets cannot be deleted")
    path.unlink(missing_ok=True)


def _own_file(folder: Path, workflow_id: str) -> Path | None:
    found = (find_in_folder(folder, workflow_id + suffix) for suffix in SUFFIXES)
    return next((path for path in found if path is not None), None)


def content_of(path: Path | None) -> JsonObject:
    """Return the content of a workflow file, unchecked; empty if it is invalid or missing."""
    if path is None:
        return {}
    try:
        found = json.loads(read_bounded(path))
    except (UsageError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def as_count(value: object) -> int:
    """Return an integer; 0 for any other value."""
    return value if isinstance(value, int) else 0


def _refuse_stale(workflow_id: str, given: object, before: JsonObject) -> None:
    """Raise Stale unless `given` is the version of the user's own file."""
    if not before:
        raise Stale(
            f"the file of workflow {workflow_id!r} is invalid and would be overwritten; "
            "fix it or delete the workflow first"
        )
    version = before.get("version", 1)
    if given != version:
        raise Stale(
            f"workflow {workflow_id!r} has version {version!r} now, and you edited version "
            f"{given!r}; load it again and repeat your changes"
        )
