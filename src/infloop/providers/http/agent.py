"""Transport `http`: a model behind an HTTP API.

Each request is one call. The manifest's dialect parses the answer, which is passed on as it comes.
The connection is closed when the answer has ended, when nothing arrived for the request's idle
timeout, when the call took longer than the operator allows, and when the caller leaves early or is
cancelled.
"""

from __future__ import annotations

import json
from contextlib import AsyncExitStack, aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from infloop.errors import EgressError, StepError
from infloop.providers.base import AnswerPart, Cost, Done, ProviderNotice
from infloop.providers.http.answers import failed
from infloop.providers.http.api import Api
from infloop.providers.http.dialects import DIALECTS
from infloop.providers.http.error_responses import ErrorResponse, read_error
from infloop.providers.http.server_sent import ServerEvents, WholeAnswer
from infloop.providers.idle_timeout import IdleTimeout, Stalled, TooLong
from infloop.providers.lines import MAX_LINE_CHARS
from infloop.providers.output_reader import join_texts
from infloop.providers.prices import Estimator, PricedProvider, PriceList
from infloop.providers.request_bound import MAX_INPUT_TOKENS, MAX_OUTPUT_TOKENS, RequestBound

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping

    from infloop.egress.client import Response
    from infloop.model.provider import HttpProvider
    from infloop.model.values import JsonObject
    from infloop.providers.base import Provider, Request
    from infloop.providers.context import ProviderContext
    from infloop.providers.http.answers import AnswerParser

MAX_STREAM_BYTES = 64 << 20
MAX_CALL_MS = 3_600_000


def http_provider(manifest: HttpProvider, context: ProviderContext) -> Provider:
    """Return the provider that calls the API of a manifest."""
    prices = PriceList(manifest.price_list or "", manifest.base_url)
    agent = HttpAgent(manifest, context.variables, max_call_ms=context.max_api_call_ms)
    return HttpProviderWithPrices(agent, prices)


def utc_now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


