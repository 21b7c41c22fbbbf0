"""Runs a test in a network of its own, where a public address can belong to this machine."""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import socket
import struct
import threading
from collections.abc import Awaitable, Callable

from support import parts

_NEW_NETWORK = 0x4000_0000
_SET_ADDRESS, _SET_FLAGS = 0x8916, 0x8914  # SIOCSIFADDR, SIOCSIFFLAGS
_UP = 1


def in_own_network(address: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` in a thread whose network has this address and nothing else."""
    if os.geteuid():
        parts.ruled_out("only root can make a network")
    failures: list[BaseException] = []

    async def run_work() -> None:
        await work()

    def run() -> None:
        try:
            unshared = ctypes.CDLL(None).unshare(_NEW_NETWORK)  # of this thread alone
            assert unshared == 0, "this thread got no network of its own"
            _bring_up("lo", "127.0.0.1")
            _bring_up("lo:1", address)
            asyncio.run(run_work())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


def _bring_up(interface: str, address: str) -> None:
    name = interface.encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sHH4s", name, socket.AF_INET, 0, socket.inet_aton(address))
        fcntl.ioctl(any_socket, _SET_ADDRESS, request.ljust(40, b"\0"))
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH", name, _UP).ljust(40, b"\0"))
