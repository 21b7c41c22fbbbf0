"""Level `sandbox`: children live in namespaces of their own, made by bubblewrap.

What is promised: a child sees no file, process, socket or secret beyond the system's programs and
what its fence names (see view); it may not make the system calls that break such a fence (see
seccomp); its processes, files and memory are bounded; unless the network is open, its network is
its own, with nothing in it but the listeners of its fence; and it is gone the moment the run ends
or this server does. Whatever of this cannot be put up keeps the child from being started.

What is different inside: `HOME` and temp are the child's own, the user is called `agent`, and a
program that a signal ends shows as exit code 128 and the signal's number, as in a shell.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from typing import TYPE_CHECKING

from msgspec.structs import replace

from infloop.errors import GuardError, SettingsError
from infloop.sandbox.base import ChildResult
from infloop.sandbox.fence import Fence
from infloop.sandbox.keepers.child_records import MARK
from infloop.sandbox.keepers.pool import KeeperPool
from infloop.sandbox.kernel.cgroup import bounded_group, find_parent, remove_left
from infloop.sandbox.kernel.resource_limits import resource_limits
from infloop.sandbox.kernel.seccomp import as_file, sandbox_filter
from infloop.sandbox.launch import FIRST_EXTRA_FD, Bubble, Launch
from infloop.sandbox.levels.keeper_sandbox import KeptSandbox
from infloop.sandbox.levels.proxy_variables import proxy_variables
from infloop.sandbox.levels.service_relay import Relays
from infloop.sandbox.levels.trusted_bubblewrap import find_bubblewrap
from infloop.sandbox.view.mounts import can_be_home, etc_files, refuse, view
from infloop.sandbox.view.path_permissions import can_reach, can_write
from infloop.sandbox.view.program_paths import needed_paths
from infloop.sandbox.view.root_directory import look_at_root

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping, Sequence

    from infloop.sandbox.base import ChildRequest, OnOutput, OnStarted

_DEFAULT_HOME = "/home/agent"
_NO_LISTENER = "no listener could be opened in its network"  # as `bubble` says it
_MAX_ARGUMENTS = 9000
_SEPARATION = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--hostname", "sandbox", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
    "--clearenv",
)


class BubblewrapSandbox(KeptSandbox):
    """Runs children in namespaces of their own."""

    level = "sandbox"

    def __init__(self, *, hidden: Sequence[str] = (), user: tuple[int, int] | None = None) -> None:
        """Prepare to run children, as another `user` (uid and gid) when started by root.

        The `hidden` directories are empty for every child, wherever they lie, but for what lies in
        them and is in the child's fence. Raises MissingPart, naming what this machine lacks, and
        SettingsError for root.
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
        self._root = look_at_root()
        self._hidden = [os.path.realpath(path) for path in hidden]
        self._groups = find_parent()
        if self._groups:
            remove_left(self._groups)
        self._pool = KeeperPool(user=user, modules=("bubblewrap_child",))

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What this level leaves open on this machine, as sentences."""
        if self._groups:
            return ()
        return ("Memory is bounded for single processes only: no cgroup v2 is ours to divide.",)

    async def _run(
        self,
        request: ChildRequest,
        program: str,
        on_output: OnOutput | None,
        on_started: OnStarted | None,
    ) -> ChildResult:
        fence = request.fence or Fence(write=(request.cwd,))
        async with contextlib.AsyncExitStack() as stack:
            try:
                launch = self._prepare(stack, request, program, self._checked(fence))
            except (OSError, ValueError) as error:
                return ChildResult(error=f"the child could not be confined: {error}")
            result = await self._pool.run(request, launch, on_output, on_started)
        return self._explained(result)

    def _checked(self, fence: Fence) -> Fence:
        """Return the fence with real paths only; raise ValueError when it cannot be put up."""
        # Before paths are followed, and after: a link may lead where no fence may be.
        why = refuse(fence) or refuse(fence := _on_disk(fence)) or self._out_of_reach(fence)
        if why:
            raise ValueError(why)
        return fence

    def _prepare(
        self,
        stack: contextlib.AsyncExitStack,
        request: ChildRequest,
        program: str,
        fence: Fence,
    ) -> Launch:
        """Make all that confines one child; the stack takes it away again."""
        files = _Files(stack)
        arguments = self._arguments(request, program, fence, files)
        relays = Relays()
        stack.push_async_callback(relays.close)
        joins = self._groups is not None and fence.limits.memory_bytes > 0
        if self._groups and joins:
            group = bounded_group(self._groups, fence.limits.memory_bytes)
            files.add(stack.enter_context(group))
        return Launch(
            program=self._bwrap,
            argv=("bwrap", "--args", str(arguments), "--", program, *request.argv[1:]),
            env={name: value for name, value in request.env.items() if name == MARK},
            cwd="/",
            descriptors=tuple(files.descriptors),
            bubble=_bubble(fence, relays, joins=joins),
            limits=resource_limits(fence.limits),
        )

    def _arguments(self, request: ChildRequest, program: str, fence: Fence, files: _Files) -> int:
        """Return the number of the descriptor from which bubblewrap reads its arguments."""
        home = _home(request.env)
        homes = {os.path.realpath(home), _real_home(self._uid)}
        needed = needed_paths(program, request.env, homes, fence.write)
        programs = [path for path in needed if self._user is None or can_reach(path, self._user)]
        seen = view(self._root, fence, programs=programs, home=home, hidden=self._hidden)
        arguments = [*_SEPARATION, *(() if fence.network == "open" else ("--unshare-net",))]
        made = etc_files(self._root, fence, uid=self._uid, gid=self._gid, home=home)
        for path, data in made.items():
            arguments += ["--perms", "0644", "--file", str(files.hold(data)), path]
        arguments += [*seen, "--chdir", os.path.realpath(request.cwd)]
        for name, value in _environment(request.env, fence, home).items():
            arguments += ["--setenv", name, value]
        arguments += ["--seccomp", str(files.hold(self._filter))]
        number = files.next_number
        arguments += ["--json-status-fd", str(number + 1), "--block-fd", str(number + 2)]
        if len(arguments) > _MAX_ARGUMENTS:
            raise ValueError("the environment or the fence is too large for bubblewrap")
        if any("\0" in argument for argument in arguments):
            raise ValueError("a path or a variable holds a NUL character")
        return files.hold(os.fsencode("\0".join(arguments) + "\0"))

    def _out_of_reach(self, fence: Fence) -> str:
        """Return what of the fence the children's user cannot use, and what to do."""
        if self._user is None:
            return ""
        for path in fence.read:
            if not can_reach(path, self._user):
                return f"{path!r} cannot be reached by user {self._user[0]}, as whom children run"
        for path in (*fence.write, *((fence.home,) if fence.home else ())):
            if not can_write(path, self._user):
                uid, gid = self._user
                return (
                    f"{path!r} cannot be written by user {uid}, as whom children run: give it to "
                    f"them (chown -R {uid}:{gid}) and let them enter what is above it"
                )
        return ""

    def _explained(self, result: ChildResult) -> ChildResult:
        """Return the result with bubblewrap's own words where it could not do its part.

        Raises GuardError when nobody listens where the child would find its proxy.
        """
        if _NO_LISTENER in result.error:
            raise GuardError(f"the proxy of this run cannot start: {result.error}")
        said = result.stderr.strip().rpartition("\n")[2]
        if not result.error or not said.startswith("bwrap: "):
            return result
        hint = f" (as user {self._uid})" if "Permission denied" in said else ""
        return replace(result, error=f"{result.error}: {said.removeprefix('bwrap: ')}{hint}")


