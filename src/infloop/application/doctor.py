"""What this machine can confine, the proof by attack, and what should be changed."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from infloop import __version__
from infloop.application.attack_reports import AttackReport, attack_report, sandbox_options
from infloop.application.checks import Check, error, in_order, ok, warn
from infloop.application.checks.agent import check_agent
from infloop.application.checks.settings import check_settings
from infloop.application.isolation import describe_isolation
from infloop.application.models import Model
from infloop.model.isolation import LEVELS, UNCONFINED, Level
from infloop.sandbox.base import ChildRequest
from infloop.sandbox.kernel import landlock
from infloop.sandbox.levels.choice import (
    check_level,
    children_user,
    open_level,
)
from infloop.sandbox.levels.host import HostSandbox
from infloop.sandbox.levels.keeper_sandbox import SandboxOptions
from infloop.sandbox.promises import PROMISES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from infloop.application.application import FileApplication
    from infloop.sandbox.levels.choice import LevelCheck


class LevelReport(Model, kw_only=True):
    """Whether an isolation level holds on this machine; if not, the reason."""

    level: Level
    holds: bool
    reason: str


class DoctorReport(Model, kw_only=True):
    """What is installed, which levels hold, what the attacks found, and all other checks.

    `isolation` says how runs with these settings run their children. `children_run_as` is the uid
    of children at the first of these levels at which it is not ours.
    """

    versions: dict[str, str]
    isolation: str
    children_run_as: int | None
    levels: list[LevelReport]
    attacks: list[AttackReport]
    checks: list[Check]

    def failed(self, *, strict: bool) -> bool:
        """Tell whether something is wrong; if `strict`, whether a warning is there too."""
        bad = ("error", "warn") if strict else ("error",)
        return any(each.status in bad for each in self.checks)


def promises() -> dict[str, str]:
    """Return what a level can promise, each with its text."""
    return {str(name): text for name, text in PROMISES.items()}


async def examine(
    application: FileApplication, levels: Sequence[Level] = LEVELS, *, attack: bool = False
) -> DoctorReport:
    """Try each level; with `attack`, run the whole battery at those that hold."""
    chosen = application.settings
    with sandbox_options(str(chosen["service_user"])) as options:
        versions = await _versions()
        checks = [await check_level(level, options) for level in levels]
        attacks = [
            await attack_report(each.level, options) for each in checks if attack and each.holds
        ]
        open_here = await _not_covered(str(chosen["isolation"]), checks, options)
    users = [children_user(level, options) for level in levels]
    isolation = _isolation(str(chosen["isolation"]), checks, options)
    return DoctorReport(
        versions=versions,
        isolation=isolation,
        children_run_as=next((user[0] for user in users if user), None),
        levels=[
            LevelReport(level=check.level, holds=check.holds, reason=check.reason)
            for check in checks
        ],
        attacks=attacks,
        checks=in_order(await _checks(application, isolation, checks, open_here)),
    )


async def _checks(
    application: FileApplication,
    isolation: str,
    levels: Sequence[LevelCheck],
    not_covered: Sequence[str],
) -> list[Check]:
    """Check everything but the levels themselves."""
    # Not above: the API needs only the models here, and this has the browser and its proxy: 25 ms.
    from infloop.application.checks.machine import (
        check_clock,
        check_data,
        check_programs,
        check_providers,
    )

    chosen, config = application.settings, application.agent_config
    broken = application.config_error
    fix = "correct the file or the variable that is named; `infloop settings` lists the settings"
    found = [
        error("config.parse", broken, fix) if broken else ok("config.parse", "it can be read"),
        *_isolation_checks(str(chosen["isolation"]), isolation, levels, not_covered),
        *check_agent(config, str(chosen["leaks_mode"]), application.is_set),
        *check_data(
            Path(str(chosen["data_dir"])),
            int(str(chosen["min_free_disk_bytes"])),
            await application.store_error(),
        ),
        check_clock(application.clock.now_ms()),
        *check_programs(
            config.agent.browser_cdp_url,
            confines=any(each.holds and each.level != UNCONFINED for each in levels),
        ),
        *await check_providers(application.providers, has_model=bool(config.providers)),
    ]
    return [*found, *await check_settings(application)]


def _isolation_checks(
    requested: str, isolation: str, levels: Sequence[LevelCheck], not_covered: Sequence[str]
) -> Iterator[Check]:
    """Say which level runs use and what is open there."""
    confining = _confining(requested, levels)
    fix = "install bubblewrap (`apt-get install bubblewrap`); `infloop doctor` says what is missing"
    if confining:
        yield ok("isolation.level", isolation)
        if not_covered:
            yield warn("isolation.promises", " ".join(not_covered), "run `infloop docs security`")
        else:
            yield ok("isolation.promises", "the level promises here all that it can")
    elif requested == UNCONFINED:
        yield warn("isolation.level", isolation, "unset INFLOOP_ISOLATION")
    elif len(levels) == len(LEVELS):
        yield error("isolation.level", isolation or f"level {requested!r} does not hold", fix)


def _confining(requested: str, levels: Sequence[LevelCheck]) -> list[LevelCheck]:
    """Return the levels that runs would use, if they confine."""
    used = [each for each in levels if each.holds and requested in ("auto", each.level)]
    return [each for each in used if each.level != UNCONFINED]


async def _not_covered(
    requested: str, levels: Sequence[LevelCheck], options: SandboxOptions
) -> Sequence[str]:
    """Return what the level of runs does not promise on this machine."""
    for each in _confining(requested, levels)[:1]:
        user = children_user(each.level, options)
        sandbox = open_level(each.level, replace(options, user=user))
        try:
            return sandbox.not_covered
        finally:
            await sandbox.close()
    return ()


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
