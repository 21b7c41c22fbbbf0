"""The last steps of a child at level `guard` before it becomes its program.

Imported by a keeper, hence the standard library alone; runs in the forked child. Every step must
succeed: what is raised here keeps the program from being started.
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
# A received question is answered even if the asker is signalled; else it would ask twice.
_WAIT_KILLABLE = 1 << 5
_INSTRUCTION_BYTES = 8
_MAX_PROGRAM_BYTES = 4096 * _INSTRUCTION_BYTES

_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def confine(descriptors: list[int]) -> None:
    """Confine this process for ever; raise OSError, naming the step, when one is refused.

    The descriptors are a Landlock ruleset, a file with the filter of system calls, and a socket
    over which the server gets the filter's listener. They are closed when the program begins.
    """
    ruleset, program, report = descriptors
    _no_new_privileges()
    _system_call("Landlock", _LANDLOCK_RESTRICT_SELF, ruleset, 0)
    listener = _filter_system_calls(os.pread(program, _MAX_PROGRAM_BYTES, 0))
    # Not socket.send_fds: it imports, and by now we may not read our own library any more.
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("=i", listener))
    to_server = socket.socket(fileno=report)
    to_server.sendmsg([b"\n"], [rights])
    to_server.close()
    os.close(listener)


def _no_new_privileges() -> None:
    on, unused = ctypes.c_ulong(1), ctypes.c_ulong(0)
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, on, unused, unused, unused) != 0:
        raise _refused("no_new_privs")


def _filter_system_calls(instructions: bytes) -> int:
    """Put the filter on and return the descriptor on which its questions can be heard."""
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
