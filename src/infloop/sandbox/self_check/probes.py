"""The attempts of a hostile child, as a program that runs inside the sandbox.

Started as `python -I -S -c <this file>`, with the standard library only: it may not be able to read
any file of infloop. It reads from standard input which attempts to make and where the canaries are.
For each attempt it writes one JSON line to its result descriptor: whether it succeeded, and what it
reached.

- No attempt does harm if it succeeds: files are only touched where the canaries are, and system
  calls get arguments that the kernel refuses after it has allowed the call.
- An attempt returns what it reached, or an empty value. An exception means that it was refused.
- Each attempt runs in a process of its own, because it may be killed.
- Attempts whose success is only visible from outside (a file that appears, a datagram that arrives)
  return an empty value and are checked there.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import glob
import json
import mmap
import os
import platform
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

RESULT_FD = 3
TIMEOUT_S = 20
REFUSALS = (
    errno.EPERM,
    errno.EACCES,
    errno.ENOSYS,
    errno.EAFNOSUPPORT,
    errno.EPROTONOSUPPORT,
    errno.ESRCH,
)
COLUMNS = {"x86_64": 0, "aarch64": 1}
CALLS = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "pidfd_getfd": (438, 438),
    "io_uring_setup": (425, 425),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "move_mount": (429, 429),
    "setns": (308, 268),
    "unshare": (272, 97),
    "clone3": (435, 435),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "personality": (135, 92),
    "kexec_load": (246, 104),
    "init_module": (175, 105),
    "swapon": (167, 224),
    "shmget": (29, 194),
}
NEW_USER = 0x10000000
INVALID = 0xFFFFFFFF
NOWHERE = b"/infloop/nowhere"
TIOCSTI, TIOCSCTTY = 0x5412, 0x540E

Thing = TypeVar("Thing")
Targets = dict[str, Any]
Attempt = Callable[[Targets], object]


def call(name: str, *arguments: int | bytes) -> int:
    """Make a system call; raise OSError when it fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    wide = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments]
    number = CALLS[name][COLUMNS[platform.machine()]]
    answer = int(libc.syscall(ctypes.c_long(number), *wide))
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer


def kernel_answer(name: str, *arguments: int | bytes) -> str:
    """Return how the kernel answered a call that no confined child may make."""
    try:
        return f"{name} = {call(name, *arguments)}"
    except OSError as error:
        # Any other error means that the call was allowed and only its arguments were wrong.
        return "" if error.errno in REFUSALS else f"{name}: {error.strerror}"


def contains_token(path: str, token: str) -> str:
    """Return the path if the file contains the token."""
    with open(path, "rb") as file:
        return path if token.encode() in file.read(1 << 20) else ""


def write(path: str, text: str = "planted by a probe\n") -> None:
    """Append to a file, creating its directory."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        file.write(text)


def for_each(attempt: Callable[[Thing], object], things: Iterable[Thing]) -> str:
    """Make an attempt on each thing; return what was reached."""
    reached = []
    for thing in things:
        with contextlib.suppress(OSError):
            result = attempt(thing)
            if result:
                reached.append(str(result))
    return ", ".join(reached)


def all_results(*attempts: Callable[[], object]) -> str:
    """Make several attempts; return what was reached."""
    return for_each(lambda attempt: attempt(), attempts)


def opened(path: str, flags: int = os.O_RDONLY) -> str:
    """Return the path if it can be opened."""
    os.close(os.open(path, flags))
    return path


def connected(family: int, token: str, address: tuple[str, int] | str) -> str:
    """Return the address if it accepts a connection; the token tells the canary who it was."""
    with socket.socket(family, socket.SOCK_STREAM) as stream:
        stream.settimeout(3)
        stream.connect(address)
        with contextlib.suppress(OSError):
            stream.sendall(token.encode())
        return str(address)


def routed(family: int, address: tuple[Any, ...]) -> str:
    """Return the address if there is a route to it; nothing is sent."""
    with socket.socket(family, socket.SOCK_DGRAM) as datagrams:
        datagrams.connect(address)
        return str(address[0])


# Environment


def foreign_variables(targets: Targets) -> object:
    """Find variables that the child was not given."""
    return ", ".join(sorted(set(os.environ) - set(targets["variables"])))


def inherited_descriptors(targets: Targets) -> object:
    """Find open descriptors other than the child's own pipes."""
    listing = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY)
    own = {0, 1, 2, RESULT_FD, listing, targets["pipe"]}
    others = sorted({int(name) for name in os.listdir(listing)} - own)
    return for_each(lambda fd: f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}", others)


