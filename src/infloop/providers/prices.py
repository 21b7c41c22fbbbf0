"""Tokens become money by the public price lists that come with infloop.

For a provider that reports tokens and no cost. A model that is on no list has no price: then
nothing is reported, and the cost stays unknown, which is never the same as 0. The lists are a file,
read when the first price is asked for; nothing is fetched.

Whose list counts is said by the provider's address, or by name. What the model is called alone does
not say it: the same model costs something else, or nothing, elsewhere.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from infloop.providers.base import Cost, Usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable

    from infloop.providers.base import Part, Provider, Request

SHORT = 10_000
"""A question of so many tokens has the plain price on every list."""


@dataclass(frozen=True, slots=True)
class PriceList:
    """A list, by its name or by the address of who sells.

    Some models cost more in long questions. With `sums` the tokens are those of many questions
    together, of which none is known to be long: all have the plain price.
    """

    name: str = ""
    address: str = ""
    sums: bool = False

    def price_usd(self, usage: Usage, models: Iterable[str]) -> float | None:
        """Return what tokens cost by the first of these names that is on the list, or None."""
        for model in filter(None, dict.fromkeys(models)):
            price = self._look_up(usage, model)
            if price is not None:
                return price
        return None

    def _look_up(self, usage: Usage, model: str) -> float | None:
        import genai_prices

        times = max(1.0, usage.input_tokens / SHORT) if self.sums else 1.0
        # A list may only take a part for less than the whole.
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


class Priced:
    """A provider that reports tokens and does not say what they cost."""

    def __init__(self, provider: Provider, price_list: PriceList) -> None:
        self._provider = provider
        self._price_list = price_list

    @property
    def id(self) -> str:
        """The name that workflows use."""
        return self._provider.id

    async def ask(self, request: Request) -> AsyncIterator[Part]:
        """Yield the parts of the answer, and after each report of tokens what they cost."""
        used, billed = Usage(), 0.0
        parts = cast("AsyncGenerator[Part]", self._provider.ask(request))
        async with aclosing(parts):
            async for part in parts:
                yield part
                if not isinstance(part, Usage):
                    continue
                used += part
                models = (used.model, request.model, request.profile)
                # The first price takes half a second of reading.
                price = await asyncio.to_thread(self._price_list.price_usd, used, models)
                if price is not None:
                    yield Cost(max(0.0, price - billed))
                    billed = max(billed, price)
