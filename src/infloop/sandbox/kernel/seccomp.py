"""Seccomp filters: the system calls that confined children cannot make.

A filter is a classic BPF program, in the form that `bwrap --seccomp` and seccomp(2) take. It
consists of blocks that always end in an action. The first rule that applies decides; calls that no
rule names are allowed.

    a call of another architecture, or of the x32 ABI      the process is killed
    a call newer than this file                            ENOSYS, as on an older kernel
    other processes' memory, kernel surface, mounts, …     EPERM
    namespaces                                             EPERM (clone3: ENOSYS, so that the C
                                                           library falls back to clone)
    making a program setuid                                EPERM: one in a workspace would run as
                                                           the child's user for every other user
    sockets                                                TCP, UDP and NETLINK_ROUTE only;
                                                           socketpair without datagrams, which
                                                           could be sent to any address

                                                           no sending that also connects (TCP
                                                           Fast Open)

Level `guard` has no namespaces, so its filter also refuses System V and POSIX queues and memory,
and other processes' limits and priorities. It sends every connect() to the connect broker. Unless
the network is open, it also refuses everything but TCP connections: UDP, listening, and socket
options and flags that could send a packet elsewhere than to the peer (source routes, multicast
groups, other interfaces). Those are listed that ordinary programs need.

At level `sandbox` a child that shares the machine's network has a second filter, which does nothing
but send connect() to the connect broker.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import platform
import struct
from typing import Literal, NamedTuple, TypeAlias

from infloop.errors import MissingPart

GuardNetwork: TypeAlias = Literal["open", "closed"]
"""Whether a child may use UDP, listen and set any socket option."""

ALLOW = 0x7FFF0000
NOTIFY = 0x7FC00000
KILL = 0x80000000
_ERRNO = 0x00050000

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_EQUAL, _GREATER, _AT_LEAST, _ANY_BIT = 0x15, 0x25, 0x35, 0x45
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16

_X32_BIT = 0x40000000
_NEWEST_CALL = 469
_NEW_NAMESPACES = 0x7E020000
_NEW_TIME_NAMESPACE = 0x80
_TIOCSTI, _TIOCLINUX, _TIOCSETD = 0x5412, 0x541C, 0x5423
_QUERY_PERSONALITY = 0xFFFFFFFF
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_STREAM, _DATAGRAM, _SEQUENCED = 1, 2, 5
_TYPE_BITS = 0xF
_TCP, _UDP, _ROUTE = 6, 17, 0
_MSG_FASTOPEN = 0x20000000
_MSG_OOB, _MSG_DONTWAIT, _MSG_EOR, _MSG_NOSIGNAL, _MSG_MORE = 0x1, 0x40, 0x80, 0x4000, 0x8000
_ORDINARY_MSG_FLAGS = _MSG_OOB | _MSG_DONTWAIT | _MSG_EOR | _MSG_NOSIGNAL | _MSG_MORE
_INT_BITS = 0xFFFFFFFF
_SETUID = 0o4000
_SETGID = 0o2000
_PROCESS, _GROUP = 0, 1
_IO_PROCESS, _IO_GROUP = 1, 2

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""For each architecture its column in the tables below, and its AUDIT_ARCH number."""

# The numbers on x86_64 and aarch64; None if there is no such call.
_DENIED: dict[str, tuple[int | None, int | None]] = {
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    # kernel surface
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "modify_ldt": (154, None),
    "iopl": (172, None),
    "ioperm": (173, None),
    "uselib": (134, None),
    "lookup_dcookie": (212, 18),
    "syslog": (103, 116),
    # keyrings belong to the user, not to the child
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # mounts, roots and namespaces
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "setns": (308, 268),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    # files by handle, which bypasses paths
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    # the machine
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "vhangup": (153, 58),
    "nfsservctl": (180, 42),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
}

_DENIED_WITHOUT_NAMESPACES: dict[str, tuple[int | None, int | None]] = {
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
}

_CONDITIONAL: dict[str, tuple[int | None, int | None]] = {
    "open": (2, None),
    "ioctl": (16, 29),
    "socket": (41, 198),
    "connect": (42, 203),
    "sendto": (44, 206),
    "sendmsg": (46, 211),
    "listen": (50, 201),
    "socketpair": (53, 199),
    "setsockopt": (54, 208),
    "clone": (56, 220),
    "creat": (85, None),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "mknod": (133, None),
    "personality": (135, 92),
    "setpriority": (141, 140),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "ioprio_set": (251, 30),
    "openat": (257, 56),
    "mknodat": (259, 33),
    "fchmodat": (268, 53),
    "unshare": (272, 97),
    "prlimit64": (302, 261),
    "sendmmsg": (307, 269),
    "sched_setattr": (314, 274),
    "clone3": (435, 435),
    "openat2": (437, 437),
    "fchmodat2": (452, 452),
}

