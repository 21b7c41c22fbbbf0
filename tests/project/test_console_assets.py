"""The built console: complete, small, and silent towards other hosts. It needs no Node."""

from __future__ import annotations

import gzip
import re

from support.paths import ROOT

BUILT = ROOT / "src/infloop/web/console"
ASSETS = BUILT / "assets"
KILOBYTE = 1000

NAMED = (
    "http://www.w3.org/",
    "https://react.dev/errors/",
    "https://reactflow.dev",
    "https://${",  # the same site, by the name of the framework
    "http://${",  # the address of a connection
    "http://10.0.0.4",  # an example
)
"""Addresses in the code that are names, or links for a person; nothing is fetched from them."""


def imported(name: str, *, dynamically: bool = False) -> set[str]:
    """The files that an asset imports."""
    text = (ASSETS / name).read_text()
    static = re.findall(r'(?:from|import)\s*"\./([\w.-]+)"', text)
    if not dynamically:
        return set(static)
    return set(static) | set(re.findall(r'[("\'`/]([\w-]+\.(?:js|css|svg))["\'`]', text))


def reached(start: set[str], *, dynamically: bool = False) -> set[str]:
    """The files that a browser loads for these."""
    found: set[str] = set()
    pending = list(start)
    while pending:
        name = pending.pop()
        if name in found or not (ASSETS / name).is_file():
            continue
        found.add(name)
        if name.endswith(".js"):
            pending += imported(name, dynamically=dynamically)
    return found


def first_files() -> set[str]:
    return set(re.findall(r'"/assets/([^"]+)"', (BUILT / "index.html").read_text()))


def compressed(names: set[str]) -> int:
    return sum(len(gzip.compress((ASSETS / name).read_bytes(), 9)) for name in names)


def chunk(prefix: str) -> set[str]:
    found = {
        path.name
        for path in ASSETS.iterdir()
        if re.match(rf"{prefix}-[\w-]+\.(js|css)$", path.name)
    }
    assert found, prefix
    return found


def test_every_asset_is_used_and_every_used_asset_is_there() -> None:
    for name in first_files():
        assert (ASSETS / name).is_file(), name
    everything = {path.name for path in ASSETS.iterdir()}
    assert everything - reached(first_files(), dynamically=True) == set()


def test_the_first_load_is_small() -> None:
    start = reached(first_files())
    assert compressed(start | reached(chunk("Home"))) < 300 * KILOBYTE
    assert compressed(start | reached(chunk("CanvasPage"))) < 400 * KILOBYTE


def test_no_asset_names_another_host_or_builds_code_from_text() -> None:
    for path in ASSETS.iterdir():
        text = path.read_text()
        for address in re.findall(r"https?://[^\s\"'`)<>\\]+", text):
            assert address.startswith(NAMED), (path.name, address)
        assert not re.search(r"\bnew Function\(|[^.\w]eval\(", text), path.name