class HttpAgent:
    """Calls the API of one manifest; its token may be in one of `variables`."""

    def __init__(
        self,
        manifest: HttpProvider,
        variables: Mapping[str, str],
        *,
        max_stream_bytes: int = MAX_STREAM_BYTES,
        max_call_ms: int = MAX_CALL_MS,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.id = manifest.id
        self.is_remote = True
        self._manifest = manifest
        self._dialect = DIALECTS[manifest.dialect]
        self._variables = variables
        self._max_stream_bytes = max_stream_bytes
        self._max_call_ms = max_call_ms
        self._now = now

    async def ask(self, request: Request) -> AsyncIterator[AnswerPart]:
        """Send the prompt and yield the parts of the answer."""
        model = self._model(request)
        api = Api(self._manifest, self._variables)
        if request.agent:
            yield ProviderNotice(
                "[agent] an HTTP provider has no named agents: 'agent' is left out"
            )
        question = self._question(request, model)
        timeout = IdleTimeout(request.idle_timeout_ms, self._max_call_ms)
        try:
            async with AsyncExitStack() as stack:
                response = await timeout.wait_for(self._send(stack, api, question))
                if isinstance(response, ErrorResponse):
                    for part in response.parts(api.host, api.token_source, model, self._now()):
                        yield api.redact(part)
                    return
                parts = read_answer(response, self._dialect.parser(model), timeout)
                async with aclosing(parts):
                    async for part in parts:
                        yield api.redact(part)
        except Stalled:
            yield Cost(None)
            yield Done(None, error=f"stalled: no output for {request.idle_timeout_ms} ms")
        except TooLong:
            yield Cost(None)
            reason = f"the call took longer than {self._max_call_ms} ms"
            yield failed(f"{reason}, the operator's limit for calls (INFLOOP_MAX_API_CALL_MS)")
        except EgressError as error:
            never_sent = error.failure in ("refused", "unreachable")
            yield Cost(0.0 if never_sent else None)
            yield failed(f"{api.describe(error)}; {self._advice(error)}")

    def request_bound(self, request: Request) -> RequestBound:
        """Return the most that a request can use; raise StepError if it cannot be made."""
        model = self._model(request)
        question = self._question(request, model)
        limits = [question.get(name) for name in ("max_tokens", "max_output_tokens")]
        longest = next((each for each in limits if isinstance(each, int)), MAX_OUTPUT_TOKENS)
        return RequestBound(model, min(len(json.dumps(question)), MAX_INPUT_TOKENS), longest)

    def _question(self, request: Request, model: str) -> JsonObject:
        prompt = request.prompt.encode("utf-8", "replace").decode()
        return self._dialect.question(prompt, model, self._manifest.max_output_tokens)

    async def _send(
        self, stack: AsyncExitStack, api: Api, question: JsonObject
    ) -> Response | ErrorResponse:
        """Send a request; repeat it without the optional field if the server refuses that."""
        call = api.ask(
            self._manifest.endpoint,
            question,
            headers=self._dialect.headers,
            max_response_bytes=self._max_stream_bytes,
        )
        response = await stack.enter_async_context(call)
        if 200 <= response.status < 300:
            return response
        error = await read_error(response)
        optional = self._dialect.optional_field
        if error.status in (400, 422) and optional in question and optional in error.body:
            without = {name: value for name, value in question.items() if name != optional}
            return await self._send(stack, api, without)
        return error

    def _model(self, request: Request) -> str:
        chosen = request.requested_model or self._manifest.default_profile or ""
        if not chosen.strip():
            listed = ", ".join(profile.id for profile in self._manifest.profiles[:20])
            known = f" (it lists {listed})" if listed else ""
            raise StepError(
                f"provider {self.id!r} has no default model{known}: name one as the node's "
                "profile, or as defaultProfile in the manifest"
            )
        return chosen.strip()

    def _advice(self, error: EgressError) -> str:
        match error.failure:
            case "unreachable":
                return f"is it running, and is the baseUrl of provider {self.id!r} right?"
            case "refused":
                return f"change the baseUrl of provider {self.id!r}"
            case "too-large":
                return "set maxOutputTokens in its manifest"
            case "timeout" | "broken":
                return "try again"


class HttpProviderWithPrices(PricedProvider):
    """An HTTP provider whose calls have a highest cost."""

    def __init__(self, agent: HttpAgent, price_list: PriceList) -> None:
        super().__init__(agent, price_list)
        self._agent = agent

    def highest_cost_usd(self, request: Request, unpriced_usd_per_mtok: float) -> float:
        """Return the most that a call can cost; 0 if it cannot be made."""
        try:
            bound = self._agent.request_bound(request)
        except StepError:
            return 0.0  # `ask` raises it too
        return Estimator(self._price_list, unpriced_usd_per_mtok).highest_price_usd(bound)


async def read_answer(
    response: Response, parser: AnswerParser, idle: IdleTimeout
) -> AsyncGenerator[AnswerPart]:
    """Yield the parts of an answer, up to its end."""
    whole = response.headers.get("content-type", "").startswith("application/json")
    events = WholeAnswer() if whole else ServerEvents()
    chunks = aiter(response.chunks)
    was_cut = False
    chunk: bytes | None = b""
    while chunk is not None:
        chunk = await idle.wait_for(anext(chunks, None))
        parts: list[AnswerPart] = []
        for line in events.finish() if chunk is None else events.feed(chunk):
            if line.cut and not was_cut:
                was_cut = True
                parts.append(
                    ProviderNotice(f"[output] a line was cut after {MAX_LINE_CHARS} characters")
                )
            read = parser.read(line)
            if read is not None:
                idle.reset()
                parts.extend(read)
        if chunk is None:
            parts.extend(parser.finish())
        for part in join_texts(parts):
            yield part
            if isinstance(part, Done):
                return
