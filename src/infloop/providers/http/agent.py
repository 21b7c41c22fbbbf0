"""Transport `http`: a model behind an HTTP API.

Each request is one question; what comes back is read by the manifest's dialect and passed on as it
comes. The connection is closed when the answer has ended, when nothing was said for the request's
idle time, and when the reader of the parts leaves or is cancelled.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from infloop.errors import EgressError, StepError
from infloop.providers.base import Cost, Done, Notice, Part
from infloop.providers.http import anthropic_messages, chat_completions, openai_responses
from infloop.providers.http.api import Api
from infloop.providers.http.refusals import Refusal, read_refusal
from infloop.providers.http.replies import failed
from infloop.providers.http.server_sent import ServerEvents, WholeAnswer
from infloop.providers.idle_timeout import Patience, Stalled
from infloop.providers.lines import MAX_LINE_CHARS
from infloop.providers.output_reader import joined

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping

    from infloop.egress.client import Response
    from infloop.model.provider import HttpProvider
    from infloop.model.values import JsonObject
    from infloop.providers.base import Request
    from infloop.providers.http.replies import Reader

MAX_STREAM_BYTES = 64 << 20


def utc_now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


class Dialect(NamedTuple):
    """How an API is asked, and how its answer is read."""

    question: Callable[[str, str, int | None], JsonObject]
    reader: Callable[[str], Reader]
    headers: Mapping[str, str]


class HttpAgent:
    """Asks the API of one manifest; its token may be among `variables`."""

    def __init__(
        self,
        manifest: HttpProvider,
        variables: Mapping[str, str],
        *,
        max_stream_bytes: int = MAX_STREAM_BYTES,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.id = manifest.id
        self._manifest = manifest
        self._dialect = _dialect(manifest)
        self._variables = variables
        self._max_stream_bytes = max_stream_bytes
        self._now = now

    async def ask(self, request: Request) -> AsyncIterator[Part]:
        """Send the prompt and yield what comes back."""
        model = self._model(request)
        api = Api(self._manifest, self._variables)
        if request.agent:
            yield Notice("[agent] an HTTP provider has no named agents: 'agent' is left out")
        prompt = request.prompt.encode("utf-8", "replace").decode()
        question = self._dialect.question(prompt, model, self._manifest.max_output_tokens)
        patience = Patience(request.idle_timeout_ms)
        try:
            async with AsyncExitStack() as stack:
                reply = await patience.hold(self._send(stack, api, question))
                if isinstance(reply, Refusal):
                    for part in reply.parts(api.who, api.key, model, self._now()):
                        yield api.discreet(part)
                    return
                parts = heard(reply, self._dialect.reader(model), patience)
                async with aclosing(parts):
                    async for part in parts:
                        yield api.discreet(part)
        except Stalled:
            yield Cost(None)
            yield Done(None, error=f"stalled: no output for {request.idle_timeout_ms} ms")
        except EgressError as error:
            never_asked = error.failure in ("refused", "unreachable")
            yield Cost(0.0 if never_asked else None)
            yield failed(f"{api.told(error)}; {self._way_out(error)}")

    async def _send(
        self, stack: AsyncExitStack, api: Api, question: JsonObject
    ) -> Response | Refusal:
        """Send a question, and once more without a wish that the server refuses by name."""
        asking = api.ask(
            self._manifest.endpoint,
            question,
            headers=self._dialect.headers,
            max_response_bytes=self._max_stream_bytes,
        )
        response = await stack.enter_async_context(asking)
        if 200 <= response.status < 300:
            return response
        refusal = await read_refusal(response)
        wish = chat_completions.USAGE_WISH
        if refusal.status in (400, 422) and wish in question and wish in refusal.body:
            plain = {name: value for name, value in question.items() if name != wish}
            return await self._send(stack, api, plain)
        return refusal

    def _model(self, request: Request) -> str:
        chosen = request.wanted_model or self._manifest.default_profile or ""
        if not chosen.strip():
            listed = ", ".join(profile.id for profile in self._manifest.profiles[:20])
            known = f" (it lists {listed})" if listed else ""
            raise StepError(
                f"provider {self.id!r} has no default model{known}: name one as the node's "
                "profile, or as defaultProfile in the manifest"
            )
        return chosen.strip()

    def _way_out(self, error: EgressError) -> str:
        match error.failure:
            case "unreachable":
                return f"is it running, and is the baseUrl of provider {self.id!r} right?"
            case "refused":
                return f"change the baseUrl of provider {self.id!r}"
            case "too-large":
                return "set maxOutputTokens in its manifest"
            case "timeout" | "broken":
                return "try again"


async def heard(response: Response, reader: Reader, patience: Patience) -> AsyncGenerator[Part]:
    """Yield what an answer says, up to its end."""
    whole = response.headers.get("content-type", "").startswith("application/json")
    events = WholeAnswer() if whole else ServerEvents()
    chunks = aiter(response.chunks)
    was_cut = False
    chunk: bytes | None = b""
    while chunk is not None:
        chunk = await patience.hold(anext(chunks, None))
        parts: list[Part] = []
        for line in events.finish() if chunk is None else events.feed(chunk):
            if line.cut and not was_cut:
                was_cut = True
                parts.append(Notice(f"[output] a line was cut after {MAX_LINE_CHARS} characters"))
            said = reader.read(line)
            if said is not None:
                patience.renew()
                parts.extend(said)
        if chunk is None:
            parts.extend(reader.finish())
        for part in joined(parts):
            yield part
            if isinstance(part, Done):
                return


def _dialect(manifest: HttpProvider) -> Dialect:
    match manifest.dialect:
        case "openai":
            return Dialect(chat_completions.question, chat_completions.ChatCompletions, {})
        case "openai-responses":
            return Dialect(openai_responses.question, openai_responses.OpenaiResponses, {})
        case "anthropic":
            return Dialect(
                anthropic_messages.question,
                anthropic_messages.AnthropicMessages,
                anthropic_messages.HEADERS,
            )
