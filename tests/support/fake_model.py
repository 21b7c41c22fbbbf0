"""A model API on loopback that says what a test tells it to.

It speaks what agents speak: Anthropic's Messages, OpenAI's Responses and Chat Completions, and
Gemini's content, as a stream or in one piece. Each request that offers tools takes the next turn,
and the last turn is repeated; a request without tools (for a title, say) is answered with a word
and takes none. A turn can be a function of the request.

    async with FakeModel([Say("I will write it."), Use("Write", {...})], [Say("DONE")]) as model:
        ... ANTHROPIC_BASE_URL=model.url ...
        assert model.asked[0].body["model"] == "claude-opus-4-8"
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self, TypeAlias

Json: TypeAlias = dict[str, Any]
Event: TypeAlias = tuple[str, Json | str]

READ, WRITTEN, CACHED = 100, 20, 30
"""The tokens of every answer: all that was read, what was written, what came from a cache."""


@dataclass(frozen=True)
class Say:
    """Text, sent word by word."""

    text: str

    @property
    def pieces(self) -> list[str]:
        first, *rest = self.text.split(" ")
        return [first, *(f" {word}" for word in rest)]


@dataclass(frozen=True)
class Use:
    """The use of a tool; OpenAI's Responses know namespaces of them."""

    name: str
    input: Json
    namespace: str = ""


@dataclass(frozen=True)
class Refuse:
    """An error instead of an answer."""

    status: int
    body: Json
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Hang:
    """Text, and then nothing more, not even an end."""

    text: str


FixedTurn: TypeAlias = Sequence[Say | Use] | Refuse | Hang
Turn: TypeAlias = "FixedTurn | Callable[[Asked], FixedTurn]"


class Asked(NamedTuple):
    """A request that came."""

    path: str
    headers: Mapping[str, str]
    body: Json


class Speech(NamedTuple):
    """An answer in one of the dialects: as a stream, with what ends it, and in one piece."""

    stream: list[Event]
    end: list[Event]
    whole: Json


class FakeModel:
    """The server; open it with `async with`."""

    def __init__(self, *turns: Turn) -> None:
        self.asked: list[Asked] = []
        self._turns = turns
        self._taken = 0
        self._open: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._answer(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = await read_request(reader)
            speak = dialect_of(asked.path.partition("?")[0])
            if speak is None:
                writer.write(whole_answer(404, {"error": {"message": "there is nothing here"}}))
            else:
                self.asked.append(asked)
                await self._speak(asked, speak, writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # who asked has left
        finally:
            writer.close()

    async def _speak(self, asked: Asked, speak: Dialect, writer: asyncio.StreamWriter) -> None:
        turn: FixedTurn = self._next_turn(asked) if asked.body.get("tools") else [Say("fine")]
        if isinstance(turn, Refuse):
            writer.write(whole_answer(turn.status, turn.body, turn.headers))
            return
        said = [Say(turn.text)] if isinstance(turn, Hang) else turn
        speech = speak(said, str(asked.body.get("model")), len(self.asked))
        if not asked.body.get("stream") and "alt=sse" not in asked.path:
            writer.write(whole_answer(200, speech.whole))
            return
        writer.write(head(200, {"content-type": "text/event-stream"}))
        await _send(writer, speech.stream)
        if isinstance(turn, Hang):
            await asyncio.Event().wait()
        await _send(writer, speech.end)

    def _next_turn(self, asked: Asked) -> FixedTurn:
        turn = self._turns[min(self._taken, len(self._turns) - 1)]
        self._taken += 1
        return turn(asked) if callable(turn) else turn


# -- HTTP, one request a connection --------------------------------------------------------------


async def read_request(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines)
    }
    data = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(first.split(" ")[1], headers, json.loads(data) if data else {})


def head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Fake", "connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def whole_answer(status: int, body: Json, headers: Mapping[str, str] | None = None) -> bytes:
    data = json.dumps(body).encode()
    size = {"content-type": "application/json", "content-length": str(len(data))}
    return head(status, {**size, **(headers or {})}) + data


async def _send(writer: asyncio.StreamWriter, events: Iterable[Event]) -> None:
    for name, data in events:
        text = data if isinstance(data, str) else json.dumps(data)
        writer.write((f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode())
        await writer.drain()


# -- dialects ------------------------------------------------------------------------------------


def messages(said: Sequence[Say | Use], model: str, number: int) -> Speech:
    """Anthropic's Messages, whose `input_tokens` leave the cache out."""
    used = {"input_tokens": READ - CACHED, "cache_read_input_tokens": CACHED}
    message: Json = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**used, "output_tokens": 1},
    }
    stream: list[Event] = [("message_start", {"type": "message_start", "message": message})]
    blocks: list[Json] = []
    for index, one in enumerate(said):
        if isinstance(one, Say):
            block: Json = {"type": "text", "text": one.text}
            empty = {**block, "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in one.pieces]
        else:
            name = f"toolu_{number}_{index}"
            block = {"type": "tool_use", "id": name, "name": one.name, "input": one.input}
            empty = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(one.input)}]
        blocks.append(block)
        at = {"index": index}
        stream.append(_typed("content_block_start", **at, content_block=empty))
        stream += [_typed("content_block_delta", **at, delta=delta) for delta in deltas]
        stream.append(_typed("content_block_stop", **at))
    stop = {"stop_reason": "tool_use" if _uses(said) else "end_turn", "stop_sequence": None}
    end = [
        _typed("message_delta", delta=stop, usage={"output_tokens": WRITTEN}),
        _typed("message_stop"),
    ]
    usage = {**used, "output_tokens": WRITTEN}
    return Speech(stream, end, {**message, **stop, "content": blocks, "usage": usage})


