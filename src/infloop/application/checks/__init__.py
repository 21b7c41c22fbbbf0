"""The checks of `infloop doctor`: one result for each, with the way out.

agent     what the tables of the settings say about the built-in agent (pure)
machine   the data directory, disk, clock, database and programs
settings  what the settings and files of the operator say
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from infloop.application.models import Model

if TYPE_CHECKING:
    from collections.abc import Mapping

CheckStatus: TypeAlias = Literal["ok", "warn", "error"]
CheckId: TypeAlias = Literal[
    "config.parse",
    "settings.unknown",
    "isolation.level",
    "isolation.promises",
    "egress.children",
    "egress.rules",
    "egress.wide",
    "secrets.mode",
    "leaks.mode",
    "routes",
    "providers.keys",
    "providers.programs",
    "approvals",
    "mcp.servers",
    "data.directory",
    "data.modes",
    "data.disk",
    "data.database",
    "clock",
    "server.token",
    "triggers.secrets",
    "dev.events",
    "tools.git",
    "tools.containers",
    "tools.browser",
]

CHECKS: Mapping[CheckId, str] = {
    "config.parse": "The settings file and the variables can be read.",
    "settings.unknown": "No variable is named like a setting without being one.",
    "isolation.level": "An isolation level holds here, and runs use one that confines.",
    "isolation.promises": "The level promises here all that it can promise.",
    "egress.children": "Children of runs reach listed hosts only (`INFLOOP_EGRESS_ENFORCE`).",
    "egress.rules": "There are rules for what the agent's tools reach.",
    "egress.wide": "No rule allows every path or every method of a host.",
    "secrets.mode": "How a key is found.",
    "leaks.mode": "Secrets are removed from what tools return; `off` and `warn` do not.",
    "routes": "Each kind of task has a provider that exists, and a model.",
    "providers.keys": "The variables with the providers' keys are set; values are not shown.",
    "providers.programs": "An agent's program is installed, with its version.",
    "approvals": "No rule allows everything that would be asked for.",
    "mcp.servers": "The servers whose tools the agent has.",
    "data.directory": "Nobody else can change the data directory.",
    "data.modes": "Nobody else can read the data directory.",
    "data.disk": "The disk of the data directory has space.",
    "data.database": "The database can be read.",
    "clock": "The clock is not behind the files.",
    "server.token": "The server has a token.",
    "triggers.secrets": "No secret of a trigger can be guessed.",
    "dev.events": "Events of development loops have patterns.",
    "tools.git": "git is installed.",
    "tools.containers": "docker or podman is installed; only the container image needs it.",
    "tools.browser": "A browser for the agent's tools is installed, or an endpoint is set.",
}
"""Every check, in the order in which they are shown."""


class Check(Model, kw_only=True):
    """The result of one check; `fix` says what to do, and is empty if there is nothing."""

    id: CheckId
    status: CheckStatus
    message: str
    fix: str = ""


def ok(name: CheckId, message: str) -> Check:
    return Check(id=name, status="ok", message=message)


def warn(name: CheckId, message: str, fix: str) -> Check:
    return Check(id=name, status="warn", message=message, fix=fix)


def error(name: CheckId, message: str, fix: str) -> Check:
    return Check(id=name, status="error", message=message, fix=fix)


def in_order(checks: list[Check]) -> list[Check]:
    """Return the results in the order of `CHECKS`."""
    order = list(CHECKS)
    return sorted(checks, key=lambda each: order.index(each.id))
