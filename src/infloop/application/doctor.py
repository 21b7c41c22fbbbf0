"""What this machine can confine, and the proof by attack."""

from __future__ import annotations

import os
import platform
import pwd
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from infloop import __version__
from infloop.application.isolation import describe_isolation
from infloop.application.models import Model
from infloop.errors import SettingsError
from infloop.model.isolation import LEVELS, UNCONFINED, Level
from infloop.sandbox.base import ChildRequest
from infloop.sandbox.kernel import landlock
from infloop.sandbox.levels.choice import (
    check_level,
    children_user,
    open_level,
    user_without_rights,
)
from infloop.sandbox.levels.host import HostSandbox
from infloop.sandbox.levels.keeper_sandbox import SandboxOptions
from infloop.sandbox.promises import PROMISES
from infloop.sandbox.self_check.battery import self_check
from infloop.store.data_directory import refuse_shared

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from infloop.application.application import FileApplication
    from infloop.sandbox.levels.choice import LevelCheck
    from infloop.sandbox.self_check.battery import AttackReport as BatteryReport


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


class Advice(Model, kw_only=True):
    """Something that should be changed, and how."""

    problem: str
    fix: str


class DoctorReport(Model, kw_only=True):
    """What is installed, which levels hold, what the attacks found, and what should be changed.

    `isolation` says how runs with these settings run their children. `children_run_as` is the uid
    of children at the first of these levels at which it is not ours.
    """

    versions: dict[str, str]
    isolation: str
    children_run_as: int | None
    levels: list[LevelReport]
    attacks: list[AttackReport]
    advice: list[Advice]


def promises() -> dict[str, str]:
    """Return what a level can promise, each with its text."""
    return {str(name): text for name, text in PROMISES.items()}


async def advise(application: FileApplication) -> list[Advice]:
    """Return what should be changed about settings, data, triggers and development loops."""
    advice = [
        Advice(problem=unknown, fix="unset the variable, or correct its name")
        for unknown in application.configuration.all().unknown
    ]
    chosen = application.settings
    if chosen["api_token"] != "set":  # noqa: S105  (a word for a secret)
        advice.append(
            Advice(
                problem="the server has no token: all programs of your user may use it",
                fix="start it with `infloop serve --token auto`, or set INFLOOP_API_TOKEN",
            )
        )
    try:
        refuse_shared(Path(str(chosen["data_dir"])))
    except SettingsError as error:
        problem, _, fix = str(error).rpartition("; ")
        advice.append(Advice(problem=problem, fix=fix))
    advice.extend(
        Advice(
            problem=f"the secret of trigger {name!r} is short enough to be guessed",
            fix="set a longer one here and at the sender with `infloop triggers secret`",
        )
        for name in await application.triggers.short_secrets()
    )
    advice.extend(
        Advice(
            problem=(
                f"the development loop in {loop.root!r} takes events ({', '.join(loop.events)}): "
                "all programs of your user can read the token of its children and send them"
            ),
            fix="give each event a pattern, and `events = […]` to the children that need the token",
        )
        for loop in application.dev_loops.all().loops
        if loop.events
    )
    return advice


async def examine(
    application: FileApplication, levels: Sequence[Level] = LEVELS, *, attack: bool = False
) -> DoctorReport:
    """Try each level; with `attack`, run the whole battery at those that hold."""
    chosen = application.settings
    advice = await advise(application)
    with _options(str(chosen["service_user"])) as options:
        versions = await _versions()
        checks = [await check_level(level, options) for level in levels]
        attacks = [await _attack(each.level, options) for each in checks if attack and each.holds]
    users = [children_user(level, options) for level in levels]
    return DoctorReport(
        versions=versions,
        isolation=_isolation(str(chosen["isolation"]), checks, options),
        children_run_as=next((user[0] for user in users if user), None),
        levels=[
            LevelReport(level=check.level, holds=check.holds, reason=check.reason)
            for check in checks
        ],
        attacks=[_report(each) for each in attacks],
        advice=advice,
    )


def _isolation(requested: str, checks: Sequence[LevelCheck], options: SandboxOptions) -> str:
    """Return what a run would say about its isolation, as far as it was looked at."""
    confining = [each for each in checks if each.level != UNCONFINED]
    if requested != "auto":
        used = [each for each in checks if each.level == requested]
    else:
        used = [each for each in confining if each.holds]
    if used and used[0].holds:
        user = children_user(used[0].level, options)
        return describe_isolation(used[0].level, user[0] if user else None)
    if used and requested != "auto":
        return (
            f"isolation: INFLOOP_ISOLATION={requested} does not hold here, so no run starts; "
            "`auto` chooses the strongest level that holds"
        )
    if len(checks) < len(LEVELS):
        return ""
    return (
        "isolation: none works here, so no run starts until you set "
        f"INFLOOP_ISOLATION={UNCONFINED} and children run as you"
    )


@contextmanager
def _options(service_user: str) -> Iterator[SandboxOptions]:
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


async def _attack(level: Level, options: SandboxOptions) -> BatteryReport:
    user = children_user(level, options)
    if level == UNCONFINED and user is None and os.geteuid() == 0:
        user = user_without_rights()  # as root the attempts could do harm
    sandbox = open_level(level, replace(options, user=user))
    try:
        return await self_check(sandbox, options.scratch, user=user)
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
            words = result.stdout.split() if result.exit_code == 0 else ["not installed"]
            found[name] = words[-1] if words else "unknown"
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