# Files


def read_secret(targets: Targets) -> object:
    """Read a file that belongs to the child's user and was not granted to it."""
    return contains_token(targets["secret"], targets["token"])


def read_home(targets: Targets) -> object:
    """Read a key in the user's home."""
    homes = (targets["home"], os.environ.get("HOME", "/"))
    return for_each(lambda home: contains_token(f"{home}/.ssh/id_canary", targets["token"]), homes)


def read_round_about(targets: Targets) -> object:
    """Read the same file through links, and through other processes' roots."""
    link, secret = f"{targets['workspace']}/link", targets["secret"]
    with contextlib.suppress(FileExistsError):
        os.symlink(secret, link)
    paths = [link, *(f"/proc/{who}/root{secret}" for who in ("self", 1, targets["process"]))]
    paths += [f"/proc/{targets['process']}/cwd{secret}", "../" * 20 + secret[1:]]
    return for_each(lambda path: contains_token(path, targets["token"]), paths)


def hard_link_secret(targets: Targets) -> object:
    """Make a hard link in the workspace to a file that was not granted."""
    link = f"{targets['workspace']}/hard"
    os.link(targets["secret"], link)
    return contains_token(link, targets["token"])


def read_shared_memory(targets: Targets) -> object:
    """Read another program's shared memory."""
    return contains_token(targets["shared_memory"], targets["token"])


def open_devices(targets: Targets) -> object:
    """Open devices and files that lead to memory, disks and the kernel."""
    names = ("mem", "kmem", "port", "kmsg", "kvm", "fuse", "vda", "sda", "nvme0n1", "loop-control")
    tables = (
        *("kcore", "kmsg", "kpagecount", "kpageflags", "slabinfo", "vmallocinfo", "timer_list"),
        *("sys/net/ipv4/tcp_fastopen_key", "sys/vm/mmap_rnd_bits", "sys/kernel/cad_pid"),
    )
    return all_results(
        partial(for_each, opened, (f"/dev/{name}" for name in names)),
        partial(for_each, not_empty, (f"/proc/{name}" for name in tables)),
    )


def not_empty(path: str) -> str:
    """Return the path if something can be read there."""
    with open(path, "rb", buffering=0) as file:
        return path if file.read(8) else ""


# Writing


def write_outside(targets: Targets) -> object:
    """Write a file into a directory that was not granted, where all users may write."""
    # Checked outside: inside there may be another directory of this name.
    write(f"{targets['outside']}/planted")
    return ""


def write_startup_files(targets: Targets) -> object:
    """Write files into the user's home that run later: shell, ssh, git, services, agents."""
    names = (
        *(".bashrc", ".profile", ".ssh/authorized_keys", ".config/autostart/x.desktop"),
        *(".local/bin/git", ".gitconfig", ".config/systemd/user/x.service", ".claude/x.json"),
    )
    for home in (targets["home"], os.environ.get("HOME", "/")):
        for_each(lambda name, home=home: write(f"{home}/{name}"), names)  # type: ignore[misc]
    return ""


def write_system(targets: Targets) -> object:
    """Write files to the directories of the system's programs and settings."""
    paths = ("/usr/local/bin", "/usr/bin", "/lib", "/opt", "/etc/cron.d", "/etc", "/var/spool")
    return for_each(lambda path: opened(path, os.O_TMPFILE | os.O_WRONLY), paths)


