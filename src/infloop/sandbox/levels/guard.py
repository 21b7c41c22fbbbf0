"""Level `guard`: children confine themselves before they begin, without any namespace.

What is promised: a child reads only the system's programs and the paths of its fence, writes only
where its fence says and in a private home and temporary directory that are removed after it, and
unless the network is open its only peers are its proxy and the local ports of its fence. The
environment is the one given, but for `HOME`, the variables that name the temporary directory, and
those for the proxy. The whole process tree is gone when the run returns.

What is not: it sees that other processes exist and with which arguments, and that files exist; it
can change modes, owners and times of its user's files anywhere; and the size of its temporary
directory is not bounded.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from infloop.errors import GuardError, MissingPart, SettingsError
from infloop.lowlevel.uncancelled import run_uncancelled
from infloop.sandbox.base import ChildResult
from infloop.sandbox.fence import Fence
from infloop.sandbox.keepers.pool import KeeperPool
from infloop.sandbox.kernel import landlock
from infloop.sandbox.kernel.connect_broker import ConnectBroker
from infloop.sandbox.kernel.resource_limits import resource_limits
from infloop.sandbox.kernel.seccomp import as_file, guard_filter
from infloop.sandbox.launch import Launch
from infloop.sandbox.levels.keeper_sandbox import KeptSandbox
from infloop.sandbox.levels.proxy_variables import proxy_variables
from infloop.sandbox.view.mounts import refuse
from infloop.sandbox.view.private_directories import private_directories
from infloop.sandbox.view.program_paths import needed_paths
from infloop.sandbox.view.system_paths import CONFIGURATION, DEVICES, KERNEL, PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from infloop.sandbox.base import ChildRequest, OnOutput, OnStarted
    from infloop.sandbox.fence import Limits
    from infloop.sandbox.kernel.connect_broker import Peer
    from infloop.sandbox.kernel.seccomp import Connecting
    from infloop.sandbox.view.private_directories import Private

_LOOPBACK = "127.0.0.1"
_LOOPBACKS = (_LOOPBACK, "::1")
_BACKLOG = 128
_ACTIONS = Path("/proc/sys/kernel/seccomp/actions_avail")
_PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
_PTRACE_OF_CHILDREN = 1


class GuardSandbox(KeptSandbox):
    """Runs children behind Landlock, a filter of system calls and a connect broker."""

    level = "guard"

    def __init__(
        self,
        scratch: str,
        *,
        hidden: Sequence[str] = (),
        user: tuple[int, int] | None = None,
    ) -> None:
        """Prepare to run children, as another `user` (uid and gid) when started by root.

        In `scratch` children get their private directories; their user must be able to enter it.
        No child gets to the `hidden` directories, but for what lies in them and is in its fence.
        Raises MissingPart, naming what this machine lacks, and SettingsError for root.
        """
        uid = user[0] if user else os.geteuid()
        if uid == 0:
            raise SettingsError(
                "level 'guard' does not confine root, which may read other processes' secrets:"
                " start infloop as another user, or name one for its children"
            )
        if piece := missing_piece():
            raise MissingPart(f"level 'guard' needs {piece}")
        self._scratch = os.path.realpath(scratch)
        self._hidden = _real(hidden)
        self._user = user
        self._real_home = home_of(uid)
        self._pool = KeeperPool(user=user, modules=("guard_child",))
        kinds: tuple[Connecting, ...] = ("open", "asked", "refused")
        self._filters = {kind: as_file(guard_filter(kind)) for kind in kinds}
        there = filter(os.path.exists, (*PROGRAMS, *CONFIGURATION, *KERNEL))
        self._system = [path for path in _real(there) if not _above_any(path, self._hidden)]

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What this level leaves open on this machine beyond what it does anywhere."""
        return landlock.not_covered(landlock.version())

    async def _run(
        self,
        request: ChildRequest,
        program: str,
        on_output: OnOutput | None,
        on_started: OnStarted | None,
    ) -> ChildResult:
        fence = _with_real_paths(request.fence or Fence(write=(request.cwd,)))
        if why := refuse(fence) or self._exposed(fence):
            return ChildResult(error=f"the child could not be confined: {why}")
        async with contextlib.AsyncExitStack() as stack:
            try:
                launch = await self._prepare(stack, request, program, fence)
            except OSError as error:
                return ChildResult(error=f"the child could not be confined: {error}")
            return await self._pool.run(request, launch, on_output, on_started)

    async def close(self) -> None:
        """End every child and every keeper."""
        await super().close()
        while self._filters:
            os.close(self._filters.popitem()[1])

    async def _prepare(
        self,
        stack: contextlib.AsyncExitStack,
        request: ChildRequest,
        program: str,
        fence: Fence,
    ) -> Launch:
        """Make all that confines one child; the stack takes it away again."""
        private = await stack.enter_async_context(private_directories(self._scratch, self._user))
        peers = await _open_peers(fence)
        broker = ConnectBroker(peers)
        stack.push_async_callback(lambda: run_uncancelled(broker.close()))
        programs = self._programs(program, request.env, fence)
        ruleset = landlock.ruleset(
            read=_outermost((*self._system, *programs, *fence.read)),
            write=(*DEVICES, *private, *fence.write),
            network_open=fence.network == "open",
        )
        stack.callback(os.close, ruleset)
        connecting = _connecting(fence, peers)
        return Launch(
            program=program,
            argv=request.argv,
            env={**request.env, **_own_environment(fence, private)},
            cwd=request.cwd,
            descriptors=(ruleset, self._filters[connecting], broker.report.fileno()),
            guard=True,
            limits=resource_limits(_beside_others(fence.limits)),
        )

    def _programs(self, program: str, env: Mapping[str, str], fence: Fence) -> list[str]:
        """Return where the child's programs live, beyond the system's own directories."""
        homes = {os.path.realpath(env.get("HOME", "/")), self._real_home}
        needed = _real(needed_paths(program, env, homes, fence.write))
        return [path for path in needed if not _above_any(path, self._hidden)]

    def _exposed(self, fence: Fence) -> str:
        """Return what a fence would show that must not be seen; Landlock leaves nothing out."""
        for path in (*fence.read, *fence.write):
            if _above_any(path, self._hidden):
                return f"in path {path!r} of its fence lies what children must not see"
        return ""


