"""One model behind its API: a request, its reservation, its usage, and its errors.

The library `pydantic_ai` turns messages into the request of an API and back. It opens no
connections: its HTTP client is `egress.model_transport`, which adds the key.
"""

from __future__ import annotations

import asyncio
import importlib
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from infloop.errors import EgressError, InfloopError, StepError
from infloop.model.hosts import parse_url
from infloop.providers.base import Cost, Usage
from infloop.providers.http.answers import failed
from infloop.providers.http.error_responses import ErrorResponse
from infloop.providers.idle_timeout import IdleTimeout, Stalled, TooLong
from infloop.providers.json_lines import MAX_MESSAGE_CHARS, one_line
from infloop.providers.request_bound import MAX_INPUT_TOKENS, RequestBound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model, StreamedResponse

    from infloop.egress.model_transport import ModelClient, ModelTransport
    from infloop.providers.base import AnswerPart
    from infloop.providers.builtin.routing import ChosenModel
    from infloop.providers.context import OpenAnswer, ReserveRequest
    from infloop.tools.gate import ToolDefinition

    Emit = Callable[[AnswerPart], Awaitable[None]]

NO_KEY = "none"
"""What the library has instead of the key."""


class ModelFailed(Exception):
    """The model did not answer; `parts` are the end of the answer."""

    def __init__(self, parts: Sequence[AnswerPart]) -> None:
        super().__init__()
        self.parts = parts


class OpenModel:
    """A model that can be asked. All its connections are those of its transport."""

    def __init__(
        self,
        chosen: ChosenModel,
        model: Model,
        transport: ModelTransport,
        reserve: ReserveRequest,
        *,
        max_output_tokens: int,
        idle_timeout_ms: int,
        max_call_ms: int,
    ) -> None:
        self.chosen = chosen
        self._model = model
        self._transport = transport
        self._reserve = reserve
        self._max_output_tokens = max_output_tokens
        self._idle_timeout_ms = idle_timeout_ms
        self._max_call_ms = max_call_ms
        self._answer: OpenAnswer | None = None

    async def admit(self, body: bytes) -> None:
        """Hold the most that a request can cost before it is sent. Raises BudgetError."""
        if self._answer is None:  # not for a repetition: what it holds is enough
            bound = RequestBound(
                self.chosen.model, min(len(body), MAX_INPUT_TOKENS), self._max_output_tokens
            )
            self._answer = await self._reserve(bound, self.chosen.price_list)

    async def ask(
        self,
        messages: Sequence[ModelMessage],
        tools: Sequence[ToolDefinition],
        emit: Emit,
        on_text: Callable[[str], Awaitable[None]],
    ) -> ModelResponse:
        """Ask the model; its text is passed on as it comes, its usage when the answer is over.

        Raises ModelFailed.
        """
        waiting = IdleTimeout(self._idle_timeout_ms, self._max_call_ms)
        self._answer = None
        try:
            response = await self._stream(messages, tools, on_text, waiting)
        except Stalled:
            error = f"stalled: no output for {self._idle_timeout_ms} ms"
            raise ModelFailed([Cost(None), failed(error)]) from None
        except TooLong:
            error = (
                f"the call took longer than {self._max_call_ms} ms, the operator's limit for calls "
                "(INFLOOP_MAX_API_CALL_MS)"
            )
            raise ModelFailed([Cost(None), failed(error)]) from None
        except InfloopError:
            raise
        except Exception as error:  # noqa: BLE001  (each library behind the model has its own errors)
            raise self._failure(error) from None
        await self._count(response, emit)
        return response

    async def _stream(
        self,
        messages: Sequence[ModelMessage],
        tools: Sequence[ToolDefinition],
        on_text: Callable[[str], Awaitable[None]],
        waiting: IdleTimeout,
    ) -> ModelResponse:
        from pydantic_ai.direct import model_request_stream
        from pydantic_ai.models import ModelRequestParameters
        from pydantic_ai.tools import ToolDefinition as Definition

        offered = [
            Definition(
                name=each.name, description=each.description, parameters_json_schema=each.schema
            )
            for each in tools
        ]
        opening = model_request_stream(
            self._model,
            [*messages],
            model_settings={"max_tokens": self._max_output_tokens},
            model_request_parameters=ModelRequestParameters(function_tools=offered),
            instrument=False,
        )
        stream = await waiting.wait_for(opening.__aenter__())
        try:
            async for text in _texts(stream, waiting):
                await on_text(text)
            return stream.get()
        finally:
            await opening.__aexit__(None, None, None)

    async def _count(self, response: ModelResponse, emit: Emit) -> None:
        """Report the usage of an answer and its price, if that is known."""
        used = response.usage
        usage = Usage(
            used.input_tokens,
            used.output_tokens,
            used.cache_read_tokens,
            used.cache_write_tokens,
            response.model_name or self.chosen.model,
            used.cache_write_1h_tokens,
        )
        if self._answer is not None:
            self._answer.settle(usage, complete=usage.has_tokens)
        await emit(usage)
        if not usage.has_tokens:
            await emit(Cost(None))
            return
        models = (usage.model, self.chosen.model)
        # In a thread: the first price takes half a second of reading.
        price = await asyncio.to_thread(self.chosen.price_list.price_usd, usage, models)
        if price is not None:
            await emit(Cost(price))

    def _failure(self, error: Exception) -> Exception:
        """Return why the model did not answer, as the transport saw it."""
        from infloop.egress.model_transport import FailedResponse

        seen, chosen = self._transport.failure, self.chosen
        host = parse_url(chosen.base_url).authority
        match seen:
            case FailedResponse(status, headers, body):
                if self._answer is not None:
                    self._answer.settle(Usage(), complete=True)
                source = f"the key in the variable {chosen.key_variable}"
                if not chosen.key_variable:
                    source = f"whether [providers.{chosen.provider}] needs api_key_env"
                response = ErrorResponse(status, headers, self._redact(body))
                return ModelFailed(response.parts(host, source, chosen.model, datetime.now(UTC)))
            case EgressError():
                never_sent = seen.failure in ("refused", "unreachable")
                if self._answer is not None and never_sent:
                    self._answer.settle(Usage(), complete=True)
                message = self._redact(str(seen))
                return ModelFailed(
                    [
                        Cost(0.0 if never_sent else None),
                        failed(f"{message}; check base_url of [providers.{chosen.provider}]"),
                    ]
                )
            case InfloopError():
                return seen
            case None:
                text = self._redact(one_line(str(error), MAX_MESSAGE_CHARS))
                return ModelFailed([Cost(None), failed(f"{host} gave no usable answer: {text}")])

    def _redact(self, text: str) -> str:
        return text.replace(self.chosen.key, "[key]") if self.chosen.key else text


