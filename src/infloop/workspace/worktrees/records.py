"""The records of worktrees on disk: one small file each, written before the worktree is created.

creating    being created; not used yet
ready       an agent may work, or have worked, in it
removing    saved, and being removed
removed     removed; the saved state remains
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from infloop.errors import StoreError
from infloop.workspace.durable_files import write_durably

if TYPE_CHECKING:
    from pathlib import Path

RUN_CHECKOUT = "(workspace)"
"""Stands for a node in the record of a run's own checkout; no node has this name."""

KindName: TypeAlias = Literal["worktree", "clone"]
Stage: TypeAlias = Literal["creating", "ready", "removing", "removed"]


class Saved(msgspec.Struct, frozen=True):
    """The saved state of a worktree.

    - `base` and `final` are its snapshots when it was created and when it was saved.
    - `head` is the checked-out commit; `refs` keep its commits in the user's repository.
    - `ignored` are the paths that git ignores, directories with a slash.
    - `repositories` are nested `.git` directories with their snapshots.
    - `kept` is the directory of files that no snapshot can hold.
    - `problem` says why the commits of a `clone` were not imported, if they were not.
    """

    name: str
    run_id: str
    node: str
    repository: str
    common: str
    commit: str
    base: str
    final: str
    head: str
    refs: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    repositories: dict[str, str] = msgspec.field(default_factory=dict)
    kept: str | None = None
    saved_at_ms: int = 0
    kind: KindName = "worktree"
    problem: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether its snapshot is everything: no commits, no files or repositories beside it."""
        return not (self.refs or self.repositories or self.kept or self.problem)

    @property
    def ref(self) -> str | None:
        """The ref that keeps the checked-out commit, if the worktree made commits."""
        return self.refs[0] if self.refs else None


class Record(msgspec.Struct, frozen=True):
    """A worktree, from before its creation until its saved state is deleted."""

    name: str
    run_id: str
    node: str
    repository: str
    common: str
    path: str
    cwd: str
    commit: str
    owner: str
    created_at_ms: int
    stage: Stage = "creating"
    admin: str | None = None
    base: str | None = None
    saved: Saved | None = None
    ref: str = ""
    kind: KindName = "worktree"


class Records:
    """The records in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, record: Record) -> None:
        """Replace a record atomically."""
        # Paths may contain bytes that are not text; JSON escapes preserve them.
        text = json.dumps(msgspec.to_builtins(record), indent=1)
        write_durably(self._path(record.name), text)

    def read(self, name: str) -> Record | None:
        """Return a record, or None."""
        try:
            text = self._path(name).read_text(encoding="ascii")
        except FileNotFoundError:
            return None
        try:
            return msgspec.convert(json.loads(text), Record)
        except ValueError as error:
            raise StoreError(
                f"the record {str(self._path(name))!r} cannot be read: {error}"
            ) from None

    def all(self) -> list[Record]:
        """Return all records, the oldest first."""
        names = [path.stem for path in self._directory.glob("*.json")]
        found = [record for name in names if (record := self.read(name))]
        return sorted(found, key=lambda record: (record.created_at_ms, record.name))

    def delete(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.json"
