"""List servers, workers and other processes that drive runs.

Each line has the id, the kind (serve, worker, mcp, run), the state, how many runs it drives of how
many it takes, its host, when it last gave a sign of life, and its labels. A process that exists and
gives no sign of life is frozen; one that ended without settling its runs is dead.

  infloop workers
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.arguments import add_json

if TYPE_CHECKING:
    import argparse

    from infloop.application.application import Application
    from infloop.application.workers import Worker


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def main(args: argparse.Namespace) -> int:
    from functools import partial

    from infloop import app

    return app.read(partial(_list, as_json=args.json))


async def _list(application: Application, *, as_json: bool) -> int:
    from infloop.application.models import to_json
    from infloop.cli.view.terminal import json_line, note

    found = await application.workers.all()
    now = application.clock.now_ms()
    if as_json:
        print(json_line(to_json(found)))
        return 0
    for each in found.workers:
        print(_line(each, now))
    if not found.workers:
        note("no process drives runs; `infloop serve` and `infloop worker` do")
    return 0


def _line(worker: Worker, now: int) -> str:
    from infloop.cli.view.terminal import one_line

    runs = f"{worker.live_runs}/{worker.capacity} runs"
    host = f"{one_line(worker.host, 40)} pid {worker.pid}"
    age = f"heard {max(0, now - worker.heartbeat_at) // 1000} s ago"
    facts = (f"{worker.id}  {worker.kind:<6}  {worker.state:<6}", runs, host, age)
    return "  ".join(filter(None, (*facts, one_line(" ".join(worker.labels)))))
