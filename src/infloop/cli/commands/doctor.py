"""Check this machine and the settings, and prove by attack what is confined.

Each isolation level is tried briefly, and what is missing is named. Then come the checks: settings,
rules, keys by name, data directory, database, disk, programs, browser. Each has an id, says ok,
warn or error, and what to do. They also run where the settings are broken. With --attack, a
battery of attacks runs at each level that works. It shows what an agent could reach on this machine
(in the environment, files, processes, sockets, network and kernel), and whether that is what the
level promises. Nothing is harmed: only canaries are attacked.

  infloop doctor
  infloop doctor --strict
  infloop doctor --attack --level sandbox
  infloop doctor --attack --json

The exit code is 1 when a check says error or a promise does not hold; with --strict, also when a
check says warn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import add_json
from infloop.model.isolation import LEVELS, UNCONFINED

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from infloop.application.attack_reports import AttackReport
    from infloop.application.doctor import DoctorReport
    from infloop.model.isolation import Level


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--attack", action="store_true", help="run all attacks")
    parser.add_argument(
        "--level", choices=LEVELS, metavar="LEVEL", help=f"only this one: {', '.join(LEVELS)}"
    )
    parser.add_argument("--strict", action="store_true", help="fail for warnings too")
    add_json(parser)


def main(args: argparse.Namespace) -> int:
    from infloop import app

    return app.run_async(_doctor(args))


async def _doctor(args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.application.doctor import examine
    from infloop.application.models import to_json
    from infloop.cli.view.terminal import json_line

    levels: Sequence[Level] = (args.level,) if args.level else LEVELS
    chosen, broken = app.settings_or_defaults()
    async with app.open_files(chosen, broken) as application:
        report = await examine(application, levels, attack=args.attack)
    if args.json:
        print(json_line(to_json(report)))
    else:
        for line in _lines(report):
            print(line)
    refused = bool(args.level) and not report.levels[0].holds
    held = all(attack.holds for attack in report.attacks)
    return 1 if refused or not held or report.failed(strict=args.strict) else 0


def _lines(report: DoctorReport) -> Iterator[str]:
    from infloop.cli.view.terminal import one_line

    yield ", ".join(f"{name} {version}" for name, version in report.versions.items())
    if report.isolation:
        yield report.isolation
    yield ""
    for each in report.levels:
        holds = "children run as you, unconfined" if each.level == UNCONFINED else "holds"
        yield f"{each.level:<10}{holds if each.holds else 'no: ' + each.reason}"
    for attack in report.attacks:
        yield ""
        yield from _attack_lines(attack)
    yield ""
    for check in report.checks:
        yield f"{check.status:<6}{check.id}: {one_line(check.message)}"
        if check.fix:
            yield f"      fix: {one_line(check.fix)}"


def _attack_lines(attack: AttackReport) -> Iterator[str]:
    from infloop.application.doctor import promises
    from infloop.cli.view.terminal import one_line

    if attack.error:
        yield f"{attack.level}: the attack could not be run: {attack.error}"
        return
    yield f"{attack.level}: what an agent reaches"
    for promise, text in promises().items():
        own = [finding for finding in attack.findings if finding.promise == promise]
        broken = [finding for finding in own if not finding.holds]
        reached = [finding for finding in own if finding.reached]
        is_promised = bool(own) and own[0].promised
        if broken:
            mark = "BROKEN"
        elif is_promised:
            mark = "kept"
        else:
            mark = "open" if reached else "not promised"
        yield f"  {mark:<13}{text}"
        for finding in broken or ([] if is_promised else reached):
            yield f"               {one_line(f'{finding.what} {finding.detail}', 100)}"
