"""Node type `condition`: the exit code of a command or the answer of a judge is met or not met.

A sentinel has no effects, so the engine decides it. A command that times out or is killed, and a
judge without a readable answer, are "not met" with the reason in `detail`: a loop goes on although
its check failed. A command that cannot be started leaves by `error`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.errors import StepError
from infloop.model.values import JsonObject, as_text
from infloop.nodes.agent import TextAnswer, ask_text, cost_output
from infloop.nodes.base import Outcome, tail, whole_number
from infloop.policy.command_time import time_limit
from infloop.sandbox.base import ChildRequest

if TYPE_CHECKING:
    from infloop.nodes.base import StepContext

COMMAND_TIMEOUT_MS = 30_000
JUDGE_TIMEOUT_MS = 60_000
MAX_JUDGED_CHARS = 8_000

QUESTION = (
    "You are a strict judge. Decide whether the text below meets this rubric: {rubric}\n"
    "---\n{text}\n---\n"
    "Answer with exactly MET or NOT_MET on the first line, then your reason."
)
RETRY = (
    "\nYour last answer could not be read. The first line must be MET or NOT_MET and nothing else."
)


async def perform(step: StepContext, config: JsonObject) -> Outcome:
    """Run the command or ask the judge."""
    match config.get("kind"):
        case "command":
            return await _command(step, config)
        case "judge":
            return await _judge(step, config)
        case other:
            detail = f"check error: unknown kind {other!r}; use sentinel, command or judge"
            return Outcome("error", {"met": False, "detail": detail}, detail)


def _verdict(detail: str, *, met: bool = False, more: JsonObject | None = None) -> Outcome:
    outputs: JsonObject = {"met": met, "detail": detail, **(more or {})}
    return Outcome("met" if met else "not_met", outputs)


async def _command(step: StepContext, config: JsonObject) -> Outcome:
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
    timeout_ms = whole_number(command.get("timeoutMs"), COMMAND_TIMEOUT_MS)
    limit = time_limit(timeout_ms, step.max_command_ms)
    text = config.get("against")
    result = await step.sandbox().run(
        ChildRequest(
            argv=("/bin/sh", "-c", line),
            cwd=await step.directory(command.get("cwd") or config.get("cwd")),
            env=step.environment(extra),
            stdin=as_text(text).encode() if text is not None else None,
            timeout_ms=limit.ms,
            max_output_bytes=step.max_output_bytes,
        ),
        on_output=lambda stream, piece: step.write_output(piece, stream),
    )
    if result.error:
        detail = f"check error: {result.error}"
        return Outcome("error", {"met": False, "detail": detail}, detail)
    outputs: JsonObject = {
        "stdout": result.stdout,
        "stderr": result.stderr,
        "exitCode": result.exit_code,
    }
    if result.timed_out:
        return _verdict(f"command timed out after {limit.ms}ms{limit.note}", more=outputs)
    if result.exit_code is None:
        return _verdict(f"killed by signal {result.signal}{result.hint_suffix}", more=outputs)
    detail = f"exit {result.exit_code}{result.hint_suffix}"
    return _verdict(detail, met=result.exit_code == 0, more=outputs)


async def _judge(step: StepContext, config: JsonObject) -> Outcome:
    settings = config.get("judge")
    rubric = as_text(settings.get("rubric")) if isinstance(settings, dict) else ""
    if not isinstance(settings, dict) or not rubric.strip():
        return _verdict("invalid judge config")
    provider = as_text(settings.get("providerId")) or "claude"
    step.provider(provider)  # raises for an unknown provider: that is an error, not a verdict
    model = as_text(settings.get("model"))
    question = QUESTION.format(
        rubric=rubric, text=as_text(config.get("against"))[:MAX_JUDGED_CHARS]
    )
    answers: list[TextAnswer] = []
    answer = ""
    for attempt in (question, question + RETRY):
        try:
            answers.append(await ask_text(step, provider, attempt, model, JUDGE_TIMEOUT_MS))
        except StepError as error:
            return _verdict(f"judge error: {error}", more=cost_output(answers))
        answer = answers[-1].text
        first = next((line.strip() for line in answer.splitlines() if line.strip()), "")
        if first.upper() in ("MET", "NOT_MET"):
            return _verdict(tail(answer), met=first.upper() == "MET", more=cost_output(answers))
    return _verdict(f"judge output unparseable: {tail(answer, 120)}", more=cost_output(answers))
