"""A confined child does not connect to infloop's own servers, and connects elsewhere as ever."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from infloop.lowlevel.own_ports import OwnPorts
from infloop.sandbox.access import Access
from infloop.sandbox.base import ChildRequest, ChildResult
from infloop.sandbox.kernel import connect_broker
from support.canaries import PATH, PYTHON, UNPRIVILEGED, directory_for_children, place
from support.confinement import sandbox_at
from support.parts import need_program, ruled_out
from support.thorough import amount

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from infloop.sandbox.base import Sandbox

DEADLINE_S = 60.0
RACES = 300
CHILDREN = amount(8, thorough=24)
OWN = "a server of infloop listens there"
levels = pytest.mark.parametrize("level", ["guard", "sandbox"])


class Listener:
    """Listens on every address of this machine, greets each client and counts them."""

    def __init__(self) -> None:
        self.count = 0
        self.socket = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        self.port: int = self.socket.getsockname()[1]

    async def greet(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.count += 1
        with contextlib.suppress(ConnectionError):
            writer.write(b"hello")
            await writer.drain()
            writer.close()
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def listener() -> AsyncIterator[Listener]:
    made = Listener()
    async with await asyncio.start_server(made.greet, sock=made.socket):
        yield made


@contextlib.asynccontextmanager
async def confined(level: str) -> AsyncIterator[Run]:
    with place() as parent:
        workspace = directory_for_children(parent, "workspace")
        async with sandbox_at(level, parent) as sandbox:
            yield Run(sandbox, workspace)


class Run:
    """Runs Python code in a sandbox, and remembers what was refused."""

    def __init__(self, sandbox: Sandbox, workspace: Path) -> None:
        self.refused: list[tuple[str, int, str]] = []
        self._sandbox = sandbox
        self._workspace = workspace

    def _note(self, host: str, port: int, reason: str) -> None:
        self.refused.append((host, port, reason))

    async def argv(self, *argv: str, network: Any = "open", **access: Any) -> ChildResult:
        granted = Access(
            write=(str(self._workspace),), network=network, on_refused=self._note, **access
        )
        child = ChildRequest(argv, str(self._workspace), {"PATH": PATH}, access=granted)
        async with asyncio.timeout(DEADLINE_S):
            result = await self._sandbox.run(child)
        assert not result.error, result
        return result

    async def python(self, code: str, **more: Any) -> str:
        result = await self.argv(PYTHON, "-c", code, **more)
        return (result.stdout + result.stderr).strip()


def addresses() -> list[str]:
    """Every way to name this machine: loopback, nothing at all, and its interfaces."""
    found = ["127.0.0.1", "127.0.0.2", "127.255.255.254", "0.0.0.0", "::1", "::"]
    found += ["::ffff:127.0.0.1", "::ffff:0.0.0.0", "localhost"]
    for line in Path("/proc/net/if_inet6").read_text().splitlines():
        packed, index, *_ = line.split()
        six = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(packed))
        found.append(f"{six}%{int(index, 16)}" if six.startswith("fe80") else six)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
            lan = probe.getsockname()[0]
            found += [lan, f"::ffff:{lan}"]
        except OSError:
            pass
    return found


CONNECT_TO_EACH = """
import errno, socket, sys
port, *hosts = sys.argv[1:]
for host in hosts:
    try:
        s = socket.create_connection((host, int(port)), timeout=10)
        print(host, s.recv(9).decode())
    except OSError as error:
        print(host, errno.errorcode.get(error.errno, error))
