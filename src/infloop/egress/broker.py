"""The credential broker: a child asks with its run's token, the key is added here.

Rules
  * `/broker/<provider>/…` leads to the provider's own address and nowhere else.
  * The child shows the run's token where the provider expects a key. Any other key is refused.
  * Only the calls of the provider's dialect pass, method and path exactly.
  * Only fields that such calls need are passed on; the key replaces the token.
  * Redirects are passed back and not followed. The key is not passed back: not in a field, not in
    the body, not in a reason.
  * Whoever keeps the books is asked before each call and hears each answer.
  * When the run has ended, so has the token.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from infloop.egress.client import Client, Destination
from infloop.egress.protocol import Refusal
from infloop.egress.scrubbing import Scrubber
from infloop.errors import EgressError, SettingsError
from infloop.policy.routes import ROUTES, Dialect, Route, find_route
from infloop.policy.secrets import same_secret

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
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
    """Listens to the answer to one call, to learn what it cost."""

    def answered(self, status: int, content_type: str) -> None:
        """Take note that there is an answer."""

    def feed(self, data: bytes) -> None:
        """Take the next piece of it."""

    def finish(self, *, asked: bool) -> None:
        """Take note that it is over, or broke off; `asked` if anything had been sent.

        Once is enough, and more often changes nothing.
        """


class Books(Protocol):
    """Keeps count of what calls cost, and says when there must be no more of them."""

    async def refusal(self) -> str:
        """Return why no call may be made now, or nothing."""

    def meter(self, dialect: Dialect, route: Route) -> Meter | None:
        """Return who listens to a call, if it can cost something."""


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
                f"the key of provider {self.provider!r} is empty, or has blanks or letters in it "
                "that no key has"
            )

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
        books: Books | None = None,
    ) -> None:
        self._accounts = {account.provider: account for account in accounts}
        self._token = token
        self._limits = limits
        self._books = books
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

    async def refusal(self) -> str:
        """Return why no call may be made now, whatever it is: what may be spent is spent."""
        return await self._books.refusal() if self._books else ""

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
        meter = self._books.meter(call.account.dialect, call.route) if self._books else None
        try:
            await self._pass(call, exchange, meter)
        except EgressError as error:
            said = str(error).replace(call.account.key, "*")
            raise EgressError(said, error.failure) from None
        finally:
            if meter is not None:
                meter.finish(asked=exchange.sent > 0)

    async def _pass(self, call: Call, exchange: Exchange, meter: Meter | None) -> None:
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
            if meter is not None:
                meter.answered(response.status, response.headers.get("content-type", ""))
            async with aclosing(_told(response, meter, key)) as chunks:
                await exchange.answer(replace(response, chunks=chunks), shown)


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


async def _told(response: Response, meter: Meter | None, key: str) -> AsyncGenerator[bytes]:
    """Yield an answer's body without the key, with the meter listening to it.

    The end of an answer in one piece is shown when it is counted: the next call may follow at once.
    """
    scrubber, last = Scrubber(key), b""
    streamed = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    async for chunk in response.chunks:
        if meter is not None:
            meter.feed(chunk)
        shown, last = (chunk, b"") if streamed else (last, chunk)
        if cleaned := scrubber.feed(shown):
            yield cleaned
    if meter is not None:
        meter.finish(asked=True)
    if rest := scrubber.feed(last) + scrubber.finish():
        yield rest
