"""The tools of a browser behind a gate, at each way to a browser."""

from __future__ import annotations

import shutil
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import psutil

from infloop.model.capabilities import ToolRule
from infloop.tools.browser.family import BrowserTools
from infloop.tools.browser.links import BrowserOptions
from infloop.tools.gate import Gate
from infloop.tools.workspace import open_workspace
from support.canaries import USER, place
from support.confinement import sandbox_at
from support.parts import need_program
from support.tools import AuditList, gate_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from infloop.model.agent_config import EgressRule

BROWSER = "chromium-headless-shell"
PERMITTED = (ToolRule("private-network", "allow"), ToolRule("network-write", "allow"))


class BrowserBench:
    """A gate with the browser's tools. The agent's person permits everything that is asked for."""

    def __init__(self, gate: Gate, directory: Path, audit: AuditList) -> None:
        self.gate = gate
        self.directory = directory
        self.audit = audit

    async def text(self, tool: str, **arguments: object) -> str:
        """Call a tool that must succeed."""
        result = await self.gate.call(f"browser_{tool}", arguments)  # type: ignore[arg-type]
        assert not result.code, (tool, arguments, result.code, result.text)
        return result.text

    async def code(self, tool: str, **arguments: object) -> str:
        """Call a tool; return the code of its failure, or nothing."""
        return (await self.gate.call(f"browser_{tool}", arguments)).code  # type: ignore[arg-type]


@asynccontextmanager
async def browser_bench(
    backend: str,
    *,
    egress: Sequence[EgressRule] = (),
    rules: Sequence[ToolRule] = PERMITTED,
    switches: Sequence[str] = (),
) -> AsyncIterator[BrowserBench]:
    """Open the tools; `backend` is an isolation level or `endpoint`. All names are loopback."""
    need_program(BROWSER)

    async def lookup(_: str) -> Sequence[str]:
        return ["127.0.0.1"]

    with place() as top, open_workspace(_made(top / "workspace")) as workspace:
        async with _endpoint(backend, switches) as cdp_url:
            options = BrowserOptions(
                rules=tuple(egress),
                cdp_url=cdp_url,
                scratch=str(top),
                user=USER,
                switches=tuple(switches),
                lookup=lookup,
            )
            audit = AuditList()
            level = "host" if backend == "endpoint" else backend
            async with sandbox_at(level, top) as sandbox:
                tools = BrowserTools(sandbox, options, workspace)
                async with gate_for(
                    tools, rules=rules, record=audit, max_text_chars=100_000
                ) as gate:
                    yield BrowserBench(gate, top / "workspace", audit)


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port: int = made.getsockname()[1]
        return port


@asynccontextmanager
async def _endpoint(backend: str, switches: Sequence[str]) -> AsyncIterator[str]:
    """Let Playwright start a browser with a DevTools port, as a user may; yield its address."""
    if backend != "endpoint":
        yield ""
        return
    from playwright.async_api import async_playwright

    port = _free_port()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=shutil.which(BROWSER),
            args=["--no-sandbox", "--disable-gpu", f"--remote-debugging-port={port}", *switches],
        )
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            await browser.close()


def browser_processes() -> list[psutil.Process]:
    """The living processes of browsers below this process."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "headless" in process.name() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found
