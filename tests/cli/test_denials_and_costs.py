"""What an agent was denied, and what a run cost: every surface says the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from support.paths import TRANSCRIPTS
from support.user_machine import Machine, command, machine
from support.workflows import node

if TYPE_CHECKING:
    from pathlib import Path


def recorded_agent(here: Machine, name: str, scene: str, output_format: str) -> None:
    """Put an agent into the providers folder that prints what a real one printed."""
    program = here.folder / f"{name}-program"
    errors = TRANSCRIPTS / f"{scene}.stderr"
    say = f"cat {errors} >&2; " if errors.exists() else ""
    program.write_text(f"#!/bin/sh\ncat > /dev/null; {say}cat {TRANSCRIPTS / f'{scene}.jsonl'}\n")
    program.chmod(0o755)
    folder = here.data / "providers"
    folder.mkdir(parents=True, exist_ok=True)
    manifest: dict[str, Any] = {
        "id": name,
        "label": name,
        "description": "recorded",
        "bin": str(program),
    }
    manifest |= {"promptVia": "stdin", "outputFormat": output_format, "args": []}
    (folder / f"{name}.json").write_text(json.dumps(manifest))


def looping(here: Machine, provider: str, **config: Any) -> str:
    work = node("work", "agent", providerId=provider, prompt="go")
    loop = node("l", "loop", [work, command("check", "echo red; false")], **config)
    return here.file("w", [loop], "start next l", "work next check")


@pytest.mark.parametrize(
    ("provider", "output_format", "what"),
    [
        ("claude", "claude-stream-json", "Write /workspace/hello.txt"),
        ("codex", "codex-json", "reject"),
    ],
)
def test_what_an_agent_was_denied_is_the_first_reason(
    tmp_path: Path, provider: str, output_format: str, what: str
) -> None:
    here = machine(tmp_path)
    recorded_agent(here, provider, f"{provider}.denied", output_format)
    file = looping(here, provider, maxIterations=5, noProgressLimit=2)
    done = here.infloop("run", file, code=1)
    found = [m for m in here.messages() if m["type"] == "notice"]
    assert {m["topic"] for m in found} == {"permissions"}
    assert len(found) == 2, "one for each round"
    denied = found[0]["message"]
    assert denied.startswith("[permissions] denied: ")
    assert what in denied
    assert "`skipPermissions` of the node" in denied
    ended = here.messages()[-1]["errorMessage"]
    assert f"no progress: 2 rounds in a row ended with the same files; {denied}" in ended
    assert ended.endswith("it still ends with: red")
    first = here.infloop("why", "last").stdout.splitlines()[1]
    assert first.strip() == denied, "the first reason"
    assert denied in done.stdout


def test_without_a_price_tokens_are_shown_and_all_surfaces_agree(tmp_path: Path) -> None:
    here = machine(tmp_path)
    recorded_agent(here, "codex", "codex.text", "codex-json")
    recorded_agent(here, "claude", "claude.text", "claude-stream-json")
    priced, unpriced = (
        here.file(f"by-{name}", [node("a", "agent", providerId=name, prompt="go")], "start next a")
        for name in ("claude", "codex")
    )
    for file in (priced, unpriced):
        ended = here.infloop("run", file).stdout.splitlines()
        run = here.run_ids()[0]
        rows = json.loads(here.infloop("costs", "--by", "run", "--json").stdout)["rows"]
        (row,) = [each for each in rows if each["key"] == run]
        report = json.loads(here.infloop("show", run, "--json").stdout)
        assert report["costUsd"] == (row["costUsd"] or None)
        assert report["costIsComplete"] is row["complete"]
        assert report["tokens"] == row["tokens"]
        listed = json.loads(here.infloop("runs", "--json").stdout.splitlines()[0])
        for name in ("costUsd", "costIsComplete", "tokens"):
            assert listed[name] == report[name]
        (said,) = [line for line in ended if "steps, cost " in line]
        (shown,) = [
            line for line in here.infloop("show", run).stdout.splitlines() if "cost" in line[:8]
        ]
        text = said.partition("cost ")[2]
        assert shown.endswith(text)
        assert f"cost {text}" in here.infloop("why", run).stdout
        line = here.infloop("runs").stdout.splitlines()[1]
        used = sum(row["tokens"][kind] for kind in ("input", "output"))
        assert (f" {text}  " if row["complete"] else f" {used} tok  ") in line
        if row["complete"]:
            assert text.startswith("$0.")
            assert text != "$0.00"
        else:
            read, written = row["tokens"]["input"], row["tokens"]["output"]
            assert text == f"unknown ({read} tokens in, {written} out)"
            assert "$" not in "".join(ended)
