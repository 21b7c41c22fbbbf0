"""Builds workflow files in Python, in the sandbox.

The file is a program of its author, and opening it runs it. So it runs where agents run, with less:

- It sees the folder that it is in, read-only, so that its imports work. A home or a directory of
  the system is not shown, nor a folder from which the level cannot leave out the data directory.
  Then the file is alone.
- It has no network, and writes only to its own temporary directory.
- Its time, memory, processes and output are limited.
- What comes back is data (see `infloop.model.loop_file.built`). What it prints is shown, not read.

Only a person who names the file builds it. Folders, triggers and other workflows use JSON files and
loop files.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from infloop.catalog.files import read_bounded
from infloop.catalog.loop_files import FolderTexts
from infloop.catalog.workflows import PYTHON_SUFFIX, python_file
from infloop.errors import Problem, SettingsError, UsageError
from infloop.model.parsing import Parsed
from infloop.model.problems import short_repr
from infloop.model.reading import MAX_FILE_BYTES
from infloop.policy.writable_roots import why_too_wide
from infloop.sandbox.access import Access, ResourceLimits
from infloop.sandbox.base import ChildRequest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from infloop.sandbox.base import ChildResult, Sandbox

TIMEOUT_MS = 20_000
LIMITS = ResourceLimits(
    processes=32,
    open_files=256,
    file_bytes=16 << 20,
    memory_bytes=1 << 30,
    temp_bytes=64 << 20,
)
MAX_RESULT_BYTES = 16 << 20
MAX_PRINTED_BYTES = 4_000


class BuildPlace(msgspec.Struct, frozen=True):
    """Where files are built: a sandbox, an interpreter, and what must not be seen there.

    `environment` is the whole environment of the child, besides its language. `user` is the uid
    and gid of children, if they have one of their own.
    """

    sandbox: Sandbox
    python: str
    environment: Mapping[str, str]
    homes: Collection[str] = ()
    hidden: Collection[str] = ()
    user: tuple[int, int] | None = None
    timeout_ms: int = TIMEOUT_MS


class Built(msgspec.Struct, frozen=True):
    """A workflow file in Python after it was built, and what a person should know about that."""

    path: Path
    parsed: Parsed
    notes: tuple[str, ...] = ()


async def build_file(ref: str, place: BuildPlace) -> Built:
    """Build a workflow file. Mistakes are problems; UsageError if there is no such file."""
    named = python_file(ref)
    assert named is not None
    path, name = Path(named[0]), named[1]
    if not os.path.isfile(path):  # noqa: ASYNC240, PTH113  (Path.is_file raises for a long name)
        raise UsageError(f"there is no workflow file {short_repr(named[0])}")
    # Resolved before it is read: if a link takes its place meanwhile, the child sees this folder.
    try:
        file = real_path(path)
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror or error}") from error
    data = await asyncio.to_thread(read_bounded, Path(file))
    try:
        text = _text(data)
    except ValueError as error:
        problem = Problem("file", str(error), line=1, column=1)
        return Built(path, Parsed(None, (problem,)))
    child = await _run(file, name, text, place)
    parsed = _parsed(path, name, text, child, place.timeout_ms)
    return Built(path, parsed, tuple(_notes(path, child, place)))


def _text(data: bytes) -> str:
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(f"larger than {MAX_FILE_BYTES >> 20} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("not UTF-8 text; save the file as UTF-8") from None
    if "\0" in text:
        raise ValueError("holds a NUL character; remove it")
    return text


async def _run(file: str, name: str, text: str, place: BuildPlace) -> ChildResult:
    folder = _visible_folder(os.path.dirname(file), place)  # noqa: PTH120
    with tempfile.TemporaryDirectory(prefix="infloop-build-") as private:
        own = real_path(private)
        runner = _prepare(Path(own), place.user)
        access = Access(read=(own, *([folder] if folder else ())), limits=LIMITS)
        return await place.sandbox.run(
            ChildRequest(
                argv=(place.python, "-I", "-B", "-X", "utf8", runner, file, folder, name),
                cwd=folder or own,
                env={**place.environment, "LANG": "C.UTF-8"},
                stdin=text.encode(),
                timeout_ms=place.timeout_ms,
                max_output_bytes=MAX_PRINTED_BYTES,
                want_result=True,
                max_result_bytes=MAX_RESULT_BYTES,
                access=access,
            )
        )


def real_path(path: str | Path) -> str:
    """Return a path with all links resolved."""
    return os.path.realpath(path)


def _visible_folder(folder: str, place: BuildPlace) -> str:
    """Return the folder of a file if the child may see it; empty if that would be too much."""
    if not place.sandbox.confines:
        return folder
    holds_hidden = not place.sandbox.own_mounts and any(
        os.path.commonpath((folder, real_path(one))) == folder for one in place.hidden
    )
    return "" if holds_hidden or why_too_wide(folder, place.homes) else folder


def _prepare(private: Path, user: tuple[int, int] | None) -> str:
    """Put the two modules that the child needs into its folder; return the one that it runs."""
    package = resources.files("infloop")
    modules = {
        "infloop.py": package / "builder.py",
        "build_workflow.py": package / "catalog" / "harness" / "build_workflow.py",
    }
    for name, module in modules.items():
        (private / name).write_text(module.read_text(encoding="utf-8"), encoding="utf-8")
    if user is not None:
        for each in (*(private / name for name in modules), private):
            os.chown(each, *user)
    return str(private / "build_workflow.py")


def _parsed(path: Path, name: str, text: str, child: ChildResult, timeout_ms: int) -> Parsed:
    from infloop.model.loop_file.built import parse_built

    if child.error:
        raise SettingsError(f"{str(path)!r} cannot be built: {child.error}")
    reason = _why_nothing(child, timeout_ms)
    if reason:
        message, hint = reason
        return Parsed(None, (Problem("file", message, hint, line=1, column=1),))
    assert child.result is not None
    texts = FolderTexts(path.parent)
    stem = path.name.removesuffix(PYTHON_SUFFIX)
    return parse_built(child.result, text, path.name, name, stem, texts.read)


def _why_nothing(child: ChildResult, timeout_ms: int) -> tuple[str, str] | None:
    """Return why there is no result, and what to do; None if there is one."""
    if child.timed_out:
        return (
            f"building it took longer than {timeout_ms / 1000:g} s",
            "a workflow file says what is to be done; it does not do it",
        )
    if child.result_too_large:
        return f"built more than {MAX_RESULT_BYTES >> 20} MiB", "split it into several workflows"
    if not child.result:
        how = f"signal {child.signal}" if child.exit_code is None else f"code {child.exit_code}"
        last = child.stderr.strip().rpartition("\n")[2]
        return f"ended with {how} before it was built{child.hint_suffix}", last
    return None


def _notes(path: Path, child: ChildResult, place: BuildPlace) -> list[str]:
    notes = []
    if not place.sandbox.confines:
        notes.append(f"{path}: built without a sandbox, as you (level {place.sandbox.level!r})")
    printed = (child.stdout + child.stderr).splitlines()
    return [*notes, *(f"{path.name} printed: {line}" for line in printed)]
