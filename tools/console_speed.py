"""Measures the run page while an agent streams: CPU for each delta, and how soon it settles.

tools/console_speed.py [--deltas 20000] [--rounds 5]

A server of its own, a scripted agent, a real Chromium. The time of the page's tasks is what
`Performance.getMetrics` says; "renderers" is the CPU of all processes that run pages and workers,
so it has the shared worker, garbage collection and painting in it. Settled means that the last
delta and the end of the run are drawn. The heap is measured after a collection. The medians are
compared with the targets.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

BURST = 100
WORDS_IN_LINE = 20
WORKFLOW = """\
name: Talk
steps:
  - agent: talker
    useWorktree: false
    prompt: go
"""


@dataclass(frozen=True)
class Sample:
    """One run that was watched."""

    task_ms: float
    """Of the page's main thread, for each delta."""
    renderers_ms: float
    """Of all renderer processes, for each delta."""
    settled_ms: float
    """From the end of the run until everything is drawn."""
    heap_mb: float
    """What the page's heap has grown by."""


TARGETS = Sample(0.5, 0.5, 2_000, 60)


@contextmanager
def server(folder: Path, deltas: int) -> Iterator[str]:
    """Yield the address of a server with an agent that says so many words."""
    data = folder / "data"
    turn: list[dict[str, Any]] = [{"delayMs": 2_500, "text": "begin\n"}]
    for at in range(0, deltas, BURST):
        text = "token\n" if (at // BURST) % (WORDS_IN_LINE // 4) == 0 else "token "
        turn.append({"delayMs": 15, "text": text, "times": min(BURST, deltas - at)})
    turn.append({"text": "\nthe last word\n"})
    files = {
        "workflows/talk.loop.yaml": WORKFLOW,
        "providers/talker.turns.json": json.dumps({"turns": [{"do": turn}]}),
        "providers/talker.json": json.dumps(
            {
                "id": "talker",
                "label": "talker",
                "description": "plays a file of turns",
                "transport": "scripted",
                "script": "talker.turns.json",
            }
        ),
    }
    for name, text in files.items():
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_text(text)
    environment = {
        **os.environ,
        "HOME": str(folder),
        "INFLOOP_DATA_DIR": str(data),
        "INFLOOP_ISOLATION": "host",
    }
    command = [sys.executable, "-m", "infloop", "serve", "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def ask(address: str, body: dict[str, Any] | None = None) -> Any:
    """Ask the server; with a body, post it."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(address, data, {"content-type": "application/json"})
    with urlopen(request) as answer:
        return json.load(answer)


def watch(browser: Browser, origin: str, deltas: int) -> Sample:
    """Watch one run from its first word to its last."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto(origin + "/runs")
    run_id = ask(f"{origin}/api/run", {"workflowId": "talk", "inputs": {}})["runId"]
    page.goto(f"{origin}/r/{run_id}")
    page.get_by_role("region", name="Log").wait_for()
    cdp = context.new_cdp_session(page)
    cdp.send("Performance.enable")
    whole = browser.new_browser_cdp_session()
    before = measured(cdp), renderer_seconds(whole)
    drawn = drawn_at(page)
    time.sleep(0.5)  # what is still to be painted counts as well
    after = measured(cdp), renderer_seconds(whole)
    ended = ask(f"{origin}/api/runs/{run_id}")["run"]["finishedAt"]
    context.close()
    (task, heap), (task_then, heap_then) = before[0], after[0]
    return Sample(
        (task_then - task) * 1000 / deltas,
        (after[1] - before[1]) * 1000 / deltas,
        max(0.0, drawn - ended),
        (heap_then - heap) / 1e6,
    )


def drawn_at(page: Page) -> float:
    """Wait until the end is drawn; return when that was, in milliseconds."""
    log = page.get_by_role("region", name="Log")
    for text in ("the last word", "run succeeded"):
        log.get_by_text(text).wait_for(timeout=120_000)
    return time.time() * 1000


def measured(cdp: CDPSession) -> tuple[float, float]:
    """Return the seconds of the page's tasks so far, and the bytes of its heap."""
    cdp.send("HeapProfiler.collectGarbage")
    named = {each["name"]: each["value"] for each in cdp.send("Performance.getMetrics")["metrics"]}
    return named["TaskDuration"], named["JSHeapUsedSize"]


def renderer_seconds(whole: CDPSession) -> float:
    """Return the CPU of all processes that run pages and workers."""
    processes = whole.send("SystemInfo.getProcessInfo")["processInfo"]
    return sum(each["cpuTime"] for each in processes if each["type"] == "renderer")


def main() -> int:
    """Measure, print, and say by the exit code whether the targets are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deltas", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    chromium = shutil.which("chromium")
    names = [field.name for field in fields(Sample)]
    samples = []
    with (
        tempfile.TemporaryDirectory() as folder,
        server(Path(folder), chosen.deltas) as origin,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(chosen.rounds):
            samples.append(watch(browser, origin, chosen.deltas))
            print(samples[-1])
        browser.close()
    medians = [statistics.median(column) for column in zip(*map(astuple, samples), strict=True)]
    missed = False
    for name, median, target in zip(names, medians, astuple(TARGETS), strict=True):
        missed |= median > target
        print(f"{name}: {median:.3f}, target {target}{'  MISSED' if median > target else ''}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