def responses(said: Sequence[Say | Use], model: str, number: int) -> Speech:
    """OpenAI's Responses."""
    response: Json = {"id": f"resp_{number}", "object": "response", "model": model}
    stream = [_typed("response.created", response=response)]
    items: list[Json] = []
    for index, one in enumerate(said):
        name = f"item_{number}_{index}"
        at = {"output_index": index}
        if isinstance(one, Say):
            content = [{"type": "output_text", "text": one.text}]
            item: Json = {"type": "message", "role": "assistant", "id": name, "content": content}
            stream.append(_typed("response.output_item.added", **at, item={**item, "content": []}))
            stream += [
                _typed("response.output_text.delta", **at, item_id=name, delta=piece)
                for piece in one.pieces
            ]
        else:
            item = {
                "type": "function_call",
                "id": name,
                "call_id": f"call_{number}_{index}",
                "name": one.name,
                "arguments": json.dumps(one.input),
            }
            if one.namespace:
                item["namespace"] = one.namespace
        items.append(item)
        stream.append(_typed("response.output_item.done", **at, item=item))
    usage = {
        "input_tokens": READ,
        "input_tokens_details": {"cached_tokens": CACHED},
        "output_tokens": WRITTEN,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": READ + WRITTEN,
    }
    whole = {**response, "status": "completed", "output": items, "usage": usage}
    return Speech(stream, [_typed("response.completed", response=whole)], whole)


def chat(said: Sequence[Say | Use], model: str, number: int) -> Speech:
    """OpenAI's Chat Completions, which most other servers speak."""
    base: Json = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "model": model}
    calls: list[Json] = []
    stream: list[Event] = []
    for one in said:
        if isinstance(one, Say):
            deltas: list[Json] = [{"content": piece} for piece in one.pieces]
        else:
            function = {"name": one.name, "arguments": json.dumps(one.input)}
            call = {"id": f"call_{number}_{len(calls)}", "type": "function", "function": function}
            deltas = [{"tool_calls": [{"index": len(calls), **call}]}]
            calls.append(call)
        stream += [
            ("message", {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
            for delta in deltas
        ]
    stop = "tool_calls" if calls else "stop"
    usage = {
        "prompt_tokens": READ,
        "prompt_tokens_details": {"cached_tokens": CACHED},
        "completion_tokens": WRITTEN,
        "total_tokens": READ + WRITTEN,
    }
    last = {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": stop}], "usage": usage}
    text = "".join(one.text for one in said if isinstance(one, Say))
    message = {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}
    choice = {"index": 0, "message": message, "finish_reason": stop}
    whole = {**base, "object": "chat.completion", "choices": [choice], "usage": usage}
    return Speech(stream, [("message", last), ("message", "[DONE]")], whole)


def gemini(said: Sequence[Say | Use], model: str, number: int) -> Speech:
    """Gemini's content."""
    chunks: list[list[Json]] = []
    for one in said:
        if isinstance(one, Say):
            chunks += [[{"text": piece}] for piece in one.pieces]
        else:
            chunks.append([{"functionCall": {"name": one.name, "args": one.input}}])
    usage = {
        "promptTokenCount": READ,
        "cachedContentTokenCount": CACHED,
        "candidatesTokenCount": WRITTEN,
        "totalTokenCount": READ + WRITTEN,
    }

    def event(parts: list[Json], **more: Any) -> Event:
        content = {"role": "model", "parts": parts}
        return "", {"candidates": [{"content": content, "index": 0, **more}], "modelVersion": model}

    _, last = event([{"text": ""}], finishReason="STOP")
    assert isinstance(last, dict)
    parts = [part for chunk in chunks for part in chunk]
    _, whole = event(parts, finishReason="STOP")
    assert isinstance(whole, dict)
    return Speech(
        [event(chunk) for chunk in chunks],
        [("", {**last, "usageMetadata": usage})],
        {**whole, "usageMetadata": usage},
    )


def _typed(name: str, **data: Any) -> Event:
    return name, {"type": name, **data}


def _uses(said: Sequence[Say | Use]) -> bool:
    return any(isinstance(one, Use) for one in said)


Dialect: TypeAlias = Callable[[Sequence[Say | Use], str, int], Speech]

DIALECTS: Mapping[str, Dialect] = {
    "/v1/messages": messages,
    "/v1/responses": responses,
    "/v1/chat/completions": chat,
}


def dialect_of(path: str) -> Dialect | None:
    return gemini if path.endswith("GenerateContent") else DIALECTS.get(path)
