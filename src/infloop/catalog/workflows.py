"""Finds a workflow by path or id, with every workflow it calls.

- A path contains a slash or ends in `.json`, `.loop.yaml` or `.loop.yml`. It may be anywhere.
  A file in Python is not read here: whoever wants it built calls `python_files`.
- An id is looked up in the user's folder, then in the library: `<id>.json`, then
  `<id>.workflow.json`, or `<id>.loop.yaml`. A folder with both kinds for one id is an error.
- The workflows that a workflow calls are looked up next to its file first.
"""

from __future__ import annotations

import os
from collections import deque
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from infloop.catalog.files import find_in_folder, in_file, json_files, read_bounded
from infloop.catalog.loop_files import LOOP_SUFFIXES, is_loop_file, loop_file_id, read_loop_file
from infloop.errors import Problem, UsageError, WorkflowError
from infloop.model.check import check_workflow
from infloop.model.names import FILE_NAME_RULE, is_file_name
from infloop.model.parsing import Parsed, parse_workflow
from infloop.model.problems import short_repr
from infloop.model.references import called_workflows
from infloop.model.workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from infloop.model.check.context import Machine
    from infloop.model.values import JsonObject

LIBRARY_DIR = Path(__file__).parent.parent / "library"
SUFFIXES = (".json", ".workflow.json")
FILE_SUFFIXES = (".json", *LOOP_SUFFIXES)
PYTHON_SUFFIX = ".py"


class WorkflowFile(msgspec.Struct, frozen=True):
    """A workflow in one of the folders; an invalid file is listed with its problems."""

    id: str
    name: str
    path: Path
    origin: Literal["user", "library"]
    problems: tuple[Problem, ...] = ()


class Called(NamedTuple):
    """A workflow that another one calls."""

    path: Path
    parsed: Parsed


class Bundle(msgspec.Struct, frozen=True):
    """Everything a run needs: a workflow and all it may call, as they were when they were read."""

    root: Workflow
    children: dict[str, Workflow]
    source: Path
    warnings: tuple[Problem, ...] = ()
    triggers: tuple[JsonObject, ...] = ()
    # Other files whose text is part of the workflows.
    files: tuple[Path, ...] = ()

    def plain(self) -> dict[str, JsonObject]:
        """Return the JSON of each workflow by id."""
        return {one.id: one.to_json() for one in (self.root, *self.children.values())}


def is_workflow_id(text: str) -> bool:
    """Tell whether a text is a workflow id, and not a path to a file."""
    return is_file_name(text) and not text.endswith(FILE_SUFFIXES)


def python_file(ref: str) -> tuple[str, str] | None:
    """Return the path of a file in Python and the name behind it, `flow.py:name`; or None."""
    if ref.endswith(PYTHON_SUFFIX):
        return ref, ""
    path, _, name = ref.rpartition(":")
    return (path, name) if path.endswith(PYTHON_SUFFIX) and name.isidentifier() else None


class WorkflowCatalog:
    """The user's workflows and the library; the user's take precedence."""

    def __init__(self, user_dir: Path, library_dir: Path = LIBRARY_DIR) -> None:
        self.user_dir = user_dir
        self.library_dir = library_dir

    def find(self, ref: str) -> Path:
        """Return the file of a path or id; raise UsageError with suggestions if there is none."""
        if "/" in ref or ref.endswith((*FILE_SUFFIXES, ".yaml", ".yml")):
            path = Path(ref)
            if not os.path.isfile(path):  # noqa: PTH113  (Path.is_file raises for a long name)
                files = json_files(path.parent, FILE_SUFFIXES)
                near = _nearest(ref, [str(path.parent / one.name) for one in files])
                raise UsageError(f"there is no workflow file {short_repr(ref)}{near}")
            if ref.endswith(PYTHON_SUFFIX):
                raise UsageError(f"{short_repr(ref)} is not read here, because that would run it: "
                                 "make a loop file of it with `infloop convert`")  # fmt: skip
            if ref.endswith((".yaml", ".yml")) and not is_loop_file(ref):
                raise UsageError(f"{short_repr(ref)} is not named like a loop file: "
                                 "rename it to NAME.loop.yaml")  # fmt: skip
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
            for path in json_files(folder, FILE_SUFFIXES):
                entry = _entry(path, origin)
                entries.setdefault(entry.id, entry)
        return sorted(entries.values(), key=lambda entry: entry.id)

    def read(self, ref: str) -> tuple[Path, Parsed]:
        """Return the file of a workflow and its parsed content, unchecked."""
        path = self.find(ref)
        return path, _parse(path, self._promised_id(path))

    def check(
        self,
        ref: str,
        *,
        known_providers: Collection[str] | None = None,
        machine: Machine | None = None,
    ) -> tuple[Path, list[Problem]]:
        """Return the file of a workflow, and all problems in it and in the workflows it calls."""
        path, parsed = self.read(ref)
        return path, self.problems(path, parsed, known_providers=known_providers, machine=machine)

    def read_and_check(
        self, ref: str, *, known_providers: Collection[str] | None = None
    ) -> tuple[Path, Parsed, list[Problem]]:
        """Return the file of a workflow, its parsed content, and what `check` returns."""
        path, parsed = self.read(ref)
        return path, parsed, self.problems(path, parsed, known_providers=known_providers)

    def problems(
        self,
        path: Path,
        parsed: Parsed,
        *,
        known_providers: Collection[str] | None = None,
        machine: Machine | None = None,
    ) -> list[Problem]:
        """Return all problems of a workflow that was read, and of the workflows it calls."""
        called = self._called(path, parsed)
        return _problems(parsed, called, known_providers, str(path), machine)

    def examine(
        self, data: bytes, *, known_providers: Collection[str] | None = None
    ) -> tuple[Parsed, list[Problem]]:
        """Return the parsed content of a file that is not in a folder yet, and all its problems."""
        parsed = parse_workflow(data)
        called = self._called(self.user_dir / "new.json", parsed)
        return parsed, _problems(parsed, called, known_providers)

    def load_bundle(self, ref: str, *, known_providers: Collection[str] | None = None) -> Bundle:
        """Return a workflow with all it calls; raise WorkflowError with all problems."""
        path, parsed = self.read(ref)
        return self.bundle(path, parsed, known_providers=known_providers)

    def bundle_of(
        self, data: bytes, path: Path, *, known_providers: Collection[str] | None = None
    ) -> Bundle:
        """Return a workflow that is not stored, as if it were the file at `path`."""
        return self.bundle(path, parse_workflow(data), known_providers=known_providers)

    def bundle(
        self, path: Path, parsed: Parsed, *, known_providers: Collection[str] | None = None
    ) -> Bundle:
        """Return a workflow that was read, with all it calls; raise WorkflowError."""
        called = self._called(path, parsed)
        problems = _problems(parsed, called, known_providers, str(path))
        errors = sum(problem.severity == "error" for problem in problems)
        if parsed.workflow is None or errors:
            plural = "" if errors == 1 else "s"
            raise WorkflowError(f"{str(path)!r} has {errors} error{plural}", problems)
        children = {name: _usable(one.parsed, name) for name, one in called.items()}
        every = (Called(path, parsed), *called.values())
        files = tuple(one.path.parent / name for one in every for name in one.parsed.files)
        return Bundle(parsed.workflow, children, path, tuple(problems), parsed.triggers, files)

    def _promised_id(self, path: Path) -> str | None:
        folder = path.resolve().parent
        in_folder = folder in (self.user_dir.resolve(), self.library_dir.resolve())
        return _stem(path) if in_folder else None

    def _called(self, path: Path, parsed: Parsed) -> dict[str, Called]:
        """Return every called workflow that can be found, directly or indirectly called."""
        if parsed.workflow is None:
            return {}
        folders = (path.parent, self.user_dir, self.library_dir)
        called: dict[str, Called] = {}
        waiting = deque(called_workflows(parsed.workflow))
        while waiting:
            name = waiting.popleft()
            if name in called or name == parsed.workflow.id or not is_file_name(name):
                continue
            found = _in_folders(name, folders)
            if found is None:
                continue
            called[name] = Called(found, _parse(found, name))
            waiting.extend(called_workflows(_usable(called[name].parsed, name)))
        return called


