"""The fence around a run's children: which files they reach, where they connect, with which key.

Nodes and providers do not know about the fence. The only sandbox they get puts every child behind
it. At a level that confines, the kernel enforces the fence. At `host`, only the proxy variables
point the way to the proxy, and the run says so.

Rules
  * The operator and the workflow can only restrict the network further, never open it.
  * With an allowlist, each child has a proxy before it starts. A proxy that cannot start, dies or
    is overloaded takes the child's network with it and ends the run.
  * The working directory of a confined child, and the paths that its workflow lists for it, must
    not be links or lie behind one: an earlier child could have made the link.
  * A key that a provider's manifest declares as brokered never reaches the child, under any name.
    The child gets a token that is useless once it has ended.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

import msgspec
from msgspec.structs import replace

from infloop.egress.limits import ProxyLimits, UploadBudget
from infloop.egress.loopback_listener import listen_on_loopback
from infloop.egress.reports import Decision
from infloop.errors import BudgetError, EgressError, GuardError, SettingsError, WorkflowError
from infloop.lowlevel.link_free import visited_paths
from infloop.policy.hosts import Allowlist, HostRules, parse_rules
from infloop.policy.writable_roots import why_too_wide
from infloop.runtime.confinement.disk_reserve import DiskReserve, format_size
from infloop.runtime.confinement.egress_log import FLUSH_SECONDS
from infloop.runtime.confinement.git_protection import GitProtection
from infloop.runtime.confinement.homes import linked_home
from infloop.sandbox.access import Access, ResourceLimits
from infloop.sandbox.base import SandboxWrapper
from infloop.sandbox.kernel.connect_policy import OWN_PORT
from infloop.sandbox.levels.proxy_variables import proxy_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from infloop.egress.broker import Account, Broker
    from infloop.egress.loopback_listener import Listener
    from infloop.egress.reports import RefusalCause
    from infloop.model.values import JsonObject
    from infloop.runtime.confinement.disk_reserve import RunDisks
    from infloop.runtime.confinement.egress_log import EgressLog
    from infloop.runtime.spending.broker_usage import BrokerUsage
    from infloop.sandbox.access import OnRefused
    from infloop.sandbox.base import ChildRequest, ChildResult, OnOutput, OnStarted, Sandbox
    from infloop.workspace.git.repository_paths import GitPaths

Egress: TypeAlias = Literal["open", "allowlist", "none"]

_BY_STRICTNESS: tuple[Egress, ...] = ("open", "allowlist", "none")
_INNER_PORT = 3128
_LOOPBACK = "127.0.0.1"


class EgressRules(msgspec.Struct, frozen=True):
    """The operator's rules for the connections of children."""

    enforce: bool = False
    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()


class Credential(msgspec.Struct, frozen=True):
    """A key that a child uses through the broker, without having it.

    The child finds its token in `key_variable`. It finds the broker's address in
    `base_url_variable`, or as `{url}` in `args`, which are put right after its program. It does not
    get the `withheld` variables.
    """

    account: Account
    key_variable: str
    base_url_variable: str = ""
    args: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()

    def apply_to(self, request: ChildRequest, token: str, port: int) -> ChildRequest:
        """Return the request with the token in place of the key."""
        from infloop.egress.broker import PREFIX

        key, url = self.account.key, f"http://{_LOOPBACK}:{port}{PREFIX}{self.account.provider}"
        env = {
            name: value
            for name, value in request.env.items()
            if name not in self.withheld and key not in value
        }
        for name in ("NO_PROXY", "no_proxy"):  # the operator may use a proxy of their own
            env[name] = ",".join(filter(None, (env.get(name), _LOOPBACK)))
        env[self.key_variable] = token
        if self.base_url_variable:
            env[self.base_url_variable] = url
        program, *rest = request.argv
        args = (argument.replace("{url}", url) for argument in self.args)
        return replace(request, argv=(program, *args, *rest), env=env)


class ExtraAccess(msgspec.Struct, frozen=True):
    """What a child may reach beyond its directory. `owner` says in messages who may.

    `read` and `write` are the paths below `home` that it may use.
    """

    owner: str = ""
    hosts: tuple[str, ...] = ()
    home: str = ""
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    credential: Credential | None = None


NO_EXTRA_ACCESS = ExtraAccess()

MakeSandbox: TypeAlias = "Callable[[ExtraAccess], Sandbox]"
"""Returns a step's sandbox, for children with this access."""


