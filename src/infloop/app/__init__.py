"""Wires the packages together. It only wires.

process       the process itself: settings, directory, users
event_loop    runs a command on an event loop
reading       runs a command that only reads
detached      runs a command in the background
catalogs      where workflow, provider and trigger files are found
definitions   loads workflows for the queue
storage       opens the journal and the audit log
building      builds a workflow file in Python
sandbox       opens the sandbox at the level that works here
providers     finds a provider by its id
interpreters  finds the programs that run scripts
runs          opens what drives runs
use_cases     opens the application layer
server        opens what `infloop serve`, `infloop worker` and `infloop mcp` need
dev           opens a development loop

A part is imported when one of its names is first used: a command that lists runs does not wait for
the parts of a server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infloop.app.detached import DetachedStartError, run_detached
    from infloop.app.dev import load_dev_file, open_dev
    from infloop.app.event_loop import run_async
    from infloop.app.process import (
        ignores_hangup,
        no_colour,
        settings,
        settings_or_defaults,
        started_in,
    )
    from infloop.app.reading import read
    from infloop.app.sandbox import with_some_isolation
    from infloop.app.server import Server, open_mcp, open_server, open_worker, server_exposure
    from infloop.app.use_cases import open_application, open_files
    from infloop.lowlevel.own_ports import OwnPorts

__all__ = [
    "DetachedStartError",
    "OwnPorts",
    "Server",
    "ignores_hangup",
    "load_dev_file",
    "no_colour",
    "open_application",
    "open_dev",
    "open_files",
    "open_mcp",
    "open_server",
    "open_worker",
    "read",
    "run_async",
    "run_detached",
    "server_exposure",
    "settings",
    "settings_or_defaults",
    "started_in",
    "with_some_isolation",
]

_PARTS = {
    "infloop.app.detached": ("DetachedStartError", "run_detached"),
    "infloop.app.dev": ("load_dev_file", "open_dev"),
    "infloop.app.event_loop": ("run_async",),
    "infloop.app.process": (
        *("ignores_hangup", "no_colour"),
        *("settings", "settings_or_defaults", "started_in"),
    ),
    "infloop.app.reading": ("read",),
    "infloop.app.sandbox": ("with_some_isolation",),
    "infloop.app.server": (
        *("Server", "open_mcp", "open_server"),
        *("open_worker", "server_exposure"),
    ),
    "infloop.app.use_cases": ("open_application", "open_files"),
    "infloop.lowlevel.own_ports": ("OwnPorts",),
}


def __getattr__(name: str) -> object:
    for part, names in _PARTS.items():
        if name in names:
            return getattr(import_module(part), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
