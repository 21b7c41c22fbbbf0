"""The filters of system calls: read by a small machine of our own, and loaded for real.

Which calls must be refused is written down in the tests (here and in support.system_calls). None of
it is taken from the filters: a call that disappears from them fails a test.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from infloop.errors import MissingPart
from infloop.sandbox.kernel.seccomp import connect_filter, guard_filter, sandbox_filter
from support.parts import ruled_out
from support.system_calls import (
    BY_ARGUMENTS,
    MACHINES,
    REFUSED_AT_GUARD,
    REFUSED_EVERYWHERE,
    number_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAMS: dict[str, Callable[[str], bytes]] = {
    "sandbox": sandbox_filter,
    "guard open": lambda machine: guard_filter("open", machine),
    "guard closed": lambda machine: guard_filter("closed", machine),
}
EVERYWHERE = set(PROGRAMS)
GUARD = EVERYWHERE - {"sandbox"}
CLOSED = {"guard closed"}
OPEN = EVERYWHERE - CLOSED
HIGH = 0xDEADBEEF << 32
ALLOW, NOTIFY, KILL = 0x7FFF0000, 0x7FC00000, 0x80000000


def refused(code: int) -> int:
    return 0x00050000 | code


def verdict(program: bytes, arch: int, number: int, *arguments: int) -> int:
    """Run a program as the kernel would; what it may not do stops with an error."""
    given = [*arguments, *(0 for _ in range(6 - len(arguments)))]
    masked = [a & 0xFFFFFFFFFFFFFFFF for a in given]
    data = struct.pack(
        "=iIQ6Q", number if number < 1 << 31 else number - (1 << 32), arch, 0, *masked
    )
    code = list(struct.iter_unpack("=HBBI", program))
    at, accumulator = 0, 0
    while True:
        operation, if_true, if_false, value = code[at]
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif operation == 0x54:
            accumulator &= value
        elif operation == 0x06:
            return int(value)
        else:
            holds = {
                0x15: accumulator == value,
                0x25: accumulator > value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }[operation]
            at += if_true if holds else if_false


machines = pytest.mark.parametrize("machine", MACHINES)
programs = pytest.mark.parametrize("which", PROGRAMS)


@machines
@programs
def test_a_program_has_the_form_that_the_kernel_takes(which: str, machine: str) -> None:
    code = list(struct.iter_unpack("=HBBI", PROGRAMS[which](machine)))
    assert len(code) <= 4096
    assert code[-1] == (0x06, 0, 0, ALLOW)
    for at, (_, if_true, if_false, _) in enumerate(code):
        assert at + 1 + max(if_true, if_false) < len(code) or at == len(code) - 1


@machines
@programs
def test_another_architecture_is_killed(which: str, machine: str) -> None:
    program = PROGRAMS[which](machine)
    for arch in (0x40000003, 0x40000028, *(a for m, a in MACHINES.items() if m != machine)):
        assert verdict(program, arch, 1) == KILL
    if machine == "x86_64":
        for number in (0x40000000, 0x40000000 + 41, 0xFFFFFFFF):
            assert verdict(program, MACHINES[machine], number) == KILL


@machines
@programs
def test_calls_from_the_future_do_not_exist(which: str, machine: str) -> None:
    program = PROGRAMS[which](machine)
    for number in (470, 500, 1000):
        assert verdict(program, MACHINES[machine], number) == refused(errno.ENOSYS)


@machines
@programs
def test_a_denied_call_is_denied_by_every_program(which: str, machine: str) -> None:
    program = PROGRAMS[which](machine)
    for name in REFUSED_EVERYWHERE:
        if (number := number_of(name, machine)) is not None:
            assert verdict(program, MACHINES[machine], number) == refused(errno.EPERM), name


@machines
@pytest.mark.parametrize("name", REFUSED_AT_GUARD)
def test_what_is_shared_with_other_processes_is_denied_where_there_are_no_namespaces(
    name: str, machine: str
) -> None:
    number = number_of(name, machine)
    assert number is not None
    for which, program in PROGRAMS.items():
        said = verdict(program(machine), MACHINES[machine], number)
        assert said == (ALLOW if which == "sandbox" else refused(errno.EPERM))


NEWUSER, NEWNET, NEWTIME, THREAD = 0x10000000, 0x40000000, 0x80, 0x3D0F00
FASTOPEN = 0x20000000
BAD_FAMILY, BAD_PROTOCOL = refused(errno.EAFNOSUPPORT), refused(errno.EPROTONOSUPPORT)
NO = refused(errno.EPERM)
INET, INET6, UNIX = socket.AF_INET, socket.AF_INET6, socket.AF_UNIX
STREAM, DGRAM, RAW, SEQPACKET = 1, 2, 3, 5
FLAGS = socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK

JUDGED: list[tuple[str, tuple[int, ...], int, set[str]]] = [
    ("clone", (signal.SIGCHLD,), ALLOW, EVERYWHERE),
    ("clone", (THREAD,), ALLOW, EVERYWHERE),
    ("clone", (NEWUSER | signal.SIGCHLD,), NO, EVERYWHERE),
    ("clone", (HIGH | NEWNET,), NO, EVERYWHERE),
    ("clone3", (0, 88), refused(errno.ENOSYS), EVERYWHERE),
    ("unshare", (0x400,), ALLOW, EVERYWHERE),
    ("unshare", (NEWUSER,), NO, EVERYWHERE),
    ("unshare", (NEWTIME,), NO, EVERYWHERE),
    ("ioctl", (0, 0x5401), ALLOW, EVERYWHERE),
    ("ioctl", (0, 0x5412), NO, EVERYWHERE),
    ("ioctl", (0, HIGH | 0x5412), NO, EVERYWHERE),
    ("ioctl", (0, HIGH | 0x541C), NO, EVERYWHERE),
    ("ioctl", (0, 0x5423), NO, EVERYWHERE),
    ("personality", (0,), ALLOW, EVERYWHERE),
    ("personality", (0xFFFFFFFF,), ALLOW, EVERYWHERE),
    ("personality", (0x0400000,), NO, EVERYWHERE),
    ("socket", (INET, STREAM, 0), ALLOW, EVERYWHERE),
    ("socket", (INET6, STREAM | FLAGS, 6), ALLOW, EVERYWHERE),
    ("socket", (HIGH | INET, HIGH | STREAM, HIGH | 6), ALLOW, EVERYWHERE),
    ("socket", (INET, STREAM, 262), NO, EVERYWHERE),
    ("socket", (INET, STREAM, 132), NO, EVERYWHERE),
    ("socket", (INET, DGRAM, 17), ALLOW, EVERYWHERE - CLOSED),
    ("socket", (INET6, DGRAM | FLAGS, 0), ALLOW, EVERYWHERE - CLOSED),
    ("socket", (INET, DGRAM, 17), BAD_PROTOCOL, CLOSED),
    ("socket", (INET, DGRAM, 1), NO, EVERYWHERE - CLOSED),
    ("socket", (INET, RAW, 1), BAD_PROTOCOL, EVERYWHERE),
    ("socket", (INET, SEQPACKET, 132), BAD_PROTOCOL, EVERYWHERE),
    ("socket", (socket.AF_NETLINK, RAW, 0), ALLOW, EVERYWHERE),
    ("socket", (socket.AF_NETLINK, RAW, 12), NO, EVERYWHERE),
    ("socket", (UNIX, STREAM, 0), BAD_FAMILY, EVERYWHERE),
    ("socket", (UNIX, DGRAM, 0), BAD_FAMILY, EVERYWHERE),
    ("socket", (socket.AF_ALG, SEQPACKET, 0), BAD_FAMILY, EVERYWHERE),
    ("socket", (socket.AF_VSOCK, STREAM, 0), BAD_FAMILY, EVERYWHERE),
    ("socket", (socket.AF_PACKET, RAW, 0), BAD_FAMILY, EVERYWHERE),
    ("socket", (43, STREAM, 0), BAD_FAMILY, EVERYWHERE),
    ("socket", (0, 0, 0), BAD_FAMILY, EVERYWHERE),
    ("socketpair", (UNIX, STREAM | FLAGS, 0), ALLOW, EVERYWHERE),
    ("socketpair", (UNIX, SEQPACKET, 0), ALLOW, EVERYWHERE),
    ("socketpair", (UNIX, DGRAM, 0), BAD_PROTOCOL, EVERYWHERE),
    ("socketpair", (30, STREAM, 0), BAD_FAMILY, EVERYWHERE),
    ("chmod", (4096, 0o644), ALLOW, EVERYWHERE),
    ("chmod", (4096, 0o4755), NO, EVERYWHERE),
    ("connect", (3, 4096, 16), ALLOW, {"sandbox"}),
    ("connect", (3, 4096, 16), NOTIFY, GUARD),
    ("listen", (3, 1), ALLOW, OPEN),
    ("listen", (3, 1), refused(errno.EACCES), CLOSED),
    ("sendto", (3, 0, 0, 0), ALLOW, EVERYWHERE),
    ("sendto", (3, 0, 0, HIGH | FASTOPEN), NO, EVERYWHERE),
    ("sendto", (3, 0, 0, socket.MSG_DONTWAIT | socket.MSG_MORE), ALLOW, EVERYWHERE),
    ("sendto", (3, 0, 0, socket.MSG_DONTROUTE), ALLOW, OPEN),
    ("sendto", (3, 0, 0, socket.MSG_DONTROUTE), NO, CLOSED),
    ("sendto", (3, 0, 0, 0x4000000), NO, CLOSED),
    ("sendmsg", (3, 0, socket.MSG_NOSIGNAL), ALLOW, EVERYWHERE),
    ("sendmsg", (3, 0, FASTOPEN | socket.MSG_NOSIGNAL), NO, EVERYWHERE),
    ("sendmsg", (3, 0, socket.MSG_DONTROUTE), NO, CLOSED),
    ("sendmmsg", (3, 0, 1, 0), ALLOW, EVERYWHERE),
    ("sendmmsg", (3, 0, 1, FASTOPEN), NO, EVERYWHERE),
    ("sendmmsg", (3, 0, 1, 0x800), NO, CLOSED),
    ("setsockopt", (3, 0, 4), ALLOW, OPEN),
    ("setsockopt", (3, 0, 4), refused(errno.ENOPROTOOPT), CLOSED),
    ("prlimit64", (0, 7), ALLOW, EVERYWHERE),
    ("prlimit64", (1, 7), NO, GUARD),
    ("prlimit64", (HIGH | 1, 7), NO, GUARD),
    ("fchmod", (3, 0o755), ALLOW, EVERYWHERE),
    ("fchmod", (3, 0o1777), ALLOW, EVERYWHERE),
    ("fchmod", (3, HIGH | 0o4755), NO, EVERYWHERE),
    ("fchmod", (3, 0o2755), ALLOW, EVERYWHERE),
    ("fchmodat", (-100, 4096, 0o644), ALLOW, EVERYWHERE),
    ("fchmodat", (-100, 4096, 0o4755), NO, EVERYWHERE),
    ("fchmodat2", (-100, 4096, 0o6755, 0), NO, EVERYWHERE),
    ("creat", (4096, 0o644), ALLOW, EVERYWHERE),
    ("creat", (4096, 0o4755), NO, EVERYWHERE),
    ("open", (4096, 0o102, 0o755), ALLOW, EVERYWHERE),
    ("open", (4096, 0, 0o4755), ALLOW, EVERYWHERE),
    ("open", (4096, 0o102, 0o4755), NO, EVERYWHERE),
    ("openat", (-100, 4096, 0o102, 0o755), ALLOW, EVERYWHERE),
    ("openat", (-100, 4096, 0o200000, 0o4755), ALLOW, EVERYWHERE),
    ("openat", (-100, 4096, 0o101, HIGH | 0o4755), NO, EVERYWHERE),
    ("openat", (-100, 4096, 0o20200002, 0o4700), NO, EVERYWHERE),
    ("mknod", (4096, 0o100644, 0), ALLOW, EVERYWHERE),
    ("mknod", (4096, 0o104755, 0), NO, EVERYWHERE),
    ("mknodat", (-100, 4096, 0o104755, 0), NO, EVERYWHERE),
    ("openat2", (-100, 4096, 4096, 24), refused(errno.ENOSYS), EVERYWHERE),
    ("setpriority", (0, 0, 5), ALLOW, EVERYWHERE),
    ("setpriority", (HIGH | 0, HIGH | 0, 5), ALLOW, EVERYWHERE),
    ("setpriority", (1, 0, 5), ALLOW, EVERYWHERE),
    ("setpriority", (0, 1, 5), NO, GUARD),
    ("setpriority", (2, 0, 5), NO, GUARD),
    ("ioprio_set", (1, 0, 0), ALLOW, EVERYWHERE),
    ("ioprio_set", (1, 7, 0), NO, GUARD),
    ("ioprio_set", (3, 0, 0), NO, GUARD),
    ("sched_setaffinity", (0, 8, 4096), ALLOW, EVERYWHERE),
    ("sched_setaffinity", (1, 8, 4096), NO, GUARD),
    ("sched_setscheduler", (1, 0, 4096), NO, GUARD),
    ("sched_setparam", (1, 4096), NO, GUARD),
    ("sched_setattr", (1, 4096, 0), NO, GUARD),
]


@machines
@programs
def test_arguments_decide(which: str, machine: str) -> None:
    program = PROGRAMS[which](machine)
    for name, arguments, said, where in JUDGED:
        number = number_of(name, machine)
        if number is not None and which in where:
            found = verdict(program, MACHINES[machine], number, *arguments)
            assert found == said, (name, arguments)


def test_every_call_whose_arguments_matter_has_a_case() -> None:
    refusing = {name for name, _, said, _ in JUDGED if said != ALLOW}
    assert refusing == set(BY_ARGUMENTS)


# Options that an ordinary program sets, and those that make a packet or change where one goes.
IP, SOCKET, TCP, IPV6, NETLINK = 0, 1, 6, 41, 270
ORDINARY_OPTIONS = {
    "reuse of addresses": (SOCKET, 2),
    "buffers": (SOCKET, 7),
    "keepalive": (SOCKET, 9),
    "linger": (SOCKET, 13),
    "receive timeout": (SOCKET, 20),
    "type of service": (IP, 1),
    "IPv6 only": (IPV6, 26),
    "traffic class": (IPV6, 67),
    "no delay": (TCP, 1),
    "cork": (TCP, 3),
    "keepalive time": (TCP, 4),
    "user timeout": (TCP, 18),
    "unsent low-water mark": (TCP, 25),
    "netlink's extended errors": (NETLINK, 11),
}
DANGEROUS_OPTIONS = {
    "SO_DONTROUTE": (SOCKET, 5),
    "SO_BINDTODEVICE": (SOCKET, 25),
    "SO_ATTACH_FILTER": (SOCKET, 26),
    "SO_SNDBUFFORCE": (SOCKET, 32),
    "SO_MARK": (SOCKET, 36),
    "SO_ATTACH_BPF": (SOCKET, 50),
    "SO_TXTIME": (SOCKET, 61),
    "SO_BINDTOIFINDEX": (SOCKET, 62),
    "IP_HDRINCL": (IP, 3),
    "IP_OPTIONS": (IP, 4),
    "IP_RETOPTS": (IP, 7),
    "IP_PKTINFO": (IP, 8),
    "IP_FREEBIND": (IP, 15),
    "IP_IPSEC_POLICY": (IP, 16),
    "IP_XFRM_POLICY": (IP, 17),
    "IP_TRANSPARENT": (IP, 19),
    "IP_MULTICAST_IF": (IP, 32),
    "IP_ADD_MEMBERSHIP": (IP, 35),
    "IP_ADD_SOURCE_MEMBERSHIP": (IP, 39),
    "MCAST_JOIN_GROUP": (IP, 42),
    "MCAST_JOIN_SOURCE_GROUP": (IP, 46),
    "IP_UNICAST_IF": (IP, 50),
    "IP6T_SO_SET_REPLACE": (IP, 64),
    "MRT_INIT": (IP, 200),
    "IPV6_ADDRFORM": (IPV6, 1),
    "IPV6_2292PKTINFO": (IPV6, 2),
    "IPV6_2292HOPOPTS": (IPV6, 3),
    "IPV6_2292DSTOPTS": (IPV6, 4),
    "IPV6_2292RTHDR": (IPV6, 5),
    "IPV6_2292PKTOPTIONS": (IPV6, 6),
    "IPV6_FLOWINFO": (IPV6, 11),
    "IPV6_JOIN_GROUP": (IPV6, 20),
    "IPV6_JOIN_ANYCAST": (IPV6, 27),
    "IPV6_FLOWLABEL_MGR": (IPV6, 32),
    "IPV6 MCAST_JOIN_GROUP": (IPV6, 42),
    "IPV6 MCAST_JOIN_SOURCE_GROUP": (IPV6, 46),
    "IPV6_PKTINFO": (IPV6, 50),
    "IPV6_HOPOPTS": (IPV6, 54),
    "IPV6_RTHDRDSTOPTS": (IPV6, 55),
    "IPV6_RTHDR": (IPV6, 57),
    "IPV6_DSTOPTS": (IPV6, 59),
    "IPV6_UNICAST_IF": (IPV6, 76),
    "IPV6_TRANSPARENT": (IPV6, 75),
    "IPV6_FREEBIND": (IPV6, 78),
    "TCP_CONGESTION": (TCP, 13),
    "TCP_MD5SIG": (TCP, 14),
    "TCP_REPAIR": (TCP, 19),
    "TCP_FASTOPEN": (TCP, 23),
    "TCP_FASTOPEN_CONNECT": (TCP, 30),
    "TCP_ULP": (TCP, 31),
    "a level that nobody knows": (999, 1),
    "UDP_CORK": (17, 1),
    "raw options": (255, 1),
    "TLS_TX": (282, 1),
}


@machines
@programs
@pytest.mark.parametrize("high", [0, HIGH], ids=["", "high bits"])
def test_a_closed_network_takes_only_ordinary_options(which: str, high: int, machine: str) -> None:
    number = number_of("setsockopt", machine)
    assert number is not None
    program = PROGRAMS[which](machine)
    for option, (level, name) in (ORDINARY_OPTIONS | DANGEROUS_OPTIONS).items():
        arguments = (3, high | level, high | name, 4096, 4)
        taken = which not in CLOSED or option in ORDINARY_OPTIONS
        expected = ALLOW if taken else refused(errno.ENOPROTOOPT)
        assert verdict(program, MACHINES[machine], number, *arguments) == expected, option


@machines
def test_the_filter_before_bubblewrap_does_nothing_but_notify(machine: str) -> None:
    program, connect = connect_filter(machine), number_of("connect", machine)
    for number in range(600):
        said = verdict(program, MACHINES[machine], number)
        assert said == (NOTIFY if number == connect else ALLOW)
    # The filter after it kills these.
    assert verdict(program, 0x40000003, connect or 0) == ALLOW


@pytest.mark.parametrize(
    "make", [sandbox_filter, connect_filter, lambda machine: guard_filter("open", machine)]
)
def test_an_unknown_machine_has_no_filter(make: Callable[[str], bytes]) -> None:
    with pytest.raises(MissingPart, match="'vax'"):
        make("vax")


# Loaded for real

# Whatever is needed is imported first: after the change of user it may not be readable.
LOAD = """
import ctypes, json, mmap, os, socket, subprocess, sys, threading
from infloop.sandbox.kernel import seccomp
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
which, calls = sys.argv[1], json.loads(sys.argv[2])
program = seccomp.sandbox_filter() if which == "sandbox" else seccomp.guard_filter("closed")
if os.geteuid() == 0:
    os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))