class RunFence:
    """The fence of one run; each of its steps gets its own sandbox from it."""

    def __init__(
        self,
        sandbox: Sandbox,
        rules: EgressRules,
        workflow: JsonObject,
        *,
        user: tuple[int, int] | None = None,
        make_home: Callable[[str], str] | None = None,
        git_protection: GitProtection | None = None,
        disks: RunDisks | None = None,
        memory_bytes: int = 0,
        homes: frozenset[str] = frozenset(),
    ) -> None:
        """Raise WorkflowError for an allowlist or denylist that cannot be parsed.

        Children run as `user` if it is set. `make_home` returns the home that the agent of a node
        keeps for the whole run. `memory_bytes` is the limit of each child; 0 means no limit.
        `homes` are writable for no child whose workflow does not list them.
        """
        self._sandbox = sandbox
        self._homes = homes
        self.user = user
        self._make_home = make_home
        self._workflow = workflow
        self._git_protection = git_protection or GitProtection(own_mounts=sandbox.own_mounts)
        self.disks = disks or DiskReserve().for_run()
        self.limits = ResourceLimits(memory_bytes=memory_bytes)
        self.uploads = UploadBudget(ProxyLimits())
        configured = workflow.get("egress")
        required: Egress = "allowlist" if rules.enforce else "open"
        wanted: Egress = next((each for each in _BY_STRICTNESS if each == configured), "open")
        self.egress: Egress = max(wanted, required, key=_BY_STRICTNESS.index)
        try:
            self._lists = (
                parse_rules("the workflow", _texts(workflow.get("egressAllowlist"))),
                parse_rules("the operator", rules.allowed),
            )
            self._denied = parse_rules("the operator", rules.denied)
        except SettingsError as error:
            raise WorkflowError(str(error)) from None

    @property
    def isolation(self) -> str:
        """The isolation level of the children."""
        return self._sandbox.level

    @property
    def confines(self) -> bool:
        """Whether that level confines them."""
        return self._sandbox.confines

    def sandbox(
        self,
        egress_log: EgressLog,
        node: str,
        extra: ExtraAccess,
        usage: BrokerUsage | None = None,
    ) -> Sandbox:
        """Return the sandbox of one step, for children with this access.

        `usage` counts what their calls through the broker cost.
        """
        return FencedSandbox(self, self._sandbox, egress_log, node, extra, usage)

    def allowlist(self, extra: ExtraAccess) -> Allowlist:
        """Return where a child with this access may connect."""
        if self.egress == "none":
            return Allowlist((), self._denied)
        own = parse_rules(extra.owner, extra.hosts) if extra.owner else HostRules("this step")
        return Allowlist((own, *self._lists), self._denied)

    def tool_hosts(self) -> Allowlist | None:
        """Return where tools of the built-in agent may connect at most; None for everywhere."""
        return None if self.egress == "open" else self.allowlist(NO_EXTRA_ACCESS)

    def home(self, node: str, extra: ExtraAccess) -> str:
        """Return the home that an agent keeps in all rounds; empty for other children."""
        return self._make_home(node) if self._make_home and extra.owner else ""

    def protect_git(self, cwd: str, egress_log: EgressLog) -> AbstractAsyncContextManager[GitPaths]:
        """Protect the repositories where a child works; give the paths that git needs there."""
        return self._git_protection.protect(
            cwd, self.write_paths, lambda message: egress_log.add_warning(f"[git] {message}")
        )

    def access(
        self,
        extra: ExtraAccess,
        request: ChildRequest,
        home: str,
        paths: GitPaths,
        on_refused: OnRefused | None = None,
    ) -> Access:
        """Return what a child may reach, without its network."""
        readable = _texts(self._workflow.get("readPaths"))
        writable = self.write_paths
        own = (request.cwd, *paths.write, *writable)
        return Access(
            # Directories that were made for this child are below a system directory.
            read=(
                *map(real_path, request.reads),
                *paths.read,
                *_resolved(extra.read, own),
                *readable,
            ),
            write=(*own, *_resolved(extra.write, own)),
            pinned=paths.pinned,
            network="open" if self.egress == "open" else "none",
            local_ports=tuple(_numbers(self._workflow.get("allowLocal"))),
            on_refused=on_refused,
            home=real_path(home) if home else "",
            limits=self.limits,
        )

    def check_paths(self, cwd: str) -> None:
        """Raise GuardError if a path of a child has a link in it, or its directory is too wide.

        A link that is made after this check is not followed either: the sandbox opens the paths
        without following links. This check has the better message.
        """
        for path in (*_texts(self._workflow.get("readPaths")), *self.write_paths, cwd):
            _check_no_link(path)
        plain = os.path.normpath(cwd)
        why = why_too_wide(plain, self._homes)
        if why and plain not in map(os.path.normpath, self.write_paths):
            raise GuardError(
                f"{cwd!r} is {why}, and a child that works there could change all of it. Work in a "
                f"directory below it, or list {plain!r} in the workflow's writePaths"
            )

    @property
    def write_paths(self) -> Sequence[str]:
        """What the workflow lists for writing."""
        return _texts(self._workflow.get("writePaths"))

    async def watch_disks(self, cwd: str) -> None:
        """Keep the reserve free on the disks that a child in `cwd` writes to."""
        await self.disks.add(cwd, *self.write_paths)


