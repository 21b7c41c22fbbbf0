"""Wires the packages together. It only wires.

process       the process itself: settings, event loop, directory, users
catalogs      where workflow, provider and trigger files are found
storage       opens the journal and the audit log
sandbox       opens the sandbox at the level that works here
providers     finds a provider by its id
interpreters  finds the programs that run scripts
runs          opens what drives runs
use_cases     opens the application layer
server        opens what `infloop serve` and `infloop mcp` need
"""

from infloop.app.process import run_async, settings, started_in
from infloop.app.server import Server, open_mcp, open_server, server_exposure
from infloop.app.use_cases import open_application, open_files

__all__ = [
    "Server",
    "open_application",
    "open_files",
    "open_mcp",
    "open_server",
    "run_async",
    "server_exposure",
    "settings",
    "started_in",
]
