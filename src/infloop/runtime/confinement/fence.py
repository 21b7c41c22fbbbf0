"""The fence around a run's children: what they may change, where they may connect, with whose key.

Nodes and providers do not know of it. They are given a sandbox that puts the fence around whatever
they ask it to run, and that is the only sandbox they get. A level that confines has the kernel put
the fence up; at `host` nothing but the proxy variables point the way, and the run says so.

Rules
  * The operator and the workflow can only make the network narrower, never wider.
  * Where there is an allowlist, each child has its proxy before it begins and loses its network
    with it: a proxy that cannot start, dies or is overloaded ends the run.
  * Where a confined child works, and what its workflow lists for it, is no link and lies behind
    none: an earlier child of the same directories could have made it, and chosen where it leads.
  * A key that a provider's manifest says how to broker never reaches the child, under whatever
    name: it gets a token that is worth nothing once the child has ended.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from msgspec.structs import replace

from infloop.egress.broker import PREFIX, Broker
from infloop.egress.limits import ProxyLimits, UploadBudget
from infloop.egress.loopback_listener import listen_on_loopback
from infloop.egress.proxy import Proxy
from infloop.errors import BudgetError, EgressError, GuardError, SettingsError, WorkflowError
from infloop.policy.hosts import Allowlist, HostRules, parse_rules
from infloop.runtime.confinement.disk_reserve import Reserve, shown_size
from infloop.runtime.confinement.egress_log import TELL_SECONDS
from infloop.runtime.confinement.git_protection import InPlace
from infloop.runtime.confinement.homes import furnished
from infloop.sandbox.access import Access, ResourceLimits
from infloop.sandbox.base import SandboxWrapper
from infloop.sandbox.levels.proxy_variables import proxy_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from infloop.egress.broker import Account
    from infloop.egress.loopback_listener import Listener
    from infloop.model.values import JsonObject
    from infloop.runtime.confinement.disk_reserve import RunDisks
    from infloop.runtime.confinement.egress_log import Telling
    from infloop.runtime.spending.broker_usage import Seen
    from infloop.sandbox.base import ChildRequest, ChildResult, OnOutput, OnStarted, Sandbox
    from infloop.workspace.git.repository_paths import GitPaths

Egress: TypeAlias = Literal["open", "allowlist", "none"]

_STRICTER: tuple[Egress, ...] = ("open", "allowlist", "none")
_INNER_PORT = 3128
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class EgressRules:
    """What the operator says about connections of children."""

    enforce: bool = False
    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Credential:
    """A key that a child uses without having it, and how the child is told so.

    It finds its token in `key_variable`, and the address in `base_url_variable` or as `{url}` in
    the `args` that come right after its program. What is `withheld` it does not get.
    """

    account: Account
    key_variable: str
    base_url_variable: str = ""
    args: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()

    def given_to(self, request: ChildRequest, token: str, port: int) -> ChildRequest:
        """Return the request of a child that has the token and not the key."""
        key, url = self.account.key, f"http://{_LOOPBACK}:{port}{PREFIX}{self.account.provider}"
        env = {
            name: value
            for name, value in request.env.items()
            if name not in self.withheld and key not in value
        }
        for name in ("NO_PROXY", "no_proxy"):  # where there is a proxy of the operator's
            env[name] = ",".join(filter(None, (env.get(name), _LOOPBACK)))
        env[self.key_variable] = token
        if self.base_url_variable:
            env[self.base_url_variable] = url
        program, *rest = request.argv
        args = (argument.replace("{url}", url) for argument in self.args)
        return replace(request, argv=(program, *args, *rest), env=env)


@dataclass(frozen=True, slots=True)
class Needs:
    """What a child needs beyond its directory. `owner` is how people call who needs it.

    `read` and `write` are what it finds of the home at `home`.
    """

    owner: str = ""
    hosts: tuple[str, ...] = ()
    home: str = ""
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    credential: Credential | None = None


NO_NEEDS = Needs()

Around: TypeAlias = "Callable[[Needs], Sandbox]"
"""Makes the sandbox that a step is given, for a child with such needs."""


class RunFence:
    """The fence of one run; each of its steps gets its own sandbox from it."""

    def __init__(
        self,
        sandbox: Sandbox,
        rules: EgressRules,
        workflow: JsonObject,
        user: tuple[int, int] | None = None,
        make_home: Callable[[str], str] | None = None,
        in_place: InPlace | None = None,
        disks: RunDisks | None = None,
        memory_bytes: int = 0,
    ) -> None:
        """Read what workflow and operator say; raise WorkflowError for a list that is no list.

        `user` is as whom children run, when that is another one; `make_home` gives the home that
        the agent of a node keeps throughout the run; `in_place` looks after where they work, and
        `disks` after the room there; `memory_bytes` is what each may take, 0 any amount.
        """
        self._sandbox = sandbox
        self.user = user
        self._make_home = make_home
        self._workflow = workflow
        self._in_place = in_place or InPlace(own_mounts=sandbox.own_mounts)
        self.disks = disks or Reserve().of_run()
        self.limits = ResourceLimits(memory_bytes=memory_bytes)
        self.uploads = UploadBudget(ProxyLimits())
        asked = workflow.get("egress")
        own: Egress = "allowlist" if rules.enforce else "open"
        wanted: Egress = next((each for each in _STRICTER if each == asked), "open")
        self.egress: Egress = max(wanted, own, key=_STRICTER.index)
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
        """The level at which the children run."""
        return self._sandbox.level

    @property
    def confines(self) -> bool:
        """Whether that level confines them."""
        return self._sandbox.confines

    def around(
        self, telling: Telling, node: str, needs: Needs, seen: Seen | None = None
    ) -> Sandbox:
        """Return the sandbox that one step is given, for children with such needs.

        `seen` takes note of what their calls cost that are made with a key they do not have.
        """
        return FencedSandbox(self, self._sandbox, telling, node, needs, seen)

    def allowlist(self, needs: Needs) -> Allowlist:
        """Return where a child with such needs may connect."""
        if self.egress == "none":
            return Allowlist((), self._denied)
        own = parse_rules(needs.owner, needs.hosts) if needs.owner else HostRules("this step")
        return Allowlist((own, *self._lists), self._denied)

    def home(self, node: str, needs: Needs) -> str:
        """Return the home that an agent has in every round; none for other children."""
        return self._make_home(node) if self._make_home and needs.owner else ""

    def at_work(self, cwd: str, telling: Telling) -> AbstractAsyncContextManager[GitPaths]:
        """Give what a child may reach of the repositories where it works; see to it afterwards."""
        more = _texts(self._workflow.get("writePaths"))
        return self._in_place.at_work(cwd, more, telling.planted)

    def access(self, needs: Needs, request: ChildRequest, home: str, places: GitPaths) -> Access:
        """Return what a child may reach, but for its network; GuardError for what a link names."""
        readable = _texts(self._workflow.get("readPaths"))
        writable = _texts(self._workflow.get("writePaths"))
        for path in (*readable, *writable, *(() if places.is_private else (request.cwd,))):
            _refuse_link(path)
        read = (*places.read, *needs.read, *readable)
        write = (*places.write, *needs.write, *writable)
        return Access(
            read=(*request.reads, *read),
            write=(request.cwd, *write),
            network="open" if self.egress == "open" else "none",
            local_ports=tuple(_numbers(self._workflow.get("allowLocal"))),
            home=home,
            limits=self.limits,
        )

    async def keep_room(self, cwd: str) -> None:
        """Keep an eye on the disks that a child in a directory writes to."""
        await self.disks.add(cwd, *_texts(self._workflow.get("writePaths")))


class FencedSandbox(SandboxWrapper):
    """Runs the children of one step behind their run's fence."""

    def __init__(
        self,
        fence: RunFence,
        inner: Sandbox,
        telling: Telling,
        node: str,
        needs: Needs,
        seen: Seen | None,
    ) -> None:
        super().__init__(inner)
        self._run_fence = fence
        self._telling = telling
        self._node = node
        self._needs = needs
        self._seen = seen

    async def run(
        self,
        request: ChildRequest,
        *,
        on_output: OnOutput | None = None,
        on_started: OnStarted | None = None,
    ) -> ChildResult:
        """Run a child to its end behind its fence; GuardError when that broke."""
        if self._run_fence.user:
            _give(request.reads, self._run_fence.user)
        await self._run_fence.keep_room(request.cwd)
        result = await self._run_fenced(request, on_output, on_started)
        return _explained(result, self._run_fence.limits.memory_bytes)

    async def _run_fenced(
        self, request: ChildRequest, on_output: OnOutput | None, on_started: OnStarted | None
    ) -> ChildResult:
        no_grace = self._run_fence.disks.is_short
        if not self.confines:
            access = Access(limits=self._run_fence.limits)
            request = replace(request, no_grace=no_grace, access=access)
            return await self._run(request, on_output, on_started)
        needs = self._needs
        home = self._run_fence.home(self._node, needs)
        async with self._run_fence.at_work(request.cwd, self._telling) as places:
            access = self._run_fence.access(needs, request, home, places)
            request = replace(request, no_grace=no_grace, access=access)
            if not home:
                return await self._run(request, on_output, on_started)
            with furnished(home, needs.home, needs.read, needs.write, mounted=self.own_mounts):
                return await self._run(request, on_output, on_started)

    async def _run(
        self, request: ChildRequest, on_output: OnOutput | None, on_started: OnStarted | None
    ) -> ChildResult:
        if not self._needs_door:
            return await self._inner.run(request, on_output=on_output, on_started=on_started)
        async with Door(self._run_fence, self._needs, self._telling, self._seen) as door:
            try:
                async with asyncio.TaskGroup() as tasks:
                    request = door.open(request, self._inner, tasks)
                    child = tasks.create_task(
                        self._inner.run(request, on_output=on_output, on_started=on_started)
                    )
                    result = await child
                    door.shut()
            except BaseExceptionGroup as group:
                raise _reason(group) from None
        return result

    @property
    def _needs_door(self) -> bool:
        egress = self._run_fence.egress
        without_kernel = not self.confines and egress == "none"
        return egress == "allowlist" or without_kernel or self._needs.credential is not None


