"""What a hostile child would try, as a program that runs where children run.

Started as `python -I -S -c <this file>`, standard library only: it may not be able to read any file
of ours. It is told on standard input what to try and where the canaries are, and writes one JSON
line for each attempt to its result descriptor: whether it got through, and what it saw.

No attempt does harm where it gets through: files are only touched where canaries are, and system
calls get arguments that the kernel refuses once it has let the call in.

An attempt returns what it reached, or nothing; what it raises was refused. Each runs in a process
of its own, as some may be killed for it. Attempts whose success can only be seen from outside (a
file that appears, a datagram that arrives) return nothing and are judged there.
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
PATIENCE_S = 20
REFUSALS = (
    errno.EPERM,
    errno.EACCES,
    errno.ENOSYS,
    errno.EAFNOSUPPORT,
    errno.EPROTONOSUPPORT,
    errno.ESRCH,
)
KINDS = {"x86_64": 0, "aarch64": 1}
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
Canaries = dict[str, Any]
Attempt = Callable[[Canaries], object]


def call(name: str, *arguments: int | bytes) -> int:
    """Make a system call; raise OSError when it fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    wide = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments]
    number = CALLS[name][KINDS[platform.machine()]]
    answer = int(libc.syscall(ctypes.c_long(number), *wide))
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer


def answered(name: str, *arguments: int | bytes) -> str:
    """Return how the kernel answered a call that no confined child may make."""
    try:
        return f"{name} = {call(name, *arguments)}"
    except OSError as error:
        # Any other error means that the call was let in and only its arguments were wrong.
        return "" if error.errno in REFUSALS else f"{name}: {error.strerror}"


def holding(path: str, token: str) -> str:
    """Return the path if the file there holds the token."""
    with open(path, "rb") as file:
        return path if token.encode() in file.read(1 << 20) else ""


def write(path: str, text: str = "planted by a probe\n") -> None:
    """Leave something where others may find it."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        file.write(text)


def each(attempt: Callable[[Thing], object], things: Iterable[Thing]) -> str:
    """Return what got through of several attempts."""
    reached = []
    for thing in things:
        with contextlib.suppress(OSError):
            said = attempt(thing)
            if said:
                reached.append(str(said))
    return ", ".join(reached)


def every(*attempts: Callable[[], object]) -> str:
    """Return what got through of several different attempts."""
    return each(lambda attempt: attempt(), attempts)


def opened(path: str, flags: int = os.O_RDONLY) -> str:
    """Return the path if it can be opened like this."""
    os.close(os.open(path, flags))
    return path


def connected(family: int, address: tuple[str, int] | str) -> str:
    """Return the address if something there accepts."""
    with socket.socket(family, socket.SOCK_STREAM) as stream:
        stream.settimeout(3)
        stream.connect(address)
        return str(address)


def routed(family: int, address: tuple[Any, ...]) -> str:
    """Return the address if packets for it would leave; none is sent."""
    with socket.socket(family, socket.SOCK_DGRAM) as datagrams:
        datagrams.connect(address)
        return str(address[0])


# Environment


def foreign_variables(known: Canaries) -> object:
    """Find variables that the child was not given."""
    return ", ".join(sorted(set(os.environ) - set(known["variables"])))


def inherited_descriptors(known: Canaries) -> object:
    """Find open descriptors beside the child's own pipes."""
    listing = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY)
    own = {0, 1, 2, RESULT_FD, listing, known["pipe"]}
    others = sorted({int(name) for name in os.listdir(listing)} - own)
    return each(lambda fd: f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}", others)


# Files


def read_secret(known: Canaries) -> object:
    """Read a file outside the fence that belongs to the child's user."""
    return holding(known["secret"], known["token"])


def read_home(known: Canaries) -> object:
    """Read a key in the user's home."""
    homes = (known["home"], os.environ.get("HOME", "/"))
    return each(lambda home: holding(f"{home}/.ssh/id_canary", known["token"]), homes)


def read_round_about(known: Canaries) -> object:
    """Read the same file through links, and through other processes' roots."""
    link, secret = f"{known['workspace']}/link", known["secret"]
    with contextlib.suppress(FileExistsError):
        os.symlink(secret, link)
    places = [link, *(f"/proc/{who}/root{secret}" for who in ("self", 1, known["decoy"]))]
    places += [f"/proc/{known['decoy']}/cwd{secret}", "../" * 20 + secret[1:]]
    return each(lambda place: holding(place, known["token"]), places)


def hard_link_secret(known: Canaries) -> object:
    """Give a file outside the fence a second name inside."""
    link = f"{known['workspace']}/hard"
    os.link(known["secret"], link)
    return holding(link, known["token"])


def read_shared_memory(known: Canaries) -> object:
    """Read another program's shared memory."""
    return holding(known["shared_memory"], known["token"])


