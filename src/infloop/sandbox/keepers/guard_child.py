"""Confines a child in the forked process, right before exec.

At level `guard` that is the program itself, at level `sandbox` it is bubblewrap.

Imported by the keeper, so it uses the standard library only. Every step must succeed: any exception
keeps the program from being started.
"""

from __future__ import annotations

import ctypes
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
else:
    import _socket as socket

_PR_SET_NO_NEW_PRIVS = 38
_LANDLOCK_RESTRICT_SELF = 446
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_FILTER = 1
_NEW_LISTENER = 1 << 3
# A notification that was received is answered even if the caller gets a signal meanwhile.
# Without this flag the caller would repeat its call.
_WAIT_KILLABLE = 1 << 5
_INSTRUCTION_BYTES = 8
_MAX_PROGRAM_BYTES = 4096 * _INSTRUCTION_BYTES

_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def confine(descriptors: list[int]) -> None:
    """Confine this process for good; raise OSError, naming the step, when one is refused.

    The descriptors are a Landlock ruleset, a file with the seccomp filter, and a socket over which
    the server gets the filter's notification descriptor. All of them are close-on-exec.
    """
    ruleset, *connects = descriptors
    _no_new_privileges()
    _system_call("Landlock", _LANDLOCK_RESTRICT_SELF, ruleset, 0)
    _filter_and_pass_listener(*connects)


def broker_connects(descriptors: list[int]) -> None:
    """Install a filter for good whose notifications the server answers; OSError when refused.

    The descriptors are those of `confine`, without a ruleset.
    """
    _no_new_privileges()
    _filter_and_pass_listener(*descriptors)


def _filter_and_pass_listener(program: int, broker: int) -> None:
    listener = _filter_system_calls(os.pread(program, _MAX_PROGRAM_BYTES, 0))
    # Not socket.send_fds: it imports a module, and Landlock may already forbid reading it.
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("=i", listener))
    to_server = socket.socket(fileno=broker)
    to_server.sendmsg([b"\n"], [rights])
    to_server.close()
    os.close(listener)


def _no_new_privileges() -> None:
    on, unused = ctypes.c_ulong(1), ctypes.c_ulong(0)
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, on, unused, unused, unused) != 0:
        raise _refused("no_new_privs")


def _filter_system_calls(instructions: bytes) -> int:
    """Install the filter; return the descriptor that gets its notifications."""
    program = _Program(len(instructions) // _INSTRUCTION_BYTES, instructions)
    number = _SECCOMP[os.uname().machine]
    flags = _NEW_LISTENER | _WAIT_KILLABLE
    return _system_call("seccomp", number, _SET_FILTER, flags, ctypes.byref(program))


def _system_call(name: str, number: int, *arguments: object) -> int:
    wide = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments]
    answer: int = _libc.syscall(ctypes.c_long(number), *wide)
    if answer < 0:
        raise _refused(name)
    return answer


def _refused(step: str) -> OSError:
    code = ctypes.get_errno()
    return OSError(code, f"{step} was refused: {os.strerror(code)}")
