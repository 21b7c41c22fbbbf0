"""Finds a workflow by path or id, with every workflow it calls.

- A path contains a slash or ends in `.json`. It may be anywhere.
- An id is looked up in the user's folder, then in the library: `<id>.json`, then
  `<id>.workflow.json`.
- The workflows that a workflow calls are looked up next to its file first.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from infloop.catalog.files import find_in_folder, in_file, json_files, read_bounded
from infloop.errors import Problem, UsageError, WorkflowError
from infloop.model.check import check_workflow
from infloop.model.names import FILE_NAME_RULE, is_file_name
from infloop.model.parsing import Parsed, parse_workflow
from infloop.model.problems import short_repr
from infloop.model.references import called_workflows
from infloop.model.workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from infloop.model.values import JsonObject

LIBRARY_DIR = Path(__file__).parent.parent / "library"
SUFFIXES = (".json", ".workflow.json")


@dataclass(frozen=True, slots=True)
class WorkflowFile:
    """A workflow in one of the folders; an invalid file is listed with its problems."""

    id: str
    name: str
    path: Path
    origin: Literal["user", "library"]
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Bundle:
    """Everything a run needs: a workflow and all it may call, as they were when they were read."""

    root: Workflow
    children: dict[str, Workflow]
    source: Path
    warnings: tuple[Problem, ...] = ()
    triggers: tuple[JsonObject, ...] = ()

    def plain(self) -> dict[str, JsonObject]:
        """Return the JSON of each workflow by id."""
        return {one.id: one.to_json() for one in (self.root, *self.children.values())}


def is_workflow_id(text: str) -> bool:
    """Tell whether a text is a workflow id, and not a path to a file."""
    return is_file_name(text) and not text.endswith(".json")


class WorkflowCatalog:
    """The user's workflows and the library; the user's take precedence."""

    def __init__(self, user_dir: Path, library_dir: Path = LIBRARY_DIR) -> None:
        self.user_dir = user_dir
        self.library_dir = library_dir

    def find(self, ref: str) -> Path:
        """Return the file of a path or id; raise UsageError with suggestions if there is none."""
        if "/" in ref or ref.endswith(".json"):
            path = Path(ref)
            if not os.path.isfile(path):  # noqa: PTH113  (Path.is_file raises for a long name)
                beside = [str(path.parent / one.name) for one in json_files(path.parent)]
                near = _nearest(ref, beside)
                raise UsageError(f"there is no workflow file {short_repr(ref)}{near}")
            return path
        if not is_file_name(ref):
            raise UsageError(
                f"{short_repr(ref)} is not a workflow id: {FILE_NAME_RULE}; or give a path"
            )
        found = _in_folders(ref, (self.user_dir, self.library_dir))
        if found is None:
            known = [entry.id for entry in self.entries()]
            raise UsageError(f"there is no workflow {ref!r}{_nearest(ref, known)}")
        return found

    def entries(self) -> list[WorkflowFile]:
        """Return the workflows of both folders by id; the user's hide those of the library."""
        entries: dict[str, WorkflowFile] = {}
        origins: tuple[tuple[Literal["user", "library"], Path], ...] = (
            ("user", self.user_dir),
            ("library", self.library_dir),
        )
        for origin, folder in origins:
            for path in json_files(folder):
                entry = _entry(path, origin)
                entries.setdefault(entry.id, entry)
        return sorted(entries.values(), key=lambda entry: entry.id)

    def read(self, ref: str) -> tuple[Path, Parsed]:
        """Return the file of a workflow and its parsed content, unchecked."""
        path = self.find(ref)
        return path, parse_workflow(read_bounded(path), expected_id=self._promised_id(path))

    def check(
        self, ref: str, *, known_providers: Collection[str] | None = None
    ) -> tuple[Path, list[Problem]]:
        """Return the file of a workflow, and all problems in it and in the workflows it calls."""
        path, parsed = self.read(ref)
        called = self._called(path, parsed)
        return path, _problems(parsed, called, known_providers)

    def examine(self, data: bytes) -> tuple[Parsed, list[Problem]]:
        """Return the parsed content of a file that is not in a folder yet, and all its problems."""
        parsed = parse_workflow(data)
        return parsed, _problems(parsed, self._called(self.user_dir / "new.json", parsed), None)

    def load_bundle(self, ref: str, *, known_providers: Collection[str] | None = None) -> Bundle:
        """Return a workflow with all it calls; raise WorkflowError with all problems."""
        path, parsed = self.read(ref)
        called = self._called(path, parsed)
        problems = _problems(parsed, called, known_providers)
        errors = sum(problem.severity == "error" for problem in problems)
        if parsed.workflow is None or errors:
            plural = "" if errors == 1 else "s"
            raise WorkflowError(f"{str(path)!r} has {errors} error{plural}", problems)
        children = {name: _usable(one, name) for name, one in called.items()}
        return Bundle(parsed.workflow, children, path, tuple(problems), parsed.triggers)

    def _promised_id(self, path: Path) -> str | None:
        folder = path.resolve().parent
        in_folder = folder in (self.user_dir.resolve(), self.library_dir.resolve())
        return _stem(path) if in_folder else None

    def _called(self, path: Path, parsed: Parsed) -> dict[str, Parsed]:
        """Return every called workflow that can be found, directly or indirectly called."""
        if parsed.workflow is None:
            return {}
        folders = (path.parent, self.user_dir, self.library_dir)
        called: dict[str, Parsed] = {}
        waiting = deque(called_workflows(parsed.workflow))
        while waiting:
            name = waiting.popleft()
            if name in called or name == parsed.workflow.id or not is_file_name(name):
                continue
            found = _in_folders(name, folders)
            if found is None:
                continue
            called[name] = parse_workflow(read_bounded(found), expected_id=name)
            waiting.extend(called_workflows(_usable(called[name], name)))
        return called


def _problems(
    parsed: Parsed, called: dict[str, Parsed], known_providers: Collection[str] | None
) -> list[Problem]:
    known = {name: _usable(one, name) for name, one in called.items()}
    if parsed.workflow is not None:
        known[parsed.workflow.id] = parsed.workflow
    problems = check_workflow(parsed, known_workflows=known, known_providers=known_providers)
    for name, one in called.items():
        found = check_workflow(one, known_workflows=known, known_providers=known_providers)
        problems.extend(in_file(f"workflow {name!r}", found))
    return problems


def _usable(parsed: Parsed, name: str) -> Workflow:
    """Return a called workflow; an empty one stands for a file that cannot be read."""
    return parsed.workflow or Workflow(id=name, name=name)


def _entry(path: Path, origin: Literal["user", "library"]) -> WorkflowFile:
    stem = _stem(path)
    try:
        parsed = parse_workflow(read_bounded(path), expected_id=stem)
    except UsageError as error:
        return WorkflowFile(stem, stem, path, origin, (Problem("file", str(error)),))
    name = parsed.workflow.name if parsed.workflow else ""
    return WorkflowFile(stem, name or stem, path, origin, parsed.problems)


def _in_folders(name: str, folders: Sequence[Path]) -> Path | None:
    for folder in folders:
        for suffix in SUFFIXES:
            path = find_in_folder(folder, name + suffix)
            if path is not None:
                return path
    return None


def _stem(path: Path) -> str:
    return path.name.removesuffix(".json").removesuffix(".workflow")


def _nearest(word: str, known: Sequence[str]) -> str:
    near = get_close_matches(word, known, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    if not known:
        return ""
    more = ", …" if len(known) > 20 else ""
    return f"; there are: {', '.join(known[:20])}{more}"