def write_kernel_settings(targets: Targets) -> object:
    """Change the kernel's crash handler or other settings."""
    paths = (
        *("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sysrq-trigger"),
        *("/sys/kernel/uevent_helper", "/sys/fs/cgroup/cgroup.procs", "/proc/sys/vm/swappiness"),
    )
    # What root could change there, as the owner, without any capability.
    patterns = ("*", "irq/*/smp_affinity", "bus/pci/*/*", "scsi/*", "acpi/*", "fs/*/*")
    found = (path for pattern in patterns for path in glob.glob(f"/proc/{pattern}"))
    return for_each(lambda path: opened(path, os.O_WRONLY), (*paths, *filter(is_writable, found)))


def is_writable(path: str) -> bool:
    """Return whether something other than a device is at the path, and could be written."""
    return os.path.isfile(path) and os.access(path, os.W_OK)


# Other processes


def read_process_secrets(targets: Targets) -> object:
    """Read the environment of other processes."""
    paths = glob.glob("/proc/[0-9]*/environ")
    return for_each(lambda path: contains_token(path, targets["token"]), paths)


def attack_process(targets: Targets) -> object:
    """Signal, trace or read another process of the same user."""
    pid = targets["process"]
    return all_results(
        partial(signalled, pid),
        partial(kernel_answer, "ptrace", 16, pid, 0, 0),
        partial(kernel_answer, "process_vm_readv", pid, bytes(16), 1, bytes(16), 1, 0),
        partial(opened, f"/proc/{pid}/mem", os.O_RDWR),
    )


def signalled(pid: int) -> str:
    """Return the process if it could be signalled."""
    os.kill(pid, 0)
    return f"signal to {pid}"


def see_processes(targets: Targets) -> object:
    """See other processes and their arguments."""
    paths = glob.glob("/proc/[0-9]*/cmdline")
    return for_each(lambda path: contains_token(path, targets["mark"]), paths)


def see_system_v_memory(targets: Targets) -> object:
    """Attach to another program's System V memory."""
    return f"segment {call('shmget', targets['segment'], 0, 0)}"


# Sockets and the network


def connect_unix(targets: Targets) -> object:
    """Connect to Unix sockets such as an agent's or a container engine's."""
    addresses = (targets["socket"], "\0" + targets["abstract"])
    return for_each(partial(connected_unix, targets["token"]), addresses)


def connected_unix(token: str, address: str) -> str:
    if len(os.fsencode(address)) > 107:  # too long for a socket: name it by its directory
        folder = os.open(os.path.dirname(address), os.O_PATH)
        address = f"/proc/self/fd/{folder}/{os.path.basename(address)}"
    return connected(socket.AF_UNIX, token, address)


def connect_loopback(targets: Targets) -> object:
    """Connect to a service on loopback, such as our own API."""
    return connected(socket.AF_INET, targets["token"], ("127.0.0.1", targets["tcp"]))


def connect_ipv6(targets: Targets) -> object:
    """Connect to a service on loopback over IPv6."""
    return connected(socket.AF_INET6, targets["token"], ("::1", targets["tcp"]))


def connect_machine(targets: Targets) -> object:
    """Connect to the machine by its other addresses."""
    addresses = ((address, targets["tcp"]) for address in ("127.0.0.2", *targets["addresses"]))
    return for_each(partial(connected, socket.AF_INET, targets["token"]), addresses)


def connect_fast_open(targets: Targets) -> object:
    """Connect by sending (TCP Fast Open)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as stream:
        address = ("127.0.0.1", targets["tcp"])
        stream.settimeout(3)
        stream.sendto(targets["token"].encode(), socket.MSG_FASTOPEN, address)
        stream.recv(1)
        return address


def connect_multipath(targets: Targets) -> object:
    """Connect by Multipath TCP."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as stream:
        stream.connect(("127.0.0.1", targets["tcp"]))
        return stream.getpeername()


def send_datagrams(targets: Targets) -> object:
    """Send a datagram to a service on loopback."""
    # Checked by the listener: inside there may be another loopback.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.sendto(b"udp " + targets["token"].encode(), ("127.0.0.1", targets["udp"]))
    return ""