# The bit that tells O_TMPFILE from O_DIRECTORY.
_TEMPORARY_FILE = os.O_TMPFILE & ~os.O_DIRECTORY

_SOL_IP, _SOL_SOCKET, _SOL_TCP, _SOL_IPV6, _SOL_NETLINK = 0, 1, 6, 41, 270

_ORDINARY_OPTIONS: dict[int, dict[str, int]] = {
    _SOL_SOCKET: {
        "SO_REUSEADDR": 2,
        "SO_SNDBUF": 7,
        "SO_RCVBUF": 8,
        "SO_KEEPALIVE": 9,
        "SO_OOBINLINE": 10,
        "SO_LINGER": 13,
        "SO_REUSEPORT": 15,
        "SO_PASSCRED": 16,
        "SO_RCVLOWAT": 18,
        "SO_RCVTIMEO": 20,
        "SO_SNDTIMEO": 21,
        "SO_RCVTIMEO_NEW": 66,
        "SO_SNDTIMEO_NEW": 67,
    },
    _SOL_IP: {
        "IP_TOS": 1,
        "IP_MTU_DISCOVER": 10,
        "IP_RECVERR": 11,
        "IP_BIND_ADDRESS_NO_PORT": 24,
    },
    _SOL_IPV6: {
        "IPV6_MTU_DISCOVER": 23,
        "IPV6_RECVERR": 25,
        "IPV6_V6ONLY": 26,
        "IPV6_TCLASS": 67,
    },
    _SOL_TCP: {
        "TCP_NODELAY": 1,
        "TCP_MAXSEG": 2,
        "TCP_CORK": 3,
        "TCP_KEEPIDLE": 4,
        "TCP_KEEPINTVL": 5,
        "TCP_KEEPCNT": 6,
        "TCP_SYNCNT": 7,
        "TCP_LINGER2": 8,
        "TCP_WINDOW_CLAMP": 10,
        "TCP_QUICKACK": 12,
        "TCP_USER_TIMEOUT": 18,
        "TCP_NOTSENT_LOWAT": 25,
    },
    _SOL_NETLINK: {
        "NETLINK_ADD_MEMBERSHIP": 1,
        "NETLINK_DROP_MEMBERSHIP": 2,
        "NETLINK_PKTINFO": 3,
        "NETLINK_NO_ENOBUFS": 5,
        "NETLINK_CAP_ACK": 10,
        "NETLINK_EXT_ACK": 11,
        "NETLINK_GET_STRICT_CHK": 12,
    },
}
"""The socket options that a child with a closed network may set, by their level. None of them makes
a packet, and none changes where a packet goes."""


class _Instruction(NamedTuple):
    code: int
    if_true: int
    if_false: int
    value: int


_Block: TypeAlias = list[_Instruction]


@functools.cache
def sandbox_filter(machine: str = platform.machine(), *, for_root: bool = False) -> bytes:
    """Return the filter for children with namespaces of their own.

    `for_root`: their files belong to root and its group, which no program may lend to others.
    Raises MissingPart for an architecture without a table here.
    """
    set_id = _SETUID | _SETGID if for_root else _SETUID
    return _assemble(_program(machine, _denied(machine, _DENIED), _conditional(machine, set_id)))


@functools.cache
def guard_filter(network: GuardNetwork, machine: str = platform.machine()) -> bytes:
    """Return the filter for children that share the server's namespaces.

    The kernel sends a notification for each connect() to the filter's listener. Raises MissingPart
    for an architecture without a table here.
    """
    denied = _denied(machine, _DENIED | _DENIED_WITHOUT_NAMESPACES)
    conditional = _conditional(machine) | _conditional_shared_user(machine)
    conditional |= _by_number(machine, {"connect": [_return(NOTIFY)]})
    if network == "closed":
        conditional |= _conditional_closed_network(machine)
    return _assemble(_program(machine, denied, conditional))


@functools.cache
def connect_filter(machine: str = platform.machine()) -> bytes:
    """Return a filter that only sends a notification for each connect().

    It allows calls of other architectures: the filter that is installed after it kills those.
    Raises MissingPart for an architecture without a table here.
    """
    column, architecture = _column_and_architecture(machine)
    program = [
        _load(_ARCHITECTURE_AT),
        *_unless(_EQUAL, architecture, [_return(ALLOW)]),
        _load(_NUMBER_AT),
        *_when(_EQUAL, _CONDITIONAL["connect"][column] or 0, [_return(NOTIFY)]),
        _return(ALLOW),
    ]
    return _assemble(program)


