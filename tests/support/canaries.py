"""What a confined child must not reach: files, processes and sockets that record an access.

A child's success is never judged by its own error messages, but by what it got hold of: a secret in
its output or its workspace, a changed file, a hurt process, a connection that arrived.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.system_calls import BY_ARGUMENTS, REFUSED_AT_GUARD, REFUSED_EVERYWHERE, number_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infloop.sandbox.base import ChildResult

PYTHON = "/usr/bin/python3"
"""Not the one of these tests: a child of another user may not be able to run that."""

PATH = "/usr/local/bin:/usr/bin:/bin"
UNPRIVILEGED = 60_000 + os.getpid() % 5_000 if os.geteuid() == 0 else os.geteuid()
"""The user id of children: no user has it, so limits per user count only our processes."""

USER = (UNPRIVILEGED, UNPRIVILEGED) if os.geteuid() == 0 else None
"""The user that a sandbox is given; none if the tests do not run as root."""

_INTACT = "intact"
_IPC_PRIVATE, _IPC_RMID = 0, 0


@contextlib.contextmanager
def place() -> Iterator[Path]:
    """A temporary directory that the children's user can enter, unlike `tmp_path`."""
    with tempfile.TemporaryDirectory(prefix="infloop-test-") as name:
        directory = Path(name)
        directory.chmod(0o711)
        yield directory


def directory_for_children(parent: Path, name: str) -> Path:
    """Make a directory that belongs to the user of the children."""
    directory = parent / name
    directory.mkdir()
    if USER:
        os.chown(directory, *USER)
    return directory