class _Files:
    """Sealed files in memory that a child's bubblewrap inherits, by their number there."""

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


def _on_disk(fence: Fence) -> Fence:
    """Return the fence with real paths only, and only those that are there."""
    return replace(
        fence,
        read=tuple(os.path.realpath(path) for path in fence.read if os.path.exists(path)),  # noqa: PTH110
        write=tuple(os.path.realpath(path) for path in fence.write if os.path.exists(path)),  # noqa: PTH110
    )


def _home(env: Mapping[str, str]) -> str:
    """Return where the child's own home is.

    It is where the real one is, so that what a fence shows of that is found there.
    """
    home = os.path.normpath(env.get("HOME", ""))
    return home if can_be_home(home) else _DEFAULT_HOME


def _environment(env: Mapping[str, str], fence: Fence, home: str) -> dict[str, str]:
    own = {"HOME": home, "TMPDIR": "/tmp", "USER": "agent", "LOGNAME": "agent"}  # noqa: S108
    proxy = proxy_variables(fence.proxy_port, fence.proxy_user) if fence.network == "proxy" else {}
    return {**env, **own, **proxy}


def _bubble(fence: Fence, relays: Relays, *, joins: bool) -> Bubble:
    """Return what has to listen inside before the child begins, and who answers there."""
    if fence.network == "open":
        return Bubble(joins=joins)
    proxied = (fence.proxy_port,) if fence.network == "proxy" else ()
    if proxied and fence.on_listening is None:
        raise ValueError("its network has a proxy and nobody answers there")

    async def on_listening(listeners: Mapping[int, socket.socket]) -> None:
        await relays.open({port: listeners[port] for port in fence.local_ports})
        if proxied and fence.on_listening:
            await fence.on_listening({port: listeners[port] for port in proxied})

    return Bubble((*proxied, *fence.local_ports), joins, on_listening)
