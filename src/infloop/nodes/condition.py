"""Node type `condition`: the exit code of a command, the answer of a judge, or the state of the
development loop is met or not met.

A sentinel has no effects, so the engine decides it. A command that times out or is killed, and a
judge without a readable answer, are "not met" with the reason in `detail`: a loop goes on although
its check failed. A command that cannot be started leaves by `error`; with `mustRun` so does one
whose program does not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.errors import StepError
from infloop.model.values import JsonObject, as_text
from infloop.nodes.agent import TextAnswer, ask_text, cost_output
from infloop.nodes.base import Outcome, tail
from infloop.nodes.command import run_command
from infloop.nodes.dev_check import check_dev_loop

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
    """Run the command, ask the judge or the development loop."""
    match config.get("kind"):
        case "command":
            return await _command(step, config)
        case "judge":
            return await _judge(step, config)
        case "dev":
            return await _dev(step, config)
        case other:
            return _broken(
                f"check error: unknown kind {other!r}; use sentinel, command, judge or dev", {}
            )


def _verdict(detail: str, *, met: bool = False, more: JsonObject | None = None) -> Outcome:
    outputs: JsonObject = {"met": met, "detail": detail, **(more or {})}
    return Outcome("met" if met else "not_met", outputs)


async def _command(step: StepContext, config: JsonObject) -> Outcome:
    command = config.get("command")
    line = command.get("cmd") if isinstance(command, dict) else None
    if not isinstance(command, dict) or not isinstance(line, str) or not line.strip():
        return _verdict("invalid command config")
    text = config.get("against")
    cwd = await step.directory(command.get("cwd") or config.get("cwd"))
    finished = await run_command(
        step,
        command,
        cwd=await step.worktree(command, cwd) or cwd,
        default_timeout_ms=COMMAND_TIMEOUT_MS,
        stdin=as_text(text).encode() if text is not None else None,
    )
    if finished.child.error:
        return _broken(f"check error: {finished.failure}", {})
    if command.get("mustRun") is True and finished.cannot_run:
        said = tail(finished.child.stderr)
        return _broken(f"the check cannot run: {said or finished.failure}", finished.outputs)
    met = not finished.failure
    return _verdict(finished.failure or "exit 0", met=met, more=finished.outputs)


async def _dev(step: StepContext, config: JsonObject) -> Outcome:
    found = await check_dev_loop(step, config)
    more: JsonObject = {"tail": found.tail}
    if found.broken:
        return _broken(f"the check cannot run: {found.detail}", more)
    return _verdict(found.detail, met=found.met, more=more)


def _broken(detail: str, outputs: JsonObject) -> Outcome:
    return Outcome("error", {"met": False, "detail": detail, **outputs}, detail)


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