def _problems(
    parsed: Parsed,
    called: dict[str, Called],
    known_providers: Collection[str] | None,
    file: str = "",
    machine: Machine | None = None,
) -> list[Problem]:
    known = {name: _usable(one.parsed, name) for name, one in called.items()}
    if parsed.workflow is not None:
        known[parsed.workflow.id] = parsed.workflow
    look = partial(
        check_workflow, known_workflows=known, known_providers=known_providers, machine=machine
    )
    found = look(parsed)
    problems = [replace(problem, file=file) for problem in found]
    for name, one in called.items():
        found = look(one.parsed)
        inside = in_file(f"workflow {name!r}", found)
        problems.extend(replace(problem, file=str(one.path)) for problem in inside)
    return problems


def _parse(path: Path, expected_id: str | None) -> Parsed:
    """Read a workflow in the language that its file's name says."""
    if is_loop_file(path.name):
        return read_loop_file(path, expected_id=expected_id)
    return parse_workflow(read_bounded(path), expected_id=expected_id)


def _usable(parsed: Parsed, name: str) -> Workflow:
    """Return a called workflow; an empty one stands for a file that cannot be read."""
    return parsed.workflow or Workflow(id=name, name=name)


def _entry(path: Path, origin: Literal["user", "library"]) -> WorkflowFile:
    stem = _stem(path)
    try:
        refuse_both_kinds(path.parent, stem)
        parsed = _parse(path, stem)
    except UsageError as error:
        return WorkflowFile(stem, stem, path, origin, (Problem("file", str(error)),))
    name = parsed.workflow.name if parsed.workflow else ""
    return WorkflowFile(stem, name or stem, path, origin, parsed.problems)


def _in_folders(name: str, folders: Sequence[Path]) -> Path | None:
    for folder in folders:
        for suffix in (*SUFFIXES, *LOOP_SUFFIXES):
            path = find_in_folder(folder, name + suffix)
            if path is not None:
                refuse_both_kinds(folder, name)
                return path
    return None


def refuse_both_kinds(folder: Path, name: str) -> None:
    """Raise UsageError if a folder has a JSON file and a loop file for one id."""
    groups = (SUFFIXES, *((suffix,) for suffix in LOOP_SUFFIXES))
    found = [
        [name + one for one in group if os.path.lexists(folder / (name + one))] for group in groups
    ]
    files = [names[0] for names in found if names]
    if len(files) > 1:
        raise UsageError(
            f"the workflow {name!r} is in two files, {' and '.join(files)}; remove or rename one"
        )


def _stem(path: Path) -> str:
    if is_loop_file(path.name):
        return loop_file_id(path.name)
    return path.name.removesuffix(".json").removesuffix(".workflow")


def _nearest(word: str, known: Sequence[str]) -> str:
    near = get_close_matches(word, known, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    if not known:
        return ""
    more = ", …" if len(known) > 20 else ""
    return f"; there are: {', '.join(known[:20])}{more}"