def _program(machine: str, denied: list[int], conditional: dict[int, _Block]) -> _Block:
    program = [
        _load(_ARCHITECTURE_AT),
        *_unless(_EQUAL, _column_and_architecture(machine)[1], [_return(KILL)]),
        _load(_NUMBER_AT),
    ]
    if machine == "x86_64":
        program += _when(_AT_LEAST, _X32_BIT, [_return(KILL)])
    program += _when(_GREATER, _NEWEST_CALL, [_refuse(errno.ENOSYS)])
    for number in denied:
        program += _when(_EQUAL, number, [_refuse(errno.EPERM)])
    for number, action in conditional.items():
        program += _when(_EQUAL, number, action)
    return [*program, _return(ALLOW)]


def _conditional(machine: str, set_id: int = _SETUID) -> dict[int, _Block]:
    """Return the calls that depend on their arguments; files get none of the bits `set_id`."""
    actions = {
        "ioctl": _unless_argument_is(1, _TIOCSTI, _TIOCLINUX, _TIOCSETD),
        "clone": _unless_any_bit(0, _NEW_NAMESPACES),
        "unshare": _unless_any_bit(0, _NEW_NAMESPACES | _NEW_TIME_NAMESPACE),
        "clone3": [_refuse(errno.ENOSYS)],
        "personality": _only_if_argument_is(0, 0, _QUERY_PERSONALITY),
        "socket": _sockets(datagrams=True),
        "socketpair": _socket_pairs(),
        # With this flag sending also connects, to an address of its own.
        "sendto": _unless_any_bit(3, _MSG_FASTOPEN),
        "sendmsg": _unless_any_bit(2, _MSG_FASTOPEN),
        "sendmmsg": _unless_any_bit(3, _MSG_FASTOPEN),
        "chmod": _unless_any_bit(1, set_id),
        "fchmod": _unless_any_bit(1, set_id),
        "fchmodat": _unless_any_bit(2, set_id),
        "fchmodat2": _unless_any_bit(2, set_id),
        "creat": _unless_any_bit(1, set_id),
        "mknod": _unless_any_bit(1, set_id),
        "mknodat": _unless_any_bit(2, set_id),
        "open": _unless_created_with(1, 2, set_id),
        "openat": _unless_created_with(2, 3, set_id),
        # Its mode is in memory, where a filter cannot see it. Programs then use `openat`.
        "openat2": [_refuse(errno.ENOSYS)],
    }
    return _by_number(machine, actions)


def _conditional_shared_user(machine: str) -> dict[int, _Block]:
    """Return the calls that could slow down other processes of the user.

    The only allowed process id is 0, the caller: a filter cannot know the child's other ids.
    """
    actions = {
        "prlimit64": _only_if_argument_is(0, 0),
        "sched_setparam": _only_if_argument_is(0, 0),
        "sched_setscheduler": _only_if_argument_is(0, 0),
        "sched_setaffinity": _only_if_argument_is(0, 0),
        "sched_setattr": _only_if_argument_is(0, 0),
        "setpriority": _only_own_process_or_group(_PROCESS, _GROUP),
        "ioprio_set": _only_own_process_or_group(_IO_PROCESS, _IO_GROUP),
    }
    return _by_number(machine, actions)


def _conditional_closed_network(machine: str) -> dict[int, _Block]:
    """Return the calls that could send a packet elsewhere than to the broker's peers."""
    other_flags = _INT_BITS & ~_ORDINARY_MSG_FLAGS
    actions = {
        "socket": _sockets(datagrams=False),
        "listen": [_refuse(errno.EACCES)],
        "setsockopt": _ordinary_options(),
        "sendto": _unless_any_bit(3, other_flags),
        "sendmsg": _unless_any_bit(2, other_flags),
        "sendmmsg": _unless_any_bit(3, other_flags),
    }
    return _by_number(machine, actions)


def _sockets(*, datagrams: bool) -> _Block:
    of_kind = _when(_EQUAL, _STREAM, _only_if_argument_is(2, 0, _TCP))
    if datagrams:
        of_kind += _when(_EQUAL, _DATAGRAM, _only_if_argument_is(2, 0, _UDP))
    internet = [_load_argument(1), _mask(_TYPE_BITS), *of_kind, _refuse(errno.EPROTONOSUPPORT)]
    return [
        _load_argument(0),
        *_when(_EQUAL, _AF_INET, internet),
        *_when(_EQUAL, _AF_INET6, internet),
        *_when(_EQUAL, _AF_NETLINK, _only_if_argument_is(2, _ROUTE)),
        _refuse(errno.EAFNOSUPPORT),
    ]


