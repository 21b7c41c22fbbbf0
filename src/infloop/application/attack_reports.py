"""What a hostile child reached at an isolation level: the proof by attack."""

from __future__ import annotations

import os
import pwd
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from infloop.application.models import Model
from infloop.errors import SettingsError
from infloop.model.isolation import UNCONFINED
from infloop.sandbox.levels.choice import (
    check_level,
    children_user,
    open_level,
    user_without_rights,
)
from infloop.sandbox.levels.keeper_sandbox import SandboxOptions
from infloop.sandbox.self_check.battery import self_check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from infloop.model.isolation import Level
    from infloop.sandbox.self_check.battery import AttackReport as BatteryReport


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


async def attack_level(
    level: Level, service_user: str, on_attempt: Callable[[], None] | None = None
) -> AttackReport:
    """Run the whole battery at one level; a level that cannot be used here has an error."""
    with sandbox_options(service_user) as options:
        check = await check_level(level, options)
        if not check.holds:
            return AttackReport(level=level, holds=False, error=check.reason, findings=[])
        return await attack_report(level, options, on_attempt)


async def attack_report(
    level: Level, options: SandboxOptions, on_attempt: Callable[[], None] | None = None
) -> AttackReport:
    """Run the whole battery at a level that holds."""
    user = children_user(level, options)
    if level == UNCONFINED and user is None and os.geteuid() == 0:
        user = user_without_rights()  # as root the attempts could do harm
    sandbox = open_level(level, replace(options, user=user))
    try:
        return _report(await self_check(sandbox, options.scratch, user=user, on_attempt=on_attempt))
    finally:
        await sandbox.close()


@contextmanager
def sandbox_options(service_user: str) -> Iterator[SandboxOptions]:
    """Yield options with a scratch directory that the children's user can enter."""
    with tempfile.TemporaryDirectory(prefix="infloop-doctor-") as folder:
        Path(folder).chmod(0o711)
        yield SandboxOptions(folder, user=_find_user(service_user))


def _find_user(name: str) -> tuple[int, int] | None:
    try:
        entry = pwd.getpwnam(name) if name else None
    except KeyError:
        raise SettingsError(
            f"INFLOOP_SERVICE_USER is {name!r}, and there is no such user"
        ) from None
    return (entry.pw_uid, entry.pw_gid) if entry else None


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
