"""Finds what keeps people with assistive technology from using a page, with axe-core.

The script is a copy of the one that the console's development dependencies name (MPL 2.0), so that
no Node is needed. The content security policy refuses added script elements; what the browser's own
protocol evaluates is not added to the page.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

SCRIPT = Path(__file__).parent.parent / "fixtures" / "axe.min.js"
BAD = ("serious", "critical")


# Experimental rules are off unless they are named.
_RUN = """async () => {
  const rules = { "label-content-name-mismatch": { enabled: true } };
  const found = await axe.run(document, { resultTypes: ["violations"], rules });
  return found.violations;
}"""


@cache
def _script() -> str:
    return SCRIPT.read_text("utf-8")


def violations(page: Page) -> list[str]:
    """Return the serious and critical violations of a page, one line for each element."""
    if not page.evaluate("() => Boolean(globalThis.axe)"):
        page.evaluate(_script())
    found: list[dict[str, Any]] = page.evaluate(_RUN)
    return [
        f"{one['id']}: {one['help']}: {element['html'][:200]}"
        for one in found
        if one["impact"] in BAD
        for element in one["nodes"]
    ]