def open_devices(known: Canaries) -> object:
    """Open devices that lead to memory, disks and the kernel."""
    names = ("mem", "kmem", "port", "kmsg", "kvm", "fuse", "vda", "sda", "nvme0n1", "loop-control")
    return each(opened, (f"/dev/{name}" for name in names))


# Writing


def write_outside(known: Canaries) -> object:
    """Leave a file outside the fence, where everybody may write."""
    # Judged outside: inside there may be another directory of this name.
    write(f"{known['outside']}/planted")
    return ""


def write_startup_files(known: Canaries) -> object:
    """Leave files in the user's home that run later: shell, ssh, git, services, agents."""
    names = (
        *(".bashrc", ".profile", ".ssh/authorized_keys", ".config/autostart/x.desktop"),
        *(".local/bin/git", ".gitconfig", ".config/systemd/user/x.service", ".claude/x.json"),
    )
    for home in (known["home"], os.environ.get("HOME", "/")):
        each(lambda name, home=home: write(f"{home}/{name}"), names)  # type: ignore[misc]
    return ""


def write_system(known: Canaries) -> object:
    """Leave files among the system's programs and settings."""
    places = ("/usr/local/bin", "/usr/bin", "/lib", "/opt", "/etc/cron.d", "/etc", "/var/spool")
    return each(lambda place: opened(place, os.O_TMPFILE | os.O_WRONLY), places)


def write_kernel_settings(known: Canaries) -> object:
    """Change what the kernel runs at a crash, or its other settings."""
    places = (
        *("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sysrq-trigger"),
        *("/sys/kernel/uevent_helper", "/sys/fs/cgroup/cgroup.procs", "/proc/sys/vm/swappiness"),
    )
    return each(lambda place: opened(place, os.O_WRONLY), places)


# Other processes


def read_process_secrets(known: Canaries) -> object:
    """Read the environment of other processes."""
    paths = glob.glob("/proc/[0-9]*/environ")
    return each(lambda path: holding(path, known["token"]), paths)


def attack_process(known: Canaries) -> object:
    """Signal, trace or read another process of the same user."""
    pid = known["decoy"]
    return every(
        partial(signalled, pid),
        partial(answered, "ptrace", 16, pid, 0, 0),
        partial(answered, "process_vm_readv", pid, bytes(16), 1, bytes(16), 1, 0),
        partial(opened, f"/proc/{pid}/mem", os.O_RDWR),
    )


def signalled(pid: int) -> str:
    """Return the process if it could be signalled."""
    os.kill(pid, 0)
    return f"signal to {pid}"


def see_processes(known: Canaries) -> object:
    """See other processes and their arguments."""
    paths = glob.glob("/proc/[0-9]*/cmdline")
    return each(lambda path: holding(path, known["mark"]), paths)


def see_system_v_memory(known: Canaries) -> object:
    """Attach to another program's System V memory."""
    return f"segment {call('shmget', known['segment'], 0, 0)}"


# Sockets and the network


def connect_unix(known: Canaries) -> object:
    """Connect to Unix sockets such as an agent's or a container engine's."""
    return each(partial(connected, socket.AF_UNIX), (known["socket"], "\0" + known["abstract"]))


def connect_loopback(known: Canaries) -> object:
    """Connect to a service on loopback, such as our own API."""
    return connected(socket.AF_INET, ("127.0.0.1", known["tcp"]))


def connect_ipv6(known: Canaries) -> object:
    """Connect to a service on loopback over IPv6."""
    return connected(socket.AF_INET6, ("::1", known["tcp"]))


def connect_machine(known: Canaries) -> object:
    """Connect to the machine by its other addresses."""
    addresses = ((address, known["tcp"]) for address in ("127.0.0.2", *known["addresses"]))
    return each(partial(connected, socket.AF_INET), addresses)


def connect_fast_open(known: Canaries) -> object:
    """Connect by sending (TCP Fast Open)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as stream:
        address = ("127.0.0.1", known["tcp"])
        stream.settimeout(3)
        stream.sendto(known["token"].encode(), socket.MSG_FASTOPEN, address)
        stream.recv(1)
        return address


def connect_multipath(known: Canaries) -> object:
    """Connect by Multipath TCP."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as stream:
        stream.connect(("127.0.0.1", known["tcp"]))
        return stream.getpeername()


def send_datagrams(known: Canaries) -> object:
    """Send a datagram to a service on loopback."""
    # Judged by who listens: inside there may be another loopback.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.sendto(b"udp " + known["token"].encode(), ("127.0.0.1", known["udp"]))
    return ""


def ask_name_server(known: Canaries) -> object:
    """Send a secret to a name server as a name."""
    query = b"\0\1\1\0\0\1\0\0\0\0\0\0\x20" + known["token"].encode()[:32] + b"\0\0\1\0\1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.sendto(b"dns " + query, ("127.0.0.1", known["udp"]))
    return ""


