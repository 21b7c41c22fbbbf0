"""The credential broker: a child calls a provider with its run's token; the broker adds the key.

Rules:

- `/broker/<provider>/…` leads to the provider's own address and nowhere else.
- The child sends the run's token where the provider expects a key. Any other key is refused.
- Only the routes of the provider's dialect are allowed, with exact method and path.
- Only fields that such calls need are forwarded. The key replaces the token.
- Redirects are returned and not followed. The key is never returned: not in a field, not in the
  body, not in an error message.
- The budget is asked before each call and sees each response.
- The token is valid only while the run lasts.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from infloop.egress.client import Client, Destination
from infloop.egress.key_redaction import KeyRedactor
from infloop.egress.protocol import Refusal
from infloop.errors import EgressError, SettingsError
from infloop.policy.routes import ROUTES, Dialect, Route, find_route
from infloop.policy.secrets import same_secret

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from types import TracebackType
    from typing import Self

    from infloop.egress.client import Response
    from infloop.egress.exchange import Exchange
    from infloop.egress.limits import ProxyLimits
    from infloop.egress.protocol import Head
    from infloop.egress.resolve import Lookup

PREFIX = "/broker/"

KeyField: TypeAlias = Literal["x-api-key", "bearer"]

_FORWARDED = frozenset(
    (
        *("accept", "content-type", "user-agent", "idempotency-key", "x-app"),
        *("anthropic-version", "anthropic-beta", "anthropic-dangerous-direct-browser-access"),
        *("openai-beta", "originator", "session_id", "session-id", "thread-id", "version"),
        "x-client-request-id",
    )
)
_FORWARDED_PREFIXES = ("x-stainless-", "x-codex-", "x-openai-internal-codex-")
_MAX_RESPONSE_BYTES = 1 << 40


class Meter(Protocol):
    """Reads the response to one call to find out what it cost."""

    def answered(self, status: int, content_type: str) -> None:
        """Record the head of the response."""

    def feed(self, data: bytes) -> None:
        """Read the next part of the body."""

    def finish(self, *, sent: bool) -> None:
        """Record the end of the response; `sent` if the request was sent at all.

        Further calls have no effect.
        """


class CallBudget(Protocol):
    """Counts what calls cost, and says when no more may be made."""

    async def refusal(self) -> str:
        """Return why no call may be made now; empty if one may."""

    def meter(self, dialect: Dialect, route: Route) -> Meter | None:
        """Return the meter for a call, if it can cost something."""


@dataclass(frozen=True, slots=True)
class Account:
    """A provider's address, and the key that children use without having it."""

    provider: str
    base_url: str
    dialect: Dialect
    key_field: KeyField
    key: str = field(repr=False)
    private_ok: bool = False
    routes: Sequence[Route] = ()

    def __post_init__(self) -> None:
        if not (self.key.isascii() and self.key.isprintable() and self.key.split() == [self.key]):
            raise SettingsError(
                f"the key of provider {self.provider!r} is empty, or contains spaces or characters "
                "other than printable ASCII"
            )

    @property
    def allowed_routes(self) -> Sequence[Route]:
        """The routes that may be called."""
        return self.routes or ROUTES[self.dialect]


@dataclass(frozen=True, slots=True)
class Call:
    """A call that may be made."""

    account: Account
    route: Route
    query: str

    @property
    def url(self) -> str:
        """The provider's URL for this call."""
        base = self.account.base_url.rstrip("/")
        return f"{base}{self.route.path}{'?' if self.query else ''}{self.query}"


class Broker:
    """Makes calls for the children of one run."""

    def __init__(
        self,
        accounts: Sequence[Account],
        *,
        token: str,
        limits: ProxyLimits,
        lookup: Lookup | None = None,
        budget: CallBudget | None = None,
    ) -> None:
        self._accounts = {account.provider: account for account in accounts}
        self._token = token
        self._limits = limits
        self._budget = budget
        self._client = Client(
            [Destination.of(one.base_url, private_ok=one.private_ok) for one in accounts],
            lookup=lookup,
        )

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        await self._client.__aexit__(kind, error, trace)

    def close(self) -> None:
        """Make the token invalid."""
        self._token = ""

    def judge(self, head: Head) -> Call | Refusal:
        """Decide whether a request may be forwarded with the key."""
        if not self._has_token(head):
            return Refusal(401, "this is not the token of the run")
        provider, slash, rest = head.target.removeprefix(PREFIX).partition("/")
        account = self._accounts.get(provider)
        if account is None or not slash:
            return Refusal(403, "no provider of that name is configured here")
        found = find_route(head.method, f"/{rest}", account.allowed_routes)
        if found.route is None:
            return Refusal(found.status, found.reason)
        return Call(account, found.route, found.query)

    async def refusal(self) -> str:
        """Return why no call may be made now, because the budget is spent; empty if one may."""
        return await self._budget.refusal() if self._budget else ""

    def _has_token(self, head: Head) -> bool:
        visible = []
        if (key := head.fields.get("x-api-key")) is not None:
            visible.append(key)
        if (authorization := head.fields.get("authorization")) is not None:
            scheme, _, credentials = authorization.partition(" ")
            visible.append(credentials.strip() if scheme.lower() == "bearer" else "")
        return bool(visible) and all(same_secret(one, self._token) for one in visible)

    async def make_call(self, call: Call, exchange: Exchange) -> None:
        """Call the provider and return its response to the child; raise EgressError on failure."""
        meter = self._budget.meter(call.account.dialect, call.route) if self._budget else None
        try:
            await self._pass(call, exchange, meter)
        except EgressError as error:
            message = str(error).replace(call.account.key, "*")
            raise EgressError(message, error.failure) from None
        finally:
            if meter is not None:
                meter.finish(sent=exchange.sent > 0)

    async def _pass(self, call: Call, exchange: Exchange, meter: Meter | None) -> None:
        async with self._client.stream(
            call.route.method,
            call.url,
            headers=_headers(exchange.head, call.account) | exchange.length,
            content=exchange.content(),
            connect_timeout_s=self._limits.connect_s,
            read_timeout_s=self._limits.idle_s,
            max_response_bytes=_MAX_RESPONSE_BYTES,
        ) as response:
            key = call.account.key
            visible = {name: text for name, text in response.headers.items() if key not in text}
            if meter is not None:
                meter.answered(response.status, response.headers.get("content-type", ""))
            async with aclosing(_redacted_body(response, meter, key)) as chunks:
                await exchange.respond(replace(response, chunks=chunks), visible)


def _headers(head: Head, account: Account) -> dict[str, str]:
    passed = {
        name: value
        for name, value in head.fields.items()
        if name in _FORWARDED or name.startswith(_FORWARDED_PREFIXES)
    }
    match account.key_field:
        case "x-api-key":
            return {**passed, "x-api-key": account.key}
        case "bearer":
            return {**passed, "authorization": f"Bearer {account.key}"}


async def _redacted_body(
    response: Response, meter: Meter | None, key: str
) -> AsyncGenerator[bytes]:
    """Yield a response's body without the key, and feed it to the meter.

    The last part of a response that is not streamed is held back until the meter has finished: the
    child may make its next call right after it.
    """
    redactor, last = KeyRedactor(key), b""
    streamed = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    async for chunk in response.chunks:
        if meter is not None:
            meter.feed(chunk)
        visible, last = (chunk, b"") if streamed else (last, chunk)
        if cleaned := redactor.feed(visible):
            yield cleaned
    if meter is not None:
        meter.finish(sent=True)
    if rest := redactor.feed(last) + redactor.finish():
        yield rest
