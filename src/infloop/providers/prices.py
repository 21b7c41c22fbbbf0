"""Computes the cost of tokens from the public price lists that come with infloop.

- It is used for providers that report tokens and no cost.
- A model that is on no list has no price. Its cost stays unknown, which is not the same as 0.
- The list is chosen by its name or by the provider's address. The name of a model is not enough:
  the same model has another price, or none, with another seller.
- The lists are a file that is read when the first price is needed. Nothing is fetched.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from infloop.providers.base import Cost, Usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable

    from infloop.providers.base import AnswerPart, Provider, Request

SHORT_PROMPT_TOKENS = 10_000
"""A prompt of this length has the base price on every list."""


@dataclass(frozen=True, slots=True)
class PriceList:
    """A price list, chosen by its name or by the seller's address.

    Some models cost more for long prompts. With `summed` the tokens are the sum of many prompts
    whose lengths are unknown, so the base price is used.
    """

    name: str = ""
    address: str = ""
    summed: bool = False

    def price_usd(self, usage: Usage, models: Iterable[str]) -> float | None:
        """Return the price for the first of these models that is on the list, or None."""
        for model in filter(None, dict.fromkeys(models)):
            price = self._look_up(usage, model)
            if price is not None:
                return price
        return None

    def _look_up(self, usage: Usage, model: str) -> float | None:
        import genai_prices

        times = max(1.0, usage.input_tokens / SHORT_PROMPT_TOKENS) if self.summed else 1.0
        # The library raises if the cached tokens are more than all tokens.
        cached = min(usage.cached_tokens, usage.input_tokens)
        written = min(usage.cache_write_tokens, usage.input_tokens - cached)
        tokens = genai_prices.Usage(
            input_tokens=usage.input_tokens / times,
            output_tokens=usage.output_tokens / times,
            cache_read_tokens=cached / times,
            cache_write_tokens=written / times,
        )
        try:
            if self.name:
                found = genai_prices.calc_price(tokens, model, provider_id=self.name)
            else:
                found = genai_prices.calc_price(tokens, model, provider_api_url=self.address)
        except (LookupError, ValueError):
            return None
        return float(found.total_price) * times


class PricedProvider:
    """Adds the cost to a provider that reports only tokens."""

    def __init__(self, provider: Provider, price_list: PriceList) -> None:
        self._provider = provider
        self._price_list = price_list

    @property
    def id(self) -> str:
        """The id that workflows use."""
        return self._provider.id

    async def ask(self, request: Request) -> AsyncIterator[AnswerPart]:
        """Yield the parts of the answer, and the cost after each report of tokens."""
        used, billed = Usage(), 0.0
        parts = cast("AsyncGenerator[AnswerPart]", self._provider.ask(request))
        async with aclosing(parts):
            async for part in parts:
                yield part
                if not isinstance(part, Usage):
                    continue
                used += part
                models = (used.model, request.model, request.profile)
                # In a thread: the first price takes half a second of reading.
                price = await asyncio.to_thread(self._price_list.price_usd, used, models)
                if price is not None:
                    yield Cost(max(0.0, price - billed))
                    billed = max(billed, price)