def ask_name_server(targets: Targets) -> object:
    """Send a secret to a name server as a host name."""
    query = b"\0\1\1\0\0\1\0\0\0\0\0\0\x20" + targets["token"].encode()[:32] + b"\0\0\1\0\1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.sendto(b"dns " + query, ("127.0.0.1", targets["udp"]))
    return ""


def find_routes(targets: Targets) -> object:
    """Find a route to the internet, to private networks, to a cloud's metadata service."""
    addresses = (("192.0.2.1", 9), ("169.254.169.254", 80), ("10.0.0.1", 9))
    return all_results(
        partial(for_each, partial(routed, socket.AF_INET), addresses),
        partial(routed, socket.AF_INET6, ("2001:db8::1", 9)),
    )


def open_odd_sockets(targets: Targets) -> object:
    """Open raw, packet, virtual machine, crypto, netfilter and Unix sockets."""
    kinds = {
        "raw": (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
        "packet": (socket.AF_PACKET, socket.SOCK_RAW, 0),
        "vsock": (40, socket.SOCK_STREAM, 0),
        "alg": (38, socket.SOCK_SEQPACKET, 0),
        "netfilter": (socket.AF_NETLINK, socket.SOCK_RAW, 12),
        "bluetooth": (31, socket.SOCK_RAW, 1),
        "unix": (socket.AF_UNIX, socket.SOCK_STREAM, 0),
    }

    def made(name: str) -> str:
        socket.socket(*kinds[name]).close()
        return name

    return for_each(made, kinds)


# The kernel


def make_namespaces(targets: Targets) -> object:
    """Become root in a user namespace."""
    flags = NEW_USER.to_bytes(8, sys.byteorder).ljust(88, b"\0")
    return all_results(
        partial(kernel_answer, "unshare", NEW_USER), partial(kernel_answer, "clone3", flags, 0)
    )


def enter_namespaces(targets: Targets) -> object:
    """Enter the namespaces of another process."""
    return kernel_answer("setns", os.open(f"/proc/{targets['process']}/ns/net", os.O_RDONLY), 0)


def change_mounts(targets: Targets) -> object:
    """Mount, unmount, or change the root."""
    return all_results(
        partial(kernel_answer, "mount", 0, 0, 0, 0, 0),
        partial(kernel_answer, "umount2", NOWHERE, 0),
        partial(kernel_answer, "pivot_root", NOWHERE, NOWHERE),
        partial(kernel_answer, "open_tree", INVALID, NOWHERE, INVALID),
        partial(kernel_answer, "fsopen", NOWHERE, 0),
        partial(kernel_answer, "move_mount", INVALID, NOWHERE, INVALID, NOWHERE, INVALID),
        partial(kernel_answer, "chroot", NOWHERE),
    )


def reach_kernel(targets: Targets) -> object:
    """Use parts of the kernel that often have security holes."""
    return all_results(
        partial(kernel_answer, "io_uring_setup", 1, 0),
        partial(kernel_answer, "bpf", 0, 0, 0),
        partial(kernel_answer, "perf_event_open", 0, 0, 0, 0, 0),
        partial(kernel_answer, "userfaultfd", 1),
        partial(kernel_answer, "kexec_load", 0, 0, 0, INVALID),
        partial(kernel_answer, "init_module", 0, 0, 0),
        partial(kernel_answer, "swapon", NOWHERE, 0),
        partial(kernel_answer, "personality", 0x0400000),
    )


def use_keyrings(targets: Targets) -> object:
    """Use the user's keyrings."""
    session = 0xFFFFFFFD
    return all_results(
        partial(kernel_answer, "keyctl", 0, session, 0),
        partial(kernel_answer, "add_key", 0, 0, 0, 0, session),
    )


def trace_itself(targets: Targets) -> object:
    """Use ptrace."""
    return kernel_answer("ptrace", 0, 0, 0, 0)


def open_by_handle(targets: Targets) -> object:
    """Open files by handle, which bypasses paths."""
    handle = (128).to_bytes(4, sys.byteorder).ljust(136, b"\0")
    return kernel_answer("name_to_handle_at", 0xFFFFFF9C, b"/", handle, bytes(8), 0)


def use_other_call_table(targets: Targets) -> object:
    """Make system calls of another ABI."""
    if platform.machine() != "x86_64":
        return ""
    answer = ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(0x40000000 | 39))
    return f"x32 getpid = {answer}" if answer > 0 else ""