class Door:
    """The one way out of a child: its proxy, its broker, and the listener that leads there."""

    def __init__(self, fence: RunFence, needs: Needs, telling: Telling, seen: Seen | None) -> None:
        self._egress = fence.egress
        self._needs = needs
        self._token = secrets.token_urlsafe(24)
        self._allowed = fence.allowlist(needs) if fence.egress != "open" else Allowlist()
        self._uploads = fence.uploads
        self._telling = telling
        self._seen = seen
        self._serving: list[asyncio.Task[None]] = []
        self._stack = AsyncExitStack()
        self._broker: Broker | None = None

    async def __aenter__(self) -> Self:
        credential = self._needs.credential
        if credential is not None:
            broker = Broker(
                [credential.account], token=self._token, limits=ProxyLimits(), budget=self._seen
            )
            self._broker = await self._stack.enter_async_context(broker)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        self._telling.settle()

    def open(
        self, request: ChildRequest, sandbox: Sandbox, tasks: asyncio.TaskGroup
    ) -> ChildRequest:
        """Return the request of a child that finds its way here."""
        self._serving.append(tasks.create_task(self._tell()))
        if self._seen is not None and self._broker is not None:
            self._serving.append(tasks.create_task(_end_when_spent(self._seen)))
        if not sandbox.confines or self._egress == "open":
            listener = listen_on_loopback()
            port = listener.getsockname()[1]
            self._serve(listener, port, self._token, tasks)
            named = {} if self._egress == "open" else proxy_variables(port, f"run:{self._token}")
            return self._brokered(replace(request, env={**request.env, **named}), port)
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

    def shut(self) -> None:
        """Let nobody through any more."""
        for task in self._serving:
            task.cancel()

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(TELL_SECONDS)
            self._telling.settle()

    def _serve(self, listener: Listener, port: int, token: str, tasks: asyncio.TaskGroup) -> None:
        proxy = Proxy(
            self._allowed,
            token=token,
            on_decision=self._telling.decided,
            broker=self._broker,
            uploads=self._uploads,
            port=port,
        )
        self._serving.append(tasks.create_task(proxy.serve(listener)))

    def _brokered(self, request: ChildRequest, port: int) -> ChildRequest:
        credential = self._needs.credential
        return credential.given_to(request, self._token, port) if credential else request


