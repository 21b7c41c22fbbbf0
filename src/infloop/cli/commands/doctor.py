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
    from infloop.sandbox.levels.choice import Place, Proof
    from infloop.sandbox.self_check.battery import Check, Finding

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
    with _place() as place:
        proofs = [await _proof(level, place) for level in LEVELS]
        return _object(await _versions(), place, proofs, [])


async def _doctor(args: argparse.Namespace) -> int:
    from infloop.cli.view.terminal import json_line

    asked: Sequence[Level] = (args.level,) if args.level else LEVELS
    with _place() as place:
        versions = await _versions()
        proofs = [await _proof(level, place) for level in asked]
        checks = [await _check(p.level, place) for p in proofs if p.holds] if args.attack else []
    if args.json:
        print(json_line(_object(versions, place, proofs, checks)))
    else:
        for line in _lines(versions, place, proofs, checks):
            print(line)
    refused = bool(args.level) and not proofs[0].holds
    return 1 if refused or not all(check.holds for check in checks) else 0


@contextmanager
def _place() -> Iterator[Place]:
    """Give a directory that the children's user can enter, and say who that is."""
    import os
    import tempfile
    from pathlib import Path

    from infloop.sandbox.levels.choice import Place

    with tempfile.TemporaryDirectory(prefix="infloop-doctor-") as folder:
        Path(folder).chmod(0o711)
        yield Place(folder, user=_service_user() if os.geteuid() == 0 else None)


def _service_user() -> tuple[int, int] | None:
    import pwd

    users = {entry.pw_name: (entry.pw_uid, entry.pw_gid) for entry in pwd.getpwall()}
    return next((users[name] for name in _SERVICE_USERS if name in users), None)


async def _proof(level: Level, place: Place) -> Proof:
    from infloop.sandbox.levels.choice import Proof, prove

    return Proof("host") if level == "host" else await prove(level, place)


async def _check(level: Level, place: Place) -> Check:
    from infloop.sandbox.levels.choice import open_level
    from infloop.sandbox.self_check.battery import self_check

    sandbox = open_level(level, place)
    try:
        return await self_check(sandbox, place.scratch, user=place.user)
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
    versions: dict[str, str], place: Place, proofs: Sequence[Proof], checks: Sequence[Check]
) -> JsonObject:
    """Return all of it for another program."""
    return {
        "versions": dict(versions),
        "childrenRunAs": place.user[0] if place.user else None,
        "levels": [
            {"level": proof.level, "holds": proof.holds, "reason": proof.reason} for proof in proofs
        ],
        "attacks": [
            {
                "level": check.level,
                "holds": check.holds,
                "error": check.error,
                "findings": [_finding(finding) for finding in check.findings],
            }
            for check in checks
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
    versions: dict[str, str], place: Place, proofs: Sequence[Proof], checks: Sequence[Check]
) -> Iterator[str]:
    yield ", ".join(f"{name} {version}" for name, version in versions.items())
    if place.user:
        yield f"started as root: children are run as user {place.user[0]}"
    yield ""
    for proof in proofs:
        what = "children run as you, unconfined" if proof.level == "host" else "holds"
        yield f"{proof.level:<10}{what if proof.holds else 'no: ' + proof.reason}"
    for check in checks:
        yield ""
        yield from _attack_lines(check)


def _attack_lines(check: Check) -> Iterator[str]:
    from infloop.cli.view.terminal import one_line
    from infloop.sandbox.self_check.battery import PROMISES

    if check.error:
        yield f"{check.level}: the battery could not be run: {check.error}"
        return
    yield f"{check.level}: what an agent reaches"
    for promise, text in PROMISES.items():
        own = [finding for finding in check.findings if finding.promise == promise]
        broken = [finding for finding in own if not finding.holds]
        reached = [finding for finding in own if finding.reached]
        kept = own and own[0].promised
        mark = "BROKEN" if broken else "kept" if kept else "open" if reached else "not promised"
        yield f"  {mark:<13}{text}"
        for finding in broken or ([] if kept else reached):
            yield f"               {one_line(f'{finding.what} {finding.detail}', 100)}"
