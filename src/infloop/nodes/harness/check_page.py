"""Opens a page in Chromium: `python check_page.py`, with its task as JSON on stdin.

The errors on the page's console go to descriptor 3 as a JSON list of texts. It runs in the sandbox
of the step, under infloop's own interpreter, which has Playwright.
"""

from __future__ import annotations

import json
import os
import sys
from urllib.parse import urlsplit

from playwright.sync_api import Error, Page, sync_playwright

RESULT = os.fdopen(os.dup(3), "wb")  # dup() makes it private: not inherited by children
os.close(3)

MOST_ERRORS = 20
LONGEST_ERROR = 1_000


def main() -> None:
    """Open the page and hand back its errors."""
    task = json.load(sys.stdin)
    errors: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=task["browser"],
            chromium_sandbox=task["ownSandbox"],
            proxy=proxy(os.environ.get("HTTPS_PROXY", "")),  # type: ignore[arg-type]  # noqa: TID251
            timeout=0,  # whoever started us has a limit
        )
        page = browser.new_page()
        observe(page, errors)
        visit(page, task, errors)
        browser.close()
    RESULT.write(json.dumps(errors[:MOST_ERRORS]).encode())
    RESULT.close()


def observe(page: Page, errors: list[str]) -> None:
    """Collect what goes wrong on a page."""

    def note(text: str) -> None:
        if len(errors) < MOST_ERRORS:
            errors.append(text[:LONGEST_ERROR])

    def at(location: object) -> str:
        found = location if isinstance(location, dict) else {}
        return f" ({found['url']}:{found.get('lineNumber', 0)})" if found.get("url") else ""

    page.on(
        "console",
        lambda said: note(said.text + at(said.location)) if said.type == "error" else None,
    )
    page.on("pageerror", lambda error: note(f"{error}"))
    page.on("crash", lambda _: note("the page crashed"))


def visit(page: Page, task: dict[str, object], errors: list[str]) -> None:
    """Load the page, and let its scripts run for a while."""
    url, wait_ms = str(task["url"]), float(str(task["waitMs"]))
    try:
        answer = page.goto(url, timeout=float(str(task["timeoutMs"])))
        if answer is not None and answer.status >= 400:
            errors.append(f"{url} is answered with {answer.status}")
        page.wait_for_timeout(wait_ms)
    except Error as error:
        errors.append(error.message.splitlines()[0])


def proxy(url: str) -> dict[str, str] | None:
    """Return how Chromium uses a proxy: it takes no credentials from the environment."""
    parts = urlsplit(url)
    if not parts.hostname:
        return None
    return {
        "server": f"http://{parts.hostname}:{parts.port}",
        "username": parts.username or "",
        "password": parts.password or "",
        "bypass": "127.0.0.1,localhost,[::1]",
    }


if __name__ == "__main__":
    main()