async def _end_when_spent(seen: Seen) -> None:
    """Raise when what the child's calls may cost is spent, which ends the child and its step."""
    raise BudgetError(await seen.spent())


def _reason(group: BaseExceptionGroup) -> BaseException:
    """Return what went wrong first; the end of a child's proxy is the end of its run."""
    broken, _ = group.split(EgressError)
    if broken is not None:
        return GuardError(f"{_first(broken)}; its child was ended, and the run with it")
    return _first(group)


def _first(group: BaseExceptionGroup) -> BaseException:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _explained(result: ChildResult, memory_bytes: int) -> ChildResult:
    """Return the result with what may have ended the child, if that was the kernel's doing."""
    if not result.was_killed:
        return result
    limit = f"its limit was {shown_size(memory_bytes)}" if memory_bytes else "it had no limit"
    return replace(
        result,
        hint="the kernel may have ended it for want of memory; "
        f"{limit} (INFLOOP_MAX_CHILD_MEMORY_BYTES)",
    )


def real_path(path: str) -> str:
    """Return where a path leads now, links followed."""
    return os.path.realpath(path)


def _refuse_link(path: str) -> None:
    """Raise if what is at a path is somewhere else in truth."""
    real = real_path(path)
    if real != os.path.normpath(path):
        raise GuardError(
            f"{path!r} leads to {real!r} by a link, which a child may have made to be let in "
            "there; if it is yours, let the workflow name the directory itself"
        )


def _give(directories: Sequence[str], user: tuple[int, int]) -> None:
    """Let the children's user have what was made for one of them."""
    for directory in directories:
        # The way in last: until then nobody can have put anything else in their place.
        for folder, _, files in os.walk(directory, topdown=False):
            for path in (*(f"{folder}/{name}" for name in files), folder):
                os.chown(path, *user, follow_symlinks=False)


def _texts(value: object) -> Sequence[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _numbers(value: object) -> Sequence[int]:
    return [each for each in value if isinstance(each, int)] if isinstance(value, list) else []
