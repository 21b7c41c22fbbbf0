"""The isolation levels, strongest first.

choice              which levels hold on this machine, and which one is used
keeper_sandbox      base class of all levels: children run under keepers
container           level `container`: `guard` inside a container that is strict enough
bubblewrap          level `sandbox`: namespaces and a file view of its own
guard               level `guard`: Landlock, seccomp and a connect broker
host                level `host`: no confinement, but the process tree is owned
trusted_bubblewrap  finds a bubblewrap that only root can have installed
proxy_variables     the environment variables that name a child's proxy
service_relay       local services, forwarded into a child's network namespace

A new level is a subclass of `KeeperSandbox` in a file of its own, a name in `model/isolation.Level`
and a line in `LEVEL_CLASSES`, both at the same position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.sandbox.levels.bubblewrap import BubblewrapSandbox
from infloop.sandbox.levels.container import ContainerSandbox
from infloop.sandbox.levels.guard import GuardSandbox
from infloop.sandbox.levels.host import HostSandbox

if TYPE_CHECKING:
    from infloop.sandbox.levels.keeper_sandbox import KeeperSandbox

LEVEL_CLASSES: tuple[type[KeeperSandbox], ...] = (
    ContainerSandbox,
    BubblewrapSandbox,
    GuardSandbox,
    HostSandbox,
)
"""All levels, strongest first. The last one confines nothing."""
