"""Saves workflows: counts their versions, and detects conflicting edits.

- A workflow that is not finished is saved too, with everything that infloop does not know about it.
  Only running it is refused.
- A client states the version that it edited. If the file has another version, nothing is written.
- A library preset is never changed: saving under its id makes a copy of the user's own.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from infloop.catalog.files import file_stats, find_in_folder, read_bounded
from infloop.catalog.loop_files import LOOP_SUFFIXES, is_loop_file
from infloop.catalog.workflows import SUFFIXES
from infloop.errors import Conflict, NotFound, Problem, Stale, UsageError, WorkflowError
from infloop.lowlevel.directory_lock import lock_directory
from infloop.model.names import is_file_name
from infloop.model.problems import short_repr
from infloop.model.reading import repeats_a_key
from infloop.store.files import private_directory, write_private

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from infloop.catalog.workflows import WorkflowCatalog
    from infloop.model.parsing import Parsed
    from infloop.model.values import JsonObject

_LOCK_SECONDS = 10.0


class Checked(msgspec.Struct, frozen=True):
    """A workflow that may be saved: its id, its content, and what is wrong with it."""

    id: str
    content: JsonObject
    problems: tuple[Problem, ...] = ()


def check_to_save(parsed: Parsed, problems: Sequence[Problem], expected_id: str = "") -> Checked:
    """Return a workflow that can be saved and read again, with all its problems.

    Raises WorkflowError with them for what is no workflow at all, or is not safe to keep: a pattern
    or a shell line that must never run, ids that are not unique, a protection that is not one.
    """
    workflow = parsed.workflow
    if workflow is None or repeats_a_key(parsed.content) or not _is_shaped(parsed.content):
        raise WorkflowError("the workflow was not saved, because it could not be read", problems)
    own = [problem for problem in problems if not problem.file]  # not of a workflow that it calls
    if any(problem.unsafe for problem in own) or not is_file_name(workflow.id):
        raise WorkflowError("the workflow was not saved, because it is not safe", problems)
    if expected_id and workflow.id != expected_id:
        raise UsageError(f"the workflow's id is {workflow.id!r}, not {expected_id!r}")
    return Checked(workflow.id, parsed.content, tuple(problems))


def _is_shaped(content: JsonObject) -> bool:
    """Say whether a file has what every list and form of workflows shows: a name and a graph."""
    name, graph = content.get("name"), [content.get("nodes", []), content.get("edges", [])]
    is_named = isinstance(name, str) and bool(name.strip())
    return is_named and all(isinstance(part, list) for part in graph)


def save_workflow(catalog: WorkflowCatalog, checked: Checked, now_ms: int) -> JsonObject:
    """Write a workflow into the user's folder and return its new content. Blocks.

    Raises Stale, and writes nothing, if its `version` is not the one on disk.
    """
    content, name = checked.content, checked.id
    private_directory(catalog.user_dir)
    with lock_directory(catalog.user_dir, _LOCK_SECONDS, "saving a workflow"):
        own = own_file(catalog.user_dir, name)
        if own and is_loop_file(own.name):
            raise Conflict(
                f"workflow {name!r} is the loop file {own.name}; edit that file, or make it JSON "
                f"with `infloop convert` and remove it"
            )
        before = content_of(own or own_file(catalog.library_dir, name))
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


def import_workflow(folder: Path, workflow_id: str, data: bytes) -> None:
    """Write a workflow file as it is, over one of the same id. Blocks."""
    private_directory(folder)
    with lock_directory(folder, _LOCK_SECONDS, "saving a workflow"):
        write_private(own_file(folder, workflow_id) or folder / f"{workflow_id}.json", data)


def delete_workflow(catalog: WorkflowCatalog, workflow_id: str) -> None:
    """Delete one of the user's workflows; raise NotFound for any other."""
    path = own_file(catalog.user_dir, workflow_id) if is_file_name(workflow_id) else None
    if path is None:
        raise NotFound(f"you have no workflow {short_repr(workflow_id)}; presets cannot be deleted")
    path.unlink(missing_ok=True)


def own_file(folder: Path, workflow_id: str) -> Path | None:
    """Return the file of a workflow in a folder, or None."""
    suffixes = (*SUFFIXES, *LOOP_SUFFIXES)
    found = (find_in_folder(folder, workflow_id + suffix) for suffix in suffixes)
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


def changed_at(path: Path) -> int:
    """Return when a loop file was changed, in milliseconds; a JSON file says it itself."""
    found = file_stats(str(path)) if is_loop_file(path.name) else None
    return found[2] // 1_000_000 if found is not None else 0


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
