"""Imports a whole installation of Infinite Loop: workflows, triggers, providers, connections, runs.

Rules

- A file is imported completely or not at all. What exists stays, unless `force` is given.
- Repeating an import changes nothing.
- What infloop ships stays: a manifest or plugin of the same id is not imported. Infinite Loop's
  own `claude` skips permission prompts, and its `github` checks no signature.
- Arguments that skip permission prompts become `dangerousArgs`, which only a node can ask for.
- Everything is written with mode 0600.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import msgspec

from infloop.application.models import Model
from infloop.application.runs.records import decode_record
from infloop.catalog import connections
from infloop.catalog.files import read_bounded, read_folder
from infloop.catalog.installation import SourceFile, installation_files
from infloop.catalog.saving import import_workflow, own_file
from infloop.errors import UsageError
from infloop.model.connection import is_connection_id, parse_connection
from infloop.model.names import FILE_NAME_RULE, is_file_name
from infloop.model.plugin import parse_plugin, parse_shipped_plugin
from infloop.model.problems import short_repr
from infloop.model.provider import CliProvider, parse_provider
from infloop.model.trigger import parse_trigger
from infloop.providers import SHIPPED_DIR as SHIPPED_PROVIDERS
from infloop.store.files import private_directory, write_private
from infloop.triggers import SHIPPED_DIR as SHIPPED_PLUGINS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from infloop.application.caller import Caller
    from infloop.application.resources import Resources
    from infloop.application.runs.records import RunRecords
    from infloop.application.triggers import Triggers
    from infloop.catalog.installation import Kind
    from infloop.errors import Problem
    from infloop.model.audit import EventName
    from infloop.model.values import JsonObject

Outcome: TypeAlias = Literal["taken", "unchanged", "kept", "refused"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

MAX_NOTES = 5
"""How many notes a file has in the report."""


class ImportedFile(Model, kw_only=True):
    """What became of a file.

    - `taken`: it was imported; `notes` say what was changed, and what is wrong with it
    - `unchanged`: it was imported before
    - `kept`: something else of that name exists and stays
    - `refused`: it cannot be used
    """

    kind: Kind
    path: str
    outcome: Outcome
    notes: list[str]


class ImportReport(Model, kw_only=True):
    """What became of each file; after a dry run, what would become of it."""

    source: str
    dry_run: bool
    files: list[ImportedFile]

    def count(self, outcome: Outcome) -> int:
        return sum(file.outcome == outcome for file in self.files)


class _Plan(msgspec.Struct, frozen=True):
    """What to do with a file: `write` blocks; `event` is recorded before."""

    outcome: Outcome
    notes: tuple[str, ...] = ()
    write: Callable[[], object] | None = None
    event: EventName | None = None
    workflow_id: str = ""
    details: JsonObject | None = None


class Importing:
    """Imports the directory of another installation."""

    def __init__(self, resources: Resources, records: RunRecords, triggers: Triggers) -> None:
        self._resources = resources
        self._records = records
        self._triggers = triggers
        self._folders = resources.folders

    async def run(
        self, source: Path, caller: Caller, *, force: bool = False, dry_run: bool = False
    ) -> ImportReport:
        """Import everything that can be used. Raises UsageError if there is no installation."""
        self._refuse_own(source)
        files = installation_files(source)
        report = ImportReport(source=str(source), dry_run=dry_run, files=[])
        file = await asyncio.to_thread(next, files, None)
        if not dry_run:
            await self._resources.audit().record(
                "installation.imported",
                caller.actor,
                correlation_id=caller.correlation_id,
                details={"from": str(source), "force": force},
            )
        while file is not None:
            report.files.append(await self._import(file, caller, force=force, dry_run=dry_run))
            file = await asyncio.to_thread(next, files, None)
        return report

    def _refuse_own(self, source: Path) -> None:
        own = self._folders.workflows.user_dir
        if os.path.realpath(source / "workflows") == os.path.realpath(own):
            raise UsageError(f"{str(source)!r} is infloop's own directory; name another one")

    async def _import(
        self, file: SourceFile, caller: Caller, *, force: bool, dry_run: bool
    ) -> ImportedFile:
        try:
            if file.problem:
                plan = _Plan("refused", (file.problem,))
            elif file.kind == "run":
                plan = await self._import_run(file, dry_run=dry_run)
            else:
                plan = await asyncio.to_thread(self._plan, file, force=force, dry_run=dry_run)
                if not dry_run:
                    plan = await self._carry_out(plan, caller)
        except UsageError as error:
            plan = _Plan("refused", (str(error),))
        notes = [*plan.notes[:MAX_NOTES]]
        if len(plan.notes) > MAX_NOTES:
            notes.append(f"and {len(plan.notes) - MAX_NOTES} more")
        return ImportedFile(kind=file.kind, path=file.path, outcome=plan.outcome, notes=notes)

    async def _carry_out(self, plan: _Plan, caller: Caller) -> _Plan:
        if plan.write is None:
            return plan
        if plan.event is not None:
            await self._resources.audit().record(
                plan.event,
                caller.actor,
                correlation_id=caller.correlation_id,
                workflow_id=plan.workflow_id,
                details={**(plan.details or {}), "imported": True},
            )
        try:
            await asyncio.to_thread(plan.write)
        except OSError as error:
            return _Plan("refused", (f"cannot be written: {error.strerror}",))
        return plan

    def _plan(self, file: SourceFile, *, force: bool, dry_run: bool) -> _Plan:
        match file.kind:
            case "workflow":
                return self._plan_workflow(file, force=force)
            case "trigger":
                return self._plan_trigger(file, force=force, dry_run=dry_run)
            case "provider":
                return self._plan_provider(file, force=force)
            case "connection":
                return self._plan_connection(file, force=force)
            case _:
                return self._plan_plugin(file, force=force)

    # -- the kinds ---------------------------------------------------------------------------

    def _plan_workflow(self, file: SourceFile, *, force: bool) -> _Plan:
        catalog = self._folders.workflows
        parsed, problems = catalog.examine(file.data)
        workflow = parsed.workflow
        if workflow is None:
            raise UsageError(_texts(problems)[0])
        name = workflow.id
        if not is_file_name(name) or f"{name}.json" != file.name:
            raise UsageError(f"its id {short_repr(name)} is not the name of the file")
        if file.folder.endswith("/library") and own_file(catalog.library_dir, name):
            return _Plan("kept", ("infloop has a preset of this id",))
        own = own_file(catalog.user_dir, name)
        if own is not None:
            if read_bounded(own) == file.data:
                return _Plan("unchanged")
            if not force or own.suffix != ".json":
                return _exists()
        notes = _texts(problems)
        if parsed.triggers:
            notes.append(
                f"the triggers inside it ({len(parsed.triggers)}) become files of their own"
            )

        def write() -> None:
            import_workflow(catalog.user_dir, name, file.data)
            files, now = self._folders.triggers.triggers, self._resources.clock.now_ms()
            files.import_inline(name, parsed.triggers, now)

        return _Plan("taken", tuple(notes), write, "workflow.saved", name)

    def _plan_trigger(self, file: SourceFile, *, force: bool, dry_run: bool) -> _Plan:
        trigger, problems = parse_trigger(file.data)
        if trigger is None:
            raise UsageError(_texts(problems)[0])
        if f"{trigger.id}.json" != file.name:
            raise UsageError("its id is not the name of the file")
        files = self._folders.triggers.triggers
        before = files.find(trigger.id)
        if before == trigger:
            return _Plan("unchanged")
        if os.path.lexists(files.folder / file.name) and not force:
            return _exists()
        # The workflow that it starts exists only after the import.
        notes = _texts(problems if dry_run else [*problems, *self._triggers.problems_of(trigger)])
        return _Plan(
            "taken",
            tuple(notes),
            lambda: files.save(trigger),
            "trigger.changed" if before else "trigger.created",
            trigger.workflow_id,
        )

    def _plan_provider(self, file: SourceFile, *, force: bool) -> _Plan:
        manifest, problems = parse_provider(file.data)
        if manifest is None:
            raise UsageError(_texts(problems)[0])
        shipped, _ = read_folder(SHIPPED_PROVIDERS, parse_provider)
        if manifest.id in {one.id for one in shipped}:
            return _Plan("kept", (f"infloop has its own provider {manifest.id!r}",))
        skipping = {
            argument
            for one in shipped
            if isinstance(one, CliProvider)
            for argument in one.dangerous_args
        }
        content: JsonObject = json.loads(file.data)
        moved = _move_arguments(content, skipping)
        notes = _texts(problems)
        notes += [
            f"{argument!r} is in `dangerousArgs` now: a node with `skipPermissions` uses it"
            for argument in moved
        ]
        data = _pretty(content) if moved else file.data
        own = self._folders.providers[0]
        elsewhere = manifest.id in own.ids()
        return _plan_file(own.folder, manifest.id, data, notes, elsewhere=elsewhere, force=force)

    def _plan_plugin(self, file: SourceFile, *, force: bool) -> _Plan:
        plugin, problems = parse_plugin(file.data)
        if plugin is None:
            raise UsageError(_texts(problems)[0])
        shipped, _ = read_folder(SHIPPED_PLUGINS, parse_shipped_plugin)
        if plugin.id in {one.id for one in shipped}:
            return _Plan("kept", (f"infloop has its own plugin {plugin.id!r}",))
        own = self._folders.triggers.plugins
        elsewhere = own.find(plugin.id) is not None
        notes = _texts(problems)
        return _plan_file(own.folder, plugin.id, file.data, notes, elsewhere=elsewhere, force=force)

    def _plan_connection(self, file: SourceFile, *, force: bool) -> _Plan:
        suffix = next(one for one in connections.SUFFIXES if file.name.endswith(one))
        name = file.name.removesuffix(suffix)
        connection, problems = parse_connection(file.data)
        if connection is None or not is_connection_id(name):
            texts = _texts(problems)
            raise UsageError(texts[0] if texts else f"{short_repr(name)} is not a connection's id")
        folder = self._folders.connections
        before = next((one for one in connections.connections(folder) if one.id == name), None)
        if before is not None:
            if before.connection == connection:
                return _Plan("unchanged")
            if not force:
                return _exists()

        def write() -> None:
            saved = connections.save(folder, name, connection)
            if before is not None and before.path != saved:
                before.path.unlink(missing_ok=True)

        details: JsonObject = {"connection": name, "host": connection.host}
        return _Plan("taken", tuple(_texts(problems)), write, "connection.saved", details=details)

    async def _import_run(self, file: SourceFile, *, dry_run: bool) -> _Plan:
        record = await asyncio.to_thread(decode_record, file.data)
        if await self._records.has(record):
            return _Plan("unchanged")
        if not dry_run:
            await self._records.add(record)
        return _Plan("taken")


def _plan_file(
    folder: Path, name: str, data: bytes, notes: Sequence[str], *, elsewhere: bool, force: bool
) -> _Plan:
    """Plan to write a file as it is; `elsewhere` if its id is known under any file name."""
    if not is_file_name(name):
        raise UsageError(f"{short_repr(name)} is not usable as a file name: {FILE_NAME_RULE}")
    path = folder / f"{name}.json"
    if os.path.lexists(path):
        if path.is_file() and read_bounded(path) == data:
            return _Plan("unchanged")
        if not force:
            return _exists()
    elif elsewhere:
        return _Plan("kept", (f"another file in {str(folder)!r} has this id",))

    def write() -> None:
        private_directory(folder)
        write_private(path, data)

    return _Plan("taken", tuple(notes), write)


def _exists() -> _Plan:
    return _Plan("kept", ("another one of this id exists; --force replaces it",))


def _move_arguments(content: JsonObject, skipping: set[str]) -> list[str]:
    """Move arguments that skip permission prompts to `dangerousArgs`; return them."""
    given, dangerous = content.get("args"), content.get("dangerousArgs")
    if not isinstance(given, list):
        return []
    moved = [argument for argument in given if isinstance(argument, str) and argument in skipping]
    if moved:
        content["args"] = [argument for argument in given if argument not in skipping]
        content["dangerousArgs"] = [*(dangerous if isinstance(dangerous, list) else []), *moved]
    return moved


def _texts(problems: Iterable[Problem]) -> list[str]:
    return [str(problem) for problem in problems]


def _pretty(content: JsonObject) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()
