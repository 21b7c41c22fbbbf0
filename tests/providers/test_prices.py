"""Tokens become money by a price list, or their cost stays unknown."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest

from infloop.cli import run as infloop
from infloop.providers.base import AnswerPart, Cost, Done, Request, Text, Usage
from infloop.providers.prices import PricedProvider, PriceList
from support.runs import world

OPENAI = PriceList("openai")

# name -> list, usage, models, US dollars
PRICES: dict[str, tuple[PriceList, Usage, Sequence[str], float | None]] = {
    "by name": (OPENAI, Usage(1_000_000), ["gpt-5"], 1.25),
    "by address": (
        PriceList(address="https://api.openai.com/v1"),
        Usage(0, 1_000_000),
        ["gpt-5"],
        10.0,
    ),
    "what was cached is cheaper": (OPENAI, Usage(1_000_000, 0, 1_000_000), ["gpt-5"], 0.125),
    "what went into a cache is dearer": (
        PriceList("anthropic"),
        Usage(1_000_000, 0, 0, 1_000_000),
        ["claude-opus-4-5"],
        6.25,
    ),
    "the first name that is known": (OPENAI, Usage(1_000_000), ["", "my-alias", "gpt-5"], 1.25),
    "a dated name": (OPENAI, Usage(1_000_000), ["gpt-5-2025-08-07"], 1.25),
    "a long question": (OPENAI, Usage(1_000_000), ["gpt-5.4"], 5.0),
    "many short questions": (PriceList("openai", summed=True), Usage(1_000_000), ["gpt-5.4"], 2.5),
    "a cache larger than all": (OPENAI, Usage(10, 0, 30, 30), ["gpt-5"], 10 * 0.125 / 1e6),
    "no tokens": (OPENAI, Usage(), ["gpt-5"], 0.0),
    "an unknown model": (OPENAI, Usage(1_000_000), ["frog-1"], None),
    "no name": (OPENAI, Usage(1_000_000), ["", ""], None),
    "somebody else's model": (PriceList("anthropic"), Usage(1_000_000), ["gpt-5"], None),
    "an unknown list": (PriceList("frogs"), Usage(1_000_000), ["gpt-5"], None),
    "this machine": (PriceList(address="http://127.0.0.1:8080/v1"), Usage(9), ["gpt-5"], None),
    "no list": (PriceList(), Usage(1_000_000), ["gpt-5"], None),
}


@pytest.mark.parametrize("case", PRICES)
def test_tokens_cost_what_the_list_says_or_nobody_knows(case: str) -> None:
    price_list, usage, models, usd = PRICES[case]
    assert price_list.price_usd(usage, models) == (None if usd is None else pytest.approx(usd))


class Told:
    """A provider that yields what it is given."""

    id = "told"

    def __init__(self, *parts: AnswerPart) -> None:
        self._parts = parts

    async def ask(self, request: Request) -> AsyncIterator[AnswerPart]:
        for part in self._parts:
            yield part


async def parts_of(request: Request, *told: AnswerPart) -> list[AnswerPart]:
    parts = cast("AsyncGenerator[AnswerPart]", PricedProvider(Told(*told), OPENAI).ask(request))
    async with asyncio.timeout(30), aclosing(parts):
        return [part async for part in parts]


async def test_money_follows_the_tokens_it_is_for_and_adds_up_to_the_whole() -> None:
    first, then = Usage(200_000, 0, 0, 0, "gpt-5.4"), Usage(100_000, 10, 0, 0, "gpt-5.4")
    parts = await parts_of(Request("x", "/"), first, Text("hm"), then, Done())
    assert [type(part) for part in parts] == [Usage, Cost, Text, Usage, Cost, Done]
    spent = sum(part.usd or 0 for part in parts if isinstance(part, Cost))
    assert spent == pytest.approx((300_000 * 5 + 10 * 22.5) / 1e6)


async def test_the_model_that_was_asked_for_counts_where_the_answer_names_none() -> None:
    used = Usage(1_000_000)
    assert Cost(1.25) in await parts_of(Request("x", "/", model="gpt-5"), used, Done())
    assert Cost(1.25) in await parts_of(Request("x", "/", profile="gpt-5"), used, Done())
    assert await parts_of(Request("x", "/"), used, Done()) == [used, Done()]


def test_the_price_lists_are_not_loaded_before_a_price_is_asked_for(tmp_path: Path) -> None:
    program = (
        "import sys, infloop.providers.http.agent, infloop.providers.prices, infloop.app;"
        "sys.exit('genai_prices' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, timeout=60, check=True)


# -- on the books ----------------------------------------------------------------------------------

CODEX = """\
#!/bin/sh
cat > /dev/null
round=$(cat rounds 2>/dev/null || echo 0); round=$((round + 1)); echo $round > rounds
echo '{"type":"thread.started","thread_id":"the-thread"}'
echo '{"type":"item.completed","item":{"id":"i","type":"agent_message","text":"round '$round'"}}'
echo '{"type":"turn.completed","usage":{"input_tokens":'$((round * 1000))',\
"cached_input_tokens":'$((round * 100))',"output_tokens":'$((round * 10))'}}'
"""


def codex(folder: Path) -> None:
    """An agent that reports the total of its session, as codex does."""
    folder.mkdir(parents=True)
    program = folder / "codex.sh"
    program.write_text(CODEX)
    program.chmod(0o755)
    manifest = {
        "id": "coder",
        "label": "Coder",
        "description": "counts its whole session",
        "bin": str(program),
        "args": ["--model", "{model}"],
        "resumeArgs": ["resume", "{session}"],
        "promptVia": "stdin",
        "outputFormat": "codex-json",
    }
    (folder / "coder.json").write_text(json.dumps(manifest))


def rounds(**config: Any) -> dict[str, Any]:
    agent = {"providerId": "coder", "prompt": "go on", **config}
    loop = {
        "id": "loop",
        "type": "loop",
        "config": {"maxIterations": 3},
        "children": [{"id": "a", "type": "agent", "config": agent}],
    }
    return {
        "id": "rounds",
        "name": "Rounds",
        "nodes": [{"id": "start", "type": "start"}, loop],
        "edges": [{"source": "start", "sourceHandle": "next", "target": "loop"}],
    }


async def test_a_session_that_is_continued_is_counted_once(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        codex(here.settings.providers)
        run = await here.run(rounds(continueSession=True))
        spent = await here.settled(3)
    assert run.status == "succeeded"
    assert run.scope["a"]["stdout"] == "round 3"
    assert run.scope["a"]["tokens"] == {"input": 1000, "output": 10, "cached": 100}
    assert run.scope["a"]["sessionTokens"] == {
        "input": 3000,
        "output": 30,
        "cached": 300,
        "cacheWrite": 0,
    }
    assert (spent.calls, spent.input_tokens, spent.output_tokens) == (3, 3000, 30)


async def test_a_new_session_in_each_round_is_counted_as_a_whole(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        codex(here.settings.providers)
        await here.run(rounds())
        spent = await here.settled(3)
    assert spent.input_tokens == 1000 + 2000 + 3000


async def test_an_agent_that_tells_tokens_alone_is_priced_by_the_model_it_was_given(
    tmp_path: Path,
) -> None:
    judge = {"rubric": "anything", "providerId": "coder", "model": "gpt-5"}
    check = {"id": "c", "type": "condition", "config": {"kind": "judge", "judge": judge}}
    flow = {
        "id": "judged",
        "name": "Judged",
        "nodes": [{"id": "start", "type": "start"}, check],
        "edges": [{"source": "start", "sourceHandle": "next", "target": "c"}],
    }
    async with world(tmp_path) as here:
        codex(here.settings.providers)
        run = await here.run(flow)
        spent = await here.settled(2)
    first, again = (900 * 1.25 + 100 * 0.125 + 10 * 10), (1800 * 1.25 + 200 * 0.125 + 20 * 10)
    assert run.scope["c"]["costUsd"] == pytest.approx((first + again) / 1e6)
    assert spent.incomplete == 0


def test_a_cost_that_nobody_knows_is_shown_as_unknown_and_never_as_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INFLOOP_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("INFLOOP_ISOLATION", "host")  # its program is in the data directory
    monkeypatch.chdir(tmp_path)
    codex(tmp_path / "data/providers")
    (tmp_path / "rounds.workflow.json").write_text(json.dumps(rounds()))
    assert infloop(["run", "rounds.workflow.json"]) == 0
    assert "5 steps, cost unknown" in capsys.readouterr().out
    assert infloop(["costs", "--by", "provider"]) == 0
    table = capsys.readouterr().out
    assert "coder          3    6.0k      60  unknown +" in table
    assert "3 calls did not report their cost" in table
    assert "$0.00" not in table
    assert infloop(["show", "last"]) == 0
    assert "cost         unknown" in capsys.readouterr().out
    assert infloop(["show", "last", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["costUsd"], shown["costIsComplete"]) == (None, False)