class FencedSandbox(SandboxWrapper):
    """Runs the children of one step behind their run's fence."""

    def __init__(
        self,
        fence: RunFence,
        inner: Sandbox,
        egress_log: EgressLog,
        node: str,
        extra: ExtraAccess,
        usage: BrokerUsage | None,
    ) -> None:
        super().__init__(inner)
        self._run_fence = fence
        self._egress_log = egress_log
        self._node = node
        self._extra = extra
        self._usage = usage

    async def run(
        self,
        request: ChildRequest,
        *,
        on_output: OnOutput | None = None,
        on_started: OnStarted | None = None,
    ) -> ChildResult:
        """Run a child to its end behind its fence; GuardError if the fence breaks."""
        if self._run_fence.user:
            _change_owner(request.reads, self._run_fence.user)
        await self._run_fence.watch_disks(request.cwd)
        result = await self._run_fenced(request, on_output, on_started)
        return _explain_kill(result, self._run_fence.limits.memory_bytes)

    async def _run_fenced(
        self, request: ChildRequest, on_output: OnOutput | None, on_started: OnStarted | None
    ) -> ChildResult:
        no_grace = self._run_fence.disks.is_exhausted
        if not self.confines:
            access = Access(limits=self._run_fence.limits)
            request = replace(request, no_grace=no_grace, access=access)
            return await self._run(request, on_output, on_started)
        extra = self._extra
        self._run_fence.check_paths(request.cwd)
        home = self._run_fence.home(self._node, extra)
        async with self._run_fence.protect_git(request.cwd, self._egress_log) as paths:
            access = self._run_fence.access(extra, request, home, paths, self._add_refusal)
            request = replace(request, no_grace=no_grace, access=access)
            if not home:
                return await self._run(request, on_output, on_started)
            with linked_home(home, extra.home, extra.read, extra.write, mounted=self.own_mounts):
                return await self._run(request, on_output, on_started)

    async def _run(
        self, request: ChildRequest, on_output: OnOutput | None, on_started: OnStarted | None
    ) -> ChildResult:
        if not self._needs_gateway:
            try:
                return await self._inner.run(request, on_output=on_output, on_started=on_started)
            finally:
                self._egress_log.flush()
        gateway = EgressGateway(self._run_fence, self._extra, self._egress_log, self._usage)
        async with gateway:
            try:
                async with asyncio.TaskGroup() as tasks:
                    request = gateway.open(request, self._inner, tasks)
                    child = tasks.create_task(
                        self._inner.run(request, on_output=on_output, on_started=on_started)
                    )
                    result = await child
                    gateway.stop()
            except BaseExceptionGroup as group:
                raise _reason(group) from None
        return result

    def _add_refusal(self, host: str, port: int, reason: str) -> None:
        """Report a connection that the kernel or a relay refused the child."""
        cause: RefusalCause = "own-port" if reason == OWN_PORT else "direct"
        self._egress_log.add(Decision(0, "direct", host, port, "refused", reason, cause=cause))

    @property
    def _needs_gateway(self) -> bool:
        egress = self._run_fence.egress
        without_kernel = not self.confines and egress == "none"
        return egress == "allowlist" or without_kernel or self._extra.credential is not None


