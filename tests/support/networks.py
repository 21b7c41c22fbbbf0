"""Machines of a test that are connected by a network: namespaces of the kernel on one bridge.

A process that joins a namespace (`Command(network=…)` of forkserver) has a network of its own, as
another machine has, and its cable can be pulled. Only root can do this.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Self

from support import parts

_PREFIX = "infloop-test-"
_SUBNET = "10.77.0"


class Networks:
    """A bridge in a namespace `hub`, and a namespace for each machine that was added."""

    HUB_ADDRESS = f"{_SUBNET}.1"

    def __init__(self) -> None:
        if os.geteuid():
            parts.ruled_out("only root can make a network")
        self._ip = parts.need_program("ip")
        self._names: list[str] = []
        _remove_left_behind(self._ip)
        self.hub = self._add("hub")
        try:
            self._run("-n", self.hub, "link", "add", "bridge0", "type", "bridge")
        except subprocess.CalledProcessError as error:
            self.__exit__()
            parts.ruled_out(f"the kernel has no bridges: {error.stderr}")
        self._run("-n", self.hub, "address", "add", f"{self.HUB_ADDRESS}/24", "dev", "bridge0")
        self._run("-n", self.hub, "link", "set", "bridge0", "up")

    def add(self, machine: str) -> str:
        """Add a machine to the network; return the name of its namespace."""
        name = self._add(machine)
        address = f"{_SUBNET}.{len(self._names)}/24"
        ends = ("netns", self.hub, "type", "veth", "peer", "name", "eth0", "netns", name)
        self._run("link", "add", machine, *ends)
        self._run("-n", self.hub, "link", "set", machine, "master", "bridge0", "up")
        self._run("-n", name, "address", "add", address, "dev", "eth0")
        for link in ("eth0", "lo"):
            self._run("-n", name, "link", "set", link, "up")
        return name

    def cut(self, machine: str) -> None:
        """Pull the cable of a machine: nothing arrives any more, and nobody is told."""
        self._run("-n", self.hub, "link", "set", machine, "down")

    def reconnect(self, machine: str) -> None:
        """Plug the cable in again."""
        self._run("-n", self.hub, "link", "set", machine, "up")

    def processes(self, machine: str) -> list[int]:
        """Return the processes of a machine: who joined it, and all their descendants."""
        return [int(pid) for pid in self._run("netns", "pids", _name(machine)).split()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._names:
            self._run("netns", "delete", name)

    def _add(self, machine: str) -> str:
        self._run("netns", "add", _name(machine))
        self._names.append(_name(machine))
        return _name(machine)

    def _run(self, *arguments: str) -> str:
        done = subprocess.run([self._ip, *arguments], check=True, capture_output=True, text=True)
        return done.stdout


def _name(machine: str) -> str:
    return f"{_PREFIX}{os.getpid()}-{machine}"


def _remove_left_behind(ip: str) -> None:
    """Delete the namespaces of test processes that were killed."""
    for path in Path("/run/netns").glob(f"{_PREFIX}*"):
        owner = path.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path("/proc", owner).exists():
            subprocess.run([ip, "netns", "delete", path.name], check=False)
