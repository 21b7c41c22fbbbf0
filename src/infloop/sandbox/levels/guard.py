"""Level `guard`: children confine themselves before exec, without any namespace.

What is promised:

- A child reads only the system's programs and the paths of its `access`.
- It writes only to the writable paths of its `access`, and to a private home and temporary
  directory that are removed after it.
- It does not connect to infloop's own servers. Unless the network is open, its only peers are its
  proxy and the local ports of its `access`.
- The environment is the one given, except for `HOME`, the variables that name the temporary
  directory, and those for the proxy.
- The whole process tree is gone when the run returns.

What is not promised:

- A child sees that other processes exist, with their arguments, and that files exist.
- It can change modes, owners and times of its user's files anywhere.
- The size of its temporary directory is not limited.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
from typing import TYPE_CHECKING, ClassVar, Self

from msgspec.structs import replace

from infloop.errors import GuardError, MissingPart, SettingsError
from infloop.lowlevel.uncancelled import run_uncancelled
from infloop.sandbox.access import Access
from infloop.sandbox.base import ChildResult
from infloop.sandbox.keepers.pool import KeeperPool
from infloop.sandbox.kernel import connect_broker, landlock
from infloop.sandbox.kernel.connect_broker import ConnectBroker
from infloop.sandbox.kernel.connect_policy import ClosedNetwork, OpenNetwork
from infloop.sandbox.kernel.resource_limits import resource_limits
from infloop.sandbox.kernel.ruleset_pool import ReachablePaths, RulesetPool
from infloop.sandbox.kernel.seccomp import as_file, guard_filter
from infloop.sandbox.levels.keeper_sandbox import KeeperSandbox
from infloop.sandbox.levels.proxy_variables import proxy_variables
from infloop.sandbox.promises import WHERE_CONFINED
from infloop.sandbox.spawn_request import SpawnRequest
from infloop.sandbox.view.mounts import refusal
from infloop.sandbox.view.opened_paths import OpenedPaths
from infloop.sandbox.view.private_directories import private_directories
from infloop.sandbox.view.program_paths import ProgramPaths
from infloop.sandbox.view.system_paths import CONFIGURATION, DEVICES, KERNEL, PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from infloop.model.isolation import Level
    from infloop.sandbox.access import ResourceLimits
    from infloop.sandbox.base import ChildRequest, OnOutput, OnStarted
    from infloop.sandbox.kernel.connect_policy import Peer
    from infloop.sandbox.kernel.seccomp import GuardNetwork
    from infloop.sandbox.levels.keeper_sandbox import SandboxOptions
    from infloop.sandbox.view.private_directories import PrivateDirectories

_LOOPBACK = "127.0.0.1"
_LOOPBACKS = (_LOOPBACK, "::1")
_BACKLOG = 128
_PAGE = 4096


class GuardSandbox(KeeperSandbox):
    """Runs children behind Landlock, a seccomp filter and a connect broker."""

    level: ClassVar[Level] = "guard"
    shared_process_limit = True
    promises = WHERE_CONFINED

    def __init__(
        self,
        scratch: str,
        *,
        hidden: Sequence[str] = (),
        user: tuple[int, int] | None = None,
    ) -> None:
        """Run children as another `user` (uid and gid) if given, which needs root.

        Children get their private directories in `scratch`; their user must be able to enter it.
        They do not reach the `hidden` directories, except for paths in them that are in their
        `access`. Raises MissingPart, naming what this machine lacks, and SettingsError for root.
        """
        uid = user[0] if user else os.geteuid()
        if uid == 0:
            raise SettingsError(
                f"level {self.level!r} does not confine root, which may change the mode of every"
                " file: name another user for children with INFLOOP_SERVICE_USER"
            )
        if part := missing_part(other_user=user is not None):
            raise MissingPart(f"level 'guard' needs {part}")
        self._scratch = os.path.realpath(scratch)
        self._hidden = _real(hidden)
        self._user = user
        self._real_home = home_of(uid)
        self._users = (uid,)
        self._pool = KeeperPool(user=user, modules=("guard_child",))
        self._broker = ConnectBroker()
        self._program_paths = ProgramPaths()
        self._rulesets = RulesetPool()
        kinds: tuple[GuardNetwork, ...] = ("open", "closed")
        self._filters = {kind: as_file(guard_filter(kind)) for kind in kinds}
        existing = filter(os.path.exists, (*PROGRAMS, *CONFIGURATION, *KERNEL))
        self._system = [path for path in _real(existing) if not _contains_any(path, self._hidden)]

    @classmethod
    def open(cls, options: SandboxOptions) -> Self:
        """Return a sandbox of this level; see the base class."""
        return cls(options.scratch, hidden=options.hidden, user=options.user)

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What this level does not promise on this machine, although it does on newer kernels."""
        return landlock.not_covered(landlock.version())

    async def _run(
        self,
        request: ChildRequest,
        program: str,
        on_output: OnOutput | None,
        on_started: OnStarted | None,
    ) -> ChildResult:
        access = _with_plain_paths(request.access or Access(write=(request.cwd,)))
        if reason := refusal(access) or self._hidden_inside(access):
            return ChildResult(error=f"the child could not be confined: {reason}")
        async with contextlib.AsyncExitStack() as stack:
            try:
                spawn = await self._prepare(stack, request, program, access)
            except OSError as error:
                return ChildResult(error=f"the child could not be confined: {error}")
            return await self._pool.run(request, spawn, on_output, on_started)

    async def close(self) -> None:
        """End every child and every keeper."""
        await super().close()
        await self._broker.close()
        self._rulesets.close()
        while self._filters:
            os.close(self._filters.popitem()[1])

    async def _prepare(
        self,
        stack: contextlib.AsyncExitStack,
        request: ChildRequest,
        program: str,
        access: Access,
    ) -> SpawnRequest:
        """Create everything that confines one child; the stack removes it again."""
        opened = OpenedPaths()
        stack.callback(opened.close)
        cwd = opened.open_existing((request.cwd,))
        is_open = access.network == "open"
        programs = self._programs(program, request.env, access)
        readable = _outermost((*self._system, *programs, *access.read))
        ruleset = self._rulesets.take(
            ReachablePaths(tuple(readable), (*DEVICES, *access.write), is_open)
        )
        # Given back after the private directories were removed.
        stack.callback(self._rulesets.give_back, ruleset)
        private = await stack.enter_async_context(private_directories(self._scratch, self._user))
        ruleset.allow_private(private)
        peers = await _open_peers(access)
        policy = OpenNetwork(self._users) if is_open else ClosedNetwork(peers, self._users)
        connects = self._broker.open(policy, access.on_refused)
        stack.push_async_callback(lambda: run_uncancelled(connects.close()))
        system_calls = self._filters["open" if is_open else "closed"]
        return SpawnRequest(
            program=program,
            argv=request.argv,
            env={**request.env, **_environment(access, private)},
            cwd=request.cwd,
            descriptors=(ruleset.fd, system_calls, connects.child_socket.fileno()),
            guard=True,
            limits=resource_limits(_with_running_tasks(access.limits)),
            places=tuple(opened.place("cwd", path) for path in cwd),
        )

    def _programs(self, program: str, env: Mapping[str, str], access: Access) -> list[str]:
        """Return the paths of the child's programs outside the system's own directories."""
        homes = {os.path.realpath(env.get("HOME", "/")), self._real_home}
        needed = dict.fromkeys(
            self._program_paths.needed(program, env, homes, access.write).values()
        )
        return [path for path in needed if not _contains_any(path, self._hidden)]

    def _hidden_inside(self, access: Access) -> str:
        """Return which path contains a hidden directory, as Landlock cannot exclude it."""
        for path in (*access.read, *access.write):
            if _contains_any(path, self._hidden):
                return f"path {path!r} contains a directory that children must not see"
        return ""