def type_into_terminal(targets: Targets) -> object:
    """Type into the terminal of the user who started the child."""
    main, other = os.openpty()
    os.setsid()
    fcntl.ioctl(other, TIOCSCTTY, 0)
    fcntl.ioctl(other, TIOCSTI, b"x")
    os.close(main)
    return "a key was pressed"


def gain_privileges(targets: Targets) -> object:
    """Run setuid programs, or have capabilities."""
    with open("/proc/self/status", encoding="ascii") as file:
        lines = dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)
    found = [] if lines.get("NoNewPrivs") == "1" else ["setuid programs"]
    return ", ".join(found + (["capabilities"] if int(lines["CapEff"], 16) else []))


# Repository


def change_repository(targets: Targets) -> object:
    """Add hooks and settings to the repository that its owner's git would run."""
    # Checked outside, by comparing the repository afterwards.
    git = f"{targets['workspace']}/.git"
    return all_results(
        partial(write, f"{git}/hooks/post-checkout", "#!/bin/sh\n"),
        partial(write, f"{git}/config", "[core]\n\tfsmonitor = ./x\n"),
        partial(write, f"{git}/commondir", "../elsewhere\n"),
        partial(write, f"{git}/config.worktree"),
        partial(write, f"{git}/info/attributes"),
        partial(os.rename, git, f"{git}-old"),
    )


def write_tool_configuration(targets: Targets) -> object:
    """Add settings of editors and agents, and another repository, to the workspace."""
    names = (".envrc", ".mcp.json", ".vscode/tasks.json", ".claude/x.json", "sub/.git/config")

    def planted(name: str) -> str:
        write(f"{targets['workspace']}/{name}")
        return name

    return for_each(planted, names)


# Lifetime and limits


def leave_daemon(targets: Targets) -> object:
    """Leave a process behind that detaches and ignores signals."""
    # Checked outside, by the processes that are alive after the run.
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            for fd in set(range(32)) - {writing}:
                with contextlib.suppress(OSError):
                    os.close(fd)
            script = "import time; time.sleep(150)"  # longer than all attempts may take
            os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", script, targets["orphan"]])
        os._exit(0)
    os.close(writing)
    # This ends when exec has given the daemon the argument by which it is found.
    os.read(reading, 1)
    return ""


def flood_processes(targets: Targets) -> object:
    """Start more processes than the child may have."""
    pids: list[int] = []
    try:
        for _ in range(targets["processes"]):
            pid = os.fork()
            if pid == 0:
                signal.pause()
                os._exit(0)
            pids.append(pid)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return f"{len(pids)} processes"


def flood_descriptors(targets: Targets) -> object:
    """Open more files than the child may."""
    for _ in range(targets["open_files"]):
        os.dup(0)
    return f"{targets['open_files']} open files"


