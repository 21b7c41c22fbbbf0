"""Begin a new run from a step of an earlier one, with the files as they were.

The new run has everything before that step in common with the earlier run, which stays as it is.
Directories that the earlier run worked in become what they were just before the step; what is there
now is kept first, and you are told how to get it back. On a terminal you are asked before a
file is changed; elsewhere --yes has to say so. STEP is a path as `infloop show` prints it, or a
round of a loop.

  infloop rewind 1f3a9c2e --to agent-1
  infloop rewind last --to 'loop-1[3]' --yes
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.run_names import add_run_argument, find_run

if TYPE_CHECKING:
    import argparse

    from infloop.cli.watching import Begun
    from infloop.runtime.runs.rewinding import DirectoryRestore
    from infloop.runtime.runs.service import RunService

SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be given."""
    add_run_argument(parser)
    parser.add_argument("--to", metavar="STEP", required=True, help="the step to begin at")
    parser.add_argument("--yes", action="store_true", help="change files without asking")
    parser.add_argument("--json", action="store_true", help="print events as JSON lines")


def main(args: argparse.Namespace) -> int:
    """Fork the run and see the new one through."""
    from infloop import app

    return app.run_async(_rewind(args))


async def _rewind(args: argparse.Namespace) -> int:
    from infloop import app
    from infloop.cli.recording import record
    from infloop.cli.view.terminal import note
    from infloop.cli.watching import see_through

    settings = app.settings()
    async with app.open_audit(settings) as audit, app.open_service(settings, audit) as service:
        row = await find_run(service.store.run_log, args.run)
        plan = await service.plan_rewind(row.id, args.to)
        if not _agreed(plan, yes=args.yes):
            note("nothing was changed")
            return 1
        await record(audit, "run.rewound", row, step=args.to)
        return await see_through(
            service, lambda: _begin(service, row.id, args.to), as_json=args.json
        )


async def _begin(service: RunService, run_id: str, step: str) -> list[Begun]:
    from infloop.cli.view.terminal import note
    from infloop.cli.watching import begun
    from infloop.runtime.timeline import replacing_restores

    seq = await service.find_step(run_id, step)
    new = await service.rewind(run_id, step)
    watched = begun(service, new, seq - 1)
    for each in await replacing_restores(service.store.run_log, new, seq):
        note(
            f"{each.directory} as it was before is kept: `infloop worktrees restore "
            f"{each.replaced} PATH` writes it to a new directory"
        )
    return [watched]


def _agreed(plan: list[DirectoryRestore], *, yes: bool) -> bool:
    """Show what will change; say whether that is wanted."""
    import sys

    from infloop.cli.view.changes import change_lines, total
    from infloop.cli.view.terminal import note
    from infloop.errors import UsageError

    touched = [each for each in plan if each.changes]
    for each in plan:
        if each.changes is None:
            note(f"{each.directory} is made again as it was")
        elif each.changes:
            note(f"in {each.directory}: {total(each.changes)}")
            for line in change_lines(each.changes, SHOWN):
                note(line)
    if yes or not touched:
        return True
    if not sys.stdin.isatty():
        raise UsageError("going back changes these files; add --yes if that is what you want")
    note("go back to these files as they were? What is there now is kept. [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
