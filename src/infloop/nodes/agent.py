"""Node type `agent`: asks a provider to do something in a directory."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NamedTuple, assert_never, cast

from infloop.errors import StepError
from infloop.model.values import JsonObject, as_text
from infloop.nodes.base import Outcome, failed, tail, whole_number
from infloop.nodes.session import session_cost_usd, session_outputs, session_usage
from infloop.nodes.tool_calls import ToolCalls
from infloop.providers.base import (
    Answer,
    Cost,
    Done,
    ProviderNotice,
    RateLimited,
    Request,
    Session,
    Stderr,
    Text,
    Tool,
    ToolResult,
    Usage,
    is_remote,
    uses_tools,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from infloop.nodes.base import StepContext
    from infloop.providers.base import AnswerPart, Provider


PARTS_BETWEEN_DRAINS = 64
PIECE_CHARS = 4 << 10
"""How much of a long part is passed on at a time."""
LINE_CHARS = 1_000
"""The longest line about a tool call."""


async def perform(step: StepContext, config: JsonObject) -> Outcome:
    """Ask the node's provider and wait for it to finish."""
    prompt = as_text(config.get("prompt"))
    provider_id = as_text(config.get("providerId"))
    if not prompt.strip() or not provider_id:
        return failed("invalid agent config: a provider and a prompt are needed")
    provider = step.provider(provider_id)
    tools = _tools(config)
    if tools is not None and not uses_tools(provider):
        return failed(
            f"provider {provider_id!r} has tools of its own, which 'tools' cannot limit; remove "
            "'tools', or use the built-in agent"
        )
    session_id = as_text(config.get("sessionId")).strip()
    if session_id.startswith("-"):  # a program would take it for an option
        return failed(f"sessionId {session_id[:80]!r} is not the id of a session")
    remote = is_remote(provider)
    cwd = step.workdir if remote else await step.directory(config.get("cwd"))
    worktree = "" if remote else await step.worktree(config, cwd)
    if worktree:
        step.write_output(f"[worktree] {worktree}\n", "tool")
    cwd = worktree or cwd
    request = Request(
        prompt=prompt,
        cwd=cwd,
        run_id=step.run_id,
        path=step.path,
        node=step.node,
        iteration=step.iteration,
        attempt=step.attempt,
        profile=as_text(config.get("profile")),
        agent=as_text(config.get("agent")).strip(),
        skip_permissions=config.get("skipPermissions") is True,
        session_id=session_id,
        session_usage=session_usage(config),
        session_cost_usd=session_cost_usd(config),
        idle_timeout_ms=whole_number(config.get("idleTimeoutMs"), 0),
        tools=tools,
    )
    timeout_ms = whole_number(config.get("timeoutMs"), 0)
    async with step.workspace.snapshots(cwd) as snapshots:
        answer, timed_out, duration_ms = await ask_provider(step, provider, request, timeout_ms)
    outcome = _outcome(answer, timed_out, duration_ms, timeout_ms)
    outcome.outputs["errorMessage"] = outcome.error
    if answer.session:
        outcome.outputs.update(session_outputs(request, answer))
    if worktree:
        outcome.outputs["worktreePath"] = worktree
    until = 0
    if outcome.error and config.get("onRateLimit") == "wait":
        until = answer.rate_limited_until_ms or 0
    return Outcome(outcome.handle, outcome.outputs, outcome.error, snapshots.tree, until)


def _tools(config: JsonObject) -> tuple[str, ...] | None:
    """Return the only tools that the agent has; None for all of them."""
    listed = config.get("tools")
    return tuple(map(as_text, listed)) if isinstance(listed, list) else None


async def ask_provider(
    step: StepContext, provider: Provider, request: Request, timeout_ms: int
) -> tuple[Answer, bool, int]:
    """Ask a provider and pass its output on as it comes.

    Returns the whole answer, whether the time limit was reached, and the duration in milliseconds.
    """
    answer = Answer(step.max_output_bytes)
    started = time.monotonic()
    reading = _read_answer(step, provider, request, answer)
    timed_out = False
    if timeout_ms:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await reading
        except TimeoutError:
            timed_out = True
    else:
        await reading
    return answer, timed_out, int((time.monotonic() - started) * 1000)


