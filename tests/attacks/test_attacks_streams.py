"""What a program prints that calls itself an agent, row by row of a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from infloop.cli.view.terminal import one_line
from infloop.model.events import StepFinished
from infloop.providers.base import AnswerPart, Cost, Done, Session, Text, Tool
from infloop.sandbox.levels.host import HostSandbox
from support.attack_tables import Attack, AttackTable
from support.cli_agents import Bench
from support.processes import peak_kib
from support.runs import world
from support.workflows import edges, node, workflow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TABLE = AttackTable("streams")
FRAMES: dict[str, dict[str, Any]] = {
    "claude-stream-json": {
        "init": {"type": "system", "subtype": "init", "session_id": "s-1"},
        "result": {
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "result": "ok",
            "total_cost_usd": 0.5,
        },
    },
    "codex-json": {
        "init": {"type": "thread.started", "thread_id": "s-1"},
        "result": {"type": "turn.completed", "usage": {"input_tokens": 1, "output_tokens": 1}},
    },
}


def test_every_row_is_tried() -> None:
    TABLE.check()


@pytest.fixture
async def sandbox() -> AsyncIterator[HostSandbox]:
    made = HostSandbox()
    yield made
    await made.close()


def frame(format: str, word: str) -> str:
    """A frame as the program should print it."""
    if not word.startswith("say "):
        return json.dumps(FRAMES[format][word]) + "\n"
    text = word.removeprefix("say ")
    if format == "codex-json":
        item = {"type": "item.completed", "item": {"type": "agent_message", "text": text}}
        return json.dumps(item) + "\n"
    event = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}
    return json.dumps({"type": "stream_event", "event": event}) + "\n"


def printed(attack: Attack) -> bytes:
    """Everything that a row's program prints."""
    said = b"".join(bytes.fromhex(each) for each in attack.get("hex", ()))
    for piece in attack["prints"]:
        if piece.startswith("{") and piece[1:].partition(" ")[0].rstrip("}") in WORDS:
            said += frame(attack["format"], piece[1:-1]).encode()
        else:
            said += piece.replace("{x1000000}", "x" * 1_000_000).encode()
    return said


WORDS = ("init", "say", "result")


@pytest.mark.parametrize("attack", TABLE.at("prints"))
async def test_what_is_printed_is_understood_or_left(
    tmp_path: Path, sandbox: HostSandbox, attack: Attack
) -> None:
    (tmp_path / "printed").write_bytes(printed(attack))
    line = f"cat printed; exit {attack.get('code', 0)}"
    parts = await Bench(tmp_path, sandbox, line, outputFormat=attack["format"]).parts()
    ending = parts[-1]
    assert isinstance(ending, Done)
    assert bool(ending.error or ending.exit_code) is attack["fails"], ending
    if "said" in attack:
        assert said(parts) == attack["said"]
    if "cost" in attack:
        assert [part.usd for part in parts if isinstance(part, Cost)] == [attack["cost"]]
    if "sessions" in attack:
        sessions = [part.id for part in parts if isinstance(part, Session)]
        assert sessions == attack["sessions"]
    shown = [one_line(part.line) for part in parts if isinstance(part, Tool)]
    assert bool(shown) is ("hidden" in attack)
    for each in attack.get("hidden", ()):
        assert not any(each in line for line in shown)
    assert said(parts).encode()


def said(parts: list[AnswerPart]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Text))


@pytest.mark.parametrize("attack", TABLE.at("long"))
async def test_a_line_without_end_is_left_out(
    tmp_path: Path, sandbox: HostSandbox, attack: Attack
) -> None:
    words = ("init", f"say {attack['said']}", "result")
    (tmp_path / "answer").write_text("".join(frame(attack["format"], word) for word in words))
    before = peak_kib()
    line = f'printf \'{{"type":"\'; head -c {attack["bytes"]} /dev/zero; echo; cat answer'
    parts = await Bench(tmp_path, sandbox, line, outputFormat=attack["format"]).parts()
    assert said(parts) == attack["said"]
    assert peak_kib() - before < 128 * 1024


@pytest.mark.parametrize("attack", TABLE.at("endless"))
async def test_an_answer_without_end_is_ended(
    tmp_path: Path, sandbox: HostSandbox, attack: Attack
) -> None:
    line = f"while :; do echo '{attack['prints']}'; sleep 0.05; done"
    if attack["idle"]:
        bench = Bench(tmp_path, sandbox, line, outputFormat=attack["format"])
        ending = await bench.done(idle_timeout_ms=attack["idle"])
        assert attack["says"] in ending.error
        return
    program = Bench(tmp_path, sandbox, line, outputFormat=attack["format"]).program
    providers = tmp_path / "data/providers"
    providers.mkdir(parents=True)
    manifest = {"id": "p", "label": "P", "description": "d", "bin": program, "promptVia": "stdin"}
    (providers / "p.json").write_text(json.dumps({**manifest, "outputFormat": attack["format"]}))
    asks = node("a", "agent", providerId="p", prompt="x", timeoutMs=attack["wall"])
    async with world(tmp_path) as app:
        done = await app.run(workflow([node("s", "start"), asks], edges("s next a")))
    (ended,) = [e for e in done.events if isinstance(e, StepFinished) and e.node == "a"]
    assert done.status == "failed"
    assert attack["says"] in ended.error
