"""Level `sandbox`: children run in namespaces of their own, created by bubblewrap.

What is promised:

- A child sees no file, process, socket or secret beyond the system's programs and the paths of its
  `access` (see view).
- It cannot make system calls that could break out (see seccomp).
- Its processes, files and memory are limited.
- Unless the network is open, it has a network of its own, which contains only the listeners of its
  `access`.
- It is gone as soon as the run or this server ends.

If any of this cannot be set up, the child is not started.

What is different inside: `HOME` and the temporary directory are the child's own, the user is called
`agent`, and the exit code of a program that a signal ended is 128 plus the signal's number.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from typing import TYPE_CHECKING, Self

from msgspec.structs import replace

from infloop.errors import GuardError, SettingsError
from infloop.sandbox.access import Access
from infloop.sandbox.base import ChildResult
from infloop.sandbox.keepers.child_records import RECORD_VARIABLE
from infloop.sandbox.keepers.pool import KeeperPool
from infloop.sandbox.kernel.cgroup import (
    find_parent_cgroup,
    memory_cgroup,
    remove_abandoned_cgroups,
)
from infloop.sandbox.kernel.resource_limits import resource_limits
from infloop.sandbox.kernel.seccomp import as_file, sandbox_filter
from infloop.sandbox.levels.keeper_sandbox import KeeperSandbox
from infloop.sandbox.levels.proxy_variables import proxy_variables
from infloop.sandbox.levels.service_relay import ServiceRelays
from infloop.sandbox.levels.trusted_bubblewrap import find_bubblewrap
from infloop.sandbox.promises import WHERE_CONFINED
from infloop.sandbox.spawn_request import FIRST_EXTRA_FD, BubblewrapOptions, SpawnRequest
from infloop.sandbox.view.mounts import can_be_home, etc_files, refusal, view
from infloop.sandbox.view.path_permissions import can_reach, can_write
from infloop.sandbox.view.program_paths import needed_paths
from infloop.sandbox.view.root_directory import read_root_layout

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping, Sequence

    from infloop.sandbox.base import ChildRequest, OnOutput, OnStarted
    from infloop.sandbox.levels.keeper_sandbox import SandboxOptions

_DEFAULT_HOME = "/home/agent"
_NO_LISTENER = "no listener could be opened in its network"  # the message of bubblewrap_child
_MAX_ARGUMENTS = 9000
_NAMESPACES = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--hostname", "sandbox", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
    "--clearenv",
)


class BubblewrapSandbox(KeeperSandbox):
    """Runs children in namespaces of their own."""

    level = "sandbox"
    own_network = True
    own_mounts = True
    promises = WHERE_CONFINED | {"sight", "repository", "temp"}

    def __init__(self, *, hidden: Sequence[str] = (), user: tuple[int, int] | None = None) -> None:
        """Run children as another `user` (uid and gid) if given, which needs root.

        Every child sees the `hidden` directories as empty, except for paths in them that are in its
        `access`. Raises MissingPart, naming what this machine lacks, and SettingsError for root.
        """
        if (user[0] if user else os.geteuid()) == 0:
            raise SettingsError(
                "level 'sandbox' does not confine root: start infloop as another user, or name one"
                " for its children"
            )
        if user and os.geteuid() != 0:
            raise SettingsError(f"only root can run children as another user ({user[0]})")
        self._bwrap = find_bubblewrap()
        self._filter = sandbox_filter()
        self._user = user
        self._uid, self._gid = user or (os.geteuid(), os.getegid())
        self._root = read_root_layout()
        self._hidden = [os.path.realpath(path) for path in hidden]
        self._parent_cgroup = find_parent_cgroup()
        if self._parent_cgroup:
            remove_abandoned_cgroups(self._parent_cgroup)
        self._pool = KeeperPool(user=user, modules=("bubblewrap_child",))

    @classmethod
    def open(cls, options: SandboxOptions) -> Self:
        """Return a sandbox of this level; see the base class."""
        return cls(hidden=options.hidden, user=options.user)

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What this level does not promise on this machine, as sentences."""
        if self._parent_cgroup:
            return ()
        return ("Memory is limited for single processes only: no cgroup v2 is delegated to us.",)

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
                spawn = self._prepare(stack, request, program, self._checked(access))
            except (OSError, ValueError) as error:
                return ChildResult(error=f"the child could not be confined: {error}")
            result = await self._pool.run(request, spawn, on_output, on_started)
        return self._with_bubblewrap_error(result)

    def _checked(self, access: Access) -> Access:
        """Return the access with real paths only; raise ValueError when it cannot be granted."""
        # Checked before and after links are resolved: a link may lead to a path that is refused.
        reason = refusal(access) or refusal(access := _existing(access))
        if reason := reason or self._unreachable(access):
            raise ValueError(reason)
        return access

    def _prepare(
        self,
        stack: contextlib.AsyncExitStack,
        request: ChildRequest,
        program: str,
        access: Access,
    ) -> SpawnRequest:
        """Create everything that confines one child; the stack removes it again."""
        files = _Files(stack)
        arguments = self._arguments(request, program, access, files)
        relays = ServiceRelays()
        stack.push_async_callback(relays.close)
        joins_cgroup = self._parent_cgroup is not None and access.limits.memory_bytes > 0
        if self._parent_cgroup and joins_cgroup:
            cgroup = memory_cgroup(self._parent_cgroup, access.limits.memory_bytes)
            files.add(stack.enter_context(cgroup))
        return SpawnRequest(
            program=self._bwrap,
            argv=("bwrap", "--args", str(arguments), "--", program, *request.argv[1:]),
            env={name: value for name, value in request.env.items() if name == RECORD_VARIABLE},
            cwd="/",
            descriptors=tuple(files.descriptors),
            bubblewrap=_bubblewrap_options(access, relays, joins_cgroup=joins_cgroup),
            limits=resource_limits(access.limits),
        )

    def _arguments(self, request: ChildRequest, program: str, access: Access, files: _Files) -> int:
        """Write bubblewrap's arguments to a file; return the number of its descriptor."""
        home = _home(request.env)
        homes = {os.path.realpath(home), _real_home(self._uid)}
        needed = needed_paths(program, request.env, homes, access.write)
        programs = [path for path in needed if self._user is None or can_reach(path, self._user)]
        seen = view(self._root, access, programs=programs, home=home, hidden=self._hidden)
        arguments = [*_NAMESPACES, *(() if access.network == "open" else ("--unshare-net",))]
        made = etc_files(self._root, access, uid=self._uid, gid=self._gid, home=home)
        for path, data in made.items():
            arguments += ["--perms", "0644", "--file", str(files.hold(data)), path]
        arguments += [*seen, "--chdir", os.path.realpath(request.cwd)]
        for name, value in _environment(request.env, access, home).items():
            arguments += ["--setenv", name, value]
        arguments += ["--seccomp", str(files.hold(self._filter))]
        number = files.next_number
        arguments += ["--json-status-fd", str(number + 1), "--block-fd", str(number + 2)]
        if len(arguments) > _MAX_ARGUMENTS:
            raise ValueError("the environment or the list of paths is too large for bubblewrap")
        if any("\0" in argument for argument in arguments):
            raise ValueError("a path or a variable holds a NUL character")
        return files.hold(os.fsencode("\0".join(arguments) + "\0"))

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


def _existing(access: Access) -> Access:
    """Return the access with real paths only, without those that do not exist."""
    return replace(
        access,
        read=tuple(os.path.realpath(path) for path in access.read if os.path.exists(path)),  # noqa: PTH110
        write=tuple(os.path.realpath(path) for path in access.write if os.path.exists(path)),  # noqa: PTH110
    )


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


def _bubblewrap_options(
    access: Access, relays: ServiceRelays, *, joins_cgroup: bool
) -> BubblewrapOptions:
    """Return the ports that must listen inside before the child starts, and who serves them."""
    if access.network == "open":
        return BubblewrapOptions(joins_cgroup=joins_cgroup)
    proxied = (access.proxy_port,) if access.network == "proxy" else ()
    if proxied and access.on_listening is None:
        raise ValueError("its network has a proxy, but no on_listening callback")

    async def on_listening(listeners: Mapping[int, socket.socket]) -> None:
        await relays.open({port: listeners[port] for port in access.local_ports})
        if proxied and access.on_listening:
            await access.on_listening({port: listeners[port] for port in proxied})

    return BubblewrapOptions((*proxied, *access.local_ports), joins_cgroup, on_listening)
