"""What this machine can confine, and the proof by attack."""

from __future__ import annotations

import os
import platform
import pwd
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from infloop import __version__
from infloop.application.models import Model
from infloop.model.isolation import LEVELS, Level
from infloop.sandbox.base import ChildRequest
from infloop.sandbox.kernel import landlock
from infloop.sandbox.levels.choice import check_level, open_level
from infloop.sandbox.levels.host import HostSandbox
from infloop.sandbox.levels.keeper_sandbox import SandboxOptions
from infloop.sandbox.promises import PROMISES
from infloop.sandbox.self_check.battery import self_check

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from infloop.sandbox.self_check.battery import AttackReport as BatteryReport

_SERVICE_USERS = ("infloop", "nobody")


class LevelReport(Model, kw_only=True):
    """Whether an isolation level holds on this machine; if not, the reason."""

    level: Level
    holds: bool
    reason: str


class Finding(Model, kw_only=True):
    """One attempt of the battery: what was tried, what was promised, what was reached."""

    attempt: str
    what: str
    promise: str
    promised: bool
    reached: bool
    holds: bool
    detail: str


class AttackReport(Model, kw_only=True):
    """What a hostile child reached at one level; `error` says why the battery could not run."""

    level: str
    holds: bool
    error: str
    findings: list[Finding]


class DoctorReport(Model, kw_only=True):
    """What is installed, which levels hold, and what the attacks found."""

    versions: dict[str, str]
    children_run_as: int | None
    levels: list[LevelReport]
    attacks: list[AttackReport]


def promises() -> dict[str, str]:
    """Return what a level can promise, each with its text."""
    return {str(name): text for name, text in PROMISES.items()}


async def examine(levels: Sequence[Level] = LEVELS, *, attack: bool = False) -> DoctorReport:
    """Try each level; with `attack`, run the whole battery at those that hold."""
    with _options() as options:
        versions = await _versions()
        checks = [await check_level(level, options) for level in levels]
        attacks = [await _attack(each.level, options) for each in checks if attack and each.holds]
    return DoctorReport(
        versions=versions,
        children_run_as=options.user[0] if options.user else None,
        levels=[
            LevelReport(level=check.level, holds=check.holds, reason=check.reason)
            for check in checks
        ],
        attacks=[_report(each) for each in attacks],
    )


@contextmanager
def _options() -> Iterator[SandboxOptions]:
    """Yield options with a scratch directory that the children's user can enter."""
    with tempfile.TemporaryDirectory(prefix="infloop-doctor-") as folder:
        Path(folder).chmod(0o711)
        yield SandboxOptions(folder, user=_service_user() if os.geteuid() == 0 else None)


def _service_user() -> tuple[int, int] | None:
    users = {entry.pw_name: (entry.pw_uid, entry.pw_gid) for entry in pwd.getpwall()}
    return next((users[name] for name in _SERVICE_USERS if name in users), None)


async def _attack(level: Level, options: SandboxOptions) -> BatteryReport:
    sandbox = open_level(level, options)
    try:
        return await self_check(sandbox, options.scratch, user=options.user)
    finally:
        await sandbox.close()


async def _versions() -> dict[str, str]:
    found = {
        "infloop": __version__,
        "Python": platform.python_version(),
        "Linux": platform.release(),
        "Landlock": str(landlock.version() or "not offered"),
    }
    sandbox = HostSandbox()
    try:
        for name, program in (("git", "git"), ("bubblewrap", "bwrap")):
            request = ChildRequest((program, "--version"), "/", {}, timeout_ms=5_000)
            result = await sandbox.run(request)
            found[name] = result.stdout.split()[-1] if result.exit_code == 0 else "not installed"
    finally:
        await sandbox.close()
    return found


def _report(check: BatteryReport) -> AttackReport:
    return AttackReport(
        level=check.level,
        holds=check.holds,
        error=check.error,
        findings=[
            Finding(
                attempt=each.attempt,
                what=each.what,
                promise=each.promise,
                promised=each.promised,
                reached=each.reached,
                holds=each.holds,
                detail=each.detail,
            )
            for each in check.findings
        ],
    )
