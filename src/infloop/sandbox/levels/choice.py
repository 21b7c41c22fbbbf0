"""Decides which isolation levels hold on this machine, and which one is used.

A level holds if it was attacked and kept its promises (see self_check). `auto` uses the strongest
level that holds, and passes over levels for which a part is missing here. A level that is requested
by name and does not hold is refused.

`auto` never chooses less because a check was disturbed: a level that starts children and then fails
its check is checked again, and then refused. Where no level holds, a person has to ask for the one
that confines nothing by its name.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from infloop import __version__
from infloop.errors import SettingsError
from infloop.model.isolation import UNCONFINED
from infloop.sandbox.levels import LEVEL_CLASSES
from infloop.sandbox.levels.trusted_bubblewrap import BUBBLEWRAP_PATHS

if TYPE_CHECKING:
    from infloop.model.isolation import Level, RequestedLevel
    from infloop.sandbox.levels.keeper_sandbox import KeeperSandbox, SandboxOptions

_MAX_CHECKS = 3
_ROOT = 0
_USER_WITHOUT_RIGHTS = "nobody"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class LevelCheck(msgspec.Struct, frozen=True):
    """Whether a level holds here; `reason` says what is missing or which promise was broken.

    `failed` means that nothing is missing for it, and that it failed its check.
    """

    level: Level
    reason: str = ""
    failed: bool = False

    @property
    def holds(self) -> bool:
        """Whether children can run at this level."""
        return not self.reason


class LevelChoice(msgspec.Struct, frozen=True):
    """The level that is used, with the checks of it and of stronger ones.

    `user` is the uid and gid of children where that is another user than ours.
    """

    level: Level
    checks: tuple[LevelCheck, ...] = ()
    user: tuple[int, int] | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why no stronger level is used, as sentences."""
        return tuple(f"{check.level}: {check.reason}" for check in self.checks if not check.holds)


def level_class(level: Level) -> type[KeeperSandbox]:
    """Return the class of a level, which has its traits."""
    return next(each for each in LEVEL_CLASSES if each.level == level)


def children_user(level: Level, options: SandboxOptions) -> tuple[int, int] | None:
    """Return the uid and gid of children at a level; None if they are ours.

    Children of root become another user at a level that cannot confine root.
    """
    found = level_class(level)
    if options.user or os.geteuid() != _ROOT or found.confines_root or not found.confines:
        return options.user
    return user_without_rights()


def user_without_rights() -> tuple[int, int] | None:
    """Return the uid and gid of a user that owns nothing, if this machine has one."""
    try:
        entry = pwd.getpwnam(_USER_WITHOUT_RIGHTS)
    except KeyError:
        return None
    return entry.pw_uid, entry.pw_gid


def open_level(level: Level, options: SandboxOptions) -> KeeperSandbox:
    """Return a sandbox of this level.

    Raises MissingPart, naming what this machine lacks, and SettingsError where root needs to name
    a user for children.
    """
    return level_class(level).open(replace(options, user=children_user(level, options)))


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
    # Not above: outside a container each start asks for level `container`, and this takes 4 ms.
    from infloop.sandbox.self_check.battery import QUICK, self_check

    try:
        for _ in range(_MAX_CHECKS):
            user = children_user(level, options)
            report = await self_check(sandbox, options.scratch, user=user, attempts=QUICK)
            if report.holds or (report.error and not report.timed_out):
                break
    finally:
        await sandbox.close()
    if report.error:
        return LevelCheck(level, report.error, failed=report.timed_out)
    broken = "; ".join(f"{finding.attempt}: {finding.detail}" for finding in report.broken)
    return LevelCheck(level, f"a promise was broken ({broken})" if broken else "", bool(broken))


async def choose(
    requested: RequestedLevel, options: SandboxOptions, cache: Path | None = None
) -> LevelChoice:
    """Return the level to run children at.

    Levels that hold are remembered in the file `cache` until the machine restarts or infloop gets
    another version. Raises SettingsError for a requested level that does not hold, and at `auto`
    for one that fails its check and where none holds.
    """
    if requested == UNCONFINED:
        return LevelChoice(requested, user=options.user)
    cached = _CachedLevels(cache, options)
    checks: list[LevelCheck] = []
    confining = [each.level for each in LEVEL_CLASSES if each.confines]
    for level in confining if requested == "auto" else (requested,):
        check = LevelCheck(level) if level in cached else await check_level(level, options)
        checks.append(check)
        if check.holds:
            cached.add(level)
            return LevelChoice(level, tuple(checks), children_user(level, options))
        if requested == "auto" and check.failed:
            raise SettingsError(
                f"level {level!r} works here and failed its check: {check.reason}. Nothing weaker "
                "is chosen for you: try again, or name a level with INFLOOP_ISOLATION (`infloop "
                "doctor` shows which ones hold)"
            )
    if requested != "auto":
        raise SettingsError(
            f"level {requested!r} does not hold here: {checks[0].reason}. INFLOOP_ISOLATION names "
            "another one (`infloop doctor` shows which ones hold)"
        )
    missing = "; ".join(f"{check.level}: {check.reason}" for check in checks)
    raise SettingsError(
        "no isolation level works here, so children would run as you. Set "
        f"INFLOOP_ISOLATION={UNCONFINED} if you want that. What is missing: {missing}"
    )


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
