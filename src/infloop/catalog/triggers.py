"""The triggers of a folder: found by their ids, written so that nobody else can read them.

A trigger is `<id>.json`. Its id opens the way in and it may hold a secret, so a file that others
can read is reported, and closed to them the next time it is written: when it is changed or fires.

Writers take turns, also with other processes: a trigger that fires must not bring back the secret
that somebody is just replacing.
"""

from __future__ import annotations

import json
import secrets
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infloop.catalog.files import file_looks, folder_state, json_files, read_bounded, within
from infloop.errors import Problem, UsageError
from infloop.lowlevel.directory_lock import lock_directory
from infloop.model.trigger import Trigger, is_trigger_id, parse_trigger
from infloop.store.files import private_directory, write_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from infloop.catalog.files import FolderState
    from infloop.model.values import JsonObject

# The id of a webhook is all that a sender without a secret needs to know: 144 random bits.
_RANDOM_BYTES = 18
# A trigger that fires without pause writes its file no more often than this.
_WRITE_EVERY_MS = 1_000
_LOCK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A trigger and its file; one that cannot be used has only problems."""

    id: str
    path: Path
    trigger: Trigger | None
    problems: tuple[Problem, ...] = ()


def new_trigger_id() -> str:
    """Return an id that nobody can guess."""
    while True:
        made = secrets.token_urlsafe(_RANDOM_BYTES)
        if made[0] not in "-_":  # a command would take it for an option
            return made


class TriggerFiles:
    """Reads and writes `<folder>/<id>.json`; what others change there counts at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._state: FolderState | None = None
        self._entries: list[Entry] = []
        # id -> what its file looked like when it was read, and what was in it
        self._read_before: dict[str, tuple[tuple[int, ...], Trigger | None]] = {}
        self._written_ms: dict[str, int] = {}
        self._fired_ms: dict[str, int] = {}

    def entries(self) -> list[Entry]:
        """Return all triggers by id, the broken ones too."""
        # Before reading: what changes meanwhile must be seen next time.
        state = folder_state(self.folder)
        if state is None or state != self._state:
            self._state = state
            self._entries = [_read(path) for path in json_files(self.folder)]
        return list(self._entries)

    def all(self) -> list[Trigger]:
        """Return the triggers that can be used."""
        return [entry.trigger for entry in self.entries() if entry.trigger is not None]

    def find(self, trigger_id: str) -> Trigger | None:
        """Return one trigger, or None; every webhook request asks."""
        if not is_trigger_id(trigger_id):
            return None
        looks = file_looks(f"{self.folder}/{trigger_id}.json")
        if looks is None:
            self._read_before.pop(trigger_id, None)
            return None
        before = self._read_before.get(trigger_id)
        if before is None or before[0] != looks:
            before = looks, _read(self.folder / f"{trigger_id}.json").trigger
            self._read_before[trigger_id] = before
        return before[1]

    def save(self, trigger: Trigger) -> None:
        """Write a trigger; its file is 0600 from the moment it appears."""
        with self._alone():
            self._write(trigger.id, trigger.to_json())

    def change(self, trigger_id: str, made: Callable[[Trigger], Trigger]) -> Trigger:
        """Write what `made` makes of a trigger; nobody else writes in between.

        Raises UsageError, and writes nothing, if there is no such trigger that can be used.
        """
        with self._alone():
            trigger = made(_usable(self._path(trigger_id)))
            assert trigger.id == trigger_id
            self._write(trigger_id, trigger.to_json())
        return trigger

    def remove(self, trigger_id: str) -> None:
        """Delete a trigger; raise UsageError if there is none."""
        with self._alone():
            self._path(trigger_id).unlink(missing_ok=True)

    def regenerate(self, trigger_id: str, now_ms: int) -> Trigger:
        """Give a trigger a new id; the old address is dead when this returns."""
        with self._alone():
            path = self._path(trigger_id)
            old = _usable(path)
            trigger = old.model_copy(update={"id": new_trigger_id(), "updated_at": now_ms})
            self._write(trigger.id, trigger.to_json())
            path.unlink(missing_ok=True)
        return trigger

    def fired(self, trigger_id: str, now_ms: int) -> None:
        """Remember when a trigger fired; the file is written if that is due, or by `settle`."""
        self._fired_ms[trigger_id] = now_ms
        if self.is_due(trigger_id, now_ms):
            self._write_fired(trigger_id)

    def is_due(self, trigger_id: str, now_ms: int) -> bool:
        """Say whether a trigger that fires at this time has its file written: that blocks."""
        return abs(now_ms - self._written_ms.get(trigger_id, 0)) >= _WRITE_EVERY_MS

    def settle(self) -> None:
        """Write what `fired` has put off; a server does so now and then, and before it ends."""
        for trigger_id in list(self._fired_ms):
            self._write_fired(trigger_id)

    def adopt(self, workflow_id: str, inline: Sequence[JsonObject], now_ms: int) -> list[Trigger]:
        """Write the triggers that an older workflow file holds as files of their own.

        Those that have a file already are left alone. Raises UsageError for one that is broken.
        """
        made: list[Trigger] = []
        for raw in inline:
            if self.find(str(raw.get("id"))) is not None:
                continue
            whole = {"createdAt": now_ms, "updatedAt": now_ms, "enabled": False, **raw}
            whole |= {"workflowId": workflow_id, "pluginId": "generic"}
            trigger, problems = parse_trigger(json.dumps(whole).encode())
            if trigger is None:
                said = "; ".join(map(str, problems))
                raise UsageError(f"a trigger in workflow {workflow_id!r} cannot be used: {said}")
            made.append(trigger)
        for trigger in made:
            self.save(trigger)
        return made

    def _path(self, trigger_id: str) -> Path:
        path = within(self.folder, f"{trigger_id}.json") if is_trigger_id(trigger_id) else None
        if path is None:
            raise UsageError(
                f"there is no trigger {trigger_id!r}; `infloop triggers` lists those there are"
            )
        return path

    def _write_fired(self, trigger_id: str) -> None:
        """Write the time into the file as it is now, whoever changed it last."""
        fired_ms = self._fired_ms.pop(trigger_id, None)
        if fired_ms is None:
            return
        self._written_ms[trigger_id] = fired_ms
        try:
            self._write_time(trigger_id, fired_ms)
        except BaseException:
            self._fired_ms.setdefault(trigger_id, fired_ms)  # `settle` tries again
            raise

    def _write_time(self, trigger_id: str, fired_ms: int) -> None:
        with self._alone():
            try:
                path = within(self.folder, f"{trigger_id}.json")
                raw: Any = json.loads(read_bounded(path)) if path is not None else None
            except (UsageError, ValueError):
                return  # somebody is at work on it, and that counts more
            if isinstance(raw, dict):
                self._write(trigger_id, {**raw, "lastFiredAt": fired_ms})

    @contextmanager
    def _alone(self) -> Iterator[None]:
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


def _read(path: Path) -> Entry:
    name = path.name.removesuffix(".json")
    if not is_trigger_id(name):
        problem = Problem("file", f"{name!r} is not a trigger's id", "name the file after its id")
        return Entry(name, path, None, (problem,))
    try:
        within(path.parent, path.name)
        trigger, problems = parse_trigger(read_bounded(path))
        open_to_others = stat.S_IMODE(path.stat().st_mode) & 0o077
    except (UsageError, OSError) as error:
        return Entry(name, path, None, (Problem("file", str(error)),))
    if trigger is not None and trigger.id != name:
        problems.append(Problem("id", "is not the name of its file", "rename the file"))
        trigger = None
    if open_to_others and trigger is not None:
        problems.append(
            Problem("file", "others may read it, and its secret", f"chmod 600 {path}", "warning")
        )
    return Entry(name, path, trigger, tuple(problems))
