"""A run's egress proxy beside tinyproxy: tunnels, bulk, latency.

The proxy has a process and a core of its own; the load and the far side share another one. `CPU` is
the proxy's alone, so what one core carries is the work divided by it, even on a busy machine. A
tunnel is CONNECT, a real ClientHello, one byte back, and the end. infloop reads the hello and
checks the name in it, resolves, checks the address and reports what it decided; tinyproxy does none
of that.

Latency is what a proxy adds to the slowest hundredth of round trips, with a hundred tunnels that
each send a short message ten times a second, and the same beside the proxy.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias, cast

from benchmark import Benchmark, Contender, Rounds, Sample, Target, Values, each, wall
from infloop.app import run_async
from infloop.egress.proxy import Proxy
from infloop.policy.hosts import Allowlist, parse_rules

HOST = "far.test"
AT_ONCE = 50
BULK_A_TUNNEL = 1 << 18  # 4,000 tunnels go with a gigabyte
PIECE = 1 << 20
TUNNELS = 100
MESSAGE = b"x" * 100
MESSAGES = 30
PAUSE_S = 0.1
TICKS = os.sysconf("SC_CLK_TCK")

Running: TypeAlias = AbstractContextManager[tuple[int, int]]
Start: TypeAlias = Callable[[int, Path], Running]
"""Start a proxy that may reach a port; give its process id and its own port."""


# -- the proxies -----------------------------------------------------------------------------------


@contextmanager
def infloop_proxy(far_port: int, folder: Path) -> Iterator[tuple[int, int]]:
    argv = [sys.executable, __file__, str(far_port)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        try:
            os.sched_setaffinity(child.pid, {0})
            yield child.pid, int(child.stdout.readline())
        finally:
            child.kill()


@contextmanager
def tinyproxy(far_port: int, folder: Path) -> Iterator[tuple[int, int]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = folder / "tinyproxy.conf"
    config.write_text(
        f"Port {port}\nListen 127.0.0.1\nAllow 127.0.0.1\nConnectPort {far_port}\n"
        'MaxClients 400\nTimeout 60\nLogLevel Critical\nLogFile "/dev/null"\n'
    )
    argv = ["tinyproxy", "-d", "-c", str(config)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as child:
        try:
            os.sched_setaffinity(child.pid, {0})
            wait_for(port)
            yield child.pid, port
        finally:
            child.kill()


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.01)
    raise RuntimeError("the proxy did not start")


async def serve(far_port: int) -> None:
    """Be our proxy: the far side has a name, and its address is listed."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    rules = parse_rules("the benchmark", [f"{HOST}:{far_port}", f"127.0.0.1:{far_port}"])

    async def lookup(_: str) -> list[str]:
        return ["127.0.0.1"]

    reports: list[object] = []
    proxy = Proxy(
        Allowlist((rules,)),
        token="",
        on_decision=reports.append,
        on_ended=reports.append,
        lookup=lookup,
    )
    print(listener.getsockname()[1], flush=True)
    await proxy.serve(listener)


def cpu_of(process: int) -> float:
    """Return the CPU seconds of a process with all its threads."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


# -- the load --------------------------------------------------------------------------------------


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname=HOST)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def order(start: Start, far_port: int) -> bytes:
    """Return the request for a tunnel; tinyproxy asks the machine for names, so it gets none."""
    host = "127.0.0.1" if start is tinyproxy else HOST
    return f"CONNECT {host}:{far_port} HTTP/1.1\r\nHost: {host}:{far_port}\r\n\r\n".encode()


def leave_first_core() -> None:
    cores = os.cpu_count() or 1
    os.sched_setaffinity(0, set(range(1, cores)) or {0})


class Far(asyncio.Protocol):
    """Answers the first thing it hears with one byte and hangs up."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(b"!")
        self.transport.close()


class Echo(Far):
    """Answers everything with the same."""

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


def measure_tunnels(start: Start, tunnels: int, folder: Path) -> Sample:
    leave_first_core()
    return run_async(_tunnels(start, tunnels, folder))


async def _tunnels(start: Start, tunnels: int, folder: Path) -> Sample:
    far = await asyncio.get_running_loop().create_server(Far, "127.0.0.1", 0, backlog=512)
    far_port = far.sockets[0].getsockname()[1]
    line, hello, left = order(start, far_port), client_hello(), iter(range(tunnels))

    async def one_after_another(port: int) -> None:
        for _ in left:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(line)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(hello)
            if await reader.read() != b"!":
                raise RuntimeError("the tunnel does not lead to the far side")
            writer.close()

    with start(far_port, folder) as (process, port):
        before, began = cpu_of(process), time.perf_counter()
        await asyncio.gather(*(one_after_another(port) for _ in range(AT_ONCE)))
        sample = Sample(tunnels, time.perf_counter() - began, cpu_of(process) - before)
    far.close()
    return sample