def find_routes(known: Canaries) -> object:
    """Find a route to the internet, to private networks, to a cloud's metadata service."""
    addresses = (("192.0.2.1", 9), ("169.254.169.254", 80), ("10.0.0.1", 9))
    return every(
        partial(each, partial(routed, socket.AF_INET), addresses),
        partial(routed, socket.AF_INET6, ("2001:db8::1", 9)),
    )


def open_odd_sockets(known: Canaries) -> object:
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

    return each(made, kinds)


# The kernel


def make_namespaces(known: Canaries) -> object:
    """Become root in a user namespace."""
    flags = NEW_USER.to_bytes(8, sys.byteorder).ljust(88, b"\0")
    return every(partial(answered, "unshare", NEW_USER), partial(answered, "clone3", flags, 0))


def enter_namespaces(known: Canaries) -> object:
    """Enter the namespaces of another process."""
    return answered("setns", os.open(f"/proc/{known['decoy']}/ns/net", os.O_RDONLY), 0)


def change_mounts(known: Canaries) -> object:
    """Mount, unmount, or change the root."""
    return every(
        partial(answered, "mount", 0, 0, 0, 0, 0),
        partial(answered, "umount2", NOWHERE, 0),
        partial(answered, "pivot_root", NOWHERE, NOWHERE),
        partial(answered, "open_tree", INVALID, NOWHERE, INVALID),
        partial(answered, "fsopen", NOWHERE, 0),
        partial(answered, "move_mount", INVALID, NOWHERE, INVALID, NOWHERE, INVALID),
        partial(answered, "chroot", NOWHERE),
    )


def reach_kernel(known: Canaries) -> object:
    """Use parts of the kernel in which most holes are found."""
    return every(
        partial(answered, "io_uring_setup", 1, 0),
        partial(answered, "bpf", 0, 0, 0),
        partial(answered, "perf_event_open", 0, 0, 0, 0, 0),
        partial(answered, "userfaultfd", 1),
        partial(answered, "kexec_load", 0, 0, 0, INVALID),
        partial(answered, "init_module", 0, 0, 0),
        partial(answered, "swapon", NOWHERE, 0),
        partial(answered, "personality", 0x0400000),
    )


def use_keyrings(known: Canaries) -> object:
    """Use the user's keyrings."""
    session = 0xFFFFFFFD
    return every(
        partial(answered, "keyctl", 0, session, 0),
        partial(answered, "add_key", 0, 0, 0, 0, session),
    )


def trace_itself(known: Canaries) -> object:
    """Trace processes at all."""
    return answered("ptrace", 0, 0, 0, 0)


def open_by_handle(known: Canaries) -> object:
    """Open files past every path, by handle."""
    handle = (128).to_bytes(4, sys.byteorder).ljust(136, b"\0")
    return answered("name_to_handle_at", 0xFFFFFF9C, b"/", handle, bytes(8), 0)


def use_other_call_table(known: Canaries) -> object:
    """Make system calls by another table of numbers."""
    if platform.machine() != "x86_64":
        return ""
    answer = ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(0x40000000 | 39))
    return f"x32 getpid = {answer}" if answer > 0 else ""


def type_into_terminal(known: Canaries) -> object:
    """Type into the terminal of whoever started the child."""
    main, other = os.openpty()
    os.setsid()
    fcntl.ioctl(other, TIOCSCTTY, 0)
    fcntl.ioctl(other, TIOCSTI, b"x")
    os.close(main)
    return "a key was pressed"


def gain_privileges(known: Canaries) -> object:
    """Run programs that change the user, or have capabilities."""
    with open("/proc/self/status", encoding="ascii") as file:
        lines = dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)
    found = [] if lines.get("NoNewPrivs") == "1" else ["programs that change the user"]
    return ", ".join(found + (["capabilities"] if int(lines["CapEff"], 16) else []))


# Repository


def change_repository(known: Canaries) -> object:
    """Plant hooks and settings in the repository that its owner's git would run."""
    # Judged outside, by what the repository looks like afterwards.
    git = f"{known['workspace']}/.git"
    return every(
        partial(write, f"{git}/hooks/post-checkout", "#!/bin/sh\n"),
        partial(write, f"{git}/config", "[core]\n\tfsmonitor = ./x\n"),
        partial(write, f"{git}/commondir", "../elsewhere\n"),
        partial(write, f"{git}/config.worktree"),
        partial(write, f"{git}/info/attributes"),
        partial(os.rename, git, f"{git}-old"),
    )


