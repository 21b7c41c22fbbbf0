"""Wires the packages together. It only wires.

process       the process itself: settings, event loop, directory, users
catalogs      where workflow, provider and trigger files are found
storage       opens the journal and the audit log
sandbox       opens the sandbox at the level that works here
providers     finds a provider by its id
interpreters  finds the programs that run scripts
runs          opens what drives runs
use_cases     opens the application layer for the command line
server        opens what `infloop serve` and `infloop mcp` need
"""

from infloop.app.catalogs import known_providers, provider_folders, trigger_lookup, workflow_catalog
from infloop.app.interpreters import find_interpreters
from infloop.app.process import run_async, settings, started_in
from infloop.app.runs import open_approvals, open_service, open_workspaces
from infloop.app.sandbox import OpenedSandbox, open_sandbox
from infloop.app.server import Server, open_mcp, open_server, server_exposure
from infloop.app.storage import audit_dir, open_audit, open_store
from infloop.app.use_cases import open_application

__all__ = [
    "OpenedSandbox",
    "Server",
    "audit_dir",
    "find_interpreters",
    "known_providers",
    "open_application",
    "open_approvals",
    "open_audit",
    "open_mcp",
    "open_sandbox",
    "open_server",
    "open_service",
    "open_store",
    "open_workspaces",
    "provider_folders",
    "run_async",
    "server_exposure",
    "settings",
    "started_in",
    "trigger_lookup",
    "workflow_catalog",
]
