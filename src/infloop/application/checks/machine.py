"""The data directory, disk, clock, database and programs of this machine."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import infloop
from infloop.application.checks import error, ok, warn
from infloop.errors import InfloopError, SettingsError
from infloop.sandbox.levels.keeper_sandbox import find_program
from infloop.store.data_directory import refuse_shared
from infloop.tools.base import ToolError
from infloop.tools.browser.chromium import find_browser
from infloop.tools.browser.endpoint import parse_endpoint
from infloop.tools.browser.links import BrowserOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infloop.application.checks import Check
    from infloop.application.providers import Providers

_PATH = "/usr/local/bin:/usr/bin:/bin"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_DAY_S = 86_400


def check_data(data_dir: Path, min_free_bytes: int, store_error: str) -> Iterator[Check]:
    """Check the directory of runs and secrets; `store_error` says why runs cannot be stored."""
    try:
        refuse_shared(data_dir)
        yield ok("data.directory", str(data_dir))
    except SettingsError as refused:
        problem, _, fix = str(refused).rpartition("; ")
        yield error("data.directory", problem, fix)
    existing = next(each for each in (data_dir, *data_dir.absolute().parents) if each.exists())
    if data_dir.is_dir() and data_dir.stat().st_mode & _OTHERS:
        yield warn(
            "data.modes",
            f"other users can look into {str(data_dir)!r}",
            f"run `chmod 700 {data_dir}`",
        )
    else:
        yield ok("data.modes", "nobody else can read the data directory")
    free = shutil.disk_usage(existing).free
    said = f"{free >> 20:,} MiB are free on the disk of the data directory"
    if free <= min_free_bytes:
        fix = "free some space, or set INFLOOP_DATA_DIR to a directory on another disk"
        yield error("data.disk", said, fix)
    else:
        yield ok("data.disk", said)
    if store_error:
        fix = "stop infloop, and restore the database from a backup; or correct INFLOOP_DATABASE"
        yield error("data.database", f"the database cannot be read: {store_error}", fix)
    else:
        yield ok("data.database", "readable, or not made yet")


def check_clock(now_ms: int) -> Check:
    """Check that time is not behind the files of infloop itself."""
    installed_s = Path(infloop.__file__).stat().st_mtime
    if now_ms / 1000 + _DAY_S < installed_s:
        return warn(
            "clock",
            "the clock is behind the day on which infloop was installed",
            "set the clock, with `timedatectl set-ntp true`",
        )
    return ok("clock", "not behind the files")


def check_programs(cdp_url: str, *, confines: bool) -> Iterator[Check]:
    """Check what is installed."""
    git = find_program("git", _PATH)
    yield (
        ok("tools.git", git)
        if git
        else error("tools.git", "git is not installed", "run `apt-get install git`")
    )
    found = [name for name in ("docker", "podman") if find_program(name, _PATH)]
    yield ok("tools.containers", ", ".join(found) or "none is installed, and none is needed")
    try:
        if cdp_url:
            parse_endpoint(cdp_url)
            yield warn(
                "tools.browser",
                f"the browser at {cdp_url} runs outside of the sandbox",
                "remove browser_cdp_url from [agent] to use one inside",
            )
        else:
            yield ok("tools.browser", find_browser(BrowserOptions(), confined=confines))
    except ToolError as missing:
        problem, _, fix = str(missing).partition(": ")
        yield warn("tools.browser", problem, fix)


async def check_providers(providers: Providers, *, has_model: bool) -> list[Check]:
    """Check which agents' programs are installed; each is asked for its version.

    With `has_model` the built-in agent can be used, so none is needed.
    """
    try:
        found = await providers.programs()
    except InfloopError as broken:
        return [error("providers.programs", str(broken), "run `infloop providers`")]
    installed = [
        ok("providers.programs", f"{each.id} {each.version or ''} {each.program or ''}".strip())
        for each in found
        if each.installed is True
    ]
    if installed:
        return installed
    if has_model:
        return [ok("providers.programs", "no agent's program is installed; there is a model")]
    fix = "run `infloop providers`, which says how to install one"
    return [warn("providers.programs", "no agent's program is installed", fix)]
