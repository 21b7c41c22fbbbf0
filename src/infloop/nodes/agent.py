"""Agent: ask a provider to do something in a directory."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NamedTuple, cast

from infloop.errors import StepError
from infloop.model.values import JsonObject, as_text
from infloop.nodes.base import Beginning, Outcome, failed, tail, whole_number
from infloop.nodes.session import cost_before, counted_before, counted_by_now
from infloop.providers.base import Answer, Done, Notice, Request, Stderr, Text, Tool, ToolResult

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from infloop.nodes.base import Powers
    from infloop.providers.base import Part, Provider


PARTS_AT_ONCE = 64


async def perform(powers: Powers, config: JsonObject) -> Outcome:
    """Ask the node's provider and wait for it to finish."""
    prompt = as_text(config.get("prompt"))
    provider_id = as_text(config.get("providerId"))
    if not prompt.strip() or not provider_id:
        return failed("invalid agent config: a provider and a prompt are needed")
    cwd, worktree = await powers.directory(config.get("cwd")), {}
    if config.get("useWorktree") is True:
        cwd = await _worktree(powers, config, cwd)
        worktree = {"worktreePath": cwd}
    request = Request(
        prompt=prompt,
        cwd=cwd,
        run_id=powers.run_id,
        path=powers.path,
        node=powers.node,
        iteration=powers.iteration,
        attempt=powers.attempt,
        profile=as_text(config.get("profile")),
        agent=as_text(config.get("agent")).strip(),
        skip_permissions=config.get("skipPermissions") is True,
        session_id=as_text(config.get("sessionId")),
        session_usage=counted_before(config),
        session_cost_usd=cost_before(config),
        idle_timeout_ms=whole_number(config.get("idleTimeoutMs"), 0),
    )
    timeout_ms = whole_number(config.get("timeoutMs"), 0)
    async with powers.workspace.watched(cwd) as watched:
        answer, timed_out, duration_ms = await converse(powers, provider_id, request, timeout_ms)
    outcome = _outcome(answer, timed_out, duration_ms, timeout_ms)
    if answer.session:
        outcome.outputs.update(counted_by_now(request, answer))
    outcome.outputs.update(worktree)
    until = 0
    if outcome.error and config.get("onRateLimit") == "wait":
        until = answer.rate_limited_until_ms or 0
    return Outcome(outcome.handle, outcome.outputs, outcome.error, watched.tree, until)


async def _worktree(powers: Powers, config: JsonObject, cwd: str) -> str:
    """Return the directory that stands for `cwd` in the node's own worktree."""
    include = config.get("worktreeInclude")
    beginning = Beginning(
        ref=as_text(config.get("worktreeRef")).strip(),
        include_uncommitted=config.get("includeUncommitted") is True,
        include=tuple(map(as_text, include)) if isinstance(include, list) else (),
    )
    path = await powers.workspace.worktree(cwd, beginning)
    powers.say(f"[worktree] {path}\n", "tool")
    return path


async def converse(
    powers: Powers, provider_id: str, request: Request, timeout_ms: int
) -> tuple[Answer, bool, int]:
    """Ask a provider, show what it says as it says it, and return all of it."""
    answer = Answer(powers.max_output_bytes)
    started = time.monotonic()
    hearing = _hear(powers, powers.provider(provider_id), request, answer)
    timed_out = False
    if timeout_ms:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await hearing
        except TimeoutError:
            timed_out = True
    else:
        await hearing
    return answer, timed_out, int((time.monotonic() - started) * 1000)


async def _hear(powers: Powers, provider: Provider, request: Request, answer: Answer) -> None:
    parts = cast("AsyncGenerator[Part]", provider.ask(request))
    count = 0
    try:
        async for part in parts:
            answer.add(part)
            _show(powers, part)
            count += 1
            if count % PARTS_AT_ONCE == 0:
                await powers.room()
    finally:  # closing the stream is what ends the provider, so it is not left to chance
        await parts.aclose()


def _show(powers: Powers, part: Part) -> None:
    match part:
        case Text(text):
            powers.say(text, "stdout")
        case Tool() | ToolResult() | Notice():
            powers.say(f"{part.line}\n", "tool")
        case Stderr(text):
            powers.say(text, "stderr")
        case _:
            pass


def _outcome(answer: Answer, timed_out: bool, duration_ms: int, timeout_ms: int) -> Outcome:
    done = answer.done or Done(
        None, error="" if timed_out else "the provider ended without a result"
    )
    said, stderr = answer.said, answer.stderr
    outputs: JsonObject = {
        "stdout": said,
        "result": done.result if done.result is not None else said,
        "transcript": answer.transcript,
        "stderr": stderr,
        "exitCode": None if timed_out else done.exit_code,
        "durationMs": duration_ms,
        "timedOut": timed_out,
        "tokens": {
            "input": answer.usage.input_tokens,
            "output": answer.usage.output_tokens,
            "cached": answer.usage.cached_tokens,
        },
    }
    if answer.cost_usd is not None:
        outputs["costUsd"] = answer.cost_usd
    if timed_out:
        return Outcome("error", outputs, f"the agent did not finish within {timeout_ms} ms")
    if done.exit_code != 0 or done.error:
        reason = done.error or f"the agent left with exit code {done.exit_code}"
        return Outcome("error", outputs, f"{reason}: {tail(stderr)}" if stderr else reason)
    return Outcome("next", outputs)


class Said(NamedTuple):
    """A text that was asked for, and what it cost if that is known."""

    text: str
    cost_usd: float | None


async def ask_text(
    powers: Powers, provider_id: str, prompt: str, model: str, limit_ms: int
) -> Said:
    """Ask a provider a question that has a text as its answer; raise StepError without one."""
    request = Request(
        prompt=prompt,
        cwd=powers.workdir,
        kind="judge",
        run_id=powers.run_id,
        path=powers.path,
        node=powers.node,
        iteration=powers.iteration,
        attempt=powers.attempt,
        model=model,
    )
    answer, timed_out, _ = await converse(powers, provider_id, request, limit_ms)
    if timed_out:
        raise StepError(f"no answer within {limit_ms} ms")
    done = answer.done or Done(None, error="the provider ended without a result")
    if done.exit_code != 0 or done.error:
        why = done.error or f"exit code {done.exit_code}"
        raise StepError(f"{why}: {tail(answer.stderr)}" if answer.stderr else why)
    return Said(answer.said, answer.cost_usd)


def cost_of(said: Sequence[Said]) -> JsonObject:
    """Return what asking cost, as an output, when any of it is known."""
    known = [each.cost_usd for each in said if each.cost_usd is not None]
    return {"costUsd": sum(known)} if known else {}
