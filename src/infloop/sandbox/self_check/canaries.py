"""Canaries: things of the machine that no confined child may reach, made to be attacked.

Files with a secret, a home, a repository, a process, sockets and services, all belonging to the
user as whom children run, so that nothing but the sandbox keeps a child from them. What was touched
is seen from here, not taken from the child's word.
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
from infloop.sandbox.launch import Launch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    Serve: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_PATIENCE_S = 10.0
_SEGMENT_BYTES = 4096
_IPC_CREAT, _IPC_EXCL, _IPC_RMID = 0o1000, 0o2000, 0
_ROUNDS_OF_THE_LOOP = 20


@contextlib.asynccontextmanager
async def decoys(scratch: str, user: tuple[int, int] | None) -> AsyncIterator[Decoys]:
    """Put canaries up in a directory of `scratch`, and take them away again.

    They belong to `user`, or to our own.
    """
    top = tempfile.mkdtemp(prefix="decoys-", dir=scratch)
    try:
        made = Decoys(Path(top), user)
        async with contextlib.AsyncExitStack() as stack:
            await made.put_up(stack)
            yield made
    finally:
        await asyncio.to_thread(remove_tree, top)


class Decoys:
    """One set of canaries."""

    def __init__(self, top: Path, user: tuple[int, int] | None) -> None:
        self.token = secrets.token_hex(16)
        self.workspace, self.outside, self.home = top / "ws", top / "outside", top / "home"
        self.service = 0
        self._user = user
        self._mark = f"infloop-decoy-{secrets.token_hex(8)}"
        self._orphan = f"infloop-orphan-{secrets.token_hex(8)}"
        self._shared_memory = Path(f"/dev/shm/{self._mark}")  # noqa: S108  (the point)
        self._segment = secrets.randbelow(1 << 30) + 1
        self._pid = self._tcp = self._udp = 0
        self._servers: list[asyncio.Server] = []
        self._heard: set[str] = set()
        self._repository: dict[str, bytes] = {}

    def canaries(self) -> dict[str, object]:
        """Return what an attacker is told."""
        return {
            "token": self.token,
            "mark": self._mark,
            "orphan": self._orphan,
            "workspace": str(self.workspace),
            "outside": str(self.outside),
            "secret": str(self.outside / "secret"),
            "home": str(self.home),
            "shared_memory": str(self._shared_memory),
            "socket": str(self.outside / "agent.sock"),
            "abstract": self._mark,
            "decoy": self._pid,
            "segment": self._segment,
            "tcp": self._tcp,
            "udp": self._udp,
            "service": self.service,
            "addresses": _own_addresses(),
        }

    async def touched(self) -> dict[str, str]:
        """Return which attempts got through, and where, as far as that is seen from outside."""
        for _ in range(_ROUNDS_OF_THE_LOOP):
            await asyncio.sleep(0)  # what was sent is in our sockets, and is read now
        planted = sorted(set(_tree(self.home)) - {".ssh/id_canary"})
        repository = _tree(self.workspace / ".git")
        changed = sorted(dict(repository.items() ^ self._repository.items()))
        seen = {
            "write_outside": str(self.outside) if (self.outside / "planted").exists() else "",
            "write_startup_files": ", ".join(planted),
            "change_repository": ", ".join(changed),
            "send_datagrams": f"port {self._udp}" if "udp" in self._heard else "",
            "ask_name_server": f"port {self._udp}" if "dns" in self._heard else "",
            "connect_loopback": f"port {self._tcp}" if "tcp" in self._heard else "",
            "connect_unix": str(self.outside) if "unix" in self._heard else "",
            "leave_daemon": ", ".join(map(str, _alive(self._orphan))),
        }
        return {attempt: where for attempt, where in seen.items() if where}

    async def answer(self, listeners: Mapping[int, socket.socket]) -> None:
        """Be what a child's proxy is: say the token to whoever connects."""
        for listener in listeners.values():
            self._servers.append(await asyncio.start_server(self._say_token, sock=listener))

    async def put_up(self, stack: contextlib.AsyncExitStack) -> None:
        """Have everything in place, until the stack is left."""
        self._make_files()
        stack.callback(self._close_servers)
        await self._open_services()
        self._give_away()
        # A container may have no shared memory, or none that can be written.
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

    def _give_away(self) -> None:
        """Make everything the user's, who from then on may put links in its place."""
        if self._user:
            top = self.workspace.parent
            for path in (*top.rglob("*"), top):  # the way in last
                os.chown(path, *self._user, follow_symlinks=False)

    def _share_memory(self) -> None:
        self._shared_memory.write_text(self.token)
        if self._user:
            os.chown(self._shared_memory, *self._user)

    async def _open_services(self) -> None:
        for address in (str(self.outside / "agent.sock"), "\0" + self._mark):
            unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            unix.bind(address)
            self._servers.append(await asyncio.start_unix_server(self._noting("unix"), sock=unix))
        (self.outside / "agent.sock").chmod(0o777)
        tcp = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        service = socket.create_server(("127.0.0.1", 0))
        self._tcp, self.service = tcp.getsockname()[1], service.getsockname()[1]
        self._servers.append(await asyncio.start_server(self._noting("tcp"), sock=tcp))
        self._servers.append(await asyncio.start_server(self._say_token, sock=service))

    async def _open_datagrams(self) -> asyncio.DatagramTransport:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            lambda: _Datagrams(self._heard), local_addr=("127.0.0.1", 0)
        )
        self._udp = transport.get_extra_info("sockname")[1]
        return transport

    def _close_servers(self) -> None:
        for server in self._servers:
            server.close()

    def _noting(self, what: str) -> Serve:
        async def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._heard.add(what)
            writer.close()

        return note

    async def _say_token(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self.token.encode())
        writer.close()

    @contextlib.contextmanager
    def _system_v_memory(self) -> Iterator[None]:
        libc = ctypes.CDLL(None, use_errno=True)
        made = libc.shmget(self._segment, _SEGMENT_BYTES, _IPC_CREAT | _IPC_EXCL | 0o666)
        try:
            yield
        finally:
            libc.shmctl(made, _IPC_RMID, None)

    @contextlib.asynccontextmanager
    async def _process(self) -> AsyncIterator[None]:
        """Keep a process with a secret in its environment and a mark in its arguments."""
        started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        argv = ("/bin/sh", "-c", "read -r _", self._mark)
        env = {"SECRET": self.token, "PATH": os.defpath}
        # Its input ends when we do, and so does it: it is on no record.
        request = ChildRequest(argv, "/", env, stdin=_nothing_yet(), grace_ms=0)
        launch = Launch(argv[0], argv, env, "/")
        pool = KeeperPool(max_idle=0, user=self._user)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(
                pool.run(request, launch, None, lambda pid, _: started.set_result(pid))
            )
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    self._pid = await started
                yield
            finally:
                await pool.close()