def home_of(uid: int) -> str:
    """Return the home of a user without links, "/" if there is none."""
    try:
        return os.path.realpath(pwd.getpwuid(uid).pw_dir)
    except KeyError:
        return "/"


def missing_part(*, other_user: bool = False) -> str:
    """Return what this machine lacks for level `guard`, if anything.

    `other_user` says whether the children run as another user than this process.
    """
    no_landlock = landlock.missing(landlock.version())
    return no_landlock or connect_broker.missing_part(other_user=other_user)


async def _open_peers(access: Access) -> dict[Peer, Peer]:
    """Return the peers that the child may connect to; its proxy is listening then."""
    if access.network == "open":
        return {}
    peers = {(host, port): (host, port) for port in access.local_ports for host in _LOOPBACKS}
    if access.network == "proxy":
        if access.on_listening is None:
            raise ConnectionError("its network has a proxy, but no on_listening callback")
        try:
            listener = socket.create_server((_LOOPBACK, 0), backlog=_BACKLOG)
        except OSError as error:
            raise GuardError(f"the proxy of this run cannot start: {error}") from None
        # All children share this machine's loopback, so the child's proxy port may be in use.
        peers[_LOOPBACK, access.proxy_port] = listener.getsockname()
        try:
            await access.on_listening({access.proxy_port: listener})
        except BaseException:
            listener.close()
            raise
    return peers


def _environment(access: Access, private: PrivateDirectories) -> dict[str, str]:
    own = {"HOME": access.home or private.home}
    own |= dict.fromkeys(("TMPDIR", "TMP", "TEMP"), private.temp)
    if access.network == "proxy":
        own |= proxy_variables(access.proxy_port, access.proxy_user)
    return own


def _with_plain_paths(access: Access) -> Access:
    """Return the access with normalized paths; its home becomes a writable path."""
    home = _plain(filter(None, (access.home,)))
    return replace(
        access, read=_plain(access.read), write=_plain((*access.write, *home)), home="".join(home)
    )


def _plain(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(os.path.normpath, paths)))


def _real(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(os.path.realpath, paths)))


def _contains_any(path: str, others: Iterable[str]) -> bool:
    return any(other == path or other.startswith(path.rstrip("/") + "/") for other in others)


def _outermost(paths: Iterable[str]) -> list[str]:
    """Return the paths without those inside another of them, which saves a rule for each."""
    outermost: list[str] = []
    for path in sorted(f"{each}/" for each in paths):  # paths inside a path follow it
        if not (outermost and path.startswith(outermost[-1])):
            outermost.append(path)
    return [path[:-1] for path in outermost]


def _with_running_tasks(limits: ResourceLimits) -> ResourceLimits:
    """Return the limits with the processes of the user added that are running already.

    The kernel counts all processes of a user together.
    """
    return replace(limits, processes=limits.processes and limits.processes + _running_tasks())


def _running_tasks() -> int:
    """Return the number of processes and threads of all users, which is never too low."""
    # Not Path.read_text: called for every child, 40 instead of 140 us.
    fd = os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return int(os.read(fd, _PAGE).split()[3].split(b"/")[1])
    finally:
        os.close(fd)