def _ordinary_options() -> _Block:
    block = [_load_argument(1)]
    for level, options in _ORDINARY_OPTIONS.items():
        allowed = _only_if_argument_is(2, *options.values(), otherwise=errno.ENOPROTOOPT)
        block += _when(_EQUAL, level, allowed)
    return [*block, _refuse(errno.ENOPROTOOPT)]


def _socket_pairs() -> _Block:
    kinds = _when(_EQUAL, _STREAM, [_return(ALLOW)]) + _when(_EQUAL, _SEQUENCED, [_return(ALLOW)])
    return [
        _load_argument(0),
        *_unless(_EQUAL, _AF_UNIX, [_refuse(errno.EAFNOSUPPORT)]),
        _load_argument(1),
        _mask(_TYPE_BITS),
        *kinds,
        _refuse(errno.EPROTONOSUPPORT),
    ]


def _only_own_process_or_group(*kinds: int) -> _Block:
    """Allow a call for the caller's process or group, and not for all of its user."""
    block = [_load_argument(0)]
    for kind in kinds:
        block += _when(_EQUAL, kind, _only_if_argument_is(1, 0))
    return [*block, _refuse(errno.EPERM)]


def _only_if_argument_is(index: int, *values: int, otherwise: int = errno.EPERM) -> _Block:
    block = [_load_argument(index)]
    for value in values:
        block += _when(_EQUAL, value, [_return(ALLOW)])
    return [*block, _refuse(otherwise)]


def _unless_argument_is(index: int, *values: int) -> _Block:
    block = [_load_argument(index)]
    for value in values:
        block += _when(_EQUAL, value, [_refuse(errno.EPERM)])
    return [*block, _return(ALLOW)]


def _unless_any_bit(index: int, bits: int) -> _Block:
    return [
        _load_argument(index),
        *_when(_ANY_BIT, bits, [_refuse(errno.EPERM)]),
        _return(ALLOW),
    ]


def _unless_created_with(flags: int, mode: int, bits: int) -> _Block:
    """Refuse to create a file with these bits; without creation the mode is not used."""
    return [
        _load_argument(flags),
        *_unless(_ANY_BIT, os.O_CREAT | _TEMPORARY_FILE, [_return(ALLOW)]),
        *_unless_any_bit(mode, bits),
    ]


def _when(comparison: int, value: int, then: _Block) -> _Block:
    """Return a test and the block for when it is true; `then` must end in an action."""
    return [_Instruction(comparison, 0, len(then), value), *then]


def _unless(comparison: int, value: int, then: _Block) -> _Block:
    """Return a test and the block for when it is false; `then` must end in an action."""
    return [_Instruction(comparison, len(then), 0, value), *then]


def _load(offset: int) -> _Instruction:
    return _Instruction(_LOAD, 0, 0, offset)


def _load_argument(index: int) -> _Instruction:
    # The low half: the kernel uses only that half of the arguments tested here, so high bits cannot
    # make it see another value than this filter.
    return _load(_ARGUMENTS_AT + 8 * index)


def _mask(bits: int) -> _Instruction:
    return _Instruction(_AND, 0, 0, bits)


def _return(action: int) -> _Instruction:
    return _Instruction(_RETURN, 0, 0, action)


def _refuse(error: int) -> _Instruction:
    return _return(_ERRNO | error)


def _assemble(block: _Block) -> bytes:
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in block)


def _column_and_architecture(machine: str) -> tuple[int, int]:
    try:
        return _MACHINES[machine]
    except KeyError:
        known = " and ".join(_MACHINES)
        raise MissingPart(
            f"no system call filter for machine {machine!r}: only {known} are known"
        ) from None


def _by_number(machine: str, actions: dict[str, _Block]) -> dict[int, _Block]:
    column = _column_and_architecture(machine)[0]
    numbers = {name: _CONDITIONAL[name][column] for name in actions}
    return {n: actions[name] for name, n in numbers.items() if n is not None}


def _denied(machine: str, table: dict[str, tuple[int | None, int | None]]) -> list[int]:
    column = _column_and_architecture(machine)[0]
    return [number for numbers in table.values() if (number := numbers[column]) is not None]


def as_file(program: bytes) -> int:
    """Return a descriptor of a sealed memory file with the filter, positioned at its start."""
    fd = os.memfd_create("infloop-filter", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, program)
    os.lseek(fd, 0, os.SEEK_SET)
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd
