"""A repository over ssh: a server that runs git's own programs, and a user with keys of its own."""

from __future__ import annotations

import asyncio
import os
import pwd
import shlex
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import asyncssh

_PIECE = 1 << 16


class Server(NamedTuple):
    """Where it listens, and the line by which a user's `known_hosts` knows it."""

    port: int
    known_host: str


@asynccontextmanager
async def git_ssh(public_key: str) -> AsyncIterator[Server]:
    """Serve the repositories of this machine to who has the key, on a port of 127.0.0.1."""
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_host_keys=[host_key],
        authorized_client_keys=asyncssh.import_authorized_keys(public_key),
        process_factory=_run_git,
        encoding=None,
    )
    port = server.get_port()
    try:
        yield Server(port, f"[127.0.0.1]:{port} {host_key.export_public_key().decode()}")
    finally:
        server.close()
        await server.wait_closed()


async def _run_git(process: asyncssh.SSHServerProcess[bytes]) -> None:
    program, *arguments = shlex.split(process.command or "")
    if program != "git-upload-pack":
        process.exit(127)
        return
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        "git", "upload-pack", *arguments, stdin=pipe, stdout=pipe
    )
    assert child.stdin is not None
    assert child.stdout is not None
    sending = asyncio.create_task(_copy(process.stdin, child.stdin))
    while data := await child.stdout.read(_PIECE):
        process.stdout.write(data)
    sending.cancel()
    process.exit(await child.wait())


async def _copy(source: asyncssh.SSHReader[bytes], target: asyncio.StreamWriter) -> None:
    while data := await source.read(_PIECE):
        target.write(data)
        await target.drain()
    target.close()


class Home:
    """The home directory of a user with an ssh key.

    ssh looks for keys and known hosts in the home that the machine's list of users names, whatever
    the environment says. So commands get a view of the machine in which that directory is this one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = path / ".ssh"
        self._folder.mkdir(parents=True, mode=0o700)
        key = asyncssh.generate_private_key("ssh-ed25519")
        self.public_key = key.export_public_key().decode()
        private = self._folder / "id_ed25519"
        key.write_private_key(private)
        private.chmod(0o600)

    def trust(self, server: Server) -> None:
        """Add a server to the known hosts."""
        (self._folder / "known_hosts").write_text(server.known_host)

    def command(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return a command that runs with this home."""
        real = pwd.getpwuid(os.getuid()).pw_dir
        return ("bwrap", "--dev-bind", "/", "/", "--bind", str(self._path), real, *argv)
