"""Landlock rulesets: which paths a process may read and write.

The server creates a ruleset and sends it to the child, which applies it to itself (see
guard_child). What a ruleset does not name is refused: reading, writing and executing by path, TCP
unless the network is open, signals to processes outside, and abstract sockets.

What Landlock does not cover:

- Addresses, UDP and Unix sockets: see seccomp.
- The lifetime of processes: see the keeper.
- That a file exists can be seen (stat, and inotify where the user may read).
- Mode, owner and times of files can be changed.
"""

from __future__ import annotations

import ctypes
import functools
import os
import stat
import struct
from typing import TYPE_CHECKING, TypeAlias

from infloop.lowlevel.link_free import open_link_free

if TYPE_CHECKING:
    from collections.abc import Iterable

FileId: TypeAlias = tuple[int, int]
"""The device and inode of a file or directory."""

# System call numbers that are the same on every architecture.
_CREATE_RULESET, _ADD_RULE = 444, 445
_ASK_VERSION = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHARACTER_DEVICE, _MAKE_BLOCK_DEVICE = 1 << 6, 1 << 11
_FIRST_RIGHTS = (1 << 13) - 1
_REFER, _TRUNCATE, _IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_BIND_TCP, _CONNECT_TCP = 1 << 0, 1 << 1
_ABSTRACT_SOCKETS, _SIGNALS = 1 << 0, 1 << 1

_READ_RIGHTS = _EXECUTE | _READ_FILE | _READ_DIR
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE

_RULE = struct.Struct("=Qi")

_NEEDED_VERSION = 3
_TCP_VERSION, _DEVICE_VERSION, _SCOPE_VERSION = 4, 5, 6


def version() -> int:
    """Return the Landlock version of this kernel; 0 if it has none."""
    try:
        return _create_ruleset(None, _ASK_VERSION)
    except OSError:
        return 0


def missing(offered: int) -> str:
    """Return what a kernel with that version lacks for level `guard`, if anything."""
    if offered < 1:
        return "Landlock, which this kernel does not have or has disabled (lsm= at boot)"
    if offered < _NEEDED_VERSION:
        return (
            f"Landlock version {_NEEDED_VERSION} or newer (Linux 6.2), which keeps files from being"
            f" truncated; this kernel has version {offered}"
        )
    return ""


def not_covered(offered: int) -> tuple[str, ...]:
    """Return what an older but sufficient Landlock does not prevent, as sentences."""
    if offered < _SCOPE_VERSION:
        return ("A child can signal other processes of its user (Linux 6.12 prevents it).",)
    return ()


def ruleset(read: Iterable[str], write: Iterable[str], *, network_open: bool) -> int:
    """Return the descriptor of a ruleset; raise OSError when the kernel refuses to create it.

    Files at or below the `read` paths may be read and executed; those at or below the `write` paths
    may also be changed. Missing paths are left out. Paths with a symbolic link are refused: a child
    that can write to one of the directories could otherwise redirect the rule.
    """
    return ruleset_with_ids(read, write, network_open=network_open)[0]


def ruleset_with_ids(
    read: Iterable[str], write: Iterable[str], *, network_open: bool
) -> tuple[int, dict[str, FileId | None]]:
    """Return a ruleset, and which file or directory each path was; None if it was missing."""
    offered = version()
    handled = _rights(offered)
    ports = 0 if network_open or offered < _TCP_VERSION else _BIND_TCP | _CONNECT_TCP
    scopes = _ABSTRACT_SOCKETS | _SIGNALS if offered >= _SCOPE_VERSION else 0
    attributes = struct.pack("=3Q", handled, ports, scopes)
    # An older kernel accepts the longer structure if the fields that it does not know are zero.
    ruleset_fd = _create_ruleset(attributes, 0)
    found: dict[str, FileId | None] = {}
    try:
        for path in read:
            found[path] = _allow(ruleset_fd, path, handled & _READ_RIGHTS)
        for path in write:
            found[path] = _allow(ruleset_fd, path, _write_rights(handled))
    except OSError:
        os.close(ruleset_fd)
        raise
    return ruleset_fd, found


def allow_writing(ruleset_fd: int, paths: Iterable[str]) -> None:
    """Add writable paths to a ruleset, for those who put it on from now on."""
    for path in paths:
        _allow(ruleset_fd, path, _write_rights(_rights(version())))


def _write_rights(handled: int) -> int:
    return handled & ~(_MAKE_CHARACTER_DEVICE | _MAKE_BLOCK_DEVICE)


def _rights(offered: int) -> int:
    """Return every file right that this version knows."""
    rights = _FIRST_RIGHTS | _REFER | _TRUNCATE
    return rights | _IOCTL_DEVICE if offered >= _DEVICE_VERSION else rights


def _allow(ruleset_fd: int, path: str, rights: int) -> FileId | None:
    """Add a rule; return which file or directory it is about, None if there is none."""
    # Called for fifty paths of every child: 18 us each, 27 without a prepared system call.
    try:
        fd = open_link_free(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISDIR(status.st_mode):
            rights &= _FILE_RIGHTS
        add_rule = _system_call(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
        if add_rule(_ADD_RULE, ruleset_fd, _PATH_BENEATH, _RULE.pack(rights, fd), 0) < 0:
            raise _refused()
        return status.st_dev, status.st_ino
    finally:
        os.close(fd)


def _create_ruleset(attributes: bytes | None, flags: int) -> int:
    size = len(attributes or b"")
    call = _system_call(ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint)
    answer: int = call(_CREATE_RULESET, attributes, size, flags)
    if answer < 0:
        raise _refused()
    return answer


@functools.cache
def _system_call(*arguments: type) -> ctypes._NamedFuncPointer:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.argtypes = (ctypes.c_long, *arguments)
    call.restype = ctypes.c_long
    return call


def _refused() -> OSError:
    code = ctypes.get_errno()
    return OSError(code, f"Landlock refused: {os.strerror(code)}")
