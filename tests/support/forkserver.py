"""`infloop` commands and servers that start at once.

A short command spends nine tenths of its time importing, and a server starts in a second of CPU
time. Here a process that has imported everything (`children/command_forker.py`) forks for each
command, which then has a directory, an environment and streams of its own, as if it had been
started (see test_forkserver). A test of the start itself starts the real one.

To import everything takes seconds of CPU time, so one such process serves all workers of a run: the
process that starts the workers calls `serve`, and they find its socket in the environment.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import resource
import select
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self, TextIO

from support.paths import CHILDREN

STDOUT = subprocess.STDOUT
SOCKET = "TEST_FORKSERVER"
"""The variable that tells where requests are sent."""
PROGRAMS = CHILDREN / "bin"
"""Where there is an `infloop` for a shell, or for a client that starts it; see `for_others`."""

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def run(
    arguments: Sequence[str], cwd: Path, env: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with nothing to read; see how it ended and what it printed."""
    if any(name.startswith(("LD_", "PYTHON")) for name in env):  # heard only by who starts
        return start(arguments, cwd, env, timeout)
    with Command(arguments, cwd, env) as command:
        try:
            stdout, stderr = command.communicate(timeout)
        except subprocess.TimeoutExpired:
            command.kill()
            raise
        return subprocess.CompletedProcess(list(arguments), command.wait(), stdout, stderr)


class Command:
    """A command that runs, with the methods of `subprocess.Popen`.

    A stream that is not given is a pipe, but for stdin, which is empty. `ignored` are signals.
    At the paths in `binds` it sees other files. `network` is the namespace that it joins.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        *,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        new_session: bool = False,
        ignored: Sequence[int] = (),
        binds: Mapping[str, str] | None = None,
        network: str = "",
    ) -> None:
        assert not any(name.startswith(("LD_", "PYTHON")) for name in env), "start the real one"
        self.args = list(arguments)
        self.returncode: int | None = None
        self.peak_kib = 0
        """The most memory that it, or one of its children, had; known when it has ended."""
        self._told, told = os.pipe()
        self.stdout, out = _given_or_pipe(stdout)
        self.stderr, err = (None, out) if stderr is STDOUT else _given_or_pipe(stderr)
        nothing = os.open(os.devnull, os.O_RDONLY)
        streams = [nothing if stdin is None else stdin, out, err]
        os.umask(umask := os.umask(0))
        request = {
            "arguments": self.args,
            "cwd": str(cwd),
            "env": dict(env),
            "umask": umask,
            "files": resource.getrlimit(resource.RLIMIT_NOFILE),
            "session": new_session,
            "ignored": list(ignored),
            "binds": dict(binds or {}),
            "network": network,
        }
        try:
            socket.send_fds(_requests(), [json.dumps(request).encode()], [told, *streams])
        finally:
            for each in {told, nothing, *streams} - {stdin, stdout, stderr}:
                os.close(each)
        text = b""
        while not text.endswith(b" "):
            text += (letter := os.read(self._told, 1))
            assert letter, "the forking process ended"
        self.pid = int(text)

    def poll(self) -> int | None:
        """How it ended, if it has."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """How it ended, once it has."""
        if (code := self._ended(timeout)) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is not None:
            return self.returncode
        told = select.poll()
        told.register(self._told, select.POLLIN)
        if told.poll(None if timeout is None else timeout * 1000):
            self.returncode, self.peak_kib = map(int, os.read(self._told, 32).split())
            os.close(self._told)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read all that it prints and wait for its end."""
        deadline = None if timeout is None else time.monotonic() + timeout
        files = [each for each in (self.stdout, self.stderr) if each and not each.closed]
        texts, complete = read_all([each.fileno() for each in files], timeout)
        printed = dict(zip(files, (text.decode() for text in texts), strict=True))
        stdout, stderr = (
            printed.get(each, "") if each else "" for each in (self.stdout, self.stderr)
        )
        if not complete:
            raise subprocess.TimeoutExpired(self.args, timeout or 0, stdout, stderr)
        self.wait(None if deadline is None else max(0, deadline - time.monotonic()))
        for each in files:
            each.close()
        return stdout, stderr

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self.stdout, self.stderr):
            if each:
                each.close()
        self.wait()


def _given_or_pipe(file: int | None) -> tuple[TextIO | None, int]:
    """What a command writes to, and the end of it that is read."""
    if file is not None:
        return None, file
    ours, theirs = os.pipe()
    return os.fdopen(ours), theirs


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


def serve() -> str:
    """Start the process that forks; return the path of its socket. It ends with this process.

    It imports nothing before the first request, so it costs nothing where nobody sends one.
    """
    if SOCKET in os.environ:
        return os.environ[SOCKET]
    folder = tempfile.mkdtemp(prefix="infloop-test-forks-")
    path = f"{folder}/requests"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as requests:
        requests.bind(path)
        forking = subprocess.Popen(
            [sys.executable, str(CHILDREN / "command_forker.py"), str(requests.fileno())],
            stdin=subprocess.PIPE,
            env={"LANG": "C.UTF-8"},
            pass_fds=[requests.fileno()],
        )
    assert forking.stdin is not None
    atexit.register(shutil.rmtree, folder)
    atexit.register(forking.wait)
    atexit.register(forking.stdin.close)
    os.environ[SOCKET] = path
    return path


def for_others(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which `infloop` is forked, for a program that starts it itself."""
    python = Path(sys.executable).parent
    return {**env, "PATH": f"{PROGRAMS}:{python}:{env['PATH']}", SOCKET: serve()}


def forget() -> None:
    """Have a process of our own that forks from now on, because this process left its network."""
    os.environ.pop(SOCKET, None)
    _requests.cache_clear()


@functools.cache
def _requests() -> socket.socket:
    """The way to the process that forks."""
    requests = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    requests.connect(serve())
    atexit.register(requests.close)
    return requests


def read_all(files: Sequence[int], timeout: float | None) -> tuple[list[bytes], bool]:
    """What is written to these until nobody has them open, and whether that was in time."""
    deadline = time.monotonic() + (1e9 if timeout is None else timeout)
    texts = dict.fromkeys(files, b"")
    with selectors.DefaultSelector() as waiting:
        for file in files:
            waiting.register(file, selectors.EVENT_READ)
        while waiting.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in waiting.select(left):
                piece = os.read(key.fd, 65_536)
                texts[key.fd] += piece
                if not piece:
                    waiting.unregister(key.fd)
        return list(texts.values()), not waiting.get_map()
