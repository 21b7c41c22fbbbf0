"""A development loop as a process of its own, and what a test wants to know of it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support import forkserver
from support.eventually import eventually
from support.processes import is_running
from support.server import PATIENCE, Answer, environment

TELLS_ITS_ENVIRONMENT = ["sh", "-c", "env > $DEVLOOP_ROOT/$0.env; exec sleep 600"]


class DevLoop:
    """A running `infloop dev`; its output goes to files."""

    def __init__(
        self,
        folder: Path,
        config: str,
        *arguments: str,
        ignore_int: bool = False,
        within: Sequence[str] = (),
        **settings: str,
    ) -> None:
        """`within` is a command that runs the loop; `ignore_int` is what a shell's `&` does."""
        self.folder = folder
        self.root = folder / "project"
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / "devloop.toml").write_text(config)
        self._out, self._err = folder / "dev.out", folder / "dev.err"
        with self._out.open("w") as out, self._err.open("w") as err:
            env = {**environment(folder, **settings), "A_SECRET_TOKEN": "do-not-inherit"}
            self.process: forkserver.Command | subprocess.Popen[bytes]
            if within:
                argv = [*within, sys.executable, "-m", "infloop", "dev", *arguments]
                self.process = subprocess.Popen(
                    argv, cwd=self.root, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err
                )
                return
            self.process = forkserver.Command(
                ("dev", *arguments),
                self.root,
                env,
                stdout=out.fileno(),
                stderr=err.fileno(),
                ignored=[signal.SIGINT] if ignore_int else [],
            )

    @property
    def out(self) -> str:
        """What the loop wrote to standard output."""
        return self._out.read_text()

    @property
    def log(self) -> str:
        """What the loop wrote to standard error."""
        return self._err.read_text()

    def logged(self, text: str, times: int = 1) -> str:
        """Wait until a text was logged; return the log."""
        eventually(lambda: self.log.count(text) >= times, lambda: f"{text!r} in:\n{self.log}")
        return self.log

    def ready(self) -> DevLoop:
        """Wait until files are watched, which is the last part of the start."""
        self.logged("watching ")
        return self

    @property
    def state(self) -> dict[str, Any]:
        file = self.root / ".devloop/state.json"
        found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        return found

    def variables(self, name: str) -> dict[str, str]:
        """The environment that a child has told (`TELLS_ITS_ENVIRONMENT`)."""
        file = self.root / f"{name}.env"

        def complete() -> dict[str, str] | None:
            text = file.read_text() if file.exists() else ""
            lines = [line.split("=", 1) for line in text.splitlines() if "=" in line]
            found = {parts[0]: parts[1] for parts in lines}
            return found if "DEVLOOP_CHANGED_FILES_JSON" in found and text[-1] == "\n" else None

        return eventually(complete)

    def end(self, number: int = signal.SIGINT) -> int:
        """Send a signal; return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@contextmanager
def dev_loop(folder: Path, config: str, *arguments: str, **more: Any) -> Iterator[DevLoop]:
    """A development loop, ended when the test is over."""
    loop = DevLoop(folder, config, *arguments, **more)
    try:
        yield loop
    finally:
        if loop.process.poll() is None:
            loop.process.send_signal(signal.SIGTERM)
        try:
            loop.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            loop.process.kill()
            loop.process.wait(PATIENCE)
            raise


def send(
    url: str,
    body: bytes | None,
    headers: Mapping[str, str],
    *,
    method: str = "POST",
    path: str | None = None,
) -> Answer:
    """Send one request to a listener of a loop."""
    place, _, rest = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(place, timeout=PATIENCE)
    try:
        connection.request(method, f"/{rest}" if path is None else path, body, dict(headers))
        got = connection.getresponse()
        named = {name.lower(): value for name, value in got.getheaders()}
        return Answer(got.status, named, got.read())
    finally:
        connection.close()


def post(variables: Mapping[str, str], event: str, value: object, **more: str) -> Answer:
    """Send an event as a child with these variables does."""
    headers = {
        "authorization": f"Bearer {variables['DEVLOOP_EVENTS_TOKEN']}",
        "content-type": "application/json",
        **more,
    }
    url = f"{variables['DEVLOOP_EVENTS_BASE_URL']}/events/{event}"
    return send(url, json.dumps({"value": value}).encode(), headers)


def pids_with(marker: str) -> list[int]:
    """The living processes with a text in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        pid = int(path.parent.name)
        if marker.encode() in line and pid != os.getpid() and is_running(pid):
            found.append(pid)
    return found
