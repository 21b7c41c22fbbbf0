"""Level `sandbox`: children run in namespaces of their own, created by bubblewrap.

What is promised:

- A child sees no file, process, socket or secret beyond the system's programs and the paths of its
  `access` (see view).
- It cannot make system calls that could break out (see seccomp).
- Its processes, files and memory are limited.
- It does not connect to infloop's own servers. Unless the network is open, it has a network of its
  own, which contains only the listeners of its `access`.
- It is gone as soon as the run or this server ends.

If any of this cannot be set up, the child is not started.

Children of root are root only to the files that they see, and have none of its powers: their user
namespace maps root to an ordinary user, without capabilities. The kernel does not count root's
processes for RLIMIT_NPROC, so another limit is needed: a cgroup, or process ids of a namespace.

What is different inside: `HOME` and the temporary directory are the child's own, the user is called
`agent`, and the exit code of a program that a signal ended is 128 plus the signal's number.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from pathlib import Path
from typing import TYPE_CHECKING, Self

from msgspec.structs import replace

from infloop.errors import GuardError, MissingPart, SettingsError
from infloop.lowlevel.uncancelled import run_uncancelled
from infloop.sandbox.access import Access
from infloop.sandbox.base import ChildResult
from infloop.sandbox.keepers.child_records import RECORD_VARIABLE
from infloop.sandbox.keepers.pool import KeeperPool
from infloop.sandbox.kernel.cgroup import (
    find_parent_cgroup,
    limited_cgroup,
    limits_processes,
    remove_abandoned_cgroups,
)
from infloop.sandbox.kernel.connect_broker import ConnectBroker, missing_part
from infloop.sandbox.kernel.connect_policy import OpenNetwork
from infloop.sandbox.kernel.resource_limits import resource_limits
from infloop.sandbox.kernel.seccomp import as_file, connect_filter, sandbox_filter
from infloop.sandbox.levels.keeper_sandbox import KeeperSandbox
from infloop.sandbox.levels.proxy_variables import proxy_variables
from infloop.sandbox.levels.service_relay import ServiceRelays
from infloop.sandbox.levels.trusted_bubblewrap import find_bubblewrap
from infloop.sandbox.promises import WHERE_CONFINED
from infloop.sandbox.spawn_request import FIRST_EXTRA_FD, BubblewrapOptions, SpawnRequest
from infloop.sandbox.view.mounts import (
    can_be_home,
    etc_files,
    is_in,
    mounts,
    path_in_view,
    refusal,
    view,
)
from infloop.sandbox.view.opened_paths import OpenedPaths
from infloop.sandbox.view.path_permissions import can_reach, can_write
from infloop.sandbox.view.program_paths import ProgramPaths
from infloop.sandbox.view.root_directory import read_root_layout

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Mapping, Sequence

    from infloop.sandbox.base import ChildRequest, OnOutput, OnStarted
    from infloop.sandbox.levels.keeper_sandbox import SandboxOptions
    from infloop.sandbox.spawn_request import Place
    from infloop.sandbox.view.mounts import Mount

_PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
_PTRACE_OF_DESCENDANTS = 1
_DEFAULT_HOME = "/home/agent"
_NO_LISTENER = "no listener could be opened in its network"  # the message of bubblewrap_child
_NO_CGROUP = "Memory is limited for single processes only: no cgroup v2 is delegated to us."
_NO_TRACE = (
    "A child that starts while infloop and its keepers are killed may live until the next start:"
    " kernel.yama.ptrace_scope is above 1."
)
_MAX_ARGUMENTS = 9000
_ROOT = 0
_USER_OF_ROOT = (1000, 1000)
"""What root is called inside; its files belong to this user and group there."""
_OWN_PID_MAX = (6, 14)
"""The first Linux whose process id namespaces have a `pid_max` of their own."""
_RESERVED_PIDS = 300
"""Numbers that the kernel does not use again after it has used all."""
_NAMESPACES = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--hostname", "sandbox", "--new-session", "--cap-drop", "ALL"),
    "--clearenv",
)


class BubblewrapSandbox(KeeperSandbox):
    """Runs children in namespaces of their own."""

    level = "sandbox"
    confines_root = True
    own_network = True
    own_mounts = True
    promises = WHERE_CONFINED | {"sight", "repository", "temp"}

    def __init__(
        self,
        *,
        hidden: Sequence[str] = (),
        user: tuple[int, int] | None = None,
        ptrace_scope: Path = _PTRACE_SCOPE,
        release: str = os.uname().release,
    ) -> None:
        """Run children as another `user` (uid and gid) if given, which needs root.

        Every child sees the `hidden` directories as empty, except for paths in them that are in its
        `access`. Raises MissingPart, naming what this machine lacks.
        """
        if user and os.geteuid() != 0:
            raise SettingsError(f"only root can run children as another user ({user[0]})")
        self._bwrap = find_bubblewrap()
        self._user = user
        self._uid, self._gid = user or (os.geteuid(), os.getegid())
        self._of_root = self._uid == _ROOT
        self._real_home = _real_home(self._uid)
        self._filter = sandbox_filter(for_root=self._of_root)
        self._root = read_root_layout(for_root=self._of_root)
        self._hidden = [os.path.realpath(path) for path in hidden]
        self._can_trace = _can_trace(ptrace_scope)
        self._parent_cgroup = find_parent_cgroup()
        if self._parent_cgroup:
            remove_abandoned_cgroups(self._parent_cgroup)
        self._limits_pids = self._of_root and not (
            self._parent_cgroup and limits_processes(self._parent_cgroup)
        )
        if self._limits_pids and _version(release) < _OWN_PID_MAX:
            raise MissingPart(
                "level 'sandbox' for children of root needs a limit on their processes: cgroup v2"
                " with the pids controller, or Linux 6.14. INFLOOP_SERVICE_USER names another user"
                " for them"
            )
        self._pool = KeeperPool(user=user, modules=("bubblewrap_child", "guard_child"))
        self._broker = ConnectBroker()
        self._program_paths = ProgramPaths()

    @classmethod
    def open(cls, options: SandboxOptions) -> Self:
        """Return a sandbox of this level; see the base class."""
        return cls(hidden=options.hidden, user=options.user)

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What this level does not promise on this machine, as sentences."""
        memory = () if self._parent_cgroup else (_NO_CGROUP,)
        return (*memory, *(() if self._can_trace else (_NO_TRACE,)))

    async def _run(
        self,
        request: ChildRequest,
        program: str,
        on_output: OnOutput | None,
        on_started: OnStarted | None,
    ) -> ChildResult:
        access = request.access or Access(write=(request.cwd,))
        async with contextlib.AsyncExitStack() as stack:
            try:
                spawn = self._prepare(stack, request, program, access)
            except (OSError, ValueError, MissingPart) as error:
                return ChildResult(error=f"the child could not be confined: {error}")
            result = await self._pool.run(request, spawn, on_output, on_started)
        return self._with_bubblewrap_error(result)

    def _checked(self, access: Access, opened: OpenedPaths) -> Access:
        """Return the access with the paths that exist; raise ValueError if it cannot be granted."""
        if reason := refusal(access):
            raise ValueError(reason)
        found = replace(
            access,
            read=opened.open_existing(access.read),
            write=opened.open_existing(access.write),
            home=opened.open(access.home) if access.home else "",
        )
        for path, device, inode in access.pinned:
            if opened.place("bind", opened.open(path)) != ("bind", device, inode, path):
                raise ValueError(f"{path!r} was exchanged for something else")
        if reason := refusal(found) or self._unreachable(found):
            raise ValueError(reason)
        return found

    def _prepare(
        self,
        stack: contextlib.AsyncExitStack,
        request: ChildRequest,
        program: str,
        access: Access,
    ) -> SpawnRequest:
        """Create everything that confines one child; the stack removes it again."""
        files = _Files(stack)
        opened = OpenedPaths()
        stack.callback(opened.close)
        access = self._checked(access, opened)
        mounted = self._mounts(request, program, access, opened)
        arguments = self._arguments(request, access, mounted, files)
        files.hold(self._filter)
        relays = ServiceRelays(access.on_refused, users=(self._uid,))
        stack.push_async_callback(relays.close)
        if access.network == "open":
            self._broker_connects(stack, access, files)
        joins_cgroup = self._parent_cgroup is not None and (
            self._of_root or access.limits.memory_bytes > 0
        )
        if self._parent_cgroup and joins_cgroup:
            cgroup = limited_cgroup(
                self._parent_cgroup,
                memory_bytes=access.limits.memory_bytes,
                processes=access.limits.processes,
            )
            files.add(stack.enter_context(cgroup))
        return SpawnRequest(
            program=self._bwrap,
            argv=("bwrap", "--args", str(arguments), "--", program, *request.argv[1:]),
            env={name: value for name, value in request.env.items() if name == RECORD_VARIABLE},
            cwd="/",
            descriptors=tuple(files.descriptors),
            bubblewrap=replace(
                _bubblewrap_options(access, relays),
                joins_cgroup=joins_cgroup,
                traced=self._can_trace,
                max_pids=self._max_pids(access.limits.processes),
            ),
            limits=resource_limits(access.limits),
            places=tuple(_places(mounted, opened)),
            on_placed=opened.close,
        )

    def _max_pids(self, processes: int) -> int:
        """Return the bound for process ids inside, 0 for none."""
        return processes + _RESERVED_PIDS + 1 if self._limits_pids and processes else 0

    def _broker_connects(
        self, stack: contextlib.AsyncExitStack, access: Access, files: _Files
    ) -> None:
        """Let the connect broker answer the child, which shares this machine's network."""
        if part := missing_part(other_user=self._user is not None):
            raise MissingPart(
                f"level 'sandbox' with an open network needs {part}; restrict the network (egress)"
            )
        files.hold(connect_filter())
        connects = self._broker.open(OpenNetwork((self._uid,)), access.on_refused)
        stack.push_async_callback(lambda: run_uncancelled(connects.close()))
        files.add(connects.child_socket.fileno())

    def _mounts(
        self, request: ChildRequest, program: str, access: Access, opened: OpenedPaths
    ) -> list[Mount]:
        """Return what is mounted for the child; the sources are opened."""
        home = _home(request.env)
        homes = {os.path.realpath(home), self._real_home}
        needed = self._program_paths.needed(program, request.env, homes, access.write)
        programs = {
            path: source
            for path, source in needed.items()
            if (self._user is None or can_reach(source, self._user))
            and opened.open_existing((source,))
        }
        return mounts(access, programs=programs, home=home, hidden=self._hidden)

    def _arguments(
        self, request: ChildRequest, access: Access, mounted: Sequence[Mount], files: _Files
    ) -> int:
        """Write bubblewrap's arguments to a file; return the number of its descriptor."""
        home = _home(request.env)
        arguments = [*_NAMESPACES, *(() if access.network == "open" else ("--unshare-net",))]
        arguments += [] if self._can_trace else ["--die-with-parent"]
        uid, gid = _USER_OF_ROOT if self._of_root else (self._uid, self._gid)
        arguments += ["--uid", str(uid), "--gid", str(gid)] if self._of_root else []
        made = etc_files(self._root, access, uid=uid, gid=gid, home=home)
        for path, data in made.items():
            arguments += ["--perms", "0644", "--file", str(files.hold(data)), path]
        arguments += view(self._root, access, mounted)
        arguments += ["--chdir", os.path.normpath(request.cwd)]
        for name, value in _environment(request.env, access, home).items():
            arguments += ["--setenv", name, value]
        number = files.next_number
        arguments += ["--json-status-fd", str(number + 1), "--seccomp", str(number + 2)]
        if len(arguments) > _MAX_ARGUMENTS:
            raise ValueError("the environment or the list of paths is too large for bubblewrap")
        joined = "\0".join(arguments) + "\0"
        if joined.count("\0") != len(arguments):
            raise ValueError("a path or a variable holds a NUL character")
        return files.hold(os.fsencode(joined))

    def _unreachable(self, access: Access) -> str:
        """Return which path the children's user cannot use, and what to do about it."""
        if self._user is None:
            return ""
        for path in access.read:
            if not can_reach(path, self._user):
                return f"{path!r} cannot be reached by the children's user {self._user[0]}"
        for path in (*access.write, *((access.home,) if access.home else ())):
            if not can_write(path, self._user):
                uid, gid = self._user
                return (
                    f"{path!r} cannot be written by the children's user {uid}: make that user the "
                    f"owner (chown -R {uid}:{gid}) and let it enter the directories above"
                )
        return ""

    async def close(self) -> None:
        """End every child and every keeper."""
        await super().close()
        await self._broker.close()

    def _with_bubblewrap_error(self, result: ChildResult) -> ChildResult:
        """Return the result with bubblewrap's own error message, if it has one.

        Raises GuardError when the child's proxy could not listen.
        """
        if _NO_LISTENER in result.error:
            raise GuardError(f"the proxy of this run cannot start: {result.error}")
        message = result.stderr.strip().rpartition("\n")[2]
        if not result.error or not message.startswith("bwrap: "):
            return result
        hint = f" (as user {self._uid})" if "Permission denied" in message else ""
        return replace(result, error=f"{result.error}: {message.removeprefix('bwrap: ')}{hint}")


