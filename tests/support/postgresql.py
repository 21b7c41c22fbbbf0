"""A PostgreSQL server for tests: private, in a temporary directory, gone with who started it.

Each test process has a server of its own, started when the first test needs it. Children of the
process use the same one. A folder stands for a database, which is a copy of one whose schema is
ready, so that making it takes milliseconds.

The server does not sync to disk. Tests kill processes, also the server itself, and what a killed
process has written is kept by the kernel; only a power failure would lose it.
"""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import os
import pwd
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg

from infloop.store.postgresql.store import open_postgresql_store
from support import parts
from support.eventually import eventually

_SERVER = "TEST_POSTGRESQL"  # how children of a test find the server
_PLACE = "/var/tmp"  # which `make test` keeps in memory
_PREFIX = "infloop-pg-"
_TEMPLATE = "template_infloop"
_CREATION_LOCK = 7
_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "on",
    "max_connections": "300",
    "shared_buffers": "16MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "autovacuum": "off",
    "jit": "off",
}


def program(name: str) -> str:
    """Return where a program of PostgreSQL is; Debian keeps them out of PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(found[-1]) if found else parts.need_program(name)


class Server:
    """A server in a directory of its own, reached through a socket there.

    With `network` it is in this namespace, and listens at its address `listen` too.
    """

    def __init__(self, network: str = "", listen: str = "") -> None:
        self._join = ["nsenter", f"--net=/run/netns/{network}"] if network else []
        self._listen = listen
        self._programs = {name: program(name) for name in ("postgres", "initdb")}
        _remove_left_behind()
        name = f"{_PREFIX}{os.getpid()}-"
        self.directory = Path(tempfile.mkdtemp(prefix=name, dir=_PLACE))
        self._as_user: list[str] = []
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            user = pwd.getpwnam(_unprivileged_user())
            os.chown(self.directory, user.pw_uid, user.pw_gid)
            ids = (f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
            self._as_user = ["setpriv", *ids]
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.remove)
        self._run(
            [
                self._programs["initdb"],
                "-D",
                str(self._data),
                "-U",
                "tester",
                "-A",
                "trust",
                "-N",
                "-E",
                "UTF8",
                "--locale=C",
                "--no-instructions",
            ]
        )
        if listen:
            with (self._data / "pg_hba.conf").open("a") as rules:
                rules.write("host all all samenet trust\n")
        self.start()

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def address(self, database: str) -> str:
        """Return the address of a database of this server."""
        return _address(str(self.directory), database)

    def start(self) -> None:
        """Start the server and wait until it answers."""
        settings = {**_SETTINGS, "listen_addresses": self._listen}
        options = [f"-c{name}={value}" for name, value in settings.items()]
        # The kernel ends it (by a fast shutdown) when the process that started it dies.
        watched = ["setpriv", "--pdeathsig", "INT", *self._as_user[1:]]
        log = (self.directory / "log").open("ab")
        self._process = subprocess.Popen(
            [
                *self._join,
                *watched,
                self._programs["postgres"],
                "-D",
                str(self._data),
                "-k",
                str(self.directory),
                *options,
            ],
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )
        log.close()
        eventually(self._answers, "PostgreSQL answers")

    def start_again(self) -> None:
        """Start the server if it has ended, so that one test takes no other with it."""
        if self._process is not None and self._process.poll() is not None:
            self.start()

    def stop(self, how: str = "fast") -> None:
        """Stop the server: `fast`, or `immediate` as a crash does."""
        if self._process is None:
            return
        signals = {"fast": 2, "immediate": 3}
        self._process.send_signal(signals[how])
        self._process.wait(60)
        self._process = None

    def remove(self) -> None:
        """Stop the server and delete everything."""
        self.stop("immediate")
        shutil.rmtree(self.directory, ignore_errors=True)

    def execute(self, sql: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Execute a statement and return its rows."""
        with psycopg.connect(self.address(database), autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.directory / "log").read_text()
        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, command: list[str]) -> None:
        subprocess.run(
            [*self._as_user, *command], check=True, stdout=subprocess.DEVNULL, cwd=self.directory
        )


def _remove_left_behind() -> None:
    """Delete the directories of test processes that were killed; their servers ended with them."""
    for directory in Path(_PLACE).glob(f"{_PREFIX}*-*"):
        owner = directory.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path("/proc", owner).exists():
            shutil.rmtree(directory, ignore_errors=True)


def _unprivileged_user() -> str:
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        return "nobody"


# -- databases for tests ---------------------------------------------------------------------------


def database_for(folder: Path) -> str:
    """Return the address of the database that a folder stands for; it is made when needed."""
    server = running_server()
    name = f"test_{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"
    with psycopg.connect(_address(server, "postgres"), autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", (_CREATION_LOCK,))
        exists = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,))
        if exists.fetchone() is None:
            # From version 15 on it copies page by page unless told otherwise: a third of a second.
            how = " STRATEGY FILE_COPY" if connection.info.server_version >= 150_000 else ""
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE}{how}".encode())
    return _address(server, name)


def execute(folder: Path, sql: str) -> list[tuple[object, ...]]:
    """Execute a statement in the database of a folder and return its rows."""
    with psycopg.connect(database_for(folder), autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


def drop_databases() -> None:
    """Drop what the test made."""
    server = os.environ.get(_SERVER)
    if not server:
        return
    with psycopg.connect(_address(server, "postgres"), autocommit=True) as connection:
        rows = connection.execute("SELECT datname FROM pg_database WHERE datname LIKE 'test%'")
        for (name,) in rows.fetchall():
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


_own: list[Server] = []
"""The server that this process has started, if it has."""


def _address(server: str, database: str) -> str:
    return f"postgresql://tester@/{database}?host={server}"


def running_server() -> str:
    """Return the directory of the server of this test process; start it if it is not running.

    Call it in the thread that runs the tests: the server ends with the thread that started it.
    """
    for own in _own:
        own.start_again()
    if _SERVER in os.environ:
        return os.environ[_SERVER]
    server = Server()
    server.execute(f"CREATE DATABASE {_TEMPLATE}")
    with ThreadPoolExecutor() as threads:
        threads.submit(asyncio.run, _prepare(server.address(_TEMPLATE))).result()
    os.environ[_SERVER] = str(server.directory)
    _own.append(server)
    return str(server.directory)


async def _prepare(address: str) -> None:
    await (await open_postgresql_store(address)).close()