class EgressGateway:
    """A child's only connection to the network: its proxy, its broker and their listener."""

    def __init__(
        self,
        fence: RunFence,
        extra: ExtraAccess,
        egress_log: EgressLog,
        usage: BrokerUsage | None,
    ) -> None:
        self._egress = fence.egress
        self._credential = extra.credential
        self._token = secrets.token_urlsafe(24)
        self._allowed = fence.allowlist(extra) if fence.egress != "open" else Allowlist()
        self._uploads = fence.uploads
        self._egress_log = egress_log
        self._usage = usage
        self._serving: list[asyncio.Task[None]] = []
        self._stack = AsyncExitStack()
        self._broker: Broker | None = None

    async def __aenter__(self) -> Self:
        if self._credential is not None:
            account = self._credential.account
            from infloop.egress.broker import Broker

            broker = Broker([account], token=self._token, limits=ProxyLimits(), budget=self._usage)
            self._broker = await self._stack.enter_async_context(broker)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        self._egress_log.flush()

    def open(
        self, request: ChildRequest, sandbox: Sandbox, tasks: asyncio.TaskGroup
    ) -> ChildRequest:
        """Start to serve; return the request with the way to this gateway."""
        self._serving.append(tasks.create_task(self._flush_log()))
        if self._usage is not None and self._broker is not None:
            self._serving.append(tasks.create_task(_raise_when_spent(self._usage)))
        if not sandbox.confines or self._egress == "open":
            listener = listen_on_loopback()
            port = listener.getsockname()[1]
            self._serve(listener, port, self._token, tasks)
            proxy = {} if self._egress == "open" else proxy_variables(port, f"run:{self._token}")
            return self._brokered(replace(request, env={**request.env, **proxy}), port)
        token = "" if sandbox.own_network else self._token

        async def on_listening(listeners: Mapping[int, Listener]) -> None:
            for listener in listeners.values():
                self._serve(listener, _INNER_PORT, token, tasks)

        assert request.access is not None
        access = replace(
            request.access,
            network="proxy",
            proxy_port=_INNER_PORT,
            proxy_user=f"run:{token}" if token else "",
            on_listening=on_listening,
        )
        return self._brokered(replace(request, access=access), _INNER_PORT)

    def stop(self) -> None:
        """Stop serving."""
        for task in self._serving:
            task.cancel()

    async def _flush_log(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            self._egress_log.flush()

    def _serve(self, listener: Listener, port: int, token: str, tasks: asyncio.TaskGroup) -> None:
        from infloop.egress.proxy import Proxy  # few runs need it, and its imports are many

        proxy = Proxy(
            self._allowed,
            token=token,
            on_decision=self._egress_log.add,
            broker=self._broker,
            uploads=self._uploads,
            port=port,
        )
        self._serving.append(tasks.create_task(proxy.serve(listener)))

    def _brokered(self, request: ChildRequest, port: int) -> ChildRequest:
        credential = self._credential
        return credential.apply_to(request, self._token, port) if credential else request


async def _raise_when_spent(usage: BrokerUsage) -> None:
    """Raise when the child's budget is spent, which ends the child and its step."""
    raise BudgetError(await usage.wait_until_spent())


def _reason(group: BaseExceptionGroup) -> BaseException:
    """Return the first error; a failure of the child's proxy ends its run."""
    broken, _ = group.split(EgressError)
    if broken is not None:
        return GuardError(f"{_first(broken)}; its child was ended, and the run with it")
    return _first(group)


def _first(group: BaseExceptionGroup) -> BaseException:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _explain_kill(result: ChildResult, memory_bytes: int) -> ChildResult:
    """Return the result with a hint if the kernel may have killed the child."""
    if not result.was_killed:
        return result
    limit = f"its limit was {format_size(memory_bytes)}" if memory_bytes else "it had no limit"
    return replace(
        result,
        hint="the kernel may have ended it for lack of memory; "
        f"{limit} (INFLOOP_MAX_CHILD_MEMORY_BYTES)",
    )


def real_path(path: str) -> str:
    """Return a path with all links resolved."""
    return os.path.realpath(path)


def _resolved(paths: Sequence[str], writable: Sequence[str]) -> Iterator[str]:
    """Yield real paths; GuardError for a link that a child may have made."""
    for path in paths:
        for step in visited_paths(path):
            inside = any(step == each or step.startswith(f"{each}/") for each in writable)
            if inside and os.path.islink(step):  # noqa: PTH114
                raise GuardError(
                    f"{path!r} leads over the link {step!r}, which a child may have made; remove "
                    "the link, or work in another directory"
                )
        yield real_path(path)


def _check_no_link(path: str) -> None:
    """Raise GuardError if a path is a link or lies behind one."""
    real = real_path(path)
    if real != os.path.normpath(path):
        raise GuardError(
            f"{path!r} leads to {real!r} by a link, which a child may have made to get access "
            f"there; if the link is yours, name {real!r} in the workflow"
        )


def _change_owner(directories: Sequence[str], user: tuple[int, int]) -> None:
    """Give directories that were made for a child to the user it runs as."""
    for directory in directories:
        # The directory last: until then the user cannot replace anything in it.
        for folder, _, files in os.walk(directory, topdown=False):
            for path in (*(f"{folder}/{name}" for name in files), folder):
                os.chown(path, *user, follow_symlinks=False)


def _texts(value: object) -> Sequence[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _numbers(value: object) -> Sequence[int]:
    return [each for each in value if isinstance(each, int)] if isinstance(value, list) else []
