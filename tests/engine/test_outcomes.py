"""Red is red: what a run says when a loop or a condition did not reach its goal."""

from __future__ import annotations

from typing import Any

import pytest

from infloop.engine.commands import Perform
from infloop.model.events import Notice, RunFinished
from support.playbook import Playbook
from support.workflows import agent, edges, node, workflow

START = node("s", "start")
END = node("e", "end", outcome="succeeded")
CHECK = node("c", "condition", kind="command", command={"cmd": "true"})
RED: tuple[str, dict[str, Any]] = ("not_met", {"met": False, "detail": "exit 1", "stdout": "2 bad"})
GREEN: tuple[str, dict[str, Any]] = ("met", {"met": True, "detail": "exit 0"})
SAID: tuple[str, dict[str, Any]] = ("next", {"stdout": "hello"})


def loop(*children: dict[str, Any], **config: Any) -> dict[str, Any]:
    return node("l", "loop", list(children), **config)


def rounds(*links: str, strict: bool = False, **config: Any) -> dict[str, Any]:
    body = loop(agent("a"), CHECK, maxIterations=2, **config)
    made = workflow([START, body, END, agent("late")], edges("s next l next e", "a next c", *links))
    return {**made, "strict": strict}


def warnings(play: Playbook) -> list[str]:
    return [event.message for event in play.events if isinstance(event, Notice)]


def test_a_loop_that_used_up_its_rounds_leaves_by_exhausted_if_that_is_connected() -> None:
    play = Playbook(rounds("l exhausted late"), answers={"a": SAID, "c": RED, "late": SAID})
    assert play.settle().result == RunFinished("succeeded")
    assert play.paths[-1] == "late"
    assert warnings(play) == []


def test_a_strict_run_fails_when_a_loop_used_up_its_rounds_and_names_the_last_failure() -> None:
    play = Playbook(rounds(strict=True), answers={"a": SAID, "c": RED}).settle()
    reason = "it used up its 2 rounds, and its condition was not met: 2 bad"
    assert play.result == RunFinished("failed", f"step 'l' failed: {reason}", "l")
    used_up = {"iterations": 2, "broke": False, "exhausted": True}
    assert play.scope["l"] == {**used_up, "errorMessage": reason}


def test_other_runs_go_on_as_the_original_does_and_say_what_happened() -> None:
    play = Playbook(rounds(), answers={"a": SAID, "c": RED}).settle()
    assert play.result == RunFinished("succeeded")
    assert play.scope["l"] == {"iterations": 2, "broke": False, "exhausted": True}
    assert warnings(play) == ["it used up its 2 rounds, and its condition was not met: 2 bad"]


def test_an_error_edge_catches_a_strict_loop_that_used_up_its_rounds() -> None:
    play = Playbook(
        rounds("l error late", strict=True), answers={"a": SAID, "c": RED, "late": SAID}
    ).settle()
    assert play.result == RunFinished("succeeded")
    assert play.paths[-1] == "late"


def test_a_loop_without_a_condition_only_counts() -> None:
    made = workflow([START, loop(agent("a"), maxIterations=2), END], edges("s next l next e"))
    play = Playbook({**made, "strict": True}, answers={"a": SAID}).settle()
    assert play.result == RunFinished("succeeded")
    assert play.scope["l"] == {"iterations": 2, "broke": False}


@pytest.mark.parametrize("strict", [True, False])
def test_a_condition_that_leads_nowhere_is_red_when_it_is_not_met(strict: bool) -> None:
    made = workflow([START, CHECK, END], edges("s next c met e"))
    play = Playbook({**made, "strict": strict}, answers={"c": RED}).settle()
    reason = "its condition was not met (2 bad), and nothing follows `not_met`"
    if strict:
        assert play.result == RunFinished("failed", f"step 'c' failed: {reason}", "c")
    else:
        assert play.result == RunFinished("succeeded")
        assert warnings(play) == [reason]


def test_a_condition_that_is_checked_first_saves_every_round() -> None:
    play = Playbook(rounds(checkFirst=True, strict=True), answers={"c": GREEN}).settle()
    assert play.result == RunFinished("succeeded")
    assert play.paths == ["s", "l", "l[0]/c", "e"]
    assert play.scope["l"] == {"iterations": 0, "broke": True}


def test_rounds_are_counted_after_the_first_check() -> None:
    answers = iter([RED, RED, RED])
    play = Playbook(
        rounds(checkFirst=True, strict=True, noProgressLimit=1),
        answers={"a": SAID, "c": lambda _: next(answers)},
    ).settle()
    assert play.paths == ["s", "l", "l[0]/c", "l[1]/a", "l[1]/c", "l[2]/a", "l[2]/c"]
    assert play.result.status == "failed"


def test_the_first_round_sees_what_the_first_check_said() -> None:
    prompt = "fix this: {{c.stdout}}"
    body = loop(agent("a", prompt=prompt), CHECK, maxIterations=1, checkFirst=True)
    answers = iter([RED, GREEN])
    prompts: list[Any] = []

    def answer(step: Perform) -> tuple[str, dict[str, Any]]:
        prompts.append(step.config["prompt"])
        return SAID

    Playbook(
        workflow([START, body, END], edges("s next l next e", "a next c")),
        answers={"a": answer, "c": lambda _: next(answers)},
    ).settle()
    assert prompts == ["fix this: 2 bad"]
