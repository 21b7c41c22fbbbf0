"""`infloop` commands that begin at once.

A short command spends nine tenths of its time importing. Here a process that has imported
everything forks for each command, which then has a directory, an environment and streams of its
own, as if it had been started (see test_warm). Whoever kills a command, serves, speaks to a
terminal or follows the documents starts the real one.

As a program this file is the process that forks; its stdin is a socket with what is asked of it.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forking import import_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LARGEST_REQUEST = 128 * 1024
HIGHEST_FILE = 4096


# -- in the process that forks -----------------------------------------------------------------


def fork_for_each_request(requests: socket.socket) -> None:
    """Let each request be a process, and somebody wait for it, until there are no more."""
    import_all("infloop.mcp_server")
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how the waiting ones ended
    while True:
        request, files, _, _ = socket.recv_fds(requests, LARGEST_REQUEST, 3)
        if not request:
            return
        if os.fork() == 0:
            attend(json.loads(request), *files)
        for file in files:
            os.close(file)


def attend(request: dict[str, Any], stdout: int, stderr: int, told: int) -> None:
    """Start a command; tell its process id and, in the end, its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        become(request, stdout, stderr)
    for file in (stdout, stderr):
        os.close(file)
    os.write(told, f"{pid} ".encode())
    _, status = os.waitpid(pid, 0)
    os.write(told, str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def become(request: dict[str, Any], stdout: int, stderr: int) -> None:
    """Be the command from here on."""
    from infloop.__main__ import main

    for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), stdout, stderr)):
        os.dup2(file, number)
    os.closerange(3, HIGHEST_FILE)
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
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


def leave(code: Any) -> None:
    """End as Python does, but for taking all that was imported apart, which takes longest."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


# -- in the test -------------------------------------------------------------------------------


def run(
    arguments: Sequence[str], cwd: Path, env: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with nothing to read; see how it ended and what it printed."""
    if any(name.startswith(("LD_", "PYTHON")) for name in env):  # heard only by who starts
        return start(arguments, cwd, env, timeout)
    os.umask(umask := os.umask(0))
    request = {"arguments": arguments, "cwd": str(cwd), "env": dict(env), "umask": umask}
    pipes = [os.pipe() for _ in ("stdout", "stderr", "told")]
    try:
        socket.send_fds(requests(), [json.dumps(request).encode()], [end for _, end in pipes])
    finally:
        for _, end in pipes:
            os.close(end)
    printed, complete = read_all([end for end, _ in pipes], timeout)
    stdout, stderr, told = (text.decode() for text in printed)
    pid, _, code = told.partition(" ")
    if not complete:
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
        raise subprocess.TimeoutExpired(list(arguments), timeout, stdout, stderr)
    return subprocess.CompletedProcess(list(arguments), int(code), stdout, stderr)


def start(
    arguments: Sequence[str], cwd: Path, env: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Do as `run` does, with the real command."""
    return subprocess.run(
        [sys.executable, "-m", "infloop", *arguments],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@functools.cache
def requests() -> socket.socket:
    """The way to the process that forks, which ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        forking = subprocess.Popen(
            [sys.executable, __file__], stdin=theirs.fileno(), env={"LANG": "C.UTF-8"}
        )
    atexit.register(forking.wait)
    atexit.register(ours.close)
    return ours


def read_all(files: Sequence[int], timeout: float) -> tuple[list[bytes], bool]:
    """What is written to these until nobody has them open, and whether that was in time."""
    deadline = time.monotonic() + timeout
    texts = dict.fromkeys(files, b"")
    with selectors.DefaultSelector() as waiting:
        for file in files:
            waiting.register(file, selectors.EVENT_READ)
        try:
            while waiting.get_map() and (left := deadline - time.monotonic()) > 0:
                for key, _ in waiting.select(left):
                    piece = os.read(key.fd, 65_536)
                    texts[key.fd] += piece
                    if not piece:
                        waiting.unregister(key.fd)
            return list(texts.values()), not waiting.get_map()
        finally:
            for file in files:
                os.close(file)


if __name__ == "__main__":
    fork_for_each_request(socket.socket(fileno=0))
