"""The triggers of a folder: finds them by id, writes them with private permissions.

- A trigger is `<id>.json`. Its id is a credential, and it may contain a secret. A file that others
  can read is reported, and the next write makes it private: when the trigger changes or fires.
- Writers take a lock, also between processes: recording that a trigger fired must not restore a
  secret that was just replaced.
"""

from __future__ import annotations

import json
import secrets
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from infloop.catalog.files import file_stats, find_in_folder, folder_state, json_files, read_bounded
from infloop.errors import Problem, UsageError
from infloop.lowlevel.directory_lock import lock_directory
from infloop.model.trigger import Trigger, is_trigger_id, parse_trigger
from infloop.store.files import private_directory, write_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from infloop.catalog.files import FolderState
    from infloop.model.values import JsonObject

# 144 random bits: for a sender without a secret, the id is the only credential.
_RANDOM_BYTES = 18
# The file of a trigger that fires constantly is written at most once in this time.
_WRITE_EVERY_MS = 1_000
_LOCK_SECONDS = 10.0


class TriggerFile(msgspec.Struct, frozen=True):
    """A trigger and its file; an invalid file has only problems."""

    id: str
    path: Path
    trigger: Trigger | None
    problems: tuple[Problem, ...] = ()


def new_trigger_id() -> str:
    """Return an id that cannot be guessed."""
    while True:
        made = secrets.token_urlsafe(_RANDOM_BYTES)
        if made[0] not in "-_":  # the command line would read it as an option
            return made


