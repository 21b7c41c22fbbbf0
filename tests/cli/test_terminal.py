"""Nothing that comes from a file, a child or a model can steer the terminal."""

from __future__ import annotations

from typing import Any

import pytest

from infloop.application.models import to_json
from infloop.application.runs.cost import Tokens
from infloop.application.runs.explain import explanation
from infloop.application.runs.models import RunSummary
from infloop.application.runs.view import RunView
from infloop.cli.view.advice import advice_lines
from infloop.cli.view.explain import explanation_lines
from infloop.cli.view.figures import duration, moment, money
from infloop.cli.view.outline import outline
from infloop.cli.view.plain import Lines
from infloop.cli.view.terminal import (
    MAX_MARKS,
    complain,
    indented,
    json_line,
    one_line,
    problem_lines,
    safe,
)
from infloop.errors import Problem, UsageError, WorkflowError
from infloop.model.events import (
    Cause,
    Event,
    Output,
    Recorded,
    RunStarted,
    StepFinished,
    StepStarted,
)
from infloop.store.interfaces.liveness import InstanceRow
from support.hostile_text import HOSTILE, unsafe


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_is_shown_and_never_obeyed(text: str) -> None:
    assert unsafe(text), "the example must hold something to defuse"
    for shown in (safe(text), one_line(text), indented(text), one_line(text, 12)):
        assert not unsafe(shown)
    assert "\\" in safe(text)
    assert json_line(text).isascii()


@pytest.mark.parametrize(
    "text",
    ["plain", "a\tb\nc", "Grüße, 世界", "na\u00efve caf\u0065\u0301", "🙂", "full\u3000width"],
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert safe(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "\u0e01\u0e33\u0e25\u0e31\u0e07\u0e17\u0e33\u0e07\u0e32\u0e19",  # Thai
        "\u0915\u094d\u0937\u093f \u0928\u0940",  # Devanagari
        "\u0f66\u0f92\u0fb2\u0f74\u0f56",  # Tibetan
        "\u05e9\u05c1\u05b8\u05bc\u05dc",  # Hebrew with points
        "\u2764\ufe0f 1\ufe0f\u20e3 \u845b\U000e0100",  # variation selectors
    ],
)
def test_marks_that_languages_write_stay_as_they_are(text: str) -> None:
    assert safe(text) == text


@pytest.mark.parametrize("base", ["a", "\u0e01", "\U0001f642", "", " ", "\n", "\t", "\x1b"])
@pytest.mark.parametrize("mark", ["\u0301", "\u0489", "\u0e31", "\ufe0f", "\U000e0100", "\u034f"])
def test_a_flood_of_marks_is_shown_as_escapes(base: str, mark: str) -> None:
    shown = safe(base + mark * 10_000)
    assert shown.count(mark) <= MAX_MARKS
    assert shown.count("\\") >= 10_000 - MAX_MARKS
    mixed = safe("a" + "\u0301\ufe0f\u0489" * 1000)
    assert len([char for char in mixed if char > "\x7f"]) <= MAX_MARKS + 1


@pytest.mark.parametrize(
    "char", ["\u115f", "\u1160", "\u3164", "\uffa0", "\u200b", "\u2066", "\u180e"]
)
def test_a_character_that_nobody_sees_is_shown_as_an_escape(char: str) -> None:
    assert char not in safe(f"a{char * 100}b")


def test_windows_line_ends_are_line_ends() -> None:
    assert safe("one\r\ntwo\r") == "one\ntwo\\r"


def test_one_line_is_one_line_however_the_text_tries() -> None:
    assert one_line("ok\nstatus   succeeded\ttrue") == "ok\\nstatus   succeeded true"
    assert one_line("x" * 100, 10) == "x" * 9 + "…"
    assert len(one_line("\x1b" * 100, 10)) == 10


def test_complaints_name_every_problem_with_its_place_and_hint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    problems = [
        Problem("nodes[0] 'a'", "unknown type 'agnt'", "did you mean 'agent'?"),
        Problem("edges[2]", "leads to \x1b[31mnowhere\n", severity="warning"),
    ]
    complain(WorkflowError("'f.json' has 1 error", problems))
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "infloop: 'f.json' has 1 error",
        "  nodes[0] 'a': unknown type 'agnt' (did you mean 'agent'?)",
        "  warning: edges[2]: leads to \\x1b[31mnowhere\\n",
    ]
    complain(UsageError("there is no run '\x1b]52;c;x\x07'"))
    assert not unsafe(capsys.readouterr().err)


def test_problems_are_one_line_each() -> None:
    assert problem_lines([Problem("a", "b\nc")]) == ["a: b\\nc"]


def recorded(*events: Event | Output) -> list[Recorded]:
    return [Recorded("r", number, number * 1000, "c", e) for number, e in enumerate(events, 1)]