def write_tool_configuration(known: Canaries) -> object:
    """Plant settings of editors and agents, and another repository, in the workspace."""
    names = (".envrc", ".mcp.json", ".vscode/tasks.json", ".claude/x.json", "sub/.git/config")

    def planted(name: str) -> str:
        write(f"{known['workspace']}/{name}")
        return name

    return each(planted, names)


# Lifetime and limits


def leave_daemon(known: Canaries) -> object:
    """Leave a process behind that detaches and ignores signals."""
    # Judged outside, by who lives after the run.
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            for fd in set(range(32)) - {writing}:
                with contextlib.suppress(OSError):
                    os.close(fd)
            script = "import time; time.sleep(150)"  # longer than a battery may take
            os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", script, known["orphan"]])
        os._exit(0)
    os.close(writing)
    # At its end the daemon has taken the name by which it is looked for.
    os.read(reading, 1)
    return ""


def flood_processes(known: Canaries) -> object:
    """Start more processes than the child may have."""
    pids: list[int] = []
    try:
        for _ in range(known["processes"]):
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


def flood_descriptors(known: Canaries) -> object:
    """Open more files than the child may."""
    for _ in range(known["open_files"]):
        os.dup(0)
    return f"{known['open_files']} open files"


def flood_file(known: Canaries) -> object:
    """Make a file that is larger than the child may make one."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open(f"{known['workspace']}/large", "wb") as file:
        file.truncate(known["file_bytes"])
    return f"a file of {known['file_bytes']} bytes"


def flood_temp(known: Canaries) -> object:
    """Fill the place for temporary files."""
    piece, written = bytes(1 << 20), 0
    with tempfile.TemporaryDirectory() as folder:
        while written < known["temp_bytes"]:
            with open(f"{folder}/{written}", "wb") as file:
                file.write(piece)
            written += len(piece)
    return f"{written} bytes in {tempfile.gettempdir()}"


def flood_memory(known: Canaries) -> object:
    """Take more memory than a process of the child may have, after lifting what can be lifted."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    mmap.mmap(-1, known["memory_bytes"], mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return f"{known['memory_bytes']} bytes"


# What must work


def use_workspace(known: Canaries) -> object:
    """Write into the workspace."""
    path = f"{known['workspace']}/made-inside"
    write(path, known["token"])
    return holding(path, known["token"])


def use_home_and_temp(known: Canaries) -> object:
    """Write into the home and the temporary directory."""
    places = (os.environ["HOME"], tempfile.gettempdir())
    for place in places:
        with tempfile.TemporaryDirectory(dir=place) as folder:
            write(f"{folder}/file", known["token"])
            holding(f"{folder}/file", known["token"])
    return ", ".join(places)


def use_programs(known: Canaries) -> object:
    """Run programs, connected by pipes."""
    line = "ls / | sort | head -n 1 >/dev/null && echo works"
    done = subprocess.run(["sh", "-c", line], capture_output=True, check=True, timeout=PATIENCE_S)
    return done.stdout.decode().strip()


def use_threads(known: Canaries) -> object:
    """Run threads."""
    answers: list[int] = []
    threads = [threading.Thread(target=answers.append, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return f"{len(answers)} threads"


def use_proxy(known: Canaries) -> object:
    """Reach the proxy."""
    return heard(known["proxy"], known["token"])


def use_local_service(known: Canaries) -> object:
    """Reach a local service that the fence lists."""
    return heard(known["service"], known["token"])


def heard(port: int, token: str) -> str:
    """Return the port if who answers there says the token."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as stream:
        said = stream.makefile("rb").read(len(token))
    return f"port {port}" if said == token.encode() else ""


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


def fork_patiently() -> int:
    """Fork, although others of the same user may use up what is allowed for a moment."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return os.fork()
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def attempt_alone(attempt: Attempt, known: Canaries) -> tuple[bool, str]:
    """Make one attempt in a process of its own; return whether it got through, and what it saw."""
    reading, writing = os.pipe()
    pid = fork_patiently()
    if pid == 0:
        os.close(reading)
        signal.alarm(PATIENCE_S)
        try:
            reached = attempt({**known, "pipe": writing})
            said = ["reached", str(reached)] if reached else ["", "nothing"]
        except BaseException as error:
            said = ["", f"{type(error).__name__}: {error}"]
        os.write(writing, json.dumps(said).encode()[:4000])
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
    """Make the attempts that were asked for."""
    if os.geteuid() == 0:
        sys.exit("the attempts are not made as root: name another user for the children")
    asked = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    by_name = {attempt.__name__: attempt for attempt in ATTEMPTS}
    with open(RESULT_FD, "w", encoding="utf-8", closefd=False) as results:
        for name in asked["attempts"]:
            reached, detail = attempt_alone(by_name[name], asked["canaries"])
            json.dump({"attempt": name, "reached": reached, "detail": detail}, results)
            results.write("\n")
            results.flush()


if __name__ == "__main__":
    main()