def measure_bulk(start: Start, tunnels: int, folder: Path) -> Sample:
    """Get bytes through one tunnel; the figures are per megabyte."""
    leave_first_core()
    pieces = tunnels * BULK_A_TUNNEL // PIECE
    with socket.create_server(("127.0.0.1", 0)) as far:
        far_port = far.getsockname()[1]
        threading.Thread(target=_pour, args=(far, pieces), daemon=True).start()
        with start(far_port, folder) as (process, port):
            with socket.create_connection(("127.0.0.1", port), timeout=60) as tunnel:
                tunnel.sendall(order(start, far_port))
                while b"\r\n\r\n" not in tunnel.recv(4096):
                    pass
                before, began = cpu_of(process), time.perf_counter()
                tunnel.sendall(client_hello())
                came, room = 0, bytearray(PIECE)
                while size := tunnel.recv_into(room):
                    came += size
            sample = Sample(pieces, time.perf_counter() - began, cpu_of(process) - before)
    if came != pieces * PIECE:
        raise RuntimeError(f"{came} bytes came through")
    return sample


def _pour(far: socket.socket, pieces: int) -> None:
    while True:
        taker, _ = far.accept()
        with taker:
            if taker.recv(4096):
                for _ in range(pieces):
                    taker.sendall(bytes(PIECE))
                return


def measure_latency(start: Start, tunnels: int, folder: Path) -> Sample:
    leave_first_core()
    return run_async(_latency(start, folder))


async def _latency(start: Start, folder: Path) -> Sample:
    far = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    far_port = far.sockets[0].getsockname()[1]
    direct, through = list[float](), list[float]()
    with start(far_port, folder) as (process, port):
        before = cpu_of(process)
        talks = (
            talk(number, far_port, port, order(start, far_port), direct, through)
            for number in range(TUNNELS)
        )
        await asyncio.gather(*talks)
        used = cpu_of(process) - before
    far.close()
    added = slowest_hundredth(through) - slowest_hundredth(direct)
    return Sample(1, max(1e-6, added), used)  # less cannot be told from nothing


async def talk(
    number: int, far_port: int, port: int, line: bytes, direct: list[float], through: list[float]
) -> None:
    """Send messages, each once without the proxy and once through it."""
    hello = client_hello()
    to_far = await asyncio.open_connection("127.0.0.1", far_port)
    to_proxy = await asyncio.open_connection("127.0.0.1", port)
    to_proxy[1].write(line)
    await to_proxy[0].readuntil(b"\r\n\r\n")
    to_proxy[1].write(hello)
    await to_proxy[0].readexactly(len(hello))
    await asyncio.sleep(PAUSE_S * number / TUNNELS)
    for _ in range(MESSAGES):
        for (reader, writer), times in ((to_far, direct), (to_proxy, through)):
            began = time.perf_counter()
            writer.write(MESSAGE)
            await reader.readexactly(len(MESSAGE))
            times.append(time.perf_counter() - began)
        await asyncio.sleep(PAUSE_S)
    to_far[1].close()
    to_proxy[1].close()


def slowest_hundredth(times: list[float]) -> float:
    return sorted(times)[len(times) * 99 // 100]


# -- the comparison --------------------------------------------------------------------------------


def on_one_core(sample: Sample) -> float:
    """Pieces of work per second of the proxy's CPU."""
    return sample.count / sample.cpu


def one_core_ratio(above: str, below: str) -> Values:
    def values(rounds: Rounds) -> list[float]:
        pairs = zip(rounds[above], rounds[below], strict=False)
        return [on_one_core(a) / on_one_core(b) for a, b in pairs]

    return values


OUR_TUNNELS, OUR_BULK, OUR_LATENCY = "infloop, tunnels", "infloop, bulk, MB", "infloop, latency"
THEIR_BULK = "tinyproxy, bulk, MB"

BENCHMARK = Benchmark(
    title="Egress proxy",
    unit="tunnel, megabyte or message",
    contenders=(
        Contender(OUR_TUNNELS, partial(measure_tunnels, infloop_proxy)),
        Contender("tinyproxy, tunnels", partial(measure_tunnels, tinyproxy), optional=True),
        Contender(OUR_BULK, partial(measure_bulk, infloop_proxy)),
        Contender(THEIR_BULK, partial(measure_bulk, tinyproxy), optional=True),
        Contender(OUR_LATENCY, partial(measure_latency, infloop_proxy)),
        Contender("tinyproxy, latency", partial(measure_latency, tinyproxy), optional=True),
    ),
    targets=(
        Target("tunnels on one core", each(OUR_TUNNELS, on_one_core), 2_000, "/s", at_least=True),
        Target(
            "bulk on one core beside tinyproxy",
            one_core_ratio(OUR_BULK, THEIR_BULK),
            0.5,
            "times",
            at_least=True,
        ),
        Target("latency added, slowest hundredth", each(OUR_LATENCY, wall, 1e3), 5, "ms"),
    ),
    size=4_000,
    quick_size=1_000,
    rounds=5,
    alike=False,
)


if __name__ == "__main__":
    run_async(serve(int(sys.argv[1])))