"""


@levels
async def test_no_address_of_this_machine_leads_to_a_port_that_is_announced(level: str) -> None:
    hosts = addresses()
    async with listener() as own, listener() as other, confined(level) as run:
        argv = (PYTHON, "-c", CONNECT_TO_EACH)
        with OwnPorts() as ports:
            ports.announce(own.port)
            refused = await run.argv(*argv, str(own.port), *hosts)
            reached = await run.argv(*argv, str(other.port), *hosts)
        again = await run.argv(*argv, str(own.port), *hosts)
    assert refused.stdout.splitlines() == [f"{host} EACCES" for host in hosts]
    assert reached.stdout.splitlines() == [f"{host} hello" for host in hosts]
    # Announcements end with the server.
    assert again.stdout.splitlines() == reached.stdout.splitlines()
    assert own.count == other.count == len(hosts)
    assert {port for _, port, _ in run.refused} == {own.port}
    assert {reason for *_, reason in run.refused} == {OWN}


WAYS = {
    "a plain call": "s.connect(target)",
    "a call that does not wait": "s.setblocking(False); s.connect(target)",
    "sending with fast open": "s.sendto(REQUEST, socket.MSG_FASTOPEN, target)",
    "a message with fast open": "s.sendmsg([REQUEST], [], socket.MSG_FASTOPEN, target)",
    "fast open as an option": (
        "s.setsockopt(socket.IPPROTO_TCP, 30, 1); s.connect(target); s.sendall(REQUEST)"
    ),
    "another connection before": "s.connect(other); libc.connect(s.fileno(), bytes(16), 16); "
    "s.connect(target)",
    "a multipath socket": "s = socket.socket(2, 1, 262); s.connect(target)",
    "a grandchild": """
if os.fork() == 0:
    try:
        s.connect(target)
    finally:
        os._exit(0)
os.wait()
s.close()
""",
    "many messages with fast open": """
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_char_p), ("length", ctypes.c_size_t)]
class Message(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("namelen", ctypes.c_uint),
                ("vectors", ctypes.POINTER(Vector)), ("count", ctypes.c_size_t),
                ("control", ctypes.c_void_p), ("controllen", ctypes.c_size_t),
                ("flags", ctypes.c_int), ("sent", ctypes.c_uint)]
vector = Vector(REQUEST, len(REQUEST))
message = Message(packed, 16, ctypes.pointer(vector), 1)
libc.sendmmsg(s.fileno(), ctypes.byref(message), 1, socket.MSG_FASTOPEN)
""",
    "an address that changes": f"""
shared = ctypes.create_string_buffer(packed, 16)
harmless = packed[:2] + other[1].to_bytes(2, "big") + packed[4:]
stop = False
def flip():
    while not stop:
        ctypes.memmove(shared, packed, 16)
        ctypes.memmove(shared, harmless, 16)
threads = [threading.Thread(target=flip) for _ in range(2)]
for thread in threads: thread.start()
for n in range({RACES}):
    with socket.socket() as each:
        libc.connect(each.fileno(), shared, 16)
stop = True
""",
}
PRELUDE = """
import ctypes, os, socket, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
REQUEST = b"POST /api/run HTTP/1.1\\r\\n\\r\\n"
target, other = (("127.0.0.1", int(port)) for port in sys.argv[1:])
packed = b"\\2\\0" + target[1].to_bytes(2, "big") + bytes([127, 0, 0, 1]) + bytes(8)
s = socket.socket()
s.settimeout(10)
"""


@levels
@pytest.mark.parametrize("way", WAYS)
async def test_no_way_of_connecting_reaches_a_server_of_ours(level: str, way: str) -> None:
    async with listener() as own, listener() as other, confined(level) as run:
        with OwnPorts() as ports:
            ports.announce(own.port)
            code = PRELUDE + WAYS[way]
            await run.argv(PYTHON, "-c", code, str(own.port), str(other.port))
        # A connection that was made is in the queue by now; this one comes after it.
        _, writer = await asyncio.open_connection("127.0.0.1", own.port)
        writer.close()
        while not own.count:
            await asyncio.sleep(0)
    assert own.count == 1


@levels
@pytest.mark.parametrize("network", ["none", "proxy"])
async def test_a_local_port_that_a_workflow_lists_is_not_one_of_ours(
    level: str, network: str
) -> None:
    async def nobody_asks(listeners: Any) -> None:
        for each in listeners.values():
            each.close()

    async with listener() as own, listener() as other, confined(level) as run:
        with OwnPorts() as ports:
            ports.announce(own.port)
            code = PRELUDE + (
                "def ask(where):\n"
                "    try:\n"
                "        print(socket.create_connection(where, timeout=10).recv(9).decode())\n"
                "    except OSError: print()\n"
                "ask(target); ask(other)\n"
            )
            result = await run.argv(
                *(PYTHON, "-c", code, str(own.port), str(other.port)),
                network=network,
                on_listening=nobody_asks,
                local_ports=(own.port, other.port),
            )
    assert result.stdout.split("\n") == ["", "hello", ""], result
    assert (own.count, other.count) == (0, 1)
    assert run.refused == [("127.0.0.1", own.port, OWN)]


@levels
async def test_another_user_cannot_make_a_port_unreachable(level: str) -> None:
    if os.geteuid() != 0:
        ruled_out("only root can become another user")
    async with listener() as other, confined(level) as run:
        code = f"""
