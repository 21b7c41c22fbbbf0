"""Measures how the console scrolls through ten thousand runs, and prints it.

tools/console_scroll.py [COUNT]

Starts a server of its own. The list of runs is made up; everything else is real. A task of the
browser that takes more than 50 ms is one that a person notices.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Route, sync_playwright

from screenshot_data import TOKEN, bare_server

LAST = 1_790_000_000_000
STATES = ("succeeded", "failed", "cancelled", "succeeded")
OBSERVE = """() => {
  window.tasks = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) window.tasks.push(Math.round(entry.duration));
  }).observe({ type: "longtask" });
}"""
SCROLL = """async () => {
  const list = document.querySelector("[role=region][aria-label=Runs]");
  const frames = [];
  let last = performance.now();
  while (list.scrollTop + list.clientHeight < list.scrollHeight - 1) {
    list.scrollTop += 400;
    await new Promise(requestAnimationFrame);
    frames.push(performance.now() - last);
    last = performance.now();
  }
  return frames.length;
}"""


def main() -> int:
    """Scroll from the first run to the last; print the longest tasks."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    chromium = shutil.which("chromium")
    with (
        tempfile.TemporaryDirectory() as folder,
        bare_server(Path(folder)) as address,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"{address}/login")
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(f"{address}/")
        page.route("**/api/runs?**", lambda route: _answer(route, count))
        page.goto(f"{address}/runs")
        page.get_by_role("row").first.wait_for()
        page.evaluate(OBSERVE)
        for _ in range(1_000):
            page.evaluate(SCROLL)
            page.wait_for_timeout(50)
            if page.get_by_text(f"{count} runs").count():
                break
        page.evaluate(SCROLL)
        tasks = sorted(page.evaluate("window.tasks"), reverse=True)
        rows = page.get_by_role("row").count()
        browser.close()
    print(f"{count} runs scrolled, {rows} rows in the document at the end")
    print(f"tasks over 50 ms: {len(tasks)}, longest: {tasks[:5] or 'none'}")
    return 0


def _answer(route: Route, count: int) -> None:
    """Answer with a page of runs; `before` is the number of the run before it."""
    query = parse_qs(urlsplit(route.request.url).query)
    if "status" in query:
        route.fulfill(json={"runs": []})
        return
    first = int(query.get("before", ["0"])[0])
    size = int(query.get("limit", ["100"])[0])
    runs = [_run(number) for number in range(first, min(first + size, count))]
    following = first + size
    body: dict[str, Any] = {"runs": runs, "held": [], "refused": []}
    if following < count:
        body["next"] = str(following)
    route.fulfill(body=json.dumps(body), content_type="application/json")


def _run(number: int) -> dict[str, Any]:
    state = STATES[number % len(STATES)]
    started = LAST - number * 60_000
    return {
        "kind": "run",
        "runId": f"{number:08x}-0000-4000-8000-{number:012x}",
        "workflowId": f"workflow-{number % 17}",
        "workflowName": f"workflow-{number % 17}",
        "status": state,
        "startedAt": started,
        "finishedAt": started + 41_000,
        "durationMs": 41_000,
        "steps": 12,
        "eventCount": 90,
        "failedStep": "check" if state == "failed" else "",
        "error": "the command failed: exit 1: 2 failed" if state == "failed" else "",
        "cause": {"kind": "webhook", "detail": "new issues"},
        "correlationId": f"cid_{number}",
        "epoch": 1,
        "lastSeq": 90,
        "costUsd": 0.31,
        "costIsComplete": True,
        "tokens": {"input": 1_000, "output": 200, "cached": 0},
        "openSteps": [],
        "rounds": {},
    }


if __name__ == "__main__":
    sys.exit(main())