class Outside:
    """The canaries of one test."""

    def __init__(self, folder: Path, workspace: Path) -> None:
        self.secret = secrets.token_hex(16)
        self.reached = secrets.token_hex(16)
        self.folder = folder
        self.workspace = workspace
        self.sockets: dict[str, socket.socket] = {}
        self.variables: dict[str, str] = {}
        self._write("secret.txt", self.secret)
        self._write(f"name-{self.secret}", "")
        self._write("victim.txt", _INTACT)
        self._write("tool", f"#!/bin/sh\necho {self.secret}\n").chmod(0o700)
        self.victim = subprocess.Popen(
            ["/bin/sleep", "1000"],
            cwd=folder,
            env={"SECRET": self.secret},
            user=UNPRIVILEGED if USER else None,
            group=UNPRIVILEGED if USER else None,
            extra_groups=[] if USER else None,
        )
        self._limits = self._victim_limits()

    def environment(self) -> dict[str, str]:
        """What an attacker is told, so that it need not search."""
        return {
            "PATH": PATH,
            "REACHED": self.reached,
            "OUTSIDE": str(self.folder),
            "VICTIM": str(self.victim.pid),
            **self.variables,
        }

    def tripped(self, result: ChildResult) -> list[str]:
        """Name everything that the child reached."""
        said = result.stdout + result.stderr + self._left_in_workspace()
        findings = {
            "the secret": self.secret in said,
            "its aim": self.reached in said,
            "the victim's file": (self.folder / "victim.txt").read_text() != _INTACT,
            "the folder outside": self._listing != sorted(p.name for p in self.folder.iterdir()),
            "the victim's life": self._victim_is_hurt(),
        }
        findings |= {name: _was_used(sock) for name, sock in self.sockets.items()}
        return [name for name, found in findings.items() if found]

    def look_around(self) -> None:
        """Remember which files there are outside."""
        self._listing = sorted(path.name for path in self.folder.iterdir())

    def close(self) -> None:
        self.victim.kill()
        self.victim.wait()

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        if USER:
            os.chown(path, *USER)
        return path

    def _left_in_workspace(self) -> str:
        found = ""
        for path in self.workspace.rglob("*"):
            if path.is_file() and not path.is_symlink():
                found += path.read_text(errors="replace")
        return found

    def _victim_is_hurt(self) -> bool:
        if self.victim.poll() is not None:
            return True
        state = Path(f"/proc/{self.victim.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "T" or self._victim_limits() != self._limits

    def _victim_limits(self) -> str:
        return Path(f"/proc/{self.victim.pid}/limits").read_text()


@contextlib.contextmanager
def outside(parent: Path) -> Iterator[Outside]:
    """Set up the canaries around the directories `workspace` and `outside` of `parent`."""
    workspace = directory_for_children(parent, "workspace")
    with contextlib.ExitStack() as stack:
        world = Outside(directory_for_children(parent, "outside"), workspace)
        stack.callback(world.close)
        _listen(world, stack)
        _share_memory(world, stack)
        world.look_around()
        yield world


def _listen(world: Outside, stack: contextlib.ExitStack) -> None:
    """Listen on a socket of each kind; a connection stays in its backlog until it is counted."""
    abstract = f"\0infloop-{secrets.token_hex(8)}"
    addresses: dict[str, tuple[socket.AddressFamily, socket.SocketKind, Any]] = {
        "TCP": (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
        "OTHER_LOOPBACK": (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.2", 0)),
        "UNIX": (socket.AF_UNIX, socket.SOCK_STREAM, str(world.folder / "s")),
        "WORKSPACE_UNIX": (socket.AF_UNIX, socket.SOCK_STREAM, str(world.workspace / "s")),
        "ABSTRACT": (socket.AF_UNIX, socket.SOCK_STREAM, abstract),
        "UDP": (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
        "UNIX_DATAGRAM": (socket.AF_UNIX, socket.SOCK_DGRAM, str(world.folder / "d")),
        "ABSTRACT_DATAGRAM": (socket.AF_UNIX, socket.SOCK_DGRAM, f"{abstract}-d"),
    }
    if lan := _address_in_the_network():
        addresses["LAN"] = (socket.AF_INET, socket.SOCK_STREAM, (lan, 0))
        world.variables["LAN_ADDRESS"] = lan
    if _has_address("::1"):
        addresses["TCP6"] = (socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0))
    for name, (family, kind, address) in addresses.items():
        sock = stack.enter_context(socket.socket(family, kind))
        sock.settimeout(0)
        sock.bind(address)
        if kind == socket.SOCK_STREAM:
            sock.listen()
        if family != socket.AF_UNIX:
            world.variables[name] = str(sock.getsockname()[1])
        else:
            world.variables[name] = address.replace("\0", "@")
        if family == socket.AF_UNIX and not address.startswith("\0"):
            Path(address).chmod(0o777)
        world.sockets[name] = sock


def _was_used(sock: socket.socket) -> bool:
    try:
        if sock.type == socket.SOCK_STREAM:
            sock.accept()[0].close()
        else:
            sock.recv(1)
    except BlockingIOError:
        return False
    return True


def _address_in_the_network() -> str:
    """Return this machine's address in its network; empty if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return ""
        return str(sock.getsockname()[0])


def _has_address(address: str) -> bool:
    with socket.socket(socket.AF_INET6) as sock:
        try:
            sock.bind((address, 0))
        except OSError:
            return False
    return True


def _share_memory(world: Outside, stack: contextlib.ExitStack) -> None:
    """Put the secret into a System V segment that everyone may read."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    segment = libc.shmget(_IPC_PRIVATE, 4096, 0o1666)
    assert segment >= 0
    stack.callback(libc.shmctl, segment, _IPC_RMID, None)
    address = libc.shmat(segment, None, 0)
    ctypes.memmove(address, world.secret.encode(), len(world.secret))
    libc.shmdt(ctypes.c_void_p(address))
    world.variables["SHARED_MEMORY"] = str(segment)


def numbers() -> dict[str, int]:
    """The system calls that attackers make by number, on this machine."""
    names = (*REFUSED_EVERYWHERE, *REFUSED_AT_GUARD, *BY_ARGUMENTS)
    numbers = {name: number_of(name, os.uname().machine) for name in names}
    return {name: number for name, number in numbers.items() if number is not None}