zero = ctypes.c_ulong(0)
assert libc.prctl(38, ctypes.c_ulong(1), zero, zero, zero) == 0
if which != 'none':
    loaded = Program(len(program) // 8, program)
    assert libc.prctl(22, ctypes.c_ulong(2), ctypes.byref(loaded), zero, zero) == 0
"""


def run_filtered(which: str, code: str, calls: object = ()) -> subprocess.CompletedProcess[str]:
    source = LOAD + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", source, which, json.dumps(calls)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# Calls that are harmless with these arguments, and that would not fail with EPERM by themselves.
REAL: list[tuple[str, tuple[int, ...]]] = [
    ("ptrace", (0xFFFF, 0, 0, 0)),
    ("process_vm_readv", (0, 0, 0, 0, 0, 0)),
    ("process_vm_writev", (0, 0, 0, 0, 0, 0)),
    ("kcmp", (0, 0, 99, 0, 0)),
    ("pidfd_getfd", (-1, 0, 0)),
    ("move_pages", (0, 0, 0, 0, 0, 99)),
    ("io_uring_setup", (0, 0)),
    ("io_uring_enter", (-1, 0, 0, 0, 0)),
    ("io_uring_register", (-1, 0, 0, 0)),
    ("perf_event_open", (0, 0, -1, -1, 0)),
    ("userfaultfd", (0xFFFF,)),
    ("fanotify_mark", (-1, 0, 0, 0, 0)),
    ("add_key", (0, 0, 0, 0, 0)),
    ("request_key", (0, 0, 0, 0)),
    ("keyctl", (0xFFFF,)),
    ("setns", (-1, 0)),
    ("open_tree", (-1, 0, 0xFFFF)),
    ("fsconfig", (-1, 0, 0, 0, 0)),
    ("name_to_handle_at", (-1, 0, 0, 0, 0)),
    ("unshare", (NEWUSER | 0x1,)),
    ("personality", (0x0400000,)),
    ("ioctl", (-1, 0x5412)),
    ("ioctl", (-1, 0x541C)),
]


def test_the_kernel_refuses_what_the_filter_denies() -> None:
    code = """
        found = []
        for number, arguments in calls:
            wide = [ctypes.c_long(a) for a in arguments]
            answer = libc.syscall(ctypes.c_long(number), *wide)
            found.append(ctypes.get_errno() if answer < 0 else 0)
        print(json.dumps(found))
    """
    machine = os.uname().machine
    calls = [(number_of(name, machine), arguments) for name, arguments in REAL]
    answers = {
        which: json.loads(run_filtered(which, code, calls).stdout)
        for which in ("none", "sandbox", "guard")
    }
    assert answers["sandbox"] == answers["guard"] == [errno.EPERM] * len(REAL)
    freely = [name for (name, _), code in zip(REAL, answers["none"], strict=True) if code != 1]
    # A kernel may lack a few of them; that it refuses them all would make this test blind.
    assert len(freely) >= len(REAL) - 4, freely


def test_the_kernel_kills_a_call_of_the_other_kind() -> None:
    if os.uname().machine != "x86_64":
        ruled_out("only x86_64 has a second kind")
    done = run_filtered("sandbox", "libc.syscall(ctypes.c_long(0x40000000 + 39))")
    assert done.returncode == -signal.SIGSYS
    assert run_filtered("none", "libc.syscall(ctypes.c_long(0x40000000 + 39))").returncode == 0


def test_the_kernel_kills_a_call_through_the_old_gate() -> None:
    if os.uname().machine != "x86_64":
        ruled_out("only x86_64 has an old gate")
    code = """
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(bytes.fromhex("b814000000cd80c3"))
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        print(ctypes.CFUNCTYPE(ctypes.c_int)(address)() > 0, flush=True)
        os._exit(0)
    """
    if run_filtered("none", code).stdout != "True\n":
        ruled_out("this kernel has closed the old gate for all")
    assert run_filtered("guard", code).returncode == -signal.SIGSYS


@pytest.mark.parametrize("which", ["sandbox", "guard"])
def test_an_ordinary_program_does_not_notice(which: str) -> None:
    code = """
        thread = threading.Thread(target=socket.socketpair); thread.start(); thread.join()
        socket.socket(); socket.socket(socket.AF_INET6); socket.if_nameindex()
        print(subprocess.run(["echo", "fine"], capture_output=True, text=True).stdout, end="")
    """
    assert run_filtered(which, code).stdout == "fine\n"
