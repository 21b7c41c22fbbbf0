"""What a loop writes for other processes, and what it reads from them; see `store/dev_loops`."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from infloop.store.dev_loops import RestartRequest, log_name
from infloop.store.files import FILE_MODE, private_directory, write_private
from infloop.watch.content_watch import open_backend
from infloop.watch.targets import Scope

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from infloop.model.dev.status import DevStatus
    from infloop.sandbox.base import Stream
    from infloop.supervisor.reports import Level, Source, Surface

LOG_BYTES = 256 << 10
_REQUEST_BYTES = 4096
_WRITE_AFTER_S = 0.05
_POLL_MS = 500


class Mailbox:
    """The files of one loop; `status` returns what is shown of it, `state` its session state."""

    def __init__(
        self,
        folder: Path,
        status: Callable[[], DevStatus],
        state: Callable[[], bytes],
        restart: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._status = status
        self._state = state
        self._written_state = b""
        self._restart = restart
        self._pending: asyncio.TimerHandle | None = None
        self._logs: dict[str, _LogFile] = {}
        for each in (folder, folder / "logs", folder / "requests"):
            private_directory(each)
        self._write()
        requests = str(folder / "requests")
        scope = Scope(["*"])
        self._watch, _ = open_backend(requests, scope, self._on_requests, poll_ms=_POLL_MS)
        self._watch.start()

    def close(self) -> None:
        """Remove the files."""
        self._watch.close()
        if self._pending is not None:
            self._pending.cancel()
        for log in self._logs.values():
            log.close()
        self._logs.clear()
        for path in [*self._folder.glob("*/*"), *self._folder.glob("*")]:
            with suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        with suppress(OSError):
            self._folder.rmdir()

    def changed(self) -> None:
        """Write the status soon; several changes are one write."""
        if self._pending is None:
            loop = asyncio.get_running_loop()
            self._pending = loop.call_later(_WRITE_AFTER_S, self._write)

    def keep(self, name: str, line: str) -> None:
        """Add a line to the log of a process or hook."""
        log = self._logs.get(name)
        if log is None:
            log = self._logs[name] = _LogFile(self._folder / "logs" / log_name(name))
        log.add(line)

    def _write(self) -> None:
        self._pending = None
        with suppress(OSError):  # a full disk does not end the loop
            data = msgspec.json.encode(self._status())
            write_private(self._folder / "status.json", data, durable=False)
            state = self._state()
            if state != self._written_state:
                write_private(self._folder / "state.json", state, durable=False)
                self._written_state = state

    def _on_requests(self, names: set[str]) -> None:
        for name in sorted(names):
            path = self._folder / "requests" / name
            if not name.endswith(".json") or not path.is_file():
                continue
            with suppress(OSError, ValueError):
                content = path.read_bytes()[:_REQUEST_BYTES]
                path.unlink()
                self._restart(msgspec.json.decode(content, type=RestartRequest).restart)


class _LogFile:
    """The last lines, in two files of which the older one is dropped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = _open(path)
        self._size = 0

    def add(self, line: str) -> None:
        data = f"{line}\n".encode("utf-8", "replace")
        with suppress(OSError):
            if self._size + len(data) > LOG_BYTES // 2:
                self._path.replace(self._path.with_name(f"{self._path.name}.old"))
                self.close()
                self._descriptor = _open(self._path)
                self._size = 0
            self._size += os.write(self._descriptor, data)

    def close(self) -> None:
        os.close(self._descriptor)


def _open(path: Path) -> int:
    return os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE)


class Recorded:
    """A surface that also keeps logs and status for other processes, once there is a mailbox."""

    def __init__(self, inner: Surface) -> None:
        self._inner = inner
        self.mailbox: Mailbox | None = None

    def line(self, source: Source, stream: Stream, text: str, *, complete: bool) -> None:
        if self.mailbox is not None:
            self.mailbox.keep(source.name, text)
        if source.shown:
            self._inner.line(source, stream, text, complete=complete)

    def log(self, level: Level, message: str) -> None:
        self._inner.log(level, message)

    def box(self, message: str) -> None:
        self._inner.box(message)

    def status_changed(self) -> None:
        if self.mailbox is not None:
            self.mailbox.changed()
        self._inner.status_changed()
