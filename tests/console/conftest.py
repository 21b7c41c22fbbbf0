"""One browser for all tests of the console in a worker; each test has a context of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from support.parts import need_program
from support.server import TOKEN, Client, process


# While Playwright runs, its event loop does too, and no asynchronous test can run in this worker:
# so it ends with this folder.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """A browser without a sandbox, which as root it must be; it sees only our server."""
    chromium = need_program("chromium-headless-shell")
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(scope="package")
def server_with_token(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server that asks for a token."""
    with process(tmp_path_factory.mktemp("server"), api_token=TOKEN) as made:
        yield made.client
