"""Whom a guarded child can connect to, and that nothing it does meanwhile changes that."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from infloop.sandbox.access import Access
from infloop.sandbox.base import ChildRequest, ChildResult
from infloop.sandbox.kernel.connect_policy import ClosedNetwork, Peer
from infloop.sandbox.levels.guard import GuardSandbox
from support.canaries import PATH, PYTHON, USER, directory_for_children, outside, place
from support.confinement import need_guard
from support.parts import need_program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DEADLINE_S = 60.0
RACES = 400
PEERS: dict[Peer, Peer] = {
    ("127.0.0.1", 3128): ("127.0.0.1", 40_000),
    ("127.0.0.1", 5432): ("127.0.0.1", 5432),
    ("::1", 5432): ("::1", 5432),
}


@pytest.fixture(autouse=True)
def _this_machine_can_guard() -> None:
    need_guard()


# The decision


def four(address: str, port: int, family: int = socket.AF_INET) -> bytes:
    return (
        struct.pack("=H", family) + struct.pack("!H", port) + socket.inet_aton(address) + bytes(8)
    )


def six(address: str, port: int, scope: int = 0) -> bytes:
    packed = socket.inet_pton(socket.AF_INET6, address)
    head = struct.pack("=H", socket.AF_INET6) + struct.pack("!H", port)
    return head + bytes(4) + packed + struct.pack("=I", scope)


@pytest.mark.parametrize(
    ("address", "goes_to"),
    [
        (four("127.0.0.1", 3128), four("127.0.0.1", 40_000)),
        (six("::ffff:127.0.0.1", 3128), six("::ffff:127.0.0.1", 40_000)),
        (four("127.0.0.1", 5432), four("127.0.0.1", 5432)),
        (six("::1", 5432), six("::1", 5432)),
        (four("127.0.0.1", 3128) + bytes(100), four("127.0.0.1", 40_000)),
        (four("127.0.0.1", 40_000), None),
        (four("127.0.0.2", 3128), None),
        (four("0.0.0.0", 3128), None),
        (four("127.0.0.1", 0), None),
        (six("::1", 3128), None),
        (six("::", 5432), None),
        (six("::127.0.0.1", 3128), None),
        (six("::ffff:127.0.0.2", 3128), None),
        (six("64:ff9b::127.0.0.1", 3128), None),
        (six("fe80::1", 5432, scope=1), None),
        (four("127.0.0.1", 3128, family=socket.AF_UNSPEC), None),
        (four("127.0.0.1", 3128, family=socket.AF_NETLINK), None),
        (four("127.0.0.1", 3128, family=socket.AF_INET6), None),
        (struct.pack("=H", socket.AF_UNIX) + b"/run/docker.sock\0", None),
        (four("127.0.0.1", 3128)[:7], None),
        (six("::1", 5432)[:20], None),
        (b"\x02", None),
        (b"", None),
    ],
)
def test_an_address_leads_to_a_peer_or_nowhere(address: bytes, goes_to: bytes | None) -> None:
    for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            try:
                reached = ClosedNetwork(PEERS).check(address, family, kind)
            except OSError:
                reached = None
            fits = family == int.from_bytes(address[:2], sys.byteorder)
            is_tcp = fits and kind == socket.SOCK_STREAM
            assert reached == (goes_to if is_tcp else None)


# The deed


class Proxy:
    """Accepts every connection, says hello and counts them."""

    def __init__(self) -> None:
        self.count = 0
        self._servers: list[asyncio.Server] = []

    async def listen(self, listeners: Mapping[int, socket.socket]) -> None:
        for listener in listeners.values():
            self._servers.append(await asyncio.start_server(self._greet, sock=listener))

    async def close(self) -> None:
        for server in self._servers:
            server.close()
            await server.wait_closed()

    async def _greet(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.count += 1
        with contextlib.suppress(ConnectionError):
            writer.write(b"hello\n")
            await writer.drain()
            writer.close()
            await writer.wait_closed()


async def connect_from_inside(
    parent: Path,
    argv: tuple[str, ...],
    on_listening: Callable[..., Any],
    env: Mapping[str, str] | None = None,
    **access: Any,
) -> ChildResult:
    workspace = str(parent / "workspace")
    scratch = parent / "scratch"
    scratch.mkdir(0o711)
    child = ChildRequest(
        argv,
        workspace,
        {"PATH": PATH, **(env or {})},
        access=Access(write=(workspace,), network="proxy", on_listening=on_listening, **access),
    )
    sandbox = GuardSandbox(str(scratch), user=USER)
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await sandbox.run(child)
    finally:
        await sandbox.close()


WAYS = {
    "plainly": "s = socket.create_connection(('127.0.0.1', 3128)); print(s.recv(9))",
    "by name": "s = socket.create_connection(('localhost', 3128)); print(s.recv(9))",
    "as IPv6": "s = socket.create_connection(('::ffff:127.0.0.1', 3128)); print(s.recv(9))",
    "with a timeout": "s = socket.create_connection(('127.0.0.1', 3128), 5); print(s.recv(9))",
    "from a thread": """
def connect():
    print(socket.create_connection(('127.0.0.1', 3128)).recv(9))
thread = threading.Thread(target=connect); thread.start(); thread.join()
""",
    "from a grandchild": """
if os.fork() == 0:
    print(socket.create_connection(('127.0.0.1', 3128)).recv(9), flush=True)
    os._exit(0)
os.wait()
""",
    "without waiting": """
async def connect():
    reader, _ = await asyncio.open_connection('127.0.0.1', 3128)
    print(await reader.read(9))
asyncio.run(connect())
""",
}
IMPORTS = "import asyncio, os, socket, threading\n"


@pytest.mark.parametrize("code", WAYS.values(), ids=WAYS)
async def test_a_child_reaches_its_proxy(code: str) -> None:
    proxy = Proxy()
    with place() as parent:
        directory_for_children(parent, "workspace")
        result = await connect_from_inside(parent, (PYTHON, "-c", IMPORTS + code), proxy.listen)
        await proxy.close()
        assert (result.stdout, proxy.count) == ("b'hello\\n'\n", 1), result


def test_a_child_reaches_its_proxy_under_the_other_event_loop() -> None:
    uvloop.run(test_a_child_reaches_its_proxy(WAYS["plainly"]))


async def test_node_reaches_its_proxy() -> None:
    need_program("node", PATH)
    proxy = Proxy()
    code = "require('net').connect(3128, '127.0.0.1').on('data', d => process.stdout.write(d))"
    with place() as parent:
        directory_for_children(parent, "workspace")
        result = await connect_from_inside(parent, ("node", "-e", code), proxy.listen)
        await proxy.close()
        assert (result.stdout, proxy.count) == ("hello\n", 1), result


async def test_a_local_port_of_the_fence_is_reached_and_no_other() -> None:
    proxy = Proxy()
    code = """
import os, socket
for name in ("TCP", "OTHER_LOOPBACK"):
    for host in ("127.0.0.1", "127.0.0.2"):
        socket.socket().connect_ex((host, int(os.environ[name])))
"""
    with place() as parent, outside(parent) as world:
        result = await connect_from_inside(
            parent,
            (PYTHON, "-c", code),
            proxy.listen,
            world.environment(),
            local_ports=(int(world.variables["TCP"]),),
        )
        await proxy.close()
        assert (world.tripped(result), proxy.count) == (["TCP"], 0)


async def test_an_address_that_changes_while_it_is_judged_leads_nowhere_else() -> None:
    proxy = Proxy()
    code = f"""
import ctypes, os, socket, struct, threading
libc = ctypes.CDLL(None, use_errno=True)
def address(port):
    return struct.pack("=H", 2) + struct.pack("!H", port) + bytes([127, 0, 0, 1]) + bytes(8)
good, bad = address(3128), address(int(os.environ["TCP"]))
shared = ctypes.create_string_buffer(good, 16)
stop = False
def flip():
    while not stop:
        ctypes.memmove(shared, bad, 16)
        ctypes.memmove(shared, good, 16)
threads = [threading.Thread(target=flip) for _ in range(2)]
for thread in threads: thread.start()
outcomes = []
for n in range({RACES}):
    with socket.socket() as s:
        outcomes.append(libc.connect(s.fileno(), shared, 16))
stop = True
print(outcomes.count(0), outcomes.count(-1))
"""
    with place() as parent, outside(parent) as world:
        result = await connect_from_inside(
            parent, (PYTHON, "-c", code), proxy.listen, world.environment()
        )
        await proxy.close()
        allowed, refused = map(int, result.stdout.split())
        assert (world.tripped(result), allowed + refused) == ([], RACES)
        assert allowed > 0
        assert refused > 0


async def test_a_socket_that_changes_while_it_is_judged_leads_nowhere_else() -> None:
    """The descriptor is made to name a Unix socket, another TCP socket, or nothing."""
    proxy = Proxy()
    code = f"""
import os, socket, threading
fixed = socket.socket()
fd = fixed.fileno()
pair, _ = socket.socketpair()
others = [pair.fileno(), socket.socket(socket.AF_INET6).fileno(), os.open("/dev/null", 0)]
stop = False
def swap():
    while not stop:
        for other in others:
            os.dup2(other, fd)
        os.dup2(fresh.fileno(), fd)
fresh = socket.socket()
thread = threading.Thread(target=swap); thread.start()
for n in range({RACES}):
    fresh = socket.socket()
    fixed.connect_ex(("127.0.0.1", 3128))
    fixed.connect_ex(("127.0.0.1", int(os.environ["TCP"])))
stop = True
print("survived")
"""
    with place() as parent, outside(parent) as world:
        result = await connect_from_inside(
            parent, (PYTHON, "-c", code), proxy.listen, world.environment()
        )
        await proxy.close()
        assert (world.tripped(result), result.stdout) == ([], "survived\n"), result


NONSENSE = {
    "an address that is not memory": "libc.connect(s.fileno(), ctypes.c_void_p(8), 16)",
    "an address beyond all memory": "libc.connect(s.fileno(), ctypes.c_void_p(2**64 - 1), 16)",
    "a length below zero": "libc.connect(s.fileno(), good, -1)",
    "an endless length": "libc.connect(s.fileno(), good, 2**31 - 1)",
    "no length": "libc.connect(s.fileno(), good, 0)",
    "no descriptor": "libc.connect(-1, good, 16)",
    "a descriptor that is no socket": "libc.connect(0, good, 16)",
    "a Unix socket": "libc.connect(socket.socketpair()[0].fileno(), good, 16)",
    "an IPv6 socket": "libc.connect(socket.socket(socket.AF_INET6).fileno(), good, 16)",
    "a netlink socket": "libc.connect(socket.socket(16, 3, 0).fileno(), good, 16)",
    "a process that hides": "libc.prctl(4, 0, 0, 0, 0), libc.connect(s.fileno(), good, 16)",
}


@pytest.mark.parametrize("call", NONSENSE.values(), ids=NONSENSE)
async def test_nonsense_is_answered_with_an_error(call: str) -> None:
    proxy = Proxy()
    code = f"""
import ctypes, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
s = socket.socket()
good = struct.pack("=H", 2) + struct.pack("!H", 3128) + bytes([127, 0, 0, 1]) + bytes(8)
{call}
print("refused" if ctypes.get_errno() else "connected")
"""
    with place() as parent:
        directory_for_children(parent, "workspace")
        result = await connect_from_inside(parent, (PYTHON, "-c", code), proxy.listen)
        await proxy.close()
        if USER and "prctl" in call:
            # Root sees through it; what counts is that it leads to the proxy and nowhere else.
            assert (result.stdout, proxy.count) == ("connected\n", 1)
        else:
            assert (result.stdout, proxy.count) == ("refused\n", 0)


async def test_a_child_that_is_ended_while_it_connects_holds_nobody_up() -> None:
    """Its proxy never takes a connection, so that one of them is kept waiting by the kernel."""
    held: list[socket.socket] = []

    async def never_accept(listeners: Mapping[int, socket.socket]) -> None:
        for listener in listeners.values():
            listener.listen(0)
            held.append(listener)

    code = """
import socket, sys
kept = [socket.socket() for n in range(10)]
for n, s in enumerate(kept):
    print(n, flush=True)
    s.connect(("127.0.0.1", 3128))
"""
    with place() as parent:
        directory_for_children(parent, "workspace")
        workspace, scratch = str(parent / "workspace"), parent / "scratch"
        scratch.mkdir(0o711)
        access = Access(write=(workspace,), network="proxy", on_listening=never_accept)
        argv, env = (PYTHON, "-c", code), {"PATH": PATH}
        child = ChildRequest(argv, workspace, env, None, 1_500, 0, access=access)
        sandbox = GuardSandbox(str(scratch), user=USER)
        async with asyncio.timeout(DEADLINE_S):
            result = await sandbox.run(child)
            await sandbox.close()
        held[0].close()
        assert result.timed_out
        assert "9\n" not in result.stdout
        assert list(scratch.iterdir()) == []


async def test_no_descriptor_or_thread_is_left_of_a_broker() -> None:
    proxy = Proxy()
    with place() as parent:
        directory_for_children(parent, "workspace")
        workspace, scratch = str(parent / "workspace"), parent / "scratch"
        scratch.mkdir(0o711)
        sandbox = GuardSandbox(str(scratch), user=USER)
        code = IMPORTS + WAYS["plainly"]
        access = Access(write=(workspace,), network="proxy", on_listening=proxy.listen)
        child = ChildRequest((PYTHON, "-c", code), workspace, {"PATH": PATH}, access=access)
        counts = []
        for _ in range(4):
            await sandbox.run(child)
            await proxy.close()
            descriptors = len(list(Path("/proc/self/fd").iterdir()))
            counts.append((descriptors, threading.active_count()))
        await sandbox.close()
        assert counts[1] == counts[3]
