"""`infloop` commands that start at once.

A short command spends nine tenths of its time importing. Here a process that has imported
everything (`children/command_forker.py`) forks for each command, which then has a directory, an
environment and streams of its own, as if it had been started (see test_forkserver). A test that
kills a command, serves, speaks to a terminal or follows the documents starts the real one.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from support.paths import CHILDREN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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
            [sys.executable, str(CHILDREN / "command_forker.py")],
            stdin=theirs.fileno(),
            env={"LANG": "C.UTF-8"},
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