def test_names_errors_and_outputs_of_a_run_are_defused_in_lines_and_outlines() -> None:
    evil = "\x1b]52;c;eA==\x07\r\u202e"
    events = recorded(
        RunStarted("w", evil, "hash", {evil: evil}, evil),
        StepStarted(evil, evil, "agent", {"providerId": evil}),
        Output(evil, evil, f"{evil}\n{evil}", "stderr"),
        StepFinished(evil, evil, "agent", evil, {evil: evil, "detail": evil}, 5, evil),
    )
    lines = Lines()
    text = [line for item in events for line in lines.of(item)]
    view = RunView()
    view.apply_all(events)
    text += outline(view, outputs=True)
    assert len(text) >= 7
    assert not unsafe("\n".join(text))


def test_a_stalled_run_is_explained_and_not_called_running() -> None:
    view = RunView()
    view.apply_all(
        recorded(
            RunStarted("w", "W", "hash", {}, "/work"),
            StepStarted("l", "l", "loop", {"maxIterations": 5}),
            StepStarted("l[2]/a", "a", "agent", {"providerId": "bot"}, 2),
        )
    )
    run = RunSummary(
        run_id="1f3a9c2e-0000",
        workflow_id="w",
        workflow_name="W",
        status="stalled",
        started_at=1000,
        finished_at=None,
        duration_ms=None,
        steps=0,
        event_count=3,
        failed_step="",
        error="",
        cause=Cause(),
        correlation_id="cid",
        epoch=1,
        last_seq=3,
        cost_usd=None,
        cost_is_complete=True,
        tokens=Tokens(input=0, output=0, cached=0),
    )
    process = InstanceRow("i-1", 4711, "1", "boot", "host", 1000, 9000)
    known = explanation(
        run, view, at=60_000, owner="i-1", process=process, last_output="thinking\n"
    )
    advice = advice_lines(run.run_id, "stalled", known.next)
    text = "\n".join([*explanation_lines(known), *advice])
    assert "its process (pid 4711 on host) exists and does not respond" in text
    assert "it was at l[2]/a (agent), with the provider bot" in text
    assert "| thinking" in text
    assert "infloop resume 1f3a9c2e --take-over" in text
    assert "running" not in text
    plain: Any = to_json(known)
    assert plain["next"] == [{"action": "cancel", "step": ""}, {"action": "take-over", "step": ""}]
    assert plain["positions"][0]["loops"] == [{"path": "l", "round": 2, "maxRounds": 5}]


def test_a_line_of_output_is_shown_when_it_ends_or_its_step_does() -> None:
    lines = Lines()
    said = [
        line
        for item in recorded(
            RunStarted("w", "W", "hash", {}, "/"),
            Output("a", "a", "one\ntw"),
            Output("a", "a", "o\nthr"),
            Output("b", "b", "other\n"),
            StepFinished("a", "a", "script", "next", {}),
        )
        for line in lines.of(item)
    ]
    assert [line.strip().split("  ", 1)[1] for line in said[1:]] == [
        "a | one",
        "a | two",
        "b | other",
        "a | thr",
        "a  next  0.0s",
    ]


def test_what_is_being_said_when_a_tool_is_used_is_shown_before_the_tool() -> None:
    lines = Lines()
    said = [
        line
        for item in recorded(
            RunStarted("w", "W", "hash", {}, "/"),
            Output("a", "a", "I will wri"),
            Output("b", "b", "meanwhile"),
            Output("a", "a", "[tool: ed", "tool"),
            Output("a", "a", "it] x\n", "tool"),
            Output("a", "a", "written\n"),
            Output("b", "b", " elsewhere\n"),
        )
        for line in lines.of(item)
    ]
    assert [line.strip().split("  ", 1)[1] for line in said[1:]] == [
        "a | I will wri",
        "a > [tool: edit] x",
        "a | written",
        "b | meanwhile elsewhere",
    ]


def test_a_view_of_many_rounds_keeps_the_first_and_the_last() -> None:
    view = RunView()
    view.apply_all(recorded(StepStarted("l", "l", "loop", {"maxIterations": 1000})))
    for number in range(1, 1001):
        path = f"l[{number}]/s"
        view.apply_all(recorded(StepStarted(path, "s", "script", {})))
        view.apply_all(recorded(StepFinished(path, "s", "script", "next", {"stdout": "x" * 9000})))
    loop = next(view.steps())
    kept = [step.path for step in view.steps()]
    assert kept == ["l", *(f"l[{n}]/s" for n in (1, 2, 3, 998, 999, 1000))]
    assert (loop.rounds, loop.frames.omitted, view.steps_done) == (1000, 994, 1000)
    assert "    … 994 more rounds" in outline(view)
    assert view.positions() == [loop]


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0.0s"), (59_940, "59.9s"), (65_000, "1m 05s"), (7_620_000, "2h 07m"), (1e9, "11d 13h")],
)
def test_durations_read_as_people_say_them(ms: float, text: str) -> None:
    assert duration(ms) == text


@pytest.mark.parametrize(
    ("usd", "text"), [(0, "$0.00"), (0.0133, "$0.0133"), (0.05, "$0.05"), (12.5, "$12.50")]
)
def test_money_keeps_parts_of_a_cent(usd: float, text: str) -> None:
    assert money(usd) == text


def test_a_time_out_of_range_is_still_shown() -> None:
    assert moment(10**30) == f"{10**30} ms"