class TriggerFiles:
    """Reads and writes `<folder>/<id>.json`; external changes take effect at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._state: FolderState | None = None
        self._entries: list[TriggerFile] = []
        # id -> the stats of its file when it was read, and the trigger
        self._cache: dict[str, tuple[tuple[int, ...], Trigger | None]] = {}
        self._written_ms: dict[str, int] = {}
        self._fired_ms: dict[str, int] = {}

    def entries(self) -> list[TriggerFile]:
        """Return all triggers by id, including invalid ones."""
        # Before reading, so that a change during the read is noticed next time.
        state = folder_state(self.folder)
        if state is None or state != self._state:
            self._state = state
            self._entries = [_read(path) for path in json_files(self.folder)]
        return list(self._entries)

    def all(self) -> list[Trigger]:
        """Return the valid triggers."""
        return [entry.trigger for entry in self.entries() if entry.trigger is not None]

    def find(self, trigger_id: str) -> Trigger | None:
        """Return one trigger, or None; called for every webhook request."""
        if not is_trigger_id(trigger_id):
            return None
        stats = file_stats(f"{self.folder}/{trigger_id}.json")
        if stats is None:
            self._cache.pop(trigger_id, None)
            return None
        before = self._cache.get(trigger_id)
        if before is None or before[0] != stats:
            before = stats, _read(self.folder / f"{trigger_id}.json").trigger
            self._cache[trigger_id] = before
        return before[1]

    def save(self, trigger: Trigger) -> None:
        """Write a trigger with mode 0600."""
        with self._locked():
            self._write(trigger.id, trigger.to_json())

    def change(self, trigger_id: str, made: Callable[[Trigger], Trigger]) -> Trigger:
        """Replace a trigger by `made(trigger)` under the lock.

        Raises UsageError, and writes nothing, if there is no such valid trigger.
        """
        with self._locked():
            trigger = made(_usable(self._path(trigger_id)))
            assert trigger.id == trigger_id
            self._write(trigger_id, trigger.to_json())
        return trigger

    def remove(self, trigger_id: str) -> None:
        """Delete a trigger; raise UsageError if it does not exist."""
        with self._locked():
            self._path(trigger_id).unlink(missing_ok=True)

    def regenerate(self, trigger_id: str, now_ms: int) -> Trigger:
        """Give a trigger a new id; the old address no longer works when this returns."""
        with self._locked():
            path = self._path(trigger_id)
            old = _usable(path)
            trigger = old.model_copy(update={"id": new_trigger_id(), "updated_at": now_ms})
            self._write(trigger.id, trigger.to_json())
            path.unlink(missing_ok=True)
        return trigger

    def fired(self, trigger_id: str, now_ms: int) -> None:
        """Record when a trigger fired; the file is written if that is due, or by `flush`."""
        self._fired_ms[trigger_id] = now_ms
        if self.is_due(trigger_id, now_ms):
            self._write_fired(trigger_id)

    def is_due(self, trigger_id: str, now_ms: int) -> bool:
        """Tell whether `fired` at this time writes the file, which blocks."""
        return abs(now_ms - self._written_ms.get(trigger_id, 0)) >= _WRITE_EVERY_MS

    def flush(self) -> None:
        """Write the times that `fired` postponed; called regularly and at shutdown."""
        for trigger_id in list(self._fired_ms):
            self._write_fired(trigger_id)

    def import_inline(
        self, workflow_id: str, inline: Sequence[JsonObject], now_ms: int
    ) -> list[Trigger]:
        """Write the triggers inside an older workflow file as files of their own.

        Triggers that already have a file are skipped. Raises UsageError for an invalid one.
        """
        made: list[Trigger] = []
        for raw in inline:
            if self.find(str(raw.get("id"))) is not None:
                continue
            whole = {"createdAt": now_ms, "updatedAt": now_ms, "enabled": False, **raw}
            whole |= {"workflowId": workflow_id, "pluginId": "generic"}
            trigger, problems = parse_trigger(json.dumps(whole).encode())
            if trigger is None:
                text = "; ".join(map(str, problems))
                raise UsageError(f"a trigger in workflow {workflow_id!r} is invalid: {text}")
            made.append(trigger)
        for trigger in made:
            self.save(trigger)
        return made

    def _path(self, trigger_id: str) -> Path:
        path = (
            find_in_folder(self.folder, f"{trigger_id}.json") if is_trigger_id(trigger_id) else None
        )
        if path is None:
            raise UsageError(f"there is no trigger {trigger_id!r}; `infloop triggers` lists them")
        return path

    def _write_fired(self, trigger_id: str) -> None:
        """Write the time of the last firing into the present content of the file."""
        fired_ms = self._fired_ms.pop(trigger_id, None)
        if fired_ms is None:
            return
        self._written_ms[trigger_id] = fired_ms
        try:
            self._write_time(trigger_id, fired_ms)
        except BaseException:
            self._fired_ms.setdefault(trigger_id, fired_ms)  # `flush` tries again
            raise

    def _write_time(self, trigger_id: str, fired_ms: int) -> None:
        with self._locked():
            try:
                path = find_in_folder(self.folder, f"{trigger_id}.json")
                raw: Any = json.loads(read_bounded(path)) if path is not None else None
            except (UsageError, ValueError):
                return  # the file is being edited, which is more important
            if isinstance(raw, dict):
                self._write(trigger_id, {**raw, "lastFiredAt": fired_ms})

    @contextmanager
    def _locked(self) -> Iterator[None]:
        private_directory(self.folder)
        with lock_directory(self.folder, _LOCK_SECONDS, "writing triggers"):
            yield

    def _write(self, trigger_id: str, content: JsonObject) -> None:
        assert is_trigger_id(trigger_id)
        text = json.dumps(content, indent=2, ensure_ascii=False)
        write_private(self.folder / f"{trigger_id}.json", f"{text}\n".encode())


def _usable(path: Path) -> Trigger:
    trigger = _read(path).trigger
    if trigger is None:
        name = path.name.removesuffix(".json")
        raise UsageError(f"trigger {name!r} cannot be used; `infloop triggers` says why")
    return trigger


def _read(path: Path) -> TriggerFile:
    name = path.name.removesuffix(".json")
    if not is_trigger_id(name):
        problem = Problem("file", f"{name!r} is not a trigger's id", "name the file after its id")
        return TriggerFile(name, path, None, (problem,))
    try:
        find_in_folder(path.parent, path.name)
        trigger, problems = parse_trigger(read_bounded(path))
        open_to_others = stat.S_IMODE(path.stat().st_mode) & 0o077
    except (UsageError, OSError) as error:
        return TriggerFile(name, path, None, (Problem("file", str(error)),))
    if trigger is not None and trigger.id != name:
        problems.append(Problem("id", "is not the name of its file", "rename the file"))
        trigger = None
    if open_to_others and trigger is not None:
        problems.append(
            Problem(
                "file", "other users can read it and its secret", f"chmod 600 {path}", "warning"
            )
        )
    return TriggerFile(name, path, trigger, tuple(problems))
