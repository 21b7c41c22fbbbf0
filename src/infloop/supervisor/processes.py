"""Keeps processes running: starts, watches, restarts and stops them.

Each process has a task of its own, so that nothing waits for a process that hangs. A child that
cannot be started is a failure like any other: it is reported, and the policy decides.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from infloop.errors import StepError, StoreError
from infloop.model.dev.status import UP, ProcessStatus
from infloop.model.patterns import compile_pattern
from infloop.supervisor.children import described_end
from infloop.supervisor.lifecycle import CRASH_LOOP, Ended, after_end
from infloop.supervisor.lines import LineSplitter
from infloop.supervisor.probes import described, passed
from infloop.supervisor.reports import source_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from infloop.model.dev.config import OutputRule, Probe, Process
    from infloop.model.dev.status import ProcessState
    from infloop.sandbox.base import ChildResult, Stream
    from infloop.supervisor.children import Children
    from infloop.supervisor.probes import Prober
    from infloop.supervisor.reports import Surface
    from infloop.supervisor.session import Session

KEPT_LINES = 200
"""The last lines of a process that are kept, for whoever asks why it is not ready."""

_SHORTEST_INTERVAL_S = 0.02


class Processes:
    """All processes of the loop."""

    def __init__(
        self,
        specs: Mapping[str, Process],
        children: Children,
        session: Session,
        prober: Prober,
        surface: Surface,
    ) -> None:
        self._all = {
            name: Supervised(name, specs[name], children, session, prober, surface)
            for name in sorted(specs, key=str.encode)
        }
        self._surface = surface
        self._starting: set[asyncio.Task[None]] = set()

    def __getitem__(self, name: str) -> Supervised:
        return self._all[name]

    def __contains__(self, name: str) -> bool:
        return name in self._all

    def status(self) -> tuple[ProcessStatus, ...]:
        return tuple(each.status() for each in self._all.values())

    def running(self) -> list[Supervised]:
        """Return the processes that have a child."""
        return [each for each in self._all.values() if each.pid]

    async def autostart(self) -> None:
        """Start the processes that start by themselves; those that wait for others do so aside."""
        for name, process in self._all.items():
            if not process.spec.autostart:
                continue
            if process.spec.depends_on:
                task = asyncio.get_running_loop().create_task(self._try_start(name))
                self._starting.add(task)
                task.add_done_callback(self._starting.discard)
            else:
                await self._try_start(name)

    async def start(self, name: str, cause: str) -> None:
        """Start a process, after those that it depends on; raise StepError."""
        process = self._all[name]
        if process.has_child:
            return
        needed = process.spec.depends_on
        conditions = needed if isinstance(needed, dict) else dict.fromkeys(needed, "ready")
        for other, condition in conditions.items():
            if self._all[other].state not in UP:
                process.wait_for(other)
                await self.start(other, f"process {name} depends on it")
            if condition == "ready":
                process.wait_for(other)
                await self._all[other].wait_ready()
        await process.start(cause)

    async def restart(self, name: str, cause: str) -> None:
        """Stop a process and start it again; raise StepError."""
        await self._all[name].stop()
        await self.start(name, cause)

    async def stop_all(self) -> None:
        for task in self._starting:
            task.cancel()
        await asyncio.gather(*(process.stop() for process in self._all.values()))

    async def _try_start(self, name: str) -> None:
        try:
            await self.start(name, "the loop started")
        except StepError as error:
            self._surface.log("ERROR", f"{error}")


class Supervised:
    """One process."""

    def __init__(
        self,
        name: str,
        spec: Process,
        children: Children,
        session: Session,
        prober: Prober,
        surface: Surface,
    ) -> None:
        self.name = name
        self.spec = spec
        self.state: ProcessState = "stopped"
        self.pid = 0
        self.printed_bytes = 0
        self.last_lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._children = children
        self._session = session
        self._prober = prober
        self._surface = surface
        self._source = source_of(name, spec)
        self._rules = [_Rule(rule) for rule in spec.output.rules]
        self._restarts = 0
        self._detail = ""
        self._cause = ""
        self._since_start: deque[str] = deque(maxlen=5_000)
        self._task: asyncio.Task[None] | None = None
        self._child: asyncio.Task[ChildResult] | None = None
        self._changing = asyncio.Lock()

    def status(self) -> ProcessStatus:
        return ProcessStatus(
            self.name,
            self.state,
            self.pid,
            self._restarts,
            has_readiness=self.spec.readiness is not None,
            detail=self._detail,
            ready=self.state == ("running" if self.spec.readiness is None else "ready"),
            cause=self._cause,
        )

    @property
    def has_child(self) -> bool:
        """Whether a child runs, or is being started or ended."""
        return self._child is not None and not self._child.done()

    def wait_for(self, other: str) -> None:
        """Show that this process waits for another one."""
        self._set("waiting", f"for {other}")

    async def start(self, cause: str) -> None:
        """Start unless it runs; return when it runs. Raises StepError if it cannot be started."""
        async with self._changing:
            if self.has_child:
                return
            await self._end_task()
            self._restarts, self._cause = 0, cause
            loop = asyncio.get_running_loop()
            started: asyncio.Future[str] = loop.create_future()
            self._task = loop.create_task(self._keep_running(started))
            error = await asyncio.shield(started)
        if error:
            raise StepError(f"failed to start process '{self.name}': {error}")

    async def stop(self) -> None:
        """Stop it and everything it started, and do not start it again."""
        async with self._changing:
            ran = self.has_child
            await self._end_task()
            if ran:
                self._surface.log("INFO", f"stopped process {self.name}")
            self._set("stopped")

    async def wait_ready(self) -> None:
        """Wait for the readiness probe; raise StepError when its time is up."""
        probe = self.spec.readiness
        if probe is None:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + probe.timeout_ms / 1000
        while not await self._prober.check(probe, self):
            if loop.time() >= deadline:
                raise StepError(f"timed out waiting for process '{self.name}' {described(probe)}")
            await asyncio.sleep(max(probe.interval_ms / 1000, _SHORTEST_INTERVAL_S))
        self._on_ready(probe)

    def printed(self, pattern: str) -> bool:
        """Tell whether a line of output matched since the start."""
        compiled = compile_pattern(pattern)
        return any(compiled.search(line) for line in self._since_start)

    async def succeeds(self, command: list[str], timeout_ms: int) -> bool:
        """Run a command of a probe."""
        request = self._children.request(
            self.spec, "startup", timeout_ms=timeout_ms, command=command
        )
        result = await self._children.sandbox_for(f"{self.name} probe").run(request)
        return result.exit_code == 0

    # -- one life after the other ----------------------------------------------------------------

    async def _end_task(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _keep_running(self, started: asyncio.Future[str]) -> None:
        try:
            while True:
                ended = await self._run_once(started)
                following = after_end(self.spec, self._restarts, ended)
                self._restarts = following.restarts
                self._cause = f"it ended: {self._detail}"
                self._set(following.state, self._detail)
                if following.delay_ms is None:
                    return
                if following.state == "crash-loop" and self._restarts == CRASH_LOOP:
                    self._surface.log(
                        "ERROR",
                        f"process {self.name} is in a crash loop: {self._restarts} restarts in a "
                        f"row ({self._detail}); it is restarted after longer and longer delays",
                    )
                await asyncio.sleep(following.delay_ms / 1000)
        finally:
            if not started.done():
                started.set_result("it was stopped")

    async def _run_once(self, started: asyncio.Future[str]) -> Ended:
        """Run the child to its end."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        unhealthy = False
        monitor: asyncio.Task[None] | None = None
        announced = False

        def on_started(pid: int, _: int) -> None:
            nonlocal monitor, announced
            announced = True
            self.pid = pid
            self._set("running")
            self._surface.log("INFO", f"started process {self.name}")
            if not started.done():
                started.set_result("")
            monitor = loop.create_task(self._monitor(end_unhealthy))

        def end_unhealthy() -> None:
            nonlocal unhealthy
            unhealthy = True
            if self._child is not None:
                self._child.cancel()

        self._set("starting")
        self._reset_output()
        splitters: dict[Stream, LineSplitter] = {"stdout": LineSplitter(), "stderr": LineSplitter()}

        def on_output(stream: Stream, text: str) -> None:
            self.printed_bytes += len(text.encode("utf-8", "replace"))
            for line in splitters[stream].feed(text):
                self._on_line(stream, line, complete=True)

        request = self._children.request(self.spec, "startup", grace_ms=self.spec.stop_grace_ms)
        sandbox = self._children.sandbox_for(self.name)
        self._child = loop.create_task(
            sandbox.run(request, on_output=on_output, on_started=on_started)
        )
        result: ChildResult | None = None
        try:
            result = await self._child
        except asyncio.CancelledError:
            if not unhealthy:
                raise
        finally:
            if monitor is not None:
                monitor.cancel()
                await asyncio.gather(monitor, return_exceptions=True)
            for stream, splitter in splitters.items():
                if rest := splitter.finish():
                    self._on_line(stream, rest, complete=False)
            self.pid = 0
        ran_ms = round((loop.time() - begun) * 1000)
        if result is None:
            self._detail = "its liveness probe failed"
            return Ended(ok=False, ran_ms=ran_ms, unhealthy=True)
        return self._ended(result, ran_ms, started, announced=announced)

    def _ended(
        self, result: ChildResult, ran_ms: int, started: asyncio.Future[str], *, announced: bool
    ) -> Ended:
        if result.error:
            self._detail = result.error
            if started.done():
                self._surface.log("ERROR", f"process {self.name}: {result.error}")
            else:
                started.set_result(result.error)
            return Ended(ok=False, ran_ms=ran_ms)
        if not announced:  # it ended at once
            self._surface.log("INFO", f"started process {self.name}")
        if not started.done():
            started.set_result("")
        self._detail = described_end(result.exit_code, result.signal)
        ok = result.exit_code == 0
        self._surface.log(
            "INFO" if ok else "WARN", f"process {self.name} exited with {self._detail}"
        )
        return Ended(ok=ok, ran_ms=ran_ms)

    async def _monitor(self, end_unhealthy: Callable[[], None]) -> None:
        """Check readiness until it passes, and then liveness."""
        readiness, liveness = self.spec.readiness, self.spec.liveness
        if readiness is not None:
            while not await self._prober.check(readiness, self):  # noqa: ASYNC110  (a probe polls)
                await asyncio.sleep(max(readiness.interval_ms / 1000, _SHORTEST_INTERVAL_S))
            self._on_ready(readiness)
        if liveness is None:
            return
        loop = asyncio.get_running_loop()
        # Without a readiness probe it gets its time to become alive.
        patience = 0.0 if readiness else loop.time() + liveness.timeout_ms / 1000
        was_alive = readiness is not None
        while True:
            await asyncio.sleep(max(liveness.interval_ms / 1000, _SHORTEST_INTERVAL_S))
            alive = await self._prober.check(liveness, self)
            if not alive and (was_alive or loop.time() >= patience):
                self._surface.log(
                    "WARN", f"process {self.name} failed its liveness {described(liveness)}"
                )
                patience = float("inf")  # once, until it is alive again
                if self.spec.restart != "never":
                    end_unhealthy()
                    return
            was_alive = alive

    def _on_ready(self, probe: Probe) -> None:
        if self.state == "running":
            self._set("ready")
            self._surface.log("INFO", passed(self.name, probe))

    def _set(self, state: ProcessState, detail: str = "") -> None:
        if (state, detail) != (self.state, self._detail):
            self.state, self._detail = state, detail
            self._surface.status_changed()

    # -- output ----------------------------------------------------------------------------------

    def _reset_output(self) -> None:
        self._since_start.clear()
        if self._rules:
            with suppress(StoreError):
                self._session.update({rule.state_key: "" for rule in self._rules})

    def _on_line(self, stream: Stream, line: str, *, complete: bool) -> None:
        self.last_lines.append(line)
        self._since_start.append(line)
        for rule in self._rules:
            if (found := rule.extract(line)) is not None:
                try:
                    self._session.update({rule.state_key: found})
                except StoreError as error:
                    self._surface.log("ERROR", f"{error}")
        self._surface.line(self._source, stream, line, complete=complete)


class _Rule:
    """Extracts a value from lines."""

    def __init__(self, rule: OutputRule) -> None:
        self.state_key = rule.state_key
        self._is_token = rule.extract == "url_token"
        self._group = rule.capture_group
        self._pattern = compile_pattern(rule.pattern) if rule.pattern is not None else None

    def extract(self, line: str) -> str | None:
        if self._is_token:
            return _url_token(line)
        if self._pattern is None:
            return None
        try:
            found = self._pattern.search(line)
            return found.group(self._group) if found else None
        except (IndexError, UnicodeError, OverflowError):
            return None


def _url_token(line: str) -> str | None:
    for token in line.split():
        if token.startswith("https://") and "trycloudflare.com" in token:
            return token.strip("|")
    return None