def _version(release: str) -> tuple[int, int]:
    """Return the version of a kernel; (0, 0) if its name does not begin with one."""
    try:
        major, minor = map(int, release.split(".")[:2])
    except ValueError:
        return (0, 0)
    return (major, minor)


def _can_trace(ptrace_scope: Path) -> bool:
    """Return whether the kernel lets a keeper, which is not root, trace its descendants."""
    try:
        return int(ptrace_scope.read_text()) <= _PTRACE_OF_DESCENDANTS
    except FileNotFoundError:
        return True


class _Files:
    """Sealed files in memory that bubblewrap inherits, by the number of their descriptor there."""

    def __init__(self, stack: contextlib.AsyncExitStack) -> None:
        self._stack = stack
        self.descriptors: list[int] = []

    @property
    def next_number(self) -> int:
        return FIRST_EXTRA_FD + len(self.descriptors)

    def hold(self, data: bytes) -> int:
        number = self.next_number
        fd = as_file(data)
        self._stack.callback(os.close, fd)
        self.descriptors.append(fd)
        return number

    def add(self, fd: int) -> None:
        self.descriptors.append(fd)


def _real_home(uid: int) -> str:
    try:
        return os.path.realpath(pwd.getpwuid(uid).pw_dir)
    except KeyError:
        return _DEFAULT_HOME


