"""The DevTools protocol: commands with their answers, and events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeAlias

from infloop.tools.base import ToolError

Params: TypeAlias = dict[str, Any]
OnEvent: TypeAlias = Callable[[str, Params], None]

MAX_MESSAGE_CHARS = 64 << 20
"""A longer message ends the browser."""
_CALL_S = 30.0


class DevTools:
    """One connection to a browser. `send` takes messages; `received` gets those of the browser."""

    def __init__(self, send: Callable[[str], None], on_event: OnEvent) -> None:
        self._send = send
        self._on_event = on_event
        self._calls: dict[int, asyncio.Future[Params]] = {}
        self._numbers = 0
        self._ended = ""

    async def call(
        self, method: str, session: str = "", *, timeout_s: float = _CALL_S, **params: Any
    ) -> Params:
        """Send a command; return its result. Raises ToolError if the browser has none."""
        if self._ended:
            raise ToolError("browser-ended", self._ended)
        self._numbers += 1
        number = self._numbers
        answer: asyncio.Future[Params] = asyncio.get_running_loop().create_future()
        self._calls[number] = answer
        message: Params = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        self._send(json.dumps(message))
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise ToolError(
                "timed-out", f"the browser did not answer in {timeout_s:g} s", method
            ) from None
        finally:
            self._calls.pop(number, None)

    def received(self, text: str) -> None:
        """Take a message of the browser; ValueError if it is none."""
        message = json.loads(text)
        if not isinstance(message, dict):
            raise ValueError("a message is not an object")  # noqa: TRY004  (one error for the caller)
        if "id" not in message:
            self._on_event(str(message.get("method")), dict(message.get("params") or {}))
            return
        answer = self._calls.get(message["id"])
        if answer is None or answer.done():
            return
        if "error" in message:
            said = str(message["error"].get("message", ""))[:500]
            answer.set_exception(ToolError("browser-refused", f"the browser says: {said}"))
        else:
            answer.set_result(dict(message.get("result") or {}))

    def end(self, reason: str) -> None:
        """Fail all commands, now and later: the browser is gone."""
        self._ended = self._ended or reason
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(ToolError("browser-ended", self._ended))


class Messages:
    """Cuts a stream of text into messages, which end with a NUL."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0

    def feed(self, text: str) -> list[str]:
        """Take more of the stream; return the messages that are complete."""
        *complete, rest = text.split("\0")
        if complete:
            complete[0] = "".join((*self._parts, complete[0]))
            self._parts, self._size = [], 0
        self._parts.append(rest)
        self._size += len(rest)
        if self._size > MAX_MESSAGE_CHARS:
            raise ValueError("a message of the browser is too long")
        return complete
