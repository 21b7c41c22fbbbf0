"""System calls that confined children must not make, with their numbers from the kernel's headers.

Written down by hand: nothing here comes from the filters that it is compared with.
"""

from __future__ import annotations

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The architectures that have filters, with their AUDIT_ARCH numbers."""

# Each with its numbers on x86_64 and aarch64.
REFUSED_EVERYWHERE: dict[str, tuple[int | None, int | None]] = {
    # other processes: their memory, their descriptors, what they are made of
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    # parts of the kernel that often have holes
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
    # keyrings
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
    # files by handle
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
REFUSED_AT_GUARD: dict[str, tuple[int, int]] = {
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
BY_ARGUMENTS: dict[str, tuple[int, int | None]] = {
    "open": (2, None),
    "creat": (85, None),
    "mknod": (133, None),
    "openat": (257, 56),
    "mknodat": (259, 33),
    "openat2": (437, 437),
    "ioctl": (16, 29),
    "socket": (41, 198),
    "connect": (42, 203),
    "sendto": (44, 206),
    "sendmsg": (46, 211),
    "listen": (50, 201),
    "socketpair": (53, 199),
    "setsockopt": (54, 208),
    "clone": (56, 220),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "personality": (135, 92),
    "setpriority": (141, 140),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "ioprio_set": (251, 30),
    "fchmodat": (268, 53),
    "unshare": (272, 97),
    "prlimit64": (302, 261),
    "sendmmsg": (307, 269),
    "sched_setattr": (314, 274),
    "clone3": (435, 435),
    "fchmodat2": (452, 452),
}


def number_of(name: str, machine: str) -> int | None:
    """Return the number of a call; None if the machine has no such call."""
    tables = REFUSED_EVERYWHERE | REFUSED_AT_GUARD | BY_ARGUMENTS
    return tables[name][list(MACHINES).index(machine)]