import os, socket, sys
os.setgroups([]); os.setresgid(1, 1, 1); os.setresuid({UNPRIVILEGED} + 1, 1, 1)
held = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
held.bind("\\0infloop-port/{other.port}")
held.listen(9)
print("announced", flush=True)
sys.stdin.read()
"""
        with subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as stranger:
            assert stranger.stdout
            assert await asyncio.to_thread(stranger.stdout.readline) == "announced\n"
            said = await run.argv(PYTHON, "-c", CONNECT_TO_EACH, str(other.port), "127.0.0.1")
            stranger.communicate()
    assert said.stdout == "127.0.0.1 hello\n"


async def test_a_port_is_announced_once() -> None:
    with OwnPorts() as ports, OwnPorts() as others:
        ports.announce(4)
        with pytest.raises(OSError, match="in use"):
            others.announce(4)
    with OwnPorts() as ports:
        ports.announce(4)


@levels
async def test_a_machine_without_notifications_opens_no_network(
    level: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The kernel's list of what it offers is replaced, as it is on an older kernel."""
    without = tmp_path / "actions_avail"
    without.write_text("kill_process errno allow\n")
    with place() as parent:
        workspace = directory_for_children(parent, "workspace")
        async with sandbox_at(level, parent) as sandbox:
            monkeypatch.setattr(connect_broker, "_ACTIONS", without)
            if level == "guard":
                assert "user notifications" in connect_broker.missing_part()
                return
            access = Access(write=(str(workspace),), network="open")
            child = ChildRequest(("true",), str(workspace), {"PATH": PATH}, access=access)
            refused = await sandbox.run(child)
            closed = await sandbox.run(ChildRequest(("true",), str(workspace), {"PATH": PATH}))
    assert "'sandbox' with an open network needs seccomp with user notifications" in refused.error
    assert (closed.error, closed.exit_code) == ("", 0)


@levels
def test_root_without_the_right_to_trace_does_not_confine_another_user(level: str) -> None:
    if os.geteuid() != 0:
        ruled_out("only root can run children as another user")
    need_program("setpriv", PATH)
    code = """
import asyncio, sys
from infloop.sandbox.access import Access
from infloop.sandbox.base import ChildRequest
from infloop.sandbox.levels.bubblewrap import BubblewrapSandbox
from infloop.sandbox.levels.guard import GuardSandbox
if sys.argv[1] == "guard":
    GuardSandbox("/tmp", user=(65534, 65534))
async def main():
    sandbox = BubblewrapSandbox(user=(65534, 65534))
    child = ChildRequest(("true",), "/", {"PATH": "/bin"}, access=Access(network="open"))
    sys.exit((await sandbox.run(child)).error)
asyncio.run(main())
"""
    done = subprocess.run(
        ["setpriv", "--bounding-set=-sys_ptrace", sys.executable, "-c", code, level],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert "needs the capability CAP_SYS_PTRACE" in done.stderr


# The meaning of connect()

MEANINGS = {
    "a port where nobody listens": (
        "print(s.connect_ex(('127.0.0.1', nobody)) == errno.ECONNREFUSED)",
        "True",
    ),
    "the same socket once more after a failure": (
        "s.connect_ex(('127.0.0.1', nobody)); s.connect(there); print(s.recv(9).decode())",
        "hello",
    ),
    "a blocking socket stays one": (
        "s.connect(there); print(os.get_blocking(s.fileno()), s.recv(9).decode())",
        "True hello",
    ),
    "a call that does not wait": (
        (
            "s.setblocking(False)\n"
            "code = s.connect_ex(there); select.select([], [s], [])\n"
            "print(code in (0, errno.EINPROGRESS), s.getsockopt(1, 4), os.get_blocking(s.fileno()))"
        ),
        "True 0 False",
    ),
    "a second call": (
        "s.connect(there); print(s.connect_ex(there) == errno.EISCONN)",
        "True",
    ),
    "taking it back": (
        (
            "s.connect(there); code = libc.connect(s.fileno(), bytes(16), 16)\n"
            "s.connect(there); print(code, s.recv(9).decode())"
        ),
        "0 hello",
    ),
    "datagrams": (
        (
            "a, b = (socket.socket(2, 2) for _ in 'ab'); a.bind(('127.0.0.1', 0))\n"
            "b.connect(a.getsockname()); b.send(b'question'); print(a.recv(99).decode())\n"
            "libc.connect(b.fileno(), bytes(16), 16)\n"
            "try: b.getpeername()\n"
            "except OSError as error: print(error.errno == errno.ENOTCONN)"
        ),
        "question\nTrue",
    ),
    "datagrams over IPv6 to an IPv4 address": (
        (
            "a = socket.socket(10, 2)\n"
            "print(libc.connect(a.fileno(), b'\\2\\0\\0\\x09\\x7f\\0\\0\\1' + bytes(8), 16))"
        ),
        "0",
    ),
    "the kernel's list of interfaces": (
        "print('lo' in dict(socket.if_nameindex()).values())",
        "True",
    ),
    "a netlink socket to the kernel": (
        "n = socket.socket(16, 3, 0); print(n.connect_ex((0, 0)))",
        "0",
    ),
    "a netlink socket to another process": (
        "n = socket.socket(16, 3, 0); print(n.connect_ex((1, 0)) == errno.EPERM)",
        "True",
    ),
    "netlink groups": (
        "n = socket.socket(16, 3, 0); print(n.connect_ex((0, 1)) == errno.EPERM)",
        "True",
    ),
    "a Unix socket": (
        (
            "a, b = socket.socketpair()\n"
            "print(libc.connect(a.fileno(), b'\\1\\0/run/docker.sock\\0', 20))"
        ),
        "-1",
    ),
    "an address that is too short": (
        "print(libc.connect(s.fileno(), b'\\2\\0', 2), ctypes.get_errno() == errno.EINVAL)",
        "-1 True",
    ),
    "an address of another family": (
        "print(libc.connect(s.fileno(), b'\\x0a\\0' + bytes(26), 28))",
        "-1",
    ),
    "a send timeout": (
        (
            "s.setsockopt(1, socket.SO_SNDTIMEO, struct.pack('qq', 0, 300_000))\n"
            "print(s.connect_ex(full) == errno.EINPROGRESS, os.get_blocking(s.fileno()))"
        ),
        "True True",
    ),
    "a signal whose handler ends the waiting": (
        (
            "class Alarm(Exception): pass\n"
            "def ring(*_): raise Alarm\n"
            "signal.signal(signal.SIGALRM, ring); signal.setitimer(signal.ITIMER_REAL, 0.3)\n"
            "try: s.connect(full)\n"
            "except Alarm: print('rung', os.get_blocking(s.fileno()))"
        ),
        "rung True",
    ),
    "a signal after which the call goes on": (
        (
            "reader, writer = os.pipe(); os.set_blocking(writer, False)\n"
            "def make_room():\n"
            "    os.read(reader, 1)  # until the kernel has run the handler\n"
            "    while True: waiting.accept()\n"
            "threading.Thread(target=make_room, daemon=True).start()\n"
            "signal.set_wakeup_fd(writer); signal.signal(signal.SIGALRM, lambda *_: None)\n"
            "signal.siginterrupt(signal.SIGALRM, False)\n"
            "signal.setitimer(signal.ITIMER_REAL, 0.3)\n"
            "print(libc.connect(s.fileno(), packed_full, 16), os.get_blocking(s.fileno()))"
        ),
        "0 True",
    ),
    "a connection that takes long delays no other": (
        (
            "threading.Thread(target=s.connect, args=[full], daemon=True).start()\n"
            "for n in range(50): assert socket.create_connection(there).recv(9) == b'hello'\n"
            "print('done', flush=True); os._exit(0)"
        ),
        "done",
    ),
    "more slow calls than the broker keeps": (
        (
            "many = [threading.Thread(target=socket.socket().connect, args=[full], daemon=True)"
            " for _ in range(80)]\n"
            "for each in many: each.start()\n"
            "print('done', flush=True); os._exit(0)"
        ),
        "done",
    ),
}
MEANING_PRELUDE = """
import ctypes, errno, os, select, signal, socket, struct, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
there = ("127.0.0.1", int(sys.argv[1]))
bound = socket.socket(); bound.bind(("127.0.0.1", 0)); nobody = bound.getsockname()[1]
waiting = socket.create_server(("127.0.0.1", 0), backlog=0)
full = waiting.getsockname()
packed_full = b"\\2\\0" + full[1].to_bytes(2, "big") + bytes([127, 0, 0, 1]) + bytes(8)
fillers = [socket.socket() for _ in range(2)]
for each in fillers:
    each.setblocking(False)
    each.connect_ex(full)
s = socket.socket()
"""


@levels
@pytest.mark.parametrize("meaning", MEANINGS)
async def test_connect_means_what_it_means_without_a_broker(level: str, meaning: str) -> None:
    code, expected = MEANINGS[meaning]
    async with listener() as there, confined(level) as run:
        said = await run.argv(PYTHON, "-c", MEANING_PRELUDE + code, str(there.port))
    assert said.stdout.strip() == expected, said


@levels
@pytest.mark.thorough
async def test_many_children_that_come_and_go_are_all_answered(level: str) -> None:
    code = """
import socket, sys
for n in range(20):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, n % 2, 0, 0, 0]))
        s.connect(("127.0.0.1", int(sys.argv[1])))
        assert s.recv(9) == b"hello"
print("done")
"""
    async with listener() as there, confined(level) as run, asyncio.TaskGroup() as group:
        children = [
            group.create_task(run.argv(PYTHON, "-c", code, str(there.port)))
            for _ in range(CHILDREN)
        ]
        results = await asyncio.gather(*children)
    assert [result.stdout for result in results] == ["done\n"] * CHILDREN


PROGRAMS: dict[str, Callable[[int], tuple[str, ...]]] = {
    "curl": lambda port: ("curl", "-sS", f"http://localhost:{port}/"),
    "node": lambda port: (
        *("node", "-e"),
        f"fetch('http://localhost:{port}/').then(r => r.text()).then(t => process.stdout.write(t))",
    ),
    "git": lambda port: ("git", "ls-remote", f"http://127.0.0.1:{port}/x.git"),
    "bash": lambda port: ("bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port}; echo hello"),
}


@levels
@pytest.mark.parametrize("program", PROGRAMS)
async def test_ordinary_programs_reach_an_open_network(level: str, program: str) -> None:
    need_program(program, PATH)
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if program != "bash":
            asked.append(await reader.readline())
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n"
            )
        else:
            asked.append(b"")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, confined(level) as run:
        result = await run.argv(*PROGRAMS[program](server.sockets[0].getsockname()[1]))
    assert asked, result
    assert program == "git" or result.stdout == "hello\n", result


