"""What it means when an API answers with an error, and what to do about it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from infloop.providers.base import Cost, Part, RateLimited
from infloop.providers.http.replies import failed, told_error
from infloop.providers.json_lines import MOST_TEXT, one_line, read_frame
from infloop.providers.lines import Line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infloop.egress.client import Response

MAX_BODY_BYTES = 64 << 10
LONGEST_WAIT = timedelta(days=366)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that is none: its status and headers, and the beginning of its body."""

    status: int
    headers: Mapping[str, str]
    body: str

    def told(self) -> str:
        """Return what the body says, in a line."""
        frame = read_frame(Line(self.body))
        return (told_error(frame) if frame else "") or one_line(self.body, MOST_TEXT)

    def parts(self, who: str, key: str, model: str, now: datetime) -> list[Part]:
        """Return how the call ended: `who` refused, `key` says where the token comes from."""
        told = self.told()
        error = f"{who} answered {self.status}" + (f": {told}" if told else "")
        # A request that was turned down was not worked on, so it cost nothing.
        cost: list[Part] = [Cost(0.0)] if 400 <= self.status < 500 else []
        until = lifted_at(self.headers, now) if self.status == 429 else None
        if until is not None:
            limited = RateLimited(int(until.timestamp() * 1000))
            return [*cost, limited, failed(f"{limited.reason} ({error})")]
        return [*cost, failed(f"{error}; {self._advice(key, model)}")]

    def _advice(self, key: str, model: str) -> str:
        match self.status:
            case 401 | 403:
                return f"check {key}"
            case 404:
                return f"check the provider's baseUrl and endpoint, and the model {model!r}"
            case 429:
                return "wait, or raise the limits of the account"
            case status if 300 <= status < 400:
                location = one_line(self.headers.get("location", ""))
                return f"redirects are not followed: put the address into baseUrl ({location!r})"
            case status if status >= 500:
                return "the server has a problem; try again later"
            case _:
                return f"check the request: the model is {model!r}"


async def read_refusal(response: Response) -> Refusal:
    """Return an answer that is none, with as much of its body as is worth reading."""
    body = bytearray()
    async for chunk in response.chunks:
        body += chunk[: MAX_BODY_BYTES - len(body)]
        if len(body) >= MAX_BODY_BYTES:
            break
    return Refusal(response.status, response.headers, body.decode("utf-8", "replace"))


def lifted_at(headers: Mapping[str, str], now: datetime) -> datetime | None:
    """Return when to ask again, by `retry-after-ms` or `retry-after` in seconds or as a date."""
    ms, after = _number(headers.get("retry-after-ms")), headers.get("retry-after", "")
    seconds = ms / 1000 if ms is not None else _number(after)
    if seconds is not None:
        return now + min(timedelta(seconds=min(seconds, 1e9)), LONGEST_WAIT)
    try:
        date = parsedate_to_datetime(after)
    except (TypeError, ValueError, OverflowError):
        return None
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return min(max(date, now), now + LONGEST_WAIT)


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
