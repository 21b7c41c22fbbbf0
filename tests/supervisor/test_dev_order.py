"""The pure parts of the supervisor: order of steps, restarts, lines, the queue, tokens, state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infloop.errors import StepError, StoreError
from infloop.model.dev.config import DevConfig, Event, Process
from infloop.model.dev.reading import ConfigError
from infloop.runtime.clock import SetClock
from infloop.supervisor.events import EventGate
from infloop.supervisor.frames import Begin, Perform, moves
from infloop.supervisor.lifecycle import CRASH_LOOP, STABLE_MS, Ended, after_end
from infloop.supervisor.lines import LONGEST_LINE, LineSplitter
from infloop.supervisor.queue import MOST_WAITING, WorkflowQueue
from infloop.supervisor.session import Session
from infloop.watch.causes import Link, Started


def graph(**workflows: tuple[list[str], list[str]]) -> DevConfig:
    """Workflows by name: those that they run in place, then those that they trigger."""
    tables = {
        name: {
            "steps": [
                {"action": "log", "message": name},
                *({"action": "run_workflow", "workflow": each} for each in inline),
                {"action": "log", "message": f"{name}."},
            ],
            "triggers": triggers,
        }
        for name, (inline, triggers) in workflows.items()
    }
    return DevConfig.model_validate({"root": "/", "workflow": tables})


def order(config: DevConfig, root: str) -> str:
    said = []
    for move in moves(config, root):
        match move:
            case Begin():
                said.append(f"<{move.workflow}>")
            case Perform():
                said.append(move.step.message)  # type: ignore[union-attr]
    return " ".join(said)


def test_triggers_run_depth_first_and_once() -> None:
    config = graph(a=([], ["b", "c"]), b=([], ["d"]), c=([], ["d"]), d=([], []))
    assert order(config, "a") == "<a> a a. <b> b b. <d> d d. <c> c c."


def test_the_triggers_of_an_inline_child_run_before_the_parents_next_step() -> None:
    config = graph(a=(["b", "c"], []), b=([], ["r"]), c=([], ["r"]), r=([], []))
    assert order(config, "a") == "<a> a b b. <r> r r. c c. a."


def test_recursion_is_stopped_at_runtime_too() -> None:
    with pytest.raises(StepError, match="detected at runtime: a -> b -> a"):
        order(graph(a=(["b"], []), b=(["a"], [])), "a")


def test_restarts_back_off_and_are_a_crash_loop_and_end() -> None:
    process = Process(
        command=["x"], restart="on_failure", max_restarts=7, max_restart_delay_ms=4000
    )
    crash, delays, states, restarts = Ended(ok=False, ran_ms=10), [], [], 0
    while (following := after_end(process, restarts, crash)).delay_ms is not None:
        delays.append(following.delay_ms)
        states.append(following.state)
        restarts = following.restarts
    assert delays == [500, 1000, 2000, 4000, 4000, 4000, 4000]
    assert states == ["restarting"] * (CRASH_LOOP - 1) + ["crash-loop"] * 3
    assert following.state == "failed"
    assert after_end(process, 6, Ended(ok=False, ran_ms=STABLE_MS)).restarts == 1
    assert after_end(process, 0, Ended(ok=True, ran_ms=1)).state == "stopped"
    assert after_end(Process(command=["x"]), 0, crash).state == "failed"
    always = Process(command=["x"], restart="always")
    assert after_end(always, 0, Ended(ok=True, ran_ms=1)).delay_ms == 500


def test_lines_end_at_every_kind_of_line_end() -> None:
    splitter = LineSplitter()
    assert splitter.feed("a\nb\r\nc\rd") == ["a", "b", "c"]
    assert splitter.feed("\r") == ["d"]
    assert splitter.feed("\n\ne") == [""]
    assert splitter.finish() == "e"
    assert [len(line) for line in splitter.feed("x" * (LONGEST_LINE + 1))] == [LONGEST_LINE]


async def test_events_come_before_files_and_files_wait_together() -> None:
    queue = WorkflowQueue()
    queue.put_changed(Started("w", ("b",)))
    queue.put_changed(Started("w", ("a",), (Link("v", "a"),)))
    queue.put_event("e", "name")
    first, second = await queue.next(), await queue.next()
    assert (first.workflow, first.cause) == ("e", "event 'name'")
    assert (second.files, second.chain) == (("a", "b"), (Link("v", "a"),))
    assert second.cause == "a, b changed"
    for _ in range(MOST_WAITING):
        queue.put_event("e", "name")
    assert not queue.has_room()


def test_the_state_file_has_the_format_of_the_original(tmp_path: Path) -> None:
    file = tmp_path / "made/state.json"
    session = Session(str(file))
    assert session.update({"b": "é", "a": [1]})
    assert not session.update({"b": "é"})
    assert file.read_bytes() == '{\n  "a": [\n    1\n  ],\n  "b": "é"\n}'.encode()
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("{}")
    session.update({"c": "x"})
    assert json.loads(file.read_text()) == {"a": [1], "b": "é", "c": "x"}
    with file.open("rb") as reader:  # whoever reads it has the old state or the new one
        session.update({"c": "y"})
        assert json.loads(reader.read())["c"] == "x"
    with pytest.raises(StoreError, match="reserved"):
        session.update({"root": "/"})
    for broken in ("[]", "{", "[" * 100_000):
        file.write_text(broken)
        with pytest.raises(ConfigError, match="failed to parse state"):
            Session(str(file))


def a_gate(tmp_path: Path, *, room: bool = True) -> tuple[EventGate, Session, list[str]]:
    session, queued = Session(str(tmp_path / "state/state.json")), list[str]()
    events = {
        "path": Event(state_key="p", workflow="w", pattern="^/[a-z]+$"),
        "free": Event(state_key="f", workflow="v"),
    }

    def enqueue(workflow: str, event: str) -> None:
        queued.append(f"{event}: {workflow}")

    return EventGate(events, session, lambda: room, enqueue, SetClock(), 2), session, queued


@pytest.mark.claim("D5", "D7")
def test_a_value_and_its_workflow_are_one_operation(tmp_path: Path) -> None:
    gate, session, queued = a_gate(tmp_path)
    assert gate.receive("path", "/a") == "accepted"
    assert gate.receive("path", "/a") == "unchanged"
    for wrong in ("/a\n", "x/a", "", "/A", "\ud800"):
        assert gate.receive("path", wrong) == "mismatch"
    assert (session.values, queued) == ({"p": "/a"}, ["path: w"])
    (tmp_path / "state").chmod(0o700)
    (tmp_path / "state/state.json").unlink()
    (tmp_path / "state").rmdir()
    (tmp_path / "state").write_text("in the way")
    assert gate.receive("free", "x") == "not-stored"
    full, kept, none = a_gate(tmp_path / "other", room=False)
    assert full.receive("free", "x") == "queue-full"
    assert (session.values, queued, kept.values, none) == ({"p": "/a"}, ["path: w"], {}, [])
    assert [gate.wait_s("path") for _ in range(3)][:2] == [0, 0]
    assert gate.wait_s("path") > 0


@pytest.mark.claim("D13", "D20", "D27")
def test_a_token_is_random_and_allows_what_it_was_made_for(tmp_path: Path) -> None:
    gate, _, _ = a_gate(tmp_path)
    everything = gate.variables("http://x", None)
    limited = gate.variables("http://x", ["path"])
    assert gate.variables("http://x", []) == {}
    assert sorted(limited) == [
        "DEVLOOP_EVENTS_BASE_URL",
        "DEVLOOP_EVENTS_TOKEN",
        "DEVLOOP_EVENT_PATH_URL",
    ]
    for variables, names in ((everything, {"path", "free"}), (limited, {"path"})):
        scope = gate.scope(variables["DEVLOOP_EVENTS_TOKEN"])
        assert scope is not None
        assert scope.events == names
        assert scope.limited is (names == {"path"})
    assert gate.scope("") is gate.scope("x") is None
    tokens = {a_gate(tmp_path)[0].variables("", None)["DEVLOOP_EVENTS_TOKEN"] for _ in range(20)}
    assert len(tokens) == 20
    assert all(len(token) >= 128 / 6 for token in tokens)
