"""Judge: which of several candidates is best, by a model's structured answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from infloop.errors import StepError
from infloop.model.values import JsonObject, as_text
from infloop.nodes.agent import Said, ask_text, cost_of
from infloop.nodes.base import Outcome, failed, tail

if TYPE_CHECKING:
    from infloop.nodes.base import Powers

JUDGE_TIMEOUT_MS = 60_000

SYSTEM = (
    "You compare candidates against criteria. Answer with one JSON object on a single line: "
    '{"winner_index": <number of the best candidate>, "scores": [<one whole number from 1 to 10 '
    'per candidate>], "reasoning": "<one or two sentences>"}'
)
AGAIN = "\n\nYour last answer could not be read. Answer with the JSON object on a single line only."


class Verdict(msgspec.Struct):
    """The answer a judge must give."""

    winner_index: int
    scores: list[int]
    reasoning: str = ""


async def perform(powers: Powers, config: JsonObject) -> Outcome:
    """Ask for a verdict; ask once more when the answer cannot be read."""
    listed = config.get("candidates")
    candidates = [as_text(item) for item in listed] if isinstance(listed, list) else []
    if len(candidates) < 2:
        return failed("judge failed: at least two candidates are needed")
    provider = as_text(config.get("providerId")) or "claude"
    powers.provider(provider)  # an unknown provider is the author's error: no second try
    model = as_text(config.get("model"))
    prompt = build_prompt(config, candidates)
    asked: list[Said] = []
    raw = reason = ""
    for attempt in (prompt, prompt + AGAIN):
        try:
            asked.append(await ask_text(powers, provider, attempt, model, JUDGE_TIMEOUT_MS))
            raw = asked[-1].text
            verdict = read_verdict(raw, len(candidates))
        except (StepError, ValueError) as error:
            reason = str(error)
            continue
        return Outcome(
            "next",
            {
                "winner_index": verdict.winner_index,
                "winner": candidates[verdict.winner_index],
                "scores": list(verdict.scores),
                "reasoning": verdict.reasoning,
                **cost_of(asked),
            },
        )
    return failed(f"judge failed: {reason}", raw=raw, **cost_of(asked))


def build_prompt(config: JsonObject, candidates: list[str]) -> str:
    """Return the question put to the judge."""
    listed = "\n".join(f"[{index}] {text}" for index, text in enumerate(candidates))
    system = as_text(config.get("judgePrompt")) or SYSTEM
    return f"{system}\n\nCriteria: {as_text(config.get('criteria'))}\n\nCandidates:\n{listed}"


def read_verdict(answer: str, candidates: int) -> Verdict:
    """Return the verdict in the last line that is a JSON object; raise ValueError."""
    lines = [line.strip() for line in answer.splitlines()]
    objects = [line for line in lines if line.startswith("{") and line.endswith("}")]
    if not objects:
        raise ValueError(f"no JSON object in the answer {tail(answer, 120)!r}")
    try:
        verdict = msgspec.json.decode(objects[-1], type=Verdict)
    except msgspec.DecodeError as error:
        raise ValueError(f"the answer is not a verdict: {error}") from None
    if not 0 <= verdict.winner_index < candidates:
        raise ValueError(
            f"winner_index {verdict.winner_index} is not one of {candidates} candidates"
        )
    if len(verdict.scores) != candidates or not all(1 <= score <= 10 for score in verdict.scores):
        raise ValueError(f"scores {verdict.scores} are not {candidates} whole numbers from 1 to 10")
    return verdict