@contextlib.contextmanager
def full_port() -> Iterator[int]:
    """A port whose queue is full, so that a connection to it waits."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as waiting, contextlib.ExitStack() as s:
        for _ in range(2):
            filler = s.enter_context(socket.socket())
            filler.setblocking(False)  # noqa: FBT003
            filler.connect_ex(waiting.getsockname())
        yield waiting.getsockname()[1]


@levels
async def test_a_cancelled_child_leaves_no_connection_and_no_descriptor(level: str) -> None:
    code = "import socket, sys; print(1, flush=True); socket.socket().connect(('127.0.0.1', {}))"
    with full_port() as port, place() as parent:
        workspace = str(directory_for_children(parent, "workspace"))
        access = Access(write=(workspace,), network="open")
        argv = (PYTHON, "-c", code.format(port))
        child = ChildRequest(argv, workspace, {"PATH": PATH}, grace_ms=0, access=access)
        counts = []
        async with sandbox_at(level, parent) as sandbox:
            for _ in range(4):
                started = asyncio.Event()
                running = asyncio.create_task(
                    sandbox.run(child, on_output=lambda *_, started=started: started.set())
                )
                await started.wait()
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await running
                counts.append(len(list(Path("/proc/self/fd").iterdir())))
    assert counts[1] == counts[3]
