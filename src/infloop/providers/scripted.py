"""Transport `scripted`: plays a file of turns and behaves like an agent CLI.

It is for the demo, the documentation and the tests: no account, no network, the same result each
time. The file is JSON:

    {"turns": [
        {"do": [{"text": "Looking at the tests. "},
                {"write": "calc.py", "content": "def add(a, b):\\n    return a + b\\n"},
                {"shell": "git add -A"},
                {"cost": 0.02}, {"tokens": {"input": 900, "output": 40}},
                {"text": "DONE"}]}
    ]}

The turn depends only on the request, so a resumed run continues with the right one. Of the turns
whose `node` and `contains` match the request, the one of the loop's round is played; the last one
repeats. Actions: `text` (with `times`), `write`+`content`, `replace`+`old`+`new`,
`delete`, `shell`, `stderr`, `cost`, `tokens`, `delayMs`, `exit`.
"""

from __future__ import annotations

import asyncio
import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from infloop.errors import StepError
from infloop.policy.command_time import time_limit
from infloop.providers.base import (
    AnswerPart,
    Cost,
    Done,
    Request,
    Stderr,
    Text,
    Tool,
    ToolResult,
    Usage,
)
from infloop.sandbox.base import ChildRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from infloop.model.provider import ScriptedProvider
    from infloop.providers.base import Provider
    from infloop.providers.context import ProviderContext
    from infloop.sandbox.base import Sandbox

SHELL_TIMEOUT_MS = 60_000


def scripted_provider(manifest: ScriptedProvider, context: ProviderContext) -> Provider:
    """Return the provider that plays the script of a manifest."""
    return ScriptedAgent(
        manifest.id,
        context.folder / manifest.script,
        context.sandbox(None),
        lambda: context.environment(()),
        context.max_command_ms,
    )


class Tokens(msgspec.Struct, forbid_unknown_fields=True):
    """Token counts of a turn."""

    input: int = 0
    output: int = 0


class Action(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """One thing that the agent does; each entry has exactly one kind of action."""

    text: str | None = None
    times: int = 1
    write: str | None = None
    content: str = ""
    replace: str | None = None
    old: str = ""
    new: str = ""
    delete: str | None = None
    shell: str | None = None
    stderr: str | None = None
    cost: float | None = None
    tokens: Tokens | None = None
    delay_ms: int = 0
    exit: int | None = None


class Turn(msgspec.Struct, forbid_unknown_fields=True):
    """The actions that answer a request, and the requests that it answers."""

    do: list[Action]
    node: str = ""
    contains: str = ""

    def matches(self, request: Request) -> bool:
        """Say whether this turn answers the request."""
        return self.node in ("", request.node) and self.contains in request.prompt


class Script(msgspec.Struct, forbid_unknown_fields=True):
    """A file of turns."""

    turns: list[Turn]


class ScriptedAgent:
    """Plays a script; the module's docstring describes the format."""

    def __init__(
        self,
        id: str,  # noqa: A002  (the interface's name)
        script: Path,
        sandbox: Sandbox,
        environment: Callable[[], dict[str, str]],
        max_command_ms: int = SHELL_TIMEOUT_MS,
    ) -> None:
        self.id = id
        self._script = script
        self._sandbox = sandbox
        self._environment = environment
        self._limit = time_limit(SHELL_TIMEOUT_MS, max_command_ms)

    async def ask(self, request: Request) -> AsyncIterator[AnswerPart]:
        """Play the turn that matches the request."""
        turn = choose(load_script(self._script), request)
        if turn is None:
            raise StepError(
                f"{self._script} has no turn for node {request.node!r}; add one without "
                "'node' and 'contains' to answer everything"
            )
        for action in turn.do:
            async for part in self._act(action, request):
                yield part
                if isinstance(part, Done):
                    return
        yield Done(0)

    async def _act(self, action: Action, request: Request) -> AsyncIterator[AnswerPart]:
        if action.delay_ms:
            await asyncio.sleep(action.delay_ms / 1000)
        if action.text is not None:
            for _ in range(action.times):
                yield Text(action.text)
        if action.stderr is not None:
            yield Stderr(action.stderr)
        for part in _edit(action, request.cwd):
            yield part
        if action.shell is not None:
            yield Tool("Bash", action.shell)
            yield ToolResult(await self._shell(action.shell, request.cwd))
        if action.tokens is not None:
            yield Usage(action.tokens.input, action.tokens.output)
        if action.cost is not None:
            yield Cost(action.cost)
        if action.exit is not None:
            error = f"the agent left with exit code {action.exit}" if action.exit else ""
            yield Done(action.exit, error=error)

    async def _shell(self, command: str, cwd: str) -> str:
        result = await self._sandbox.run(
            ChildRequest(
                argv=("/bin/sh", "-c", command),
                cwd=cwd,
                env=self._environment(),
                timeout_ms=self._limit.ms,
            )
        )
        if result.error:
            raise StepError(result.error)
        if result.timed_out:
            return f"the command did not finish within {self._limit.ms} ms{self._limit.note}"
        return (result.stdout + result.stderr).strip() or f"exit {result.exit_code}"


def load_script(path: Path) -> Script:
    """Read a file of turns; raise StepError that says what is wrong with it."""
    try:
        found = os.stat(path)  # noqa: PTH116  (asked at every step)
        return _read_script(str(path), found.st_mtime_ns, found.st_size)
    except OSError as error:
        raise StepError(
            f"cannot read the script of turns {str(path)!r}: {error.strerror}"
        ) from None
    except msgspec.DecodeError as error:
        raise StepError(f"{str(path)!r} is not a script of turns: {error}") from None


@lru_cache(maxsize=16)
def _read_script(path: str, mtime_ns: int, size: int) -> Script:
    """Read a file again only if its time or size changed: every step of a loop needs it."""
    return msgspec.json.decode(Path(path).read_bytes(), type=Script)


def choose(script: Script, request: Request) -> Turn | None:
    """Return the turn that answers the request."""
    matching = [turn for turn in script.turns if turn.matches(request)]
    if not matching:
        return None
    return matching[min(max(request.iteration, 1), len(matching)) - 1]


def _edit(action: Action, cwd: str) -> list[AnswerPart]:
    """Change a file below `cwd`; return the parts of the tool call."""
    if action.write is not None:
        target = _inside(cwd, action.write)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(action.content)
        return [Tool("Write", action.write), ToolResult(f"{len(action.content)} characters")]
    if action.replace is not None:
        target = _inside(cwd, action.replace)
        before = target.read_text() if target.exists() else ""
        if action.old not in before:
            missing = ToolResult("the text to replace was not found", failed=True)
            return [Tool("Edit", action.replace), missing]
        target.write_text(before.replace(action.old, action.new, 1))
        return [Tool("Edit", action.replace), ToolResult("replaced")]
    if action.delete is not None:
        _inside(cwd, action.delete).unlink(missing_ok=True)
        return [Tool("Delete", action.delete), ToolResult("deleted")]
    return []


def _inside(cwd: str, name: str) -> Path:
    base = Path(cwd).resolve()
    target = (base / name).resolve()
    if not target.is_relative_to(base):
        raise StepError(f"the script of turns names {name!r}, which is outside {cwd!r}")
    return target
