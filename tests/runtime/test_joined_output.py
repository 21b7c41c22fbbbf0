"""Short texts that a step prints one after the other become few pieces of output."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path

from infloop.model.events import Notice, Output
from infloop.runtime.runs.joined_output import JoinedOutput
from infloop.runtime.runs.redaction import PIECE
from support.eventually import eventually_async
from support.runs import Finished, scripted, world
from support.workflows import agent, edges, node, workflow

AGENT = workflow([node("s", "start"), agent("a")], edges("s next a"))


def streams(run: Finished) -> list[tuple[str, str]]:
    """What was printed, in order, by stream."""
    printed = [r.event for r in run.recorded if isinstance(r.event, Output)]
    return [
        (stream, "".join(each.text for each in group))
        for stream, group in groupby(printed, lambda each: each.stream)
    ]


async def test_short_texts_are_few_pieces_of_output_in_their_order(tmp_path: Path) -> None:
    talk = {"text": "ab ", "times": 2_000}
    turn = {"do": [talk, {"stderr": "oh\n"}, talk, {"shell": "echo"}, talk]}
    scripted(tmp_path / "data/providers", "fake", turn)
    async with world(tmp_path) as here:
        run = await here.run(AGENT)
    kinds, texts = zip(*streams(run), strict=True)
    assert kinds == ("stdout", "stderr", "stdout", "tool", "stdout")
    assert [texts[0], texts[2], texts[4]] == ["ab " * 2_000] * 3
    assert run.scope["a"]["stdout"] == "ab " * 6_000
    assert sum(isinstance(r.event, Output) for r in run.recorded) < 300


async def test_a_warning_comes_after_the_text_before_it(tmp_path: Path) -> None:
    def delta(text: str) -> dict[str, object]:
        event = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}
        return {"type": "stream_event", "event": event}

    tool = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "rm x"}}
    denial = {"tool_name": "Bash", "tool_input": {"command": "rm x"}}
    result = {"type": "result", "subtype": "success", "is_error": False, "result": "ok"}
    lines = [
        delta("one "),
        {"type": "assistant", "message": {"id": "m", "content": [tool]}},
        delta("two "),
        {**result, "permission_denials": [denial]},
    ]
    (tmp_path / "printed").write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    manifest = {
        "id": "fake",
        "label": "Fake",
        "description": "prints what a file holds, all at once",
        "bin": "/bin/cat",
        "args": [str(tmp_path / "printed")],
        "promptVia": "stdin",
        "outputFormat": "claude-stream-json",
    }
    folder = tmp_path / "data/providers"
    folder.mkdir(parents=True)
    (folder / "fake.json").write_text(json.dumps(manifest))
    async with world(tmp_path) as here:
        run = await here.run(AGENT)
    order = [
        r.event.text if isinstance(r.event, Output) else r.event.topic
        for r in run.recorded
        if isinstance(r.event, Output | Notice)
    ]
    assert order == ["one ", "[tool: Bash] rm x\n", "two ", "permissions"]


async def test_the_first_text_is_passed_on_at_once_and_those_that_follow_together() -> None:
    passed: list[str] = []
    output = JoinedOutput(lambda text, _stream, _tool=None: passed.append(text), 3_600)
    for text in ("one ", "two ", "three "):
        output.write(text, "stdout")
    assert passed == ["one "]
    output.flush()
    assert passed == ["one ", "two three "]


async def test_no_text_waits_for_the_next_one() -> None:
    passed: list[str] = []
    output = JoinedOutput(lambda text, _stream, _tool=None: passed.append(text))
    output.write("one ", "stdout")
    output.write("two ", "stdout")
    await eventually_async(lambda: "".join(passed) == "one two ")


async def test_texts_are_joined_up_to_what_is_redacted_at_a_time() -> None:
    passed: list[str] = []
    output = JoinedOutput(lambda text, _stream, _tool=None: passed.append(text), 3_600)
    texts = ["first", "x" * 3_000, "y" * 3_000, "z", "w" * (3 * PIECE), "v", "v"]
    for text in texts:
        output.write(text, "stdout")
    output.flush()
    assert "".join(passed) == "".join(texts)
    assert [len(each) for each in passed] == [5, 3_000, 3_001, 3 * PIECE, 2]