async def _texts(stream: StreamedResponse, waiting: IdleTimeout) -> AsyncIterator[str]:
    """Yield the model's text as it comes."""
    from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta

    events = aiter(stream)
    while (event := await waiting.wait_for(anext(events, None))) is not None:
        waiting.reset()
        match event:
            case PartStartEvent(part=TextPart(content=text)) if text:
                yield text
            case PartDeltaEvent(delta=TextPartDelta(content_delta=text)) if text:
                yield text
            case _:
                pass


@asynccontextmanager
async def open_model(
    chosen: ChosenModel,
    reserve: ReserveRequest,
    *,
    max_output_tokens: int,
    idle_timeout_ms: int,
    max_call_ms: int,
) -> AsyncIterator[OpenModel]:
    """Open a model; raise StepError if the library is not installed."""
    make = await asyncio.to_thread(_maker, chosen)
    from infloop.egress.model_transport import ModelTransport, model_client

    opened: list[OpenModel] = []

    async def admit(body: bytes) -> None:
        await opened[0].admit(body)

    try:
        transport = ModelTransport(chosen.base_url, chosen.key_headers, before_sending=admit)
    except EgressError as error:
        raise StepError(
            f"[providers.{chosen.provider}] cannot be asked: {error}; change its base_url"
        ) from None
    async with transport, model_client(transport) as client:
        opened.append(
            OpenModel(
                chosen,
                make(client),
                transport,
                reserve,
                max_output_tokens=max_output_tokens,
                idle_timeout_ms=idle_timeout_ms,
                max_call_ms=max_call_ms,
            )
        )
        yield opened[0]


def _maker(chosen: ChosenModel) -> Callable[[ModelClient], Model]:
    """Import the library of an API; return what makes the model. This takes seconds."""
    try:
        for name in ("pydantic_ai.direct", *_MODULES[chosen.api]):
            importlib.import_module(name)
    except ImportError as error:
        raise StepError(
            f"the built-in agent needs {error.name or 'pydantic_ai'}, which is not installed; "
            "install infloop with its extra: `pip install 'infloop[agent]'`"
        ) from None

    def make(client: ModelClient) -> Model:
        address, name = chosen.base_url, chosen.model
        shared: dict[str, Any] = {"http_client": client, "max_retries": 0, "api_key": NO_KEY}
        match chosen.api:
            case "anthropic":
                from anthropic import AsyncAnthropic
                from pydantic_ai.models.anthropic import AnthropicModel
                from pydantic_ai.providers.anthropic import AnthropicProvider

                anthropic = AsyncAnthropic(base_url=address, **shared)
                return AnthropicModel(name, provider=AnthropicProvider(anthropic_client=anthropic))
            case "gemini":
                from pydantic_ai.models.google import GoogleModel
                from pydantic_ai.providers.google import GoogleProvider

                google = GoogleProvider(api_key=NO_KEY, http_client=client, base_url=address)
                return GoogleModel(name, provider=google)
            case "openai" | "openai-compatible":
                from openai import AsyncOpenAI
                from pydantic_ai.models.openai import OpenAIChatModel
                from pydantic_ai.profiles.openai import OpenAIModelProfile
                from pydantic_ai.providers.openai import OpenAIProvider
                from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

                openai = AsyncOpenAI(base_url=address, **shared)
                if chosen.api == "openai":
                    return OpenAIChatModel(name, provider=OpenAIProvider(openai_client=openai))
                # Older servers know only `max_tokens`.
                profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
                provider = OpenAICompatibleProvider(chosen.provider, openai_client=openai)
                return OpenAIChatModel(name, provider=provider, profile=profile)

    return make


_OPENAI = ("openai", "pydantic_ai.models.openai")
_MODULES = {
    "openai": _OPENAI,
    "openai-compatible": _OPENAI,
    "anthropic": ("anthropic", "pydantic_ai.models.anthropic"),
    "gemini": ("google.genai", "pydantic_ai.models.google"),
}
