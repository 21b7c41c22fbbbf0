"""What agents spend through the broker, by real children: reported, hidden, cut off, stopped."""

from __future__ import annotations

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from infloop.model.events import BudgetExceeded, StepFinished
from support.brokered_agent import asking, install_agent, statuses
from support.eventually import eventually_async
from support.runs import Finished, World, world
from support.workflows import edges, node, workflow

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from infloop.store.interfaces.ledger import Spending

MODEL = "claude-opus-4-8"
READ = WRITTEN = 1_000
CALL_USD = 0.03
"""What a call of so many tokens costs by the list."""


def answers(path: str, model: str, *, whole: bool) -> bytes:
    """Return what an API answers to a call, in one piece or as a stream."""
    used = {"input_tokens": READ, "output_tokens": WRITTEN}
    events: list[object]
    if path.endswith("/messages"):
        message = {"model": model, "usage": used}
        start = {"model": model, "usage": {**used, "output_tokens": 1}}
        later = {"type": "message_delta", "usage": {"output_tokens": WRITTEN}}
        events = [{"type": "message_start", "message": start}, later, {"type": "message_stop"}]
    elif path.endswith("/responses"):
        message = {"model": model, "usage": used}
        events = [{"type": "response.completed", "response": message}]
    else:
        counted = {"prompt_tokens": READ, "completion_tokens": WRITTEN}
        message = {"model": model, "usage": counted, "choices": []}
        events = [message]
    if whole:
        return json.dumps(message).encode()
    stream = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    return f"{stream}data: [DONE]\n\n".encode()


@contextmanager
def api(
    model: str = MODEL,
    *,
    whole: bool = False,
    until: int = 1_000,
    calls: list[str] | None = None,
) -> Iterator[str]:
    """Serve an API; from the `until`th call on its answers break off."""
    heard: list[str] = [] if calls is None else calls

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            heard.append(self.path)
            data = answers(self.path, model, whole=whole)
            self.send_response(200)
            kind = "application/json" if whole else "text/event-stream"
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data if len(heard) < until else data[: len(data) // 2])

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def spent_by(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    root: dict[str, Any],
    dialect: str = "anthropic",
    output_format: str = "claude-stream-json",
    meanwhile: Callable[[World], Awaitable[None]] | None = None,
    **settings: Any,
) -> tuple[Finished, Spending]:
    """Run an agent whose key is brokered; return how it ended and what is on the budget."""
    install_agent(tmp_path, monkeypatch, url, dialect, output_format)
    async with world(tmp_path, snapshots=False, **settings) as here:
        run_id = await here.start(root)
        if meanwhile:
            await meanwhile(here)
        ended = await here.finish(run_id)
        return ended, await here.settled(1)


def tokens(spent: Spending) -> tuple[int, int]:
    return spent.input_tokens, spent.output_tokens


@pytest.mark.parametrize("whole", [False, True])
async def test_an_agent_that_reports_honestly_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, whole: bool
) -> None:
    with api(whole=whole) as url:
        code = "call(times=2); report(2, 0.06)"
        ended, spent = await spent_by(tmp_path, monkeypatch, url, asking(code))
    assert ended.status == "succeeded", ended.result
    assert (spent.calls, spent.usd, spent.incomplete) == (1, 0.06, 0)
    assert tokens(spent) == (2 * READ, 2 * WRITTEN)
    assert ended.scope["a"]["costUsd"] == 0.06
    assert "[cost]" not in ended.said("tool")


@pytest.mark.parametrize(
    ("code", "usd"),
    [
        ("call(times=3); report(1, 0.01)", 0.09),
        ("call(times=3); report(3, 0.0)", 0.09),
        ("call(times=3); report(3, None)", 0.09),
        ("call(times=3); report(0, None)", 0.09),
        ("call(times=1); report(3, 0.5)", 0.5),  # it had other costs: its own word is more
    ],
    ids=["too-little", "no-money", "only-tokens", "nothing", "more"],
)
async def test_of_two_counts_the_larger_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, usd: float
) -> None:
    with api() as url:
        ended, spent = await spent_by(tmp_path, monkeypatch, url, asking(code))
    assert (spent.calls, spent.incomplete) == (1, 0)
    assert spent.usd == pytest.approx(usd)
    assert tokens(spent) == (3 * READ, 3 * WRITTEN)
    assert ended.scope["a"]["costUsd"] == pytest.approx(usd)
    assert ended.scope["a"]["tokens"]["output"] == 3 * WRITTEN
    hidden = "report(1" in code or "report(0" in code
    assert ("tokens read and" in ended.said("tool")) == hidden


ENDS = {
    "dies": "call(times=2); os._exit(9)",
    "dies without a word of it": "say(type='system'); call(times=2); os.kill(os.getpid(), 9)",
    "is ended by its timeout": "call(times=2); time.sleep(60)",
}


@pytest.mark.parametrize("end", ENDS)
async def test_an_agent_that_never_reports_has_spent_what_was_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    timeout = {"timeoutMs": 5_000} if "timeout" in end else {}
    with api() as url:
        root = asking(ENDS[end], **timeout)
        _, spent = await spent_by(tmp_path, monkeypatch, url, root)
    assert (spent.calls, spent.usd, spent.incomplete) == (1, 2 * CALL_USD, 0)
    assert tokens(spent) == (2 * READ, 2 * WRITTEN)


