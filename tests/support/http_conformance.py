"""The conformance suite for models behind HTTP APIs, one stand for each dialect.

There is no program to kill and no tool to deny. What may stay behind is a connection: `left` is
written into the directory when the server has seen it close.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from infloop.providers.base import AnswerPart, Provider, Request, Usage
from infloop.providers.http.agent import HttpAgent
from infloop.providers.prices import PricedProvider, PriceList
from infloop.sandbox.base import Sandbox
from support.builtin_agent import bare_agent
from support.fake_model import Say, Speech, chat, messages, responses
from support.scripted_http import (
    DEADLINE_S,
    HANG,
    RESET,
    STREAM,
    Act,
    Stage,
    event,
    events,
    manifest,
)

NOISE: Sequence[bytes] = (
    b"\xff\xfe\x00\x1b[2J\n\n",
    *map(event, ('{"type":"assist', "[1,2]", '{"a":"\\ud800"}', "[" * 40_000, "x" * 9_000_000)),
    b"\r\n\r\n",
)


@dataclass(frozen=True)
class Http:
    """A server that speaks one of the dialects."""

    dialect: str
    endpoint: str
    speak: Callable[[Sequence[Say], str, int], Speech]
    model: str
    price_list: str
    cost_usd: float
    begins_with: int
    scenes: tuple[str, ...] = ("text", "hang", "crash", "garbage")
    said: str = "It is DONE"
    crash: tuple[int, str] = (1, "127.0.0.1")

    @property
    def name(self) -> str:
        return f"http-{self.dialect}"

    @property
    def usage(self) -> Usage:
        return Usage(100, 20, 30, 0, self.model)

    def provider(self, scene: str, folder: Path, sandbox: Sandbox) -> Provider:
        message_text = events(self.speak([Say(self.said)], self.model, 1))
        begin, rest = message_text[: self.begins_with], message_text[self.begins_with :]

        def begun() -> bool:
            (folder / "begun").touch()
            return True

        acts: dict[str, Act] = {
            "text": [STREAM, *begin, (folder / "go").exists, *rest],
            "hang": [STREAM, *begin, begun, HANG],
            "crash": [STREAM, *begin, RESET],
            "garbage": [STREAM, *NOISE, *begin, *rest],
        }
        return OnStage(self, acts[scene], folder)

    def at(self, url: str, folder: Path) -> Provider:
        """Return the provider that asks the server at an address."""
        described = manifest(
            url, dialect=self.dialect, endpoint=self.endpoint, defaultProfile=self.model
        )
        return PricedProvider(HttpAgent(described, {}), PriceList(self.price_list))

    def is_under_way(self, folder: Path) -> bool:
        return (folder / "begun").exists()

    def left_behind(self, folder: Path) -> list[str]:
        return [] if (folder / "left").exists() else ["the connection"]


class OnStage:
    """A provider whose server is there while it is asked."""

    def __init__(self, stand: Http, act: Act, folder: Path) -> None:
        self.id = stand.name
        self._stand = stand
        self._act = act
        self._folder = folder

    async def ask(self, request: Request) -> AsyncIterator[AnswerPart]:
        async with Stage(self._act) as stage:
            agent = self._stand.at(stage.url, self._folder)
            try:
                async with aclosing(
                    cast("AsyncGenerator[AnswerPart]", agent.ask(request))
                ) as parts:
                    async for part in parts:
                        yield part
            finally:
                if HANG in self._act:
                    async with asyncio.timeout(DEADLINE_S):
                        await stage.left.wait()
                    (self._folder / "left").touch()


class Builtin(Http):
    """The built-in agent, without tools; noise is an answer that it cannot use."""

    @property
    def name(self) -> str:
        return f"builtin-{self.dialect}"

    def at(self, url: str, folder: Path) -> Provider:
        return bare_agent(self.price_list, url, self.model, folder)


HTTP_STANDS = (
    Http("openai", "/chat/completions", chat, "gpt-5.4", "openai", 0.0004825, 1),
    Http("openai-responses", "/responses", responses, "gpt-5.4", "openai", 0.0004825, 3),
    Http("anthropic", "/messages", messages, "claude-opus-4-8", "anthropic", 0.000865, 3),
    Builtin(
        "openai",
        "/chat/completions",
        chat,
        "gpt-5.4",
        "openai",
        0.0004825,
        1,
        scenes=("text", "hang", "crash"),
    ),
)