class ContainerSandbox(GuardSandbox):
    """Level `container`: the same, where infloop itself lives in a container (see container)."""

    level = "container"


def home_of(uid: int) -> str:
    """Return a user's real home, "/" for one who has none."""
    try:
        return os.path.realpath(pwd.getpwuid(uid).pw_dir)
    except KeyError:
        return "/"


def missing_piece() -> str:
    """Return what this machine lacks for level `guard`, or nothing."""
    try:
        guard_filter("asked")
    except MissingPart as missing:
        return f"a filter of system calls, but there is {missing}"
    if piece := landlock.missing(landlock.version()):
        return piece
    if "user_notif" not in _read(_ACTIONS).split():
        return "seccomp with user notifications, which this kernel does not offer"
    if int(_read(_PTRACE_SCOPE) or 0) > _PTRACE_OF_CHILDREN and os.geteuid() != 0:
        return "to look into its children (kernel.yama.ptrace_scope must be 0 or 1)"
    return ""


async def _open_peers(fence: Fence) -> dict[Peer, Peer]:
    """Return whom the child may connect to; its proxy listens by then."""
    if fence.network == "open":
        return {}
    peers = {(host, port): (host, port) for port in fence.local_ports for host in _LOOPBACKS}
    if fence.network == "proxy":
        if fence.on_listening is None:
            raise ConnectionError("its network has a proxy and nobody answers there")
        try:
            listener = socket.create_server((_LOOPBACK, 0), backlog=_BACKLOG)
        except OSError as error:
            raise GuardError(f"the proxy of this run cannot start: {error}") from None
        # The child's port may be taken on this machine, whose loopback all children share.
        peers[_LOOPBACK, fence.proxy_port] = listener.getsockname()
        try:
            await fence.on_listening({fence.proxy_port: listener})
        except BaseException:
            listener.close()
            raise
    return peers


def _connecting(fence: Fence, peers: dict[Peer, Peer]) -> Connecting:
    if fence.network == "open":
        return "open"
    return "asked" if peers else "refused"


def _own_environment(fence: Fence, private: Private) -> dict[str, str]:
    own = {"HOME": fence.home or private.home}
    own |= dict.fromkeys(("TMPDIR", "TMP", "TEMP"), private.temp)
    if fence.network == "proxy":
        own |= proxy_variables(fence.proxy_port, fence.proxy_user)
    return own


def _with_real_paths(fence: Fence) -> Fence:
    """Return the fence with paths that no link leads elsewhere; its home is one to write to."""
    home = _real(filter(None, (fence.home,)))
    return replace(
        fence, read=_real(fence.read), write=_real((*fence.write, *home)), home="".join(home)
    )


def _real(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(os.path.realpath, paths)))


def _above_any(path: str, places: Iterable[str]) -> bool:
    return any(place == path or place.startswith(path.rstrip("/") + "/") for place in places)


def _outermost(paths: Iterable[str]) -> list[str]:
    """Return the paths without those that lie in another of them: one rule less each."""
    outermost: list[str] = []
    for path in sorted(f"{each}/" for each in paths):  # what lies in a path comes right after it
        if not (outermost and path.startswith(outermost[-1])):
            outermost.append(path)
    return [path[:-1] for path in outermost]


def _beside_others(limits: Limits) -> Limits:
    """Return the limits with room for the processes that the user has already.

    The kernel counts processes by user, whoever's children they are.
    """
    return replace(limits, processes=limits.processes and limits.processes + _tasks_now())


def _tasks_now() -> int:
    """Return how many processes and threads there are, of all users: never too few."""
    return int(_read(Path("/proc/loadavg")).split()[3].split("/")[1])


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