@pytest.mark.parametrize(
    ("dialect", "path", "model", "whole"),
    [
        ("openai", "/v1/responses", "gpt-5.4", False),
        ("openai", "/v1/responses", "gpt-5.4", True),
        ("openai", "/v1/chat/completions", "gpt-5.4", False),
        ("openai", "/v1/chat/completions", "gpt-5.4", True),
    ],
)
async def test_each_api_is_counted_for_an_agent_that_says_nothing_of_money(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dialect: str,
    path: str,
    model: str,
    *,
    whole: bool,
) -> None:
    with api(model, whole=whole) as url:
        _, spent = await spent_by(
            tmp_path, monkeypatch, url, asking(f"call({path!r})"), dialect, "plain"
        )
    assert (spent.usd, spent.incomplete) == (0.0175, 0)
    assert tokens(spent) == (READ, WRITTEN)


@pytest.mark.parametrize(
    ("model", "until", "code"),
    [
        ("a-model-on-no-list", 1_000, "call(); report(0, None)"),
        ("a-model-on-no-list", 1_000, "call(); report(0, 0.0)"),
        (MODEL, 2, "call()\ntry: call()\nexcept Exception: pass\nreport(9, 9.0)"),
    ],
    ids=["no-price", "no-price-and-a-lie", "broke-off"],
)
async def test_what_has_no_price_or_broke_off_is_unknown_and_not_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, until: int, code: str
) -> None:
    with api(model, until=until) as url:
        _, spent = await spent_by(tmp_path, monkeypatch, url, asking(code))
    assert (spent.calls, spent.unknown) == (1, 1)
    assert spent.input_tokens >= READ


async def test_an_unpriced_model_is_known_by_the_word_of_an_agent_that_reports_all_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with api("a-model-on-no-list") as url:
        _, spent = await spent_by(tmp_path, monkeypatch, url, asking("call(); report(1, 0.5)"))
    assert (spent.usd, spent.incomplete) == (0.5, 0)


@pytest.mark.claim("I48", "I50")
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    "cap", [{"max_run_cost_usd": 0.07}, {"max_total_cost_usd": 0.07}], ids=["run", "total"]
)
async def test_when_a_cap_is_passed_in_the_middle_of_a_step_its_calls_are_refused_and_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cap: dict[str, Any], *, whole: bool
) -> None:
    code = "call(times=10)\ntime.sleep(60)"
    calls: list[str] = []
    with api(whole=whole, calls=calls) as url:
        ended, spent = await spent_by(tmp_path, monkeypatch, url, asking(code), **cap)
    assert ended.status == "failed", "although the step has an edge for its error"
    assert ended.result.error.startswith("budget: ")
    assert "$0.0900" in ended.result.error
    assert [type(e) for e in ended.events].count(BudgetExceeded) == 1
    assert not [e for e in ended.events if isinstance(e, StepFinished) and e.node == "e"]
    assert (spent.usd, tokens(spent)) == (0.09, (3 * READ, 3 * WRITTEN))
    assert len(calls) == 3
    assert set(statuses(tmp_path)[3:]) <= {402}


async def test_a_run_that_may_be_granted_more_pauses_when_its_money_is_spent_in_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = {**asking("call(times=10)\ntime.sleep(60)"), "onBudget": "pause"}
    with api() as url:
        ended, spent = await spent_by(tmp_path, monkeypatch, url, root, max_run_cost_usd=0.05)
    assert (ended.status, spent.usd) == ("paused", 0.06)


@pytest.mark.parametrize("cap", [{"max_run_cost_usd": 100.0}, {}], ids=["capped", "free"])
async def test_under_a_cap_no_agent_goes_on_whose_answers_do_not_tell_what_they_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cap: dict[str, Any]
) -> None:
    code = """
for _ in range(30):
    try:
        call()
    except Exception:
        pass
report(0, 0.0)
"""
    calls: list[str] = []
    with api(until=1, calls=calls) as url:
        ended, spent = await spent_by(tmp_path, monkeypatch, url, asking(code), **cap)
    assert spent.unknown == 1
    if cap:
        assert ended.status == "failed", ended.result
        assert "the run spent $102.4016" in ended.result.error, "each can have cost $12.8002"
        assert len(calls) == 8
    else:
        assert ended.status == "succeeded", ended.result
        assert len(calls) == 30


async def test_what_was_seen_is_on_the_books_while_the_step_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "call(times=2)\nwhile not os.path.exists('go'): time.sleep(0.05)\nreport(2, 0.06)"

    async def let_go(here: World) -> None:
        async def is_seen() -> bool:
            return (await here.service.store.ledger.total()).usd == 0.06

        await eventually_async(is_seen)
        assert (await here.service.store.ledger.total()).open == 1
        (here.folder / "go").touch()

    with api() as url:
        ended, spent = await spent_by(
            tmp_path, monkeypatch, url, asking(code), meanwhile=let_go, max_run_cost_usd=9.0
        )
    assert (ended.status, spent.usd, spent.incomplete) == ("succeeded", 0.06, 0)


async def test_rounds_are_counted_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = node("a", "agent", providerId="it", prompt="call(); report(0, None)")
    loop = node("l", "loop", [agent], maxIterations=3)
    root = workflow([node("s", "start"), loop], edges("s next l"))
    with api() as url:
        _, spent = await spent_by(tmp_path, monkeypatch, url, root)
    assert spent.calls == 3
    assert spent.usd == pytest.approx(3 * CALL_USD)
