"""Triggers that fire when files change; `infloop.triggers.watcher` watches them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.triggers.kinds.base import TriggerKind
from infloop.triggers.watcher import Watcher, changed_values
from infloop.watch.directories import find_directory
from infloop.watch.patterns import BadGlob, FileFilter

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Iterator

    from infloop.model.plugin import Plugin
    from infloop.model.problems import Report
    from infloop.model.trigger import Trigger, Watch
    from infloop.model.values import JsonObject
    from infloop.triggers.kinds.base import OptionGroup
    from infloop.triggers.services import SourceServices
    from infloop.watch.debounce import Changes

MAX_SHOWN = 300
"""How much of a directory's name is in a message."""


class FileKind(TriggerKind):
    """A change of files below a directory."""

    name = "file"
    title = "files"

    def add_options(self, group: OptionGroup) -> None:
        group.add_argument("--directory", metavar="DIR", help="where to look")
        for flag in ("--files", "--ignore"):
            group.add_argument(
                flag, metavar="GLOB", action="append", default=[], help="may be repeated"
            )
        group.add_argument("--quiet-ms", metavar="N", type=int, default=500, help="default: 500")

    def is_chosen(self, args: argparse.Namespace) -> bool:
        return bool(args.directory or args.files)

    def fields(self, args: argparse.Namespace) -> JsonObject:
        return {
            "files": {
                "directory": str(Path(args.directory or ".").resolve()),
                "globs": args.files,
                "ignore": args.ignore,
                "debounceMs": args.quiet_ms,
            }
        }

    def describe(self, trigger: Trigger) -> str:
        watch = _watch(trigger)
        return f"a change of {', '.join(watch.globs)} in {watch.directory}"

    def details(self, trigger: Trigger, now_ms: int) -> Iterator[str]:
        yield f"quiet time: {_watch(trigger).debounce_ms} ms"

    def check(self, trigger: Trigger, plugin: Plugin | None, report: Report) -> None:
        try:
            watch = _watch(trigger)
            FileFilter(watch.globs, watch.ignore)
        except BadGlob as error:
            report.error("files", str(error))
        try:
            find_directory(_watch(trigger).directory)
        except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: links in a circle
            why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
            directory = _watch(trigger).directory[:MAX_SHOWN]
            report.error("files.directory", f"{directory!r} cannot be watched: {why}")

    def source(self, services: SourceServices) -> Watcher:
        def start(trigger: Trigger, changes: Changes) -> Awaitable[bool]:
            watch = _watch(trigger)
            return services.start(
                trigger, changed_values(watch, changes), change_key(trigger, watch, changes)
            )

        return Watcher(
            services.triggers, start, services.notify, services.is_own_write, services.clock
        )


def change_key(trigger: Trigger, watch: Watch, changes: Changes) -> str:
    """Return a key that is the same for every server that watches the same files.

    A file is known by its place, time and size on the disk; of one that is gone, the time of its
    directory is.
    """
    digest = hashlib.sha256(f"{changes.count}".encode())
    for path in changes.paths:
        full = f"{watch.directory}/{path}"
        stats = _stats(full) or _stats(full.rpartition("/")[0])
        digest.update(f"\0{path}\0{stats}".encode(errors="surrogateescape"))
    return f"{trigger.id}:{digest.hexdigest()}"


def _stats(path: str) -> tuple[int, ...] | None:
    try:
        found = Path(path).stat()
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _watch(trigger: Trigger) -> Watch:
    assert trigger.files is not None
    return trigger.files
