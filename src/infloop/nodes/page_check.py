"""Opens a page in a real browser and says what its console says of errors.

The browser runs in the step's sandbox, as a command would: it reaches what the workflow allows.
Playwright (`infloop[browser]`) drives a Chromium that is installed on the machine.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from infloop.model.values import compact_json
from infloop.nodes.base import tail
from infloop.sandbox.base import ChildRequest

if TYPE_CHECKING:
    from infloop.nodes.base import StepContext

CONFINED_BROWSER = "chromium-headless-shell"
BROWSERS = (CONFINED_BROWSER, "chromium", "google-chrome")
_START_MS = 60_000
"""How long a browser may take to start, on a machine that has much else to do."""

_SHORTEST_MS = 30_000
_WAIT_MS = 500
"""How long the scripts of a page run after it was loaded."""


class PageAnswer(NamedTuple):
    """The errors of a page; with `broken` it could not be opened, for this reason."""

    errors: tuple[str, ...] = ()
    broken: str = ""


async def check_page(step: StepContext, url: str, timeout_ms: int) -> PageAnswer:
    """Open a page; its errors are data of the page's authors."""
    if find_spec("playwright") is None:
        return PageAnswer(
            broken="a page is opened with Playwright, which is not installed: "
            "pip install 'infloop[browser]'"
        )
    timeout_ms = max(timeout_ms, _SHORTEST_MS)
    sandbox, env = step.sandbox(), step.environment()
    # Others listen on a Unix socket, which no confined child can have.
    wanted = (CONFINED_BROWSER,) if sandbox.confines else BROWSERS
    found = [path for name in wanted if (path := shutil.which(name, path=env.get("PATH")))]
    if not found:
        return PageAnswer(broken=f"no browser is installed: install {wanted[0]}")
    task = {
        "url": url,
        "browser": found[0],
        # A confined browser has our sandbox. Its own needs namespaces, and does not work for root.
        "ownSandbox": not sandbox.confines and os.geteuid() != 0,
        "timeoutMs": timeout_ms,
        "waitMs": _WAIT_MS,
    }
    with tempfile.TemporaryDirectory(prefix="infloop-page-") as folder:
        child = await sandbox.run(
            ChildRequest(
                argv=(sys.executable, _harness_in(folder)),
                cwd=step.workdir,
                env=env,
                stdin=compact_json(task).encode(),
                timeout_ms=min(timeout_ms + _START_MS, step.max_command_ms),
                max_output_bytes=step.max_output_bytes,
                want_result=True,
                reads=(folder,),
            )
        )
    if child.result:
        return PageAnswer(errors=tuple(msgspec.json.decode(child.result, type=list[str])))
    how = "it took too long" if child.timed_out else child.error or tail(child.stderr, 500)
    return PageAnswer(broken=f"the page {url} could not be opened: {how}{child.hint_suffix}")


def _harness_in(folder: str) -> str:
    """Copy the program that drives the browser to where the child may read it."""
    path = Path(folder, "check_page.py")
    source = resources.files("infloop.nodes") / "harness/check_page.py"
    path.write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    return str(path)
