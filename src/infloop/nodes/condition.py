"""Condition: a command's exit code or a judge's word says met or not met.

A sentinel has no effect and is decided by the engine. Whatever goes wrong with a check is "not met"
with a detail that says so: a loop never ends because its check broke.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.errors import StepError
from infloop.model.values import JsonObject, as_text
from infloop.nodes.agent import Said, ask_text, cost_of
from infloop.nodes.base import Outcome, tail, whole_number
from infloop.policy.command_time import time_limit
from infloop.sandbox.base import ChildRequest

if TYPE_CHECKING:
    from infloop.nodes.base import Powers

COMMAND_TIMEOUT_MS = 30_000
JUDGE_TIMEOUT_MS = 60_000
JUDGED_CHARS = 8_000

QUESTION = (
    "You are a strict judge. Decide whether the text below meets this rubric: {rubric}\n"
    "---\n{text}\n---\n"
    "Answer with exactly MET or NOT_MET on the first line, then your reason."
)
AGAIN = (
    "\nYour last answer could not be read. The first line must be MET or NOT_MET and nothing else."
)


async def perform(powers: Powers, config: JsonObject) -> Outcome:
    """Check the node's condition."""
    match config.get("kind"):
        case "command":
            return await _command(powers, config)
        case "judge":
            return await _judge(powers, config)
        case other:
            detail = f"check error: unknown kind {other!r}; use sentinel, command or judge"
            return Outcome("error", {"met": False, "detail": detail}, detail)


def _verdict(detail: str, *, met: bool = False, seen: JsonObject | None = None) -> Outcome:
    outputs: JsonObject = {"met": met, "detail": detail, **(seen or {})}
    return Outcome("met" if met else "not_met", outputs)


async def _command(powers: Powers, config: JsonObject) -> Outcome:
    command = config.get("command")
    line = command.get("cmd") if isinstance(command, dict) else None
    if not isinstance(command, dict) or not isinstance(line, str) or not line.strip():
        return _verdict("invalid command config")
    declared = command.get("env")
    extra = (
        {name: as_text(value) for name, value in declared.items()}
        if isinstance(declared, dict)
        else {}
    )
    asked_ms = whole_number(command.get("timeoutMs"), COMMAND_TIMEOUT_MS)
    limit = time_limit(asked_ms, powers.max_command_ms)
    text = config.get("against")
    result = await powers.sandbox().run(
        ChildRequest(
            argv=("/bin/sh", "-c", line),
            cwd=await powers.directory(command.get("cwd") or config.get("cwd")),
            env=powers.environment(extra),
            stdin=as_text(text).encode() if text is not None else None,
            timeout_ms=limit.ms,
            max_output_bytes=powers.max_output_bytes,
        ),
        on_output=lambda stream, piece: powers.say(piece, stream),
    )
    if result.error:
        detail = f"check error: {result.error}"
        return Outcome("error", {"met": False, "detail": detail}, detail)
    seen: JsonObject = {
        "stdout": result.stdout,
        "stderr": result.stderr,
        "exitCode": result.exit_code,
    }
    if result.timed_out:
        return _verdict(f"command timed out after {limit.ms}ms{limit.note}", seen=seen)
    if result.exit_code is None:
        return _verdict(f"killed by signal {result.signal}{result.aside}", seen=seen)
    detail = f"exit {result.exit_code}{result.aside}"
    return _verdict(detail, met=result.exit_code == 0, seen=seen)


async def _judge(powers: Powers, config: JsonObject) -> Outcome:
    settings = config.get("judge")
    rubric = as_text(settings.get("rubric")) if isinstance(settings, dict) else ""
    if not isinstance(settings, dict) or not rubric.strip():
        return _verdict("invalid judge config")
    provider = as_text(settings.get("providerId")) or "claude"
    powers.provider(provider)  # an unknown provider is the author's error, not a verdict
    model = as_text(settings.get("model"))
    question = QUESTION.format(rubric=rubric, text=as_text(config.get("against"))[:JUDGED_CHARS])
    asked: list[Said] = []
    answer = ""
    for attempt in (question, question + AGAIN):
        try:
            asked.append(await ask_text(powers, provider, attempt, model, JUDGE_TIMEOUT_MS))
        except StepError as error:
            return _verdict(f"judge error: {error}", seen=cost_of(asked))
        answer = asked[-1].text
        first = next((line.strip() for line in answer.splitlines() if line.strip()), "")
        if first.upper() in ("MET", "NOT_MET"):
            return _verdict(tail(answer), met=first.upper() == "MET", seen=cost_of(asked))
    return _verdict(f"judge output unparseable: {tail(answer, 120)}", seen=cost_of(asked))