async def _read_answer(
    step: StepContext, provider: Provider, request: Request, answer: Answer
) -> None:
    parts = cast("AsyncGenerator[AnswerPart]", provider.ask(request))
    calls = ToolCalls(request.attempt)
    count = 0
    try:
        async for part in parts:
            known = len(answer.denials)
            answer.add(part)
            if isinstance(part, Text) and len(part.text) <= PIECE_CHARS:
                step.write_output(part.text, "stdout")  # nearly all parts: 5 instead of 8 µs each
            elif not _is_denial(part) or len(answer.denials) > known:
                await _write(step, part, calls)
            count += 1
            if count % PARTS_BETWEEN_DRAINS == 0:
                await step.drain()
    finally:  # closing the generator ends the provider
        await parts.aclose()


def _is_denial(part: AnswerPart) -> bool:
    return isinstance(part, ProviderNotice) and part.is_denial


async def _write(step: StepContext, part: AnswerPart, calls: ToolCalls) -> None:
    match part:
        case Text(text):
            await _write_pieces(step, text, "stdout")
        case ProviderNotice(line, is_warning=True):
            step.warn(line, "")
        case ProviderNotice(line, is_denial=True):
            step.warn(line, "permissions")
        case Tool() | ToolResult():
            line = part.line
            shown = line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]}…"
            step.write_output(f"{shown}\n", "tool", calls.note(part))
        case ProviderNotice():
            await _write_pieces(step, f"{part.line}\n", "tool")
        case Stderr(text):
            await _write_pieces(step, text, "stderr")
        case Usage() | Cost() | Session() | RateLimited() | Done():
            pass
        case _:
            assert_never(part)


async def _write_pieces(step: StepContext, text: str, stream: str) -> None:
    """Pass text on, with a turn for others after each piece: redacting it can take long."""
    step.write_output(text[:PIECE_CHARS], stream)
    for at in range(PIECE_CHARS, len(text), PIECE_CHARS):
        await asyncio.sleep(0)
        step.write_output(text[at : at + PIECE_CHARS], stream)


def _outcome(answer: Answer, timed_out: bool, duration_ms: int, timeout_ms: int) -> Outcome:
    done = answer.done or Done(
        None, error="" if timed_out else "the provider ended without a result"
    )
    text, stderr = answer.text, answer.stderr
    outputs: JsonObject = {
        "stdout": text,
        "result": done.result if done.result is not None else text,
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
    if answer.denials:
        outputs["denied"] = "\n".join(answer.denials)
    if timed_out:
        return Outcome("error", outputs, f"the agent did not finish within {timeout_ms} ms")
    if done.exit_code != 0 or done.error:
        reason = done.error or f"the agent left with exit code {done.exit_code}"
        return Outcome("error", outputs, f"{reason}: {tail(stderr)}" if stderr else reason)
    return Outcome("next", outputs)


class TextAnswer(NamedTuple):
    """The text of an answer, and its cost if that is known."""

    text: str
    cost_usd: float | None


async def ask_text(
    step: StepContext, provider_id: str, prompt: str, model: str, limit_ms: int
) -> TextAnswer:
    """Ask a judge and return its text; raise StepError if it failed."""
    request = Request(
        prompt=prompt,
        cwd=step.workdir,
        kind="judge",
        run_id=step.run_id,
        path=step.path,
        node=step.node,
        iteration=step.iteration,
        attempt=step.attempt,
        model=model,
    )
    answer, timed_out, _ = await ask_provider(step, step.provider(provider_id), request, limit_ms)
    if timed_out:
        raise StepError(f"no answer within {limit_ms} ms")
    done = answer.done or Done(None, error="the provider ended without a result")
    if done.exit_code != 0 or done.error:
        why = done.error or f"exit code {done.exit_code}"
        raise StepError(f"{why}: {tail(answer.stderr)}" if answer.stderr else why)
    return TextAnswer(answer.text, answer.cost_usd)


def cost_output(answers: Sequence[TextAnswer]) -> JsonObject:
    """Return the output `costUsd` with the sum of the known costs; nothing if none is known."""
    known = [each.cost_usd for each in answers if each.cost_usd is not None]
    return {"costUsd": sum(known)} if known else {}
