"""Files that an agent reads and writes through infloop, below its working directory.

infloop is not confined as the agent may be. So no symbolic link is followed, and nothing in `.git`
is written: git executes files there the next time somebody uses the repository.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from infloop.errors import StepError
from infloop.policy.protected_paths import normalized_name
from infloop.workspace import beneath

MAX_BYTES = 8 << 20


class AgentFiles:
    """The files below one directory, by absolute path; raises StepError if one is refused."""

    def __init__(self, directory: str) -> None:
        self._root = Path(directory)
        self._names = {directory.rstrip("/"), os.path.realpath(directory)}

    def read(self, path: str, first_line: int = 1, lines: int | None = None) -> str:
        """Return the text of a file, or some of its lines; invalid UTF-8 becomes U+FFFD."""
        inner = self._inner(path)
        try:
            with (
                beneath.open_root(self._root) as root,
                beneath.open_parent(root, inner) as (folder, name),
            ):
                text = _read(folder, name, path)
        except OSError as error:
            raise StepError(f"{path[:200]!r} cannot be read: {error.strerror}") from None
        if first_line <= 1 and lines is None:
            return text
        begin = max(0, first_line - 1)
        end = None if lines is None else begin + lines
        return "".join(text.splitlines(keepends=True)[begin:end])

    def write(self, path: str, text: str) -> None:
        """Create or atomically replace a file; an existing file keeps its mode."""
        inner = self._inner(path)
        if any(normalized_name(os.fsdecode(name)) == ".git" for name in inner.split(b"/")):
            raise StepError(f"{path[:200]!r} is git's own and is not written")
        data = text.encode("utf-8", "replace")
        try:
            with beneath.open_root(self._root) as root:
                beneath.make_directories(root, inner.rpartition(b"/")[0])
                with beneath.open_parent(root, inner) as (folder, name):
                    _replace(folder, name, data, path)
        except OSError as error:
            raise StepError(f"{path[:200]!r} cannot be written: {error.strerror}") from None

    def _inner(self, path: str) -> bytes:
        """Return the path within the directory."""
        for name in self._names:
            inner = path.removeprefix(f"{name}/")
            if inner != path and "\0" not in inner and not {"", ".", ".."} & {*inner.split("/")}:
                return os.fsencode(inner)
        raise StepError(f"{path[:200]!r} is not beneath {str(self._root)!r}")


def _read(folder: int, name: bytes, path: str) -> str:
    descriptor = os.open(name, beneath.OPEN_FILE, dir_fd=folder)
    with open(descriptor, "rb") as file:  # noqa: PTH123  (a descriptor has no path)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise StepError(f"{path[:200]!r} is not a file")
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise StepError(f"{path[:200]!r} is larger than {MAX_BYTES} bytes")
    return data.decode("utf-8", "replace")


def _replace(folder: int, name: bytes, data: bytes, path: str) -> None:
    there = beneath.lstat(folder, name)
    if there is not None and not stat.S_ISREG(there.st_mode):
        raise StepError(f"{path[:200]!r} is not a file")
    new = b".infloop-new-" + secrets.token_hex(8).encode()
    descriptor = os.open(new, beneath.CREATE_FILE, 0o666, dir_fd=folder)
    try:
        try:
            beneath.write_all(descriptor, data)
            if there is not None:
                os.fchmod(descriptor, there.st_mode & 0o777)  # no setuid bit: the owner may change
        finally:
            os.close(descriptor)
        os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        os.unlink(new, dir_fd=folder)
        raise