async def _nothing_yet() -> AsyncIterator[bytes]:
    await asyncio.get_running_loop().create_future()
    yield b""


class _Datagrams(asyncio.DatagramProtocol):
    """Notes the first word of each datagram."""

    def __init__(self, heard: set[str]) -> None:
        self._heard = heard

    def datagram_received(self, data: bytes, addr: object) -> None:
        self._heard.add(data[:3].decode("ascii", "replace"))


def _tree(top: Path) -> dict[str, bytes]:
    """Return what is in a directory, by path."""
    files = (path for path in top.rglob("*") if path.is_file() or path.is_symlink())
    return {
        str(path.relative_to(top)): os.fsencode(path.readlink())
        if path.is_symlink()
        else path.read_bytes()
        for path in files
    }


def _alive(mark: str) -> list[int]:
    """Return the living processes that have the mark among their arguments."""
    found = []
    for process in all_processes():
        with contextlib.suppress(OSError):
            if mark.encode() in Path(f"/proc/{process.pid}/cmdline").read_bytes():
                found.append(process.pid)
    return found


def _own_addresses() -> list[str]:
    """Return this machine's IPv4 addresses beside loopback."""
    try:
        lines = Path("/proc/net/fib_trie").read_text().splitlines()
    except OSError:
        return []
    local = (
        before.split()[-1] for before, line in itertools.pairwise(lines) if "/32 host LOCAL" in line
    )
    return sorted({address for address in local if not address.startswith("127.")})
