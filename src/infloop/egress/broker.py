"""The credential broker: a child asks with its run's token, the key is added here.

Rules
  * `/broker/<provider>/…` leads to the provider's own address and nowhere else.
  * The child shows the run's token where the provider expects a key. Any other key is refused.
  * Only the calls of the provider's dialect pass, method and path exactly.
  * Only fields that such calls need are passed on; the key replaces the token.
  * Redirects are passed back and not followed; a field that holds the key is not passed back.
  * When the run has ended, so has the token.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from infloop.egress.client import Client, Destination
from infloop.egress.protocol import Refusal, same_secret
from infloop.errors import SettingsError
from infloop.policy.routes import ROUTES, Dialect, Route, find_route

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence
    from types import TracebackType
    from typing import Self

    from infloop.egress.client import Response
    from infloop.egress.exchange import Exchange
    from infloop.egress.limits import Limits
    from infloop.egress.protocol import Head
    from infloop.egress.resolve import Lookup

PREFIX = "/broker/"

KeyField: TypeAlias = Literal["x-api-key", "bearer"]

_PASSED_ON = frozenset(
    (
        *("accept", "content-type", "user-agent", "idempotency-key", "x-app"),
        *("anthropic-version", "anthropic-beta", "anthropic-dangerous-direct-browser-access"),
        *("openai-beta", "originator", "session_id", "session-id", "thread-id", "version"),
        "x-client-request-id",
    )
)
_PASSED_ON_PREFIXES = ("x-stainless-", "x-codex-", "x-openai-internal-codex-")
_MOST_ANSWERED = 1 << 40


class Meter(Protocol):
    """Listens to an answer to learn what it cost."""

    def feed(self, data: bytes) -> None:
        """Take the next piece."""

    def finish(self) -> None:
        """Take note that it is over, or broke off."""


NewMeter: TypeAlias = "Callable[[Route, int, str], Meter | None]"
"""Make the meter of an answer from its route, status and content type."""


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
    meter: NewMeter | None = None

    def __post_init__(self) -> None:
        if not (self.key.isascii() and self.key.isprintable() and self.key.strip()):
            raise SettingsError(f"the key of provider {self.provider!r} is empty or not plain text")

    @property
    def calls(self) -> Sequence[Route]:
        """What may be called."""
        return self.routes or ROUTES[self.dialect]


@dataclass(frozen=True, slots=True)
class Call:
    """A call that may be made."""

    account: Account
    route: Route
    query: str

    @property
    def url(self) -> str:
        """Where it goes."""
        base = self.account.base_url.rstrip("/")
        return f"{base}{self.route.path}{'?' if self.query else ''}{self.query}"


class Broker:
    """Makes calls for the children of one run."""

    def __init__(
        self,
        accounts: Sequence[Account],
        *,
        token: str,
        limits: Limits,
        lookup: Lookup | None = None,
    ) -> None:
        self._accounts = {account.provider: account for account in accounts}
        self._token = token
        self._limits = limits
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
        """Let the token be worth nothing from now on."""
        self._token = ""

    def judge(self, head: Head) -> Call | Refusal:
        """Decide whether a request may be made with the key."""
        if not self._shows_token(head):
            return Refusal(401, "this is not the token of the run")
        provider, slash, rest = head.target.removeprefix(PREFIX).partition("/")
        account = self._accounts.get(provider)
        if account is None or not slash:
            return Refusal(403, "no provider of that name is set up here")
        found = find_route(head.method, f"/{rest}", account.calls)
        if found.route is None:
            return Refusal(found.status, found.reason)
        return Call(account, found.route, found.query)

    def _shows_token(self, head: Head) -> bool:
        shown = []
        if (key := head.fields.get("x-api-key")) is not None:
            shown.append(key)
        if (authorization := head.fields.get("authorization")) is not None:
            scheme, _, credentials = authorization.partition(" ")
            shown.append(credentials.strip() if scheme.lower() == "bearer" else "")
        return bool(shown) and all(same_secret(one, self._token) for one in shown)

    async def carry_out(self, call: Call, exchange: Exchange) -> None:
        """Ask the provider and pass its answer back; raise EgressError where that fails."""
        async with self._client.stream(
            call.route.method,
            call.url,
            headers=_headers(exchange.head, call.account) | exchange.length,
            content=exchange.content(),
            connect_timeout_s=self._limits.connect_s,
            read_timeout_s=self._limits.idle_s,
            max_response_bytes=_MOST_ANSWERED,
        ) as response:
            key = call.account.key
            shown = {name: text for name, text in response.headers.items() if key not in text}
            await exchange.answer(_heard(call, response), shown)


def _headers(head: Head, account: Account) -> dict[str, str]:
    passed = {
        name: value
        for name, value in head.fields.items()
        if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    }
    match account.key_field:
        case "x-api-key":
            return {**passed, "x-api-key": account.key}
        case "bearer":
            return {**passed, "authorization": f"Bearer {account.key}"}


def _heard(call: Call, response: Response) -> Response:
    """Return the answer with the account's meter listening to it."""
    make = call.account.meter
    content_type = response.headers.get("content-type", "")
    meter = make(call.route, response.status, content_type) if make else None
    return response if meter is None else replace(response, chunks=_metered(response, meter))


async def _metered(response: Response, meter: Meter) -> AsyncGenerator[bytes]:
    try:
        async for chunk in response.chunks:
            meter.feed(chunk)
            yield chunk
    finally:
        meter.finish()
