"""Takes a picture of every page of the console, in both themes, on a phone and on a desk.

tools/screenshots.py [--to FOLDER] [--docs] [--only NAME]

Starts a server of its own with real runs of small workflows, and ends it. With `--docs` it takes
only the four pictures of the documents and puts them into `docs/images`. Look at every picture: no
test can say whether a page looks right.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import Browser, Page, expect, sync_playwright

from screenshot_data import TOKEN, Prepared, prepared

if TYPE_CHECKING:
    from collections.abc import Sequence

DOCS = Path(__file__).parent.parent / "docs/images"
SIZES = {"1440": (1440, 900), "390": (390, 844)}
THEMES = ("light", "dark")
FOR_DOCS = ("home-light-1440", "run-dark-1440", "canvas-light-1440", "approval-light-390")


def pages(data: Prepared) -> dict[str, str]:
    """Return the address of every page by the name of its picture."""
    loop, failed, other = data.runs["loop"], data.runs["failed"], data.runs["other"]
    return {
        "home": "/",
        "workflows": "/workflows",
        "canvas": "/w/fix-until-green",
        "runs": "/runs",
        "run": f"/r/{loop}",
        "run-live": f"/r/{data.runs['live']}",
        "run-failed": f"/r/{failed}",
        "changes": f"/r/{loop}/changes",
        "compare": f"/compare/{other}/{loop}",
        "queue": "/queue",
        "workers": "/workers",
        "approvals": "/approvals",
        "approval": f"/approvals/{data.approval}",
        "dispatch": "/dispatch",
        "trigger": f"/dispatch/{data.mark}",
        "dev": "/dev",
        "dev-process": "/dev/api",
        "costs": "/costs?by=workflow",
        "audit": "/audit",
        "doctor": "/doctor",
        "connections": "/connections",
        "settings": "/settings",
    }


def main() -> int:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--to", type=Path, default=Path(tempfile.gettempdir()) / "infloop-screenshots"
    )
    parser.add_argument("--docs", action="store_true", help="take the four of the documents")
    parser.add_argument("--only", default="", help="only pages whose name begins so")
    asked = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        print("Chromium is missing: `make test-parts` installs it", file=sys.stderr)
        return 1
    asked.to.mkdir(parents=True, exist_ok=True)
    with prepared() as data, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for theme in THEMES:
            for width, size in SIZES.items():
                wanted = [
                    name
                    for name in ("login", *pages(data))
                    if name.startswith(asked.only)
                    and (not asked.docs or f"{name}-{theme}-{width}" in FOR_DOCS)
                ]
                if wanted:
                    _take_all(browser, data, asked.to, f"{theme}-{width}", theme, size, wanted)
        browser.close()
    if asked.docs:
        DOCS.mkdir(exist_ok=True)
        for name in FOR_DOCS:
            shutil.copy(asked.to / f"{name}.png", DOCS / f"{name}.png")
    print(asked.to)
    return 0


def _take_all(
    browser: Browser,
    data: Prepared,
    folder: Path,
    suffix: str,
    theme: str,
    size: tuple[int, int],
    wanted: Sequence[str],
) -> None:
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if theme == "dark" else "light",
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.goto(f"{data.address}/login")
    if "login" in wanted:
        page.screenshot(path=folder / f"login-{suffix}.png")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Log in").click()
    for name, path in pages(data).items():
        if name in wanted:
            page.goto(data.address + path)
            _settle(page)
            page.screenshot(path=folder / f"{name}-{suffix}.png")
    context.close()


def _settle(page: Page) -> None:
    """Wait until nothing on the page has changed for half a second, at most ten."""
    page.wait_for_selector("main:not([aria-busy])")
    # The doctor takes its time.
    expect(page.locator("main")).not_to_contain_text("Trying each level", timeout=60_000)
    expect(page.locator("main")).to_have_text(re.compile(r"\S"))
    before, since = "", time.monotonic()
    end = since + 10
    while time.monotonic() < end:
        now = page.locator("main").inner_html()
        if len(now) != len(before):
            before, since = now, time.monotonic()
        elif time.monotonic() - since > 0.5:
            return
        page.wait_for_timeout(100)


if __name__ == "__main__":
    sys.exit(main())
