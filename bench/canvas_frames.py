"""Frames per second, CPU for each movement and the longest task while 500 nodes are moved.

    .venv/bin/python bench/canvas_frames.py

It starts a server of its own and Chromium, and prints; it needs the built console. Frames and tasks
are measured by the clock, so other programs slow them down. The CPU of the page's main thread is
that of scripts, of styles and layout, and of everything, painting included. A movement of the mouse
is at most one frame, so to move at 50 frames a second it may take 20 ms.
"""

from __future__ import annotations

import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from playwright.sync_api import CDPSession, Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.server import process

NODES = 500
COLUMNS = 25
MOVES = 120
WATCH = """() => {
  window.frames_ = []; window.tasks_ = [];
  new PerformanceObserver((list) => {
    for (const each of list.getEntries()) window.tasks_.push(each.duration);
  }).observe({ type: "longtask" });
  const next = (time) => { window.frames_.push(time); requestAnimationFrame(next); };
  requestAnimationFrame(next);
}"""
RESULT = """() => {
  const times = window.frames_.slice(5); window.frames_ = [];
  const tasks = window.tasks_; window.tasks_ = [];
  const seconds = (times.at(-1) - times[0]) / 1000;
  return { fps: Math.round((times.length - 1) / seconds), longest: Math.max(0, ...tasks) };
}"""


def workflow() -> dict[str, Any]:
    ids = ["start", *(f"step-{number}" for number in range(1, NODES))]
    nodes = [
        {
            "id": name,
            "type": "start" if name == "start" else "command",
            "position": {"x": at % COLUMNS * 210, "y": at // COLUMNS * 90},
            "config": {} if name == "start" else {"cmd": "true"},
        }
        for at, name in enumerate(ids)
    ]
    edges = [{"source": a, "target": b} for a, b in pairwise(ids)]
    return {"id": "many", "name": "many", "nodes": nodes, "edges": edges}


def cpu(cdp: CDPSession) -> dict[str, float]:
    """Return the milliseconds that the page's main thread has worked so far."""
    named = {each["name"]: each["value"] for each in cdp.send("Performance.getMetrics")["metrics"]}
    seconds = {
        "script": named["ScriptDuration"],
        "layout": named["LayoutDuration"] + named["RecalcStyleDuration"],
        "all": named["TaskDuration"],
    }
    return {name: value * 1000 for name, value in seconds.items()}


def sweep(page: Page, cdp: CDPSession, x: float, y: float) -> str:
    """Hold the mouse at a place and move it about for some seconds; return what that cost."""
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 3, y + 2)
    page.evaluate(RESULT)
    before = cpu(cdp)
    for turn in range(MOVES):
        page.mouse.move(x + 3 * (turn % 40), y + 2 * (turn % 30))
    after = cpu(cdp)
    seen = page.evaluate(RESULT)
    page.mouse.up()
    each = ", ".join(f"{name} {(after[name] - before[name]) / MOVES:.1f} ms" for name in after)
    return f"{seen['fps']} frames a second, longest task {seen['longest']} ms, a movement: {each}"


def main() -> None:
    with process(Path(tempfile.mkdtemp())) as server, sync_playwright() as playwright:
        answer = server.client.post("/api/workflows", workflow())
        assert answer.status == 201, answer.body
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"http://127.0.0.1:{server.client.port}/w/many")
        page.wait_for_selector("[data-node=step-200]")
        page.wait_for_timeout(3_000)
        page.evaluate(WATCH)
        cdp = page.context.new_cdp_session(page)
        cdp.send("Performance.enable", {"timeDomain": "threadTicks"})
        print("pan: ", sweep(page, cdp, 420, 120))
        box = page.locator("[data-node=step-200]").bounding_box()
        assert box
        middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        print("drag:", sweep(page, cdp, *middle))
        page.evaluate(RESULT)
        page.keyboard.press("Shift+t")
        page.wait_for_selector("text=Saving soon")
        page.wait_for_timeout(500)
        print("tidy: longest task", page.evaluate(RESULT)["longest"], "ms")
        browser.close()


if __name__ == "__main__":
    main()
