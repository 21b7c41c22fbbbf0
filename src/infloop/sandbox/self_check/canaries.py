"""Canaries: resources that no confined child may reach, created to be attacked.

Files with a secret, a home, a repository, a process, sockets and services. All belong to the
children's user, so that only the sandbox protects them. Whether they were touched is checked from
outside and not left to the child's report.

Other users of the machine can reach the sockets too. A contact counts only if it brings the token,
which only the child is given. A process counts only if it is one of the children's user.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import itertools
import os
import secrets
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from infloop.lowlevel.remove_tree import remove_tree
from infloop.sandbox.base import ChildRequest
from infloop.sandbox.keepers.keeper import all_processes
from infloop.sandbox.keepers.pool import KeeperPool
from infloop.sandbox.spawn_request import SpawnRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    Serve: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_TIMEOUT_S = 10.0
_SEGMENT_BYTES = 4096
_IPC_CREAT, _IPC_EXCL, _IPC_RMID = 0o1000, 0o2000, 0
_LOOP_ITERATIONS = 20


@contextlib.asynccontextmanager
async def canaries_in(
    scratch: str, user: tuple[int, int] | None, *, on_all_addresses: bool = False
) -> AsyncIterator[Canaries]:
    """Create canaries in a directory of `scratch`, and remove them again.

    They belong to `user`, or to our own user. The TCP service is on loopback, or on all addresses
    of the machine.
    """
    top = tempfile.mkdtemp(prefix="canaries-", dir=scratch)
    try:
        canaries = Canaries(Path(top), user, on_all_addresses=on_all_addresses)
        async with contextlib.AsyncExitStack() as stack:
            await canaries.create(stack)
            yield canaries
    finally:
        await asyncio.to_thread(remove_tree, top)


class Canaries:
    """One set of canaries."""

    def __init__(
        self, top: Path, user: tuple[int, int] | None, *, on_all_addresses: bool = False
    ) -> None:
        self.token = secrets.token_hex(16)
        self.workspace, self.outside, self.home = top / "ws", top / "outside", top / "home"
        self.service = 0
        self._user = user
        self._on_all_addresses = on_all_addresses
        self._marker = f"infloop-canary-{secrets.token_hex(8)}"
        self._orphan = f"infloop-orphan-{secrets.token_hex(8)}"
        self._shared_memory = Path(f"/dev/shm/{self._marker}")  # noqa: S108  (deliberately)
        self._segment = secrets.randbelow(1 << 30) + 1
        self._pid = self._tcp = self._udp = 0
        self._servers: list[asyncio.Server] = []
        self._contacts: set[str] = set()
        self._connections: set[asyncio.StreamWriter] = set()
        self._repository: dict[str, bytes] = {}

    def targets(self) -> dict[str, object]:
        """Return where an attacker finds them."""
        return {
            "token": self.token,
            "mark": self._marker,
            "orphan": self._orphan,
            "workspace": str(self.workspace),
            "outside": str(self.outside),
            "secret": str(self.outside / "secret"),
            "home": str(self.home),
            "shared_memory": str(self._shared_memory),
            "socket": str(self.outside / "agent.sock"),
            "abstract": self._marker,
            "process": self._pid,
            "segment": self._segment,
            "tcp": self._tcp,
            "udp": self._udp,
            "service": self.service,
            "addresses": _own_addresses(),
        }

    async def touched(self) -> dict[str, str]:
        """Return which attempts succeeded, and where, as far as that is visible from outside."""
        for _ in range(_LOOP_ITERATIONS):
            await asyncio.sleep(0)  # read what is already in our sockets
        planted = sorted(set(_tree(self.home)) - {".ssh/id_canary"})
        repository = _tree(self.workspace / ".git")
        changed = sorted(dict(repository.items() ^ self._repository.items()))
        seen = {
            "write_outside": str(self.outside) if (self.outside / "planted").exists() else "",
            "write_startup_files": ", ".join(planted),
            "change_repository": ", ".join(changed),
            "send_datagrams": f"port {self._udp}" if "udp" in self._contacts else "",
            "ask_name_server": f"port {self._udp}" if "dns" in self._contacts else "",
            "connect_loopback": f"port {self._tcp}" if "tcp" in self._contacts else "",
            "connect_unix": str(self.outside) if "unix" in self._contacts else "",
            "leave_daemon": ", ".join(map(str, _processes_with(self._orphan, self._uid))),
        }
        return {attempt: where for attempt, where in seen.items() if where}

    async def serve_proxy(self, listeners: Mapping[int, socket.socket]) -> None:
        """Take the place of a child's proxy: send the token to every client."""
        for listener in listeners.values():
            self._servers.append(await asyncio.start_server(self._send_token, sock=listener))

    async def create(self, stack: contextlib.AsyncExitStack) -> None:
        """Create everything; the stack removes it again."""
        self._make_files()
        stack.callback(self._close_servers)
        await self._open_services()
        self._change_owner()
        # A container may have no shared memory, or none that is writable.
        if os.access(self._shared_memory.parent, os.W_OK):
            self._share_memory()
            stack.callback(self._shared_memory.unlink)
        stack.callback((await self._open_datagrams()).close)
        stack.enter_context(self._system_v_memory())
        await stack.enter_async_context(self._process())

    def _make_files(self) -> None:
        git = self.workspace / ".git"
        for folder in (git / "hooks", self.outside, self.home / ".ssh"):
            folder.mkdir(parents=True)
        (git / "HEAD").write_text("ref: refs/heads/main\n")
        (git / "config").write_text("[core]\n")
        self._repository = _tree(git)
        for secret in (self.outside / "secret", self.home / ".ssh/id_canary"):
            secret.write_text(self.token)
        self.outside.chmod(0o777)

    def _change_owner(self) -> None:
        """Make the user the owner of everything; from then on it may replace files by links."""
        if self._user:
            top = self.workspace.parent
            for path in (*top.rglob("*"), top):  # the top last: only then can the user get in
                os.chown(path, *self._user, follow_symlinks=False)

    def _share_memory(self) -> None:
        self._shared_memory.write_text(self.token)
        if self._user:
            os.chown(self._shared_memory, *self._user)

    async def _open_services(self) -> None:
        folder = os.open(self.outside, os.O_PATH | os.O_CLOEXEC)
        try:
            # By descriptor: the path may be longer than an address of a socket can be.
            for address in (f"/proc/self/fd/{folder}/agent.sock", "\0" + self._marker):
                unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                unix.bind(address)
                self._servers.append(
                    await asyncio.start_unix_server(self._recording("unix"), sock=unix)
                )
        finally:
            os.close(folder)
        (self.outside / "agent.sock").chmod(0o777)
        service = socket.create_server(("127.0.0.1", 0))
        listeners = self._listeners()
        self._tcp, self.service = listeners[0].getsockname()[1], service.getsockname()[1]
        for tcp in listeners:
            self._servers.append(await asyncio.start_server(self._recording("tcp"), sock=tcp))
        self._servers.append(await asyncio.start_server(self._send_token, sock=service))

    def _listeners(self) -> list[socket.socket]:
        if self._on_all_addresses:
            return [socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)]
        listeners = [socket.create_server(("127.0.0.1", 0))]
        port = listeners[0].getsockname()[1]
        with contextlib.suppress(OSError):  # a machine may have no IPv6
            listeners.append(socket.create_server(("::1", port), family=socket.AF_INET6))
        return listeners

    @property
    def _uid(self) -> int:
        return self._user[0] if self._user else os.geteuid()

    async def _open_datagrams(self) -> asyncio.DatagramTransport:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            lambda: _Datagrams(self._contacts, self.token), local_addr=("127.0.0.1", 0)
        )
        self._udp = transport.get_extra_info("sockname")[1]
        return transport

    def _close_servers(self) -> None:
        for server in self._servers:
            server.close()
        for connection in self._connections:
            connection.transport.abort()

    def _recording(self, what: str) -> Serve:
        async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._connections.add(writer)
            with contextlib.suppress(asyncio.IncompleteReadError, OSError):
                if await reader.readexactly(len(self.token)) == self.token.encode():
                    self._contacts.add(what)
            self._connections.discard(writer)
            writer.close()

        return record

    async def _send_token(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self.token.encode())
        writer.close()

    @contextlib.contextmanager
    def _system_v_memory(self) -> Iterator[None]:
        libc = ctypes.CDLL(None, use_errno=True)
        segment = libc.shmget(self._segment, _SEGMENT_BYTES, _IPC_CREAT | _IPC_EXCL | 0o666)
        try:
            yield
        finally:
            libc.shmctl(segment, _IPC_RMID, None)

    @contextlib.asynccontextmanager
    async def _process(self) -> AsyncIterator[None]:
        """Run a process with a secret in its environment and a marker in its arguments."""
        started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        argv = ("/bin/sh", "-c", "read -r _", self._marker)
        env = {"SECRET": self.token, "PATH": os.defpath}
        # It is not recorded, but it ends when its standard input is closed, so also when we end.
        request = ChildRequest(argv, "/", env, stdin=_endless(), grace_ms=0)
        spawn = SpawnRequest(argv[0], argv, env, "/")
        pool = KeeperPool(max_idle=0, user=self._user)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(
                pool.run(request, spawn, None, lambda pid, _: started.set_result(pid))
            )
            try:
                async with asyncio.timeout(_TIMEOUT_S):
                    self._pid = await started
                yield
            finally:
                await pool.close()


