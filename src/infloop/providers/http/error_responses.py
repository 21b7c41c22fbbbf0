"""An error response of an API, and what to do about it."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import msgspec

from infloop.providers.base import AnswerPart, Cost, RateLimited
from infloop.providers.http.answers import error_text, failed
from infloop.providers.json_lines import MAX_MESSAGE_CHARS, json_object, one_line
from infloop.providers.lines import Line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infloop.egress.client import Response

MAX_BODY_BYTES = 64 << 10
MAX_WAIT = timedelta(days=366)


class ErrorResponse(msgspec.Struct, frozen=True):
    """The status, the headers, and the beginning of the body."""

    status: int
    headers: Mapping[str, str]
    body: str

    def message(self) -> str:
        """Return the message in the body, as one line."""
        body = json_object(Line(self.body))
        return (error_text(body) if body else "") or one_line(self.body, MAX_MESSAGE_CHARS)

    def parts(self, host: str, token_source: str, model: str, now: datetime) -> list[AnswerPart]:
        """Return the end of the call; `token_source` says where the token comes from."""
        message = self.message()
        error = f"{host} answered {self.status}" + (f": {message}" if message else "")
        # A request with status 4xx was not processed, so it cost nothing.
        cost: list[AnswerPart] = [Cost(0.0)] if 400 <= self.status < 500 else []
        until = retry_at(self.headers, now) if self.status == 429 else None
        if until is not None:
            limited = RateLimited(int(until.timestamp() * 1000))
            return [*cost, limited, failed(f"{limited.reason} ({error})")]
        return [*cost, failed(f"{error}; {self._advice(token_source, model)}")]

    def _advice(self, token_source: str, model: str) -> str:
        match self.status:
            case 401 | 403:
                return f"check {token_source}"
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


async def read_error(response: Response) -> ErrorResponse:
    """Read an error response, with at most `MAX_BODY_BYTES` of its body."""
    body = bytearray()
    async for chunk in response.chunks:
        body += chunk[: MAX_BODY_BYTES - len(body)]
        if len(body) >= MAX_BODY_BYTES:
            break
    return ErrorResponse(response.status, response.headers, body.decode("utf-8", "replace"))


def retry_at(headers: Mapping[str, str], now: datetime) -> datetime | None:
    """Return when to retry, from `retry-after-ms`, or `retry-after` in seconds or as a date."""
    ms, after = _number(headers.get("retry-after-ms")), headers.get("retry-after", "")
    seconds = ms / 1000 if ms is not None else _number(after)
    if seconds is not None:
        return now + min(timedelta(seconds=min(seconds, 1e9)), MAX_WAIT)
    try:
        date = parsedate_to_datetime(after)
    except (TypeError, ValueError, OverflowError):
        return None
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return min(max(date, now), now + MAX_WAIT)


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
