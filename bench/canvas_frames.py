"""Frames per second and the longest task while 500 nodes are panned, dragged and tidied.

    .venv/bin/python bench/canvas_frames.py

It starts a server of its own and Chromium, and prints; it needs the built console.
"""

from __future__ import annotations

import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.server import process

NODES = 500
COLUMNS = 25
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


def sweep(page: Page, x: float, y: float) -> dict[str, float]:
    """Hold the mouse at a place, move it about for some seconds, and count frames."""
    page.mouse.move(x, y)
    page.mouse.down()
    page.evaluate(RESULT)
    for turn in range(120):
        page.mouse.move(x + 3 * (turn % 40), y + 2 * (turn % 30))
    measured: dict[str, float] = page.evaluate(RESULT)
    page.mouse.up()
    return measured


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
        print("pan ", sweep(page, 420, 120))
        box = page.locator("[data-node=step-200]").bounding_box()
        assert box
        print("drag", sweep(page, box["x"] + box["width"] / 2, box["y"] + box["height"] / 2))
        page.evaluate(RESULT)
        page.keyboard.press("Shift+t")
        page.wait_for_selector("text=Saving soon")
        page.wait_for_timeout(500)
        print("tidy", page.evaluate(RESULT))
        browser.close()


if __name__ == "__main__":
    main()
