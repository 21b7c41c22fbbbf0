"""Forks a process for each `infloop` command that it is asked for; see forkserver.

Its argument is the descriptor of the socket with the requests. It ends when its stdin does.
Everything is imported before the first fork, and nothing before the first request.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.forking import import_all

if TYPE_CHECKING:
    from collections.abc import Sequence

LARGEST_REQUEST = 128 * 1024
HIGHEST_FILE = 4096
CLONE_NEWNET = 0x40000000
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 4096, 16384, 1 << 18
IMPORTED_BY_COMMANDS = ("deno", "encodings.ascii", "importlib.readers", "uvloop", "yaml")
IMPORTED_BY_AGENTS = ("pydantic_ai.direct", "pydantic_ai.providers.openai_compatible")


def fork_for_each_request(requests: socket.socket) -> None:
    """Let each request be a process, and tell how it ended, until stdin ends."""
    running: dict[int, int] = {}  # where to tell how a process ended
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    waiting = select.poll()  # it has no descriptor of its own, which a command would close
    for file in (0, requests.fileno(), ended):
        waiting.register(file, select.POLLIN)
    while 0 not in (ready := [file for file, _ in waiting.poll()]):
        if ended in ready:
            os.read(ended, 4096)
            tell_who_ended(running)
        if requests.fileno() not in ready:
            continue
        request, files, _, _ = socket.recv_fds(requests, LARGEST_REQUEST, 4)
        told, *streams = files
        import_for(request)
        pid = os.fork()
        if pid == 0:
            become(json.loads(request), told, streams)
        running[pid] = told
        for file in streams:
            os.close(file)


def import_for(request: bytes) -> None:
    """Import what a command uses, unless an earlier one did."""
    for word, import_it in IMPORTS.items():
        if word in request:
            import_it()


@functools.cache
def import_for_commands() -> None:
    import_all("infloop.mcp_server")
    for name in IMPORTED_BY_COMMANDS:
        importlib.import_module(name)
    from infloop.policy.leaks.finder import LeakFinder
    from infloop.policy.leaks.rules import shipped_rules

    LeakFinder((), shipped_rules())  # read once and compiled once, as modules are
    gc.freeze()  # a child that counted these would copy them


@functools.cache
def import_for_agents() -> None:
    for name in IMPORTED_BY_AGENTS:
        importlib.import_module(name)
    gc.freeze()


@functools.cache
def import_for_mcp() -> None:
    import_all()
    gc.freeze()


IMPORTS = {b"": import_for_commands, b'"agent"': import_for_agents, b'"mcp"': import_for_mcp}
"""By a word of the request. The last two are seldom used, and take longer than all the others."""


def tell_who_ended(running: dict[int, int]) -> None:
    """Tell of each process that has ended how it did, and how much memory it had."""
    while running:
        pid, status, usage = os.wait4(-1, os.WNOHANG)
        if pid == 0:
            return
        told = running.pop(pid)
        with suppress(BrokenPipeError):  # nobody wants to know
            os.write(told, f"{os.waitstatus_to_exitcode(status)} {usage.ru_maxrss}".encode())
        os.close(told)


def become(request: dict[str, Any], told: int, streams: Sequence[int]) -> None:
    """Be the command from here on; it begins by telling its process id."""
    from infloop.__main__ import main

    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, file in enumerate(streams):
        os.dup2(file, number)
    if request["session"]:
        os.setsid()
    for number in request["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    os.write(told, f"{os.getpid()} ".encode())
    os.closerange(3, HIGHEST_FILE)
    join_network(request["network"])
    resource.setrlimit(resource.RLIMIT_NOFILE, request["files"])
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
    see_other_files(request["binds"])
    os.umask(request["umask"])
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    sys.argv = ["infloop", *request["arguments"]]
    try:
        code: Any = main()
    except SystemExit as ending:
        code = ending.code
    leave(code)


def join_network(name: str) -> None:
    """Be on the network of a namespace, with all children; only root can."""
    if name:
        file = os.open(f"/run/netns/{name}", os.O_RDONLY)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(file, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot join the network {name}")
        os.close(file)


def see_other_files(binds: dict[str, str]) -> None:
    """Let this process and its children see other files at some paths; only root can."""
    if not binds:
        return
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int) -> None:
        if result != 0:
            raise OSError(ctypes.get_errno(), "this machine lets nobody change its mounts")

    check(libc.unshare(CLONE_NEWNS))
    check(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
    for path, source in binds.items():
        check(libc.mount(os.fsencode(source), os.fsencode(path), None, MS_BIND, None))


def leave(code: Any) -> None:
    """End as Python does, but for taking all that was imported apart, which takes longest."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    fork_for_each_request(socket.socket(fileno=int(sys.argv[1])))
