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
from typing import TYPE_CHECKING, cast

import msgspec

from infloop.providers.base import Cost, Usage, is_remote

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable

    from infloop.providers.base import AnswerPart, Provider, Request
    from infloop.providers.request_bound import RequestBound

SHORT_PROMPT_TOKENS = 10_000
"""A prompt of this length has the base price on every list."""


class PriceList(msgspec.Struct, frozen=True):
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

    def highest_price_usd(self, input_tokens: int, output_tokens: int, model: str) -> float | None:
        """Return the most that so many tokens can cost, cached or not; None without a price."""
        prices = [
            self._calculate(model, input_tokens, output_tokens, **cached)
            for cached in (
                {},
                {"cache_write_tokens": input_tokens},
                {"cache_write_tokens": input_tokens, "cache_write_1h_tokens": input_tokens},
            )
        ]
        return max((price for price in prices if price is not None), default=None)

    def _look_up(self, usage: Usage, model: str) -> float | None:
        times = max(1.0, usage.input_tokens / SHORT_PROMPT_TOKENS) if self.summed else 1.0
        # The library raises if the cached tokens are more than all tokens.
        cached = min(usage.cached_tokens, usage.input_tokens)
        written = min(usage.cache_write_tokens, usage.input_tokens - cached)
        price = self._calculate(
            model,
            usage.input_tokens / times,
            usage.output_tokens / times,
            cache_read_tokens=cached / times,
            cache_write_tokens=written / times,
            cache_write_1h_tokens=min(usage.long_cache_write_tokens, written) / times,
        )
        return None if price is None else price * times

    def _calculate(
        self, model: str, input_tokens: float, output_tokens: float, **cached: float
    ) -> float | None:
        import genai_prices

        tokens = genai_prices.Usage(
            input_tokens=input_tokens, output_tokens=output_tokens, **cached
        )
        try:
            if self.name:
                found = genai_prices.calc_price(tokens, model, provider_id=self.name)
            else:
                found = genai_prices.calc_price(tokens, model, provider_api_url=self.address)
        except (LookupError, ValueError):
            return None
        return float(found.total_price)


class Estimator(msgspec.Struct, frozen=True):
    """Prices for a cap: a model that is not on the list has the price that the operator set."""

    price_list: PriceList
    unpriced_usd_per_mtok: float

    def price_usd(self, usage: Usage, bound: RequestBound) -> float:
        """Return what these tokens cost, as the answer to this request."""
        usd = self.price_list.price_usd(usage, (usage.model, bound.model))
        if usd is None:
            usd = self._unpriced(usage.input_tokens + usage.output_tokens)
        return usd * bound.price_times

    def highest_price_usd(self, bound: RequestBound) -> float:
        """Return the most that a request can cost."""
        usd = self.price_list.highest_price_usd(
            bound.input_tokens, bound.output_tokens, bound.model
        )
        if usd is None:
            usd = self._unpriced(bound.input_tokens + bound.output_tokens)
        return usd * bound.price_times

    def _unpriced(self, tokens: int) -> float:
        return tokens * self.unpriced_usd_per_mtok / 1_000_000


class PricedProvider:
    """Adds the cost to a provider that reports only tokens."""

    def __init__(self, provider: Provider, price_list: PriceList) -> None:
        self._provider = provider
        self._price_list = price_list

    @property
    def id(self) -> str:
        """The id that workflows use."""
        return self._provider.id

    @property
    def is_remote(self) -> bool:
        return is_remote(self._provider)

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