def _places(mounted: Sequence[Mount], opened: OpenedPaths) -> Iterator[Place]:
    """Yield what must be found in the child's root, so that nothing was exchanged meanwhile."""
    binds = [mount for mount in mounted if mount.kind in ("ro", "rw")]
    for path, kind, source in binds:
        yield opened.place("bind" if kind == "rw" else "read-only", source, path_in_view(path))
    visible = [mount.path for mount in binds]
    for path, _, source in mounted:
        if not source and is_in(path, visible):
            for covered in opened.open_existing((path,)):
                yield opened.place("covered", covered, path_in_view(path))


def _home(env: Mapping[str, str]) -> str:
    """Return the path of the child's own home.

    It is the path of the real one, so that files of it are found there if `access` lists them.
    """
    home = os.path.normpath(env.get("HOME", ""))
    return home if can_be_home(home) else _DEFAULT_HOME


def _environment(env: Mapping[str, str], access: Access, home: str) -> dict[str, str]:
    own = {"HOME": home, "TMPDIR": "/tmp", "USER": "agent", "LOGNAME": "agent"}  # noqa: S108
    proxy = (
        proxy_variables(access.proxy_port, access.proxy_user) if access.network == "proxy" else {}
    )
    return {**env, **own, **proxy}


def _bubblewrap_options(access: Access, relays: ServiceRelays) -> BubblewrapOptions:
    """Return the ports that must listen inside before the child starts, and who serves them."""
    if access.network == "open":
        return BubblewrapOptions(brokered=True)
    proxied = (access.proxy_port,) if access.network == "proxy" else ()
    if proxied and access.on_listening is None:
        raise ValueError("its network has a proxy, but no on_listening callback")

    async def on_listening(listeners: Mapping[int, socket.socket]) -> None:
        await relays.open({port: listeners[port] for port in access.local_ports})
        if proxied and access.on_listening:
            await access.on_listening({port: listeners[port] for port in proxied})

    return BubblewrapOptions((*proxied, *access.local_ports), on_listening=on_listening)
