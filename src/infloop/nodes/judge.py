"""Node type `judge`: asks a model for a structured answer: which of several candidates is best."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from infloop.errors import StepError
from infloop.model.values import JsonObject, as_text
from infloop.nodes.agent import TextAnswer, ask_text, cost_output
from infloop.nodes.base import Outcome, failed, tail

if TYPE_CHECKING:
    from infloop.nodes.base import StepContext

JUDGE_TIMEOUT_MS = 60_000

SYSTEM = (
    "You compare candidates against criteria. Answer with one JSON object on a single line: "
    '{"winner_index": <number of the best candidate>, "scores": [<one whole number from 1 to 10 '
    'per candidate>], "reasoning": "<one or two sentences>"}'
)
RETRY = "\n\nYour last answer could not be read. Answer with the JSON object on a single line only."


class Choice(msgspec.Struct):
    """The answer that a judge must give."""

    winner_index: int
    scores: list[int]
    reasoning: str = ""


async def perform(step: StepContext, config: JsonObject) -> Outcome:
    """Ask the judge; ask once more if its answer cannot be read."""
    listed = config.get("candidates")
    candidates = [as_text(item) for item in listed] if isinstance(listed, list) else []
    if len(candidates) < 2:
        return failed("judge failed: at least two candidates are needed")
    provider = as_text(config.get("providerId")) or "claude"
    step.provider(provider)  # raises for an unknown provider: no second try
    model = as_text(config.get("model"))
    prompt = build_prompt(config, candidates)
    answers: list[TextAnswer] = []
    raw = reason = ""
    for attempt in (prompt, prompt + RETRY):
        try:
            answers.append(await ask_text(step, provider, attempt, model, JUDGE_TIMEOUT_MS))
            raw = answers[-1].text
            choice = read_choice(raw, len(candidates))
        except (StepError, ValueError) as error:
            reason = str(error)
            continue
        return Outcome(
            "next",
            {
                "winner_index": choice.winner_index,
                "winner": candidates[choice.winner_index],
                "scores": list(choice.scores),
                "reasoning": choice.reasoning,
                **cost_output(answers),
            },
        )
    return failed(f"judge failed: {reason}", raw=raw, **cost_output(answers))


def build_prompt(config: JsonObject, candidates: list[str]) -> str:
    """Return the prompt for the judge."""
    listed = "\n".join(f"[{index}] {text}" for index, text in enumerate(candidates))
    system = as_text(config.get("judgePrompt")) or SYSTEM
    return f"{system}\n\nCriteria: {as_text(config.get('criteria'))}\n\nCandidates:\n{listed}"


def read_choice(answer: str, candidates: int) -> Choice:
    """Return the choice in the last line that is a JSON object; raise ValueError without one."""
    lines = [line.strip() for line in answer.splitlines()]
    objects = [line for line in lines if line.startswith("{") and line.endswith("}")]
    if not objects:
        raise ValueError(f"no JSON object in the answer {tail(answer, 120)!r}")
    try:
        choice = msgspec.json.decode(objects[-1], type=Choice)
    except msgspec.DecodeError as error:
        raise ValueError(f"the answer is not a verdict: {error}") from None
    if not 0 <= choice.winner_index < candidates:
        raise ValueError(
            f"winner_index {choice.winner_index} is not one of {candidates} candidates"
        )
    if len(choice.scores) != candidates or not all(1 <= score <= 10 for score in choice.scores):
        raise ValueError(f"scores {choice.scores} are not {candidates} whole numbers from 1 to 10")
    return choice
