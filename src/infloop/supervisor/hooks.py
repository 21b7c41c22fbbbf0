"""Runs hooks to their end and stores what they print."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING

import msgspec

from infloop.errors import StepError, StoreError
from infloop.model.dev.config import DevConfig
from infloop.supervisor.children import described_end
from infloop.supervisor.lines import LineSplitter
from infloop.supervisor.reports import source_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from infloop.model.dev.config import Hook
    from infloop.model.values import JsonValue
    from infloop.sandbox.base import ChildResult, Stream
    from infloop.supervisor.children import Children
    from infloop.supervisor.reports import Surface
    from infloop.supervisor.session import Session

_REPLACED = "\ufffd"


class RunningHook(msgspec.Struct):
    """A hook that runs; its process id is known some milliseconds after its start."""

    pid: int = 0
    printed_bytes: int = 0
    ended: bool = False


class Hooks:
    """All hooks of the loop."""

    def __init__(
        self, specs: Mapping[str, Hook], children: Children, session: Session, surface: Surface
    ) -> None:
        self._specs = specs
        self._children = children
        self._session = session
        self._surface = surface
        self.running: dict[int, RunningHook] = {}
        """The hooks that run, by a number that is not used again."""
        self._numbers = count(1)
        self.on_end: Callable[[], None] = lambda: None
        """Called when a hook has ended, while it is still among those that run."""

    async def run(self, name: str, workflow: str, files: Sequence[str] = ()) -> bool:
        """Run a hook; return whether it changed the state. Raises StepError if it fails."""
        spec = self._specs[name]
        result = await self._run(name, spec, workflow, files)
        if result.error:
            raise StepError(f"hook '{name}' could not run: {result.error}")
        if result.timed_out:
            raise StepError(f"hook '{name}' was ended after {spec.timeout_ms} ms")
        if result.exit_code != 0:
            how = described_end(result.exit_code, result.signal)
            raise StepError(f"hook '{name}' failed with status {how}")
        try:
            captured = self._captured(name, spec, result)
            return bool(captured) and self._session.update(captured)
        except StoreError as error:
            raise StepError(str(error)) from None

    async def _run(self, name: str, spec: Hook, workflow: str, files: Sequence[str]) -> ChildResult:
        source = source_of(name, spec)
        splitters: dict[Stream, LineSplitter] = {"stdout": LineSplitter(), "stderr": LineSplitter()}
        number = next(self._numbers)
        running = self.running[number] = RunningHook()

        def on_output(stream: Stream, text: str) -> None:
            running.printed_bytes += len(text.encode("utf-8", "replace"))
            for line in splitters[stream].feed(text):
                self._surface.line(source, stream, line, complete=True)

        def on_started(pid: int, _: int) -> None:
            running.pid = pid

        request = self._children.request(spec, workflow, files, timeout_ms=spec.timeout_ms)
        try:
            return await self._children.sandbox_for(name).run(
                request, on_output=on_output, on_started=on_started
            )
        finally:
            running.ended = True
            self.on_end()
            del self.running[number]
            for stream, splitter in splitters.items():
                if rest := splitter.finish():
                    self._surface.line(source, stream, rest, complete=False)

    def _captured(self, name: str, spec: Hook, result: ChildResult) -> dict[str, JsonValue]:
        if spec.capture not in ("text", "json"):
            return {}
        if _REPLACED in result.stdout:
            raise StepError(f"hook '{name}' produced non-utf8 stdout")
        if result.stdout_omitted:
            raise StepError(f"hook '{name}' printed more than can be captured")
        if spec.capture == "text":
            return {spec.state_key or "": result.stdout.strip()}
        try:
            found = json.loads(result.stdout)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise StepError(f"hook '{name}': hook stdout was not valid JSON")
        for key in found.keys() & DevConfig.RESERVED_KEYS:
            self._surface.log("WARN", f"hook '{name}' cannot set the reserved state key '{key}'")
            del found[key]
        return found
