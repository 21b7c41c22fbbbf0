"""Servers and workers that share a store, each a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from support import forkserver
from support.server import PATIENCE, environment

DatabaseKind = Literal["sqlite", "postgresql"]


def shared_database(kind: DatabaseKind, folder: Path) -> dict[str, str]:
    """Return the settings with which all processes of a test use the same store."""
    if kind == "sqlite":
        return {}
    from support.postgresql import database_for

    return {"database": database_for(folder)}


class WorkerProcess:
    """`infloop worker`, ready to take runs.

    Beside a database it has a data directory of its own: it shares no file with the server. With
    `network` it is in this namespace.
    """

    def __init__(
        self, folder: Path, name: str, *arguments: str, network: str = "", **settings: str
    ) -> None:
        self.stderr = folder / f"{name}.stderr"
        if "database" in settings:
            settings = {"data_dir": str(folder / f"data-of-{name}"), **settings}
        with self.stderr.open("w") as complaints:
            self.process = forkserver.Command(
                ("worker", *arguments),
                folder,
                environment(folder, **settings),
                stderr=complaints.fileno(),
                network=network,
            )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        assert self.said.startswith("infloop worker i-"), self.stderr.read_text()
        self.id = self.said.split()[2].rstrip(":")

    @property
    def log(self) -> str:
        return self.stderr.read_text()

    def end(self, number: int = 15) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@contextmanager
def worker(folder: Path, name: str, *arguments: str, **settings: str) -> Iterator[WorkerProcess]:
    """A worker process, killed when the test is over."""
    made = WorkerProcess(folder, name, *arguments, **settings)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
        made.process.wait(PATIENCE)
        assert made.process.stdout is not None
        made.process.stdout.close()
