"""Say what this machine can confine, and prove it by attack.

Without --attack, each isolation level is tried a few times, and what is missing is named. With it,
the whole battery runs at each level that is there: what an agent could reach on this machine (in
the environment, files, processes, sockets, network and kernel), and whether that is what the level
promises. Nothing is harmed: only canaries are attacked.

  infloop doctor
  infloop doctor --attack --level sandbox
  infloop doctor --attack --json

The exit code is 1 when a promise does not hold.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from infloop.model.isolation import LEVELS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from infloop.model.isolation import Level
    from infloop.model.values import JsonObject
    from infloop.sandbox.levels.choice import LevelCheck
    from infloop.sandbox.levels.keeper_sandbox import SandboxOptions
    from infloop.sandbox.self_check.battery import AttackReport, Finding

_SERVICE_USERS = ("infloop", "nobody")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be given."""
    parser.add_argument("--attack", action="store_true", help="run the whole battery")
    parser.add_argument(
        "--level", choices=LEVELS, metavar="LEVEL", help=f"only this one: {', '.join(LEVELS)}"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def main(args: argparse.Namespace) -> int:
    """Print what holds."""
    from infloop import app

    return app.run_async(_doctor(args))


async def examined() -> JsonObject:
    """Return which levels hold on this machine, for another program."""
    from infloop.sandbox.levels.choice import check_level

    with _options() as options:
        checks = [await check_level(level, options) for level in LEVELS]
        return _object(await _versions(), options, checks, [])


async def _doctor(args: argparse.Namespace) -> int:
    from infloop.cli.view.terminal import json_line
    from infloop.sandbox.levels.choice import check_level

    asked: Sequence[Level] = (args.level,) if args.level else LEVELS
    with _options() as options:
        versions = await _versions()
        checks = [await check_level(level, options) for level in asked]
        reports = [
            await _attack(check.level, options) for check in checks if args.attack and check.holds
        ]
    if args.json:
        print(json_line(_object(versions, options, checks, reports)))
    else:
        for line in _lines(versions, options, checks, reports):
            print(line)
    refused = bool(args.level) and not checks[0].holds
    return 1 if refused or not all(report.holds for report in reports) else 0


@contextmanager
def _options() -> Iterator[SandboxOptions]:
    """Give a directory that the children's user can enter, and say who that is."""
    import os
    import tempfile
    from pathlib import Path

    from infloop.sandbox.levels.keeper_sandbox import SandboxOptions

    with tempfile.TemporaryDirectory(prefix="infloop-doctor-") as folder:
        Path(folder).chmod(0o711)
        yield SandboxOptions(folder, user=_service_user() if os.geteuid() == 0 else None)


def _service_user() -> tuple[int, int] | None:
    import pwd

    users = {entry.pw_name: (entry.pw_uid, entry.pw_gid) for entry in pwd.getpwall()}
    return next((users[name] for name in _SERVICE_USERS if name in users), None)


async def _attack(level: Level, options: SandboxOptions) -> AttackReport:
    from infloop.sandbox.levels.choice import open_level
    from infloop.sandbox.self_check.battery import self_check

    sandbox = open_level(level, options)
    try:
        return await self_check(sandbox, options.scratch, user=options.user)
    finally:
        await sandbox.close()


async def _versions() -> dict[str, str]:
    """Return what is installed here, by name."""
    import platform

    from infloop import __version__
    from infloop.sandbox.base import ChildRequest
    from infloop.sandbox.kernel import landlock
    from infloop.sandbox.levels.host import HostSandbox

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


def _object(
    versions: dict[str, str],
    options: SandboxOptions,
    checks: Sequence[LevelCheck],
    reports: Sequence[AttackReport],
) -> JsonObject:
    """Return all of it for another program."""
    return {
        "versions": dict(versions),
        "childrenRunAs": options.user[0] if options.user else None,
        "levels": [
            {"level": check.level, "holds": check.holds, "reason": check.reason} for check in checks
        ],
        "attacks": [
            {
                "level": report.level,
                "holds": report.holds,
                "error": report.error,
                "findings": [_finding(finding) for finding in report.findings],
            }
            for report in reports
        ],
    }


def _finding(finding: Finding) -> JsonObject:
    return {
        "attempt": finding.attempt,
        "what": finding.what,
        "promise": finding.promise,
        "promised": finding.promised,
        "reached": finding.reached,
        "holds": finding.holds,
        "detail": finding.detail,
    }


def _lines(
    versions: dict[str, str],
    options: SandboxOptions,
    checks: Sequence[LevelCheck],
    reports: Sequence[AttackReport],
) -> Iterator[str]:
    from infloop.sandbox.levels.choice import level_class

    yield ", ".join(f"{name} {version}" for name, version in versions.items())
    if options.user:
        yield f"started as root: children are run as user {options.user[0]}"
    yield ""
    for check in checks:
        what = "holds" if level_class(check.level).confines else "children run as you, unconfined"
        yield f"{check.level:<10}{what if check.holds else 'no: ' + check.reason}"
    for report in reports:
        yield ""
        yield from _attack_lines(report)


def _attack_lines(report: AttackReport) -> Iterator[str]:
    from infloop.cli.view.terminal import one_line
    from infloop.sandbox.promises import PROMISES

    if report.error:
        yield f"{report.level}: the attack could not be run: {report.error}"
        return
    yield f"{report.level}: what an agent reaches"
    for promise, text in PROMISES.items():
        own = [finding for finding in report.findings if finding.promise == promise]
        broken = [finding for finding in own if not finding.holds]
        reached = [finding for finding in own if finding.reached]
        kept = own and own[0].promised
        mark = "BROKEN" if broken else "kept" if kept else "open" if reached else "not promised"
        yield f"  {mark:<13}{text}"
        for finding in broken or ([] if kept else reached):
            yield f"               {one_line(f'{finding.what} {finding.detail}', 100)}"
