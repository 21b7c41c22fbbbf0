"""Decides which isolation levels hold on this machine, and which one is used.

A level holds if it was attacked and kept its promises (see self_check). `auto` uses the strongest
level that holds, and falls back to the one that confines nothing. A level that is requested by name
and does not hold is refused.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infloop import __version__
from infloop.errors import SettingsError
from infloop.model.isolation import UNCONFINED
from infloop.sandbox.levels import LEVEL_CLASSES
from infloop.sandbox.levels.trusted_bubblewrap import BUBBLEWRAP_PATHS
from infloop.sandbox.self_check.battery import QUICK, self_check

if TYPE_CHECKING:
    from infloop.model.isolation import Level, RequestedLevel
    from infloop.sandbox.base import Sandbox
    from infloop.sandbox.levels.keeper_sandbox import KeeperSandbox, SandboxOptions

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class LevelCheck:
    """Whether a level holds here; `reason` says what is missing or which promise was broken."""

    level: Level
    reason: str = ""

    @property
    def holds(self) -> bool:
        """Whether children can run at this level."""
        return not self.reason


@dataclass(frozen=True)
class LevelChoice:
    """The level that is used, with the checks of it and of stronger ones."""

    level: Level
    checks: tuple[LevelCheck, ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why no stronger level is used, as sentences."""
        return tuple(f"{check.level}: {check.reason}" for check in self.checks if not check.holds)

    @property
    def why_unconfined(self) -> str:
        """Why children are not confined; empty if they are, or if that was requested."""
        if level_class(self.level).confines:
            return ""
        reasons = (check.reason for check in self.checks if not level_class(check.level).opt_in)
        return next(reasons, "")


def level_class(level: Level) -> type[KeeperSandbox]:
    """Return the class of a level, which has its traits."""
    return next(each for each in LEVEL_CLASSES if each.level == level)


def open_level(level: Level, options: SandboxOptions) -> Sandbox:
    """Return a sandbox of this level.

    Raises MissingPart, naming what this machine lacks, and SettingsError where root needs to name
    a user for children.
    """
    return level_class(level).open(options)


async def check_level(level: Level, options: SandboxOptions) -> LevelCheck:
    """Make a few attacks on a level and return whether it holds.

    A level that confines nothing is not attacked.
    """
    if not level_class(level).confines:
        return LevelCheck(level)
    try:
        sandbox = open_level(level, options)
    except SettingsError as error:
        return LevelCheck(level, str(error))
    try:
        report = await self_check(sandbox, options.scratch, user=options.user, attempts=QUICK)
    finally:
        await sandbox.close()
    if report.error:
        return LevelCheck(level, report.error)
    broken = "; ".join(f"{finding.attempt}: {finding.detail}" for finding in report.broken)
    return LevelCheck(level, f"a promise was broken ({broken})" if broken else "")


async def choose(
    requested: RequestedLevel, options: SandboxOptions, cache: Path | None = None
) -> LevelChoice:
    """Return the level to run children at.

    Levels that hold are remembered in the file `cache` until the machine restarts or infloop gets
    another version. Raises SettingsError for a requested level that does not hold.
    """
    if requested == UNCONFINED:
        return LevelChoice(requested)
    cached = _CachedLevels(cache, options)
    checks: list[LevelCheck] = []
    confining = [each.level for each in LEVEL_CLASSES if each.confines]
    for level in confining if requested == "auto" else (requested,):
        check = LevelCheck(level) if level in cached else await check_level(level, options)
        checks.append(check)
        if check.holds:
            cached.add(level)
            return LevelChoice(level, tuple(checks))
    if requested != "auto":
        raise SettingsError(f"level {requested!r} does not hold here: {checks[0].reason}")
    return LevelChoice(UNCONFINED, tuple(checks))


class _CachedLevels:
    """Levels that held before in the same environment; the others are checked every time."""

    def __init__(self, cache: Path | None, options: SandboxOptions) -> None:
        self._cache = cache
        self._key = _cache_key(options)
        self._held: list[str] = []
        if cache:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                stored: dict[str, Any] = json.loads(cache.read_text(encoding="utf-8"))
                self._held = stored["held"] if stored["key"] == self._key else []

    def __contains__(self, level: Level) -> bool:
        return level in self._held

    def add(self, level: Level) -> None:
        if self._cache is None or level in self:
            return
        self._held = [*self._held, level]
        draft = self._cache.with_suffix(f".{os.getpid()}")
        draft.touch(mode=0o600)  # another user who could write it would choose our level
        draft.write_text(json.dumps({"key": self._key, "held": self._held}), encoding="utf-8")
        draft.replace(self._cache)


def _cache_key(options: SandboxOptions) -> list[Any]:
    """Return what the result of a check depends on, as JSON values."""
    paths = [Path(path) for path in BUBBLEWRAP_PATHS]
    programs = [path.stat().st_mtime_ns for path in paths if path.exists()]
    user = list(options.user or (os.geteuid(), os.getegid()))
    boot = _BOOT_ID.read_text(encoding="ascii").strip()
    return [__version__, boot, os.uname().release, user, programs]