async def _endless() -> AsyncIterator[bytes]:
    await asyncio.get_running_loop().create_future()
    yield b""


class _Datagrams(asyncio.DatagramProtocol):
    """Records the first word of each datagram that has the token in it."""

    def __init__(self, contacts: set[str], token: str) -> None:
        self._contacts = contacts
        self._token = token.encode()

    def datagram_received(self, data: bytes, addr: object) -> None:
        if self._token in data:
            self._contacts.add(data[:3].decode("ascii", "replace"))


def _tree(top: Path) -> dict[str, bytes]:
    """Return the files below a directory, by path."""
    files = (path for path in top.rglob("*") if path.is_file() or path.is_symlink())
    return {
        str(path.relative_to(top)): os.fsencode(path.readlink())
        if path.is_symlink()
        else path.read_bytes()
        for path in files
    }


def _processes_with(marker: str, uid: int) -> list[int]:
    """Return the processes of a user that have the marker in their arguments."""
    found = []
    for process in all_processes():
        with contextlib.suppress(OSError):
            path = Path(f"/proc/{process.pid}")
            theirs = path.stat().st_uid == uid
            if theirs and marker.encode() in (path / "cmdline").read_bytes():
                found.append(process.pid)
    return found


def _own_addresses() -> list[str]:
    """Return this machine's IPv4 addresses except loopback."""
    try:
        lines = Path("/proc/net/fib_trie").read_text().splitlines()
    except OSError:
        return []
    local = (
        before.split()[-1] for before, line in itertools.pairwise(lines) if "/32 host LOCAL" in line
    )
    return sorted({address for address in local if not address.startswith("127.")})