def flood_file(targets: Targets) -> object:
    """Create a file that is larger than allowed."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open(f"{targets['workspace']}/large", "wb") as file:
        file.truncate(targets["file_bytes"])
    return f"a file of {targets['file_bytes']} bytes"


def flood_temp(targets: Targets) -> object:
    """Fill the temporary directory."""
    piece, written = bytes(1 << 20), 0
    with tempfile.TemporaryDirectory() as folder:
        while written < targets["temp_bytes"]:
            with open(f"{folder}/{written}", "wb") as file:
                file.write(piece)
            written += len(piece)
    return f"{written} bytes in {tempfile.gettempdir()}"


def flood_memory(targets: Targets) -> object:
    """Allocate more memory than a process may have, after raising its soft limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    mmap.mmap(-1, targets["memory_bytes"], mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return f"{targets['memory_bytes']} bytes"


# What must work


def use_workspace(targets: Targets) -> object:
    """Write into the workspace."""
    path = f"{targets['workspace']}/made-inside"
    write(path, targets["token"])
    return contains_token(path, targets["token"])


def use_home_and_temp(targets: Targets) -> object:
    """Write into the home and the temporary directory."""
    paths = (os.environ["HOME"], tempfile.gettempdir())
    for path in paths:
        with tempfile.TemporaryDirectory(dir=path) as folder:
            write(f"{folder}/file", targets["token"])
            contains_token(f"{folder}/file", targets["token"])
    return ", ".join(paths)


def use_programs(targets: Targets) -> object:
    """Run programs, connected by pipes."""
    line = "ls / | sort | head -n 1 >/dev/null && echo works"
    done = subprocess.run(["sh", "-c", line], capture_output=True, check=True, timeout=TIMEOUT_S)
    return done.stdout.decode().strip()


def use_threads(targets: Targets) -> object:
    """Run threads."""
    answers: list[int] = []
    threads = [threading.Thread(target=answers.append, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return f"{len(answers)} threads"


def use_proxy(targets: Targets) -> object:
    """Reach the proxy."""
    return sends_token(targets["proxy"], targets["token"])


def use_local_service(targets: Targets) -> object:
    """Reach a local service that was granted."""
    return sends_token(targets["service"], targets["token"])


def sends_token(port: int, token: str) -> str:
    """Return the port if the server there sends the token."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as stream:
        received = stream.makefile("rb").read(len(token))
    return f"port {port}" if received == token.encode() else ""


ATTEMPTS: tuple[Attempt, ...] = (
    *(foreign_variables, inherited_descriptors),
    *(read_secret, read_home, read_round_about, hard_link_secret, read_shared_memory, open_devices),
    *(write_outside, write_startup_files, write_system, write_kernel_settings),
    *(read_process_secrets, attack_process, see_processes, see_system_v_memory),
    *(connect_unix, connect_loopback, connect_ipv6, connect_machine, connect_fast_open),
    *(connect_multipath, send_datagrams, ask_name_server, find_routes, open_odd_sockets),
    *(make_namespaces, enter_namespaces, change_mounts, reach_kernel, use_keyrings, trace_itself),
    *(open_by_handle, use_other_call_table, type_into_terminal, gain_privileges),
    *(change_repository, write_tool_configuration),
    *(leave_daemon, flood_processes, flood_descriptors, flood_file, flood_temp, flood_memory),
    *(use_workspace, use_home_and_temp, use_programs, use_threads, use_proxy, use_local_service),
)


def fork_with_retry() -> int:
    """Fork; retry while other processes of the same user use up the limit."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return os.fork()
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def run_attempt(attempt: Attempt, targets: Targets) -> tuple[bool, str]:
    """Make one attempt in a process of its own; return whether it succeeded and what it reached."""
    reading, writing = os.pipe()
    pid = fork_with_retry()
    if pid == 0:
        os.close(reading)
        signal.alarm(TIMEOUT_S)
        try:
            reached = attempt({**targets, "pipe": writing})
            result = ["reached", str(reached)] if reached else ["", "nothing"]
        except BaseException as error:
            result = ["", f"{type(error).__name__}: {error}"]
        os.write(writing, json.dumps(result).encode()[:4000])
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:
        answer = file.read()
    _, status = os.waitpid(pid, 0)
    if not answer:
        return False, f"ended by signal {os.WTERMSIG(status)}"
    verdict, detail = json.loads(answer)
    return bool(verdict), detail


def main() -> None:
    """Make the attempts that standard input lists."""
    if os.geteuid() == 0:
        sys.exit("the attempts are not made as root: name another user for the children")
    task = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    by_name = {attempt.__name__: attempt for attempt in ATTEMPTS}
    with open(RESULT_FD, "w", encoding="utf-8", closefd=False) as results:
        for name in task["attempts"]:
            reached, detail = run_attempt(by_name[name], task["targets"])
            json.dump({"attempt": name, "reached": reached, "detail": detail}, results)
            results.write("\n")
            results.flush()
            sys.stdout.write(f"{name}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
