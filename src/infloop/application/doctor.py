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
from infloop.sandbox.levels.choice import Place, Proof, open_level, prove
from infloop.sandbox.levels.host import HostSandbox
from infloop.sandbox.self_check.battery import PROMISES, self_check

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from infloop.sandbox.self_check.battery import Check

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
    return dict(PROMISES)


async def examine(levels: Sequence[Level] = LEVELS, *, attack: bool = False) -> DoctorReport:
    """Try each level; with `attack`, run the whole battery at those that hold."""
    with _place() as place:
        versions = await _versions()
        proofs = [await _proof(level, place) for level in levels]
        checks = [await _check(p.level, place) for p in proofs if p.holds] if attack else []
    return DoctorReport(
        versions=versions,
        children_run_as=place.user[0] if place.user else None,
        levels=[
            LevelReport(level=proof.level, holds=proof.holds, reason=proof.reason)
            for proof in proofs
        ],
        attacks=[_attack(check) for check in checks],
    )


@contextmanager
def _place() -> Iterator[Place]:
    """Yield a directory that the children's user can enter, and that user."""
    with tempfile.TemporaryDirectory(prefix="infloop-doctor-") as folder:
        Path(folder).chmod(0o711)
        yield Place(folder, user=_service_user() if os.geteuid() == 0 else None)


def _service_user() -> tuple[int, int] | None:
    users = {entry.pw_name: (entry.pw_uid, entry.pw_gid) for entry in pwd.getpwall()}
    return next((users[name] for name in _SERVICE_USERS if name in users), None)


async def _proof(level: Level, place: Place) -> Proof:
    return Proof("host") if level == "host" else await prove(level, place)


async def _check(level: Level, place: Place) -> Check:
    sandbox = open_level(level, place)
    try:
        return await self_check(sandbox, place.scratch, user=place.user)
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


def _attack(check: Check) -> AttackReport:
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
