"""The credential broker: a child calls a provider with its run's token; the broker adds the key.

Rules:

- `/broker/<provider>/…` leads to the provider's own address and nowhere else.
- The child sends the run's token where the provider expects a key. Any other key is refused.
- An agent may open its connection before its first call: `HEAD` on the base URL, without a key.
  The broker answers such a request itself, the same for every name, and forwards nothing.
- Only the routes of the provider's dialect are allowed, with exact method and path.
- Only fields that such calls need are forwarded. The key replaces the token.
- Redirects are returned and not followed. The key is never returned: not in a field, not in the
  body, not in an error message.
- The budget admits each call before it is sent, and sees each response. If there is a limit, the
  budget needs the whole body first, and what it returns is sent.
- The token is valid only while the run lasts.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from infloop.egress.client import Client, Destination
from infloop.egress.key_redaction import KeyRedactor
from infloop.egress.protocol import Refusal
from infloop.errors import EgressError, SettingsError
from infloop.policy.routes import ROUTES, Dialect, Route, find_route
from infloop.policy.secrets import same_secret

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
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


class CallRefused(Exception):
    """The budget does not admit a call; the text says why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class AdmittedCall(NamedTuple):
    """A call that may be made: its meter if it can cost something, and the body to send."""

    meter: Meter | None
    body: bytes | None


class CallBudget(Protocol):
    """Counts what calls cost, and admits them as long as there is money."""

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit, so that `admit` needs the body."""

    async def admit(self, dialect: Dialect, route: Route, body: bytes | None) -> AdmittedCall:
        """Reserve what a call can cost; raise CallRefused if it may not be made.

        It may wait until other calls are over. The meter must be finished, whatever happens.
        """


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


class Call(msgspec.Struct, frozen=True):
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
        self.buffered_bytes = 0
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

    def _has_token(self, head: Head) -> bool:
        visible = []
        if (key := head.fields.get("x-api-key")) is not None:
            visible.append(key)
        if (authorization := head.fields.get("authorization")) is not None:
            scheme, _, credentials = authorization.partition(" ")
            visible.append(credentials.strip() if scheme.lower() == "bearer" else "")
        return bool(visible) and all(same_secret(one, self._token) for one in visible)

    async def make_call(
        self, call: Call, exchange: Exchange, on_admitted: Callable[[], object]
    ) -> None:
        """Call the provider and return its response to the child.

        Calls `on_admitted` before anything is sent. Raises CallRefused if the budget does not
        admit the call, and EgressError on failure.
        """
        with self._buffering(exchange):
            meter = await self._admit(call, exchange)
            try:
                on_admitted()
                await self._pass(call, exchange, meter)
            except EgressError as error:
                message = str(error).replace(call.account.key, "*")
                raise EgressError(message, error.failure) from None
            finally:
                if meter is not None:
                    meter.finish(sent=exchange.sent > 0)

    async def _admit(self, call: Call, exchange: Exchange) -> Meter | None:
        if self._budget is None:
            return None
        body = await exchange.read_body() if self._budget.is_limited else None
        wait_s = self._limits.budget_s
        try:
            async with asyncio.timeout(wait_s):
                admitted = await self._budget.admit(call.account.dialect, call.route, body)
        except TimeoutError:
            raise CallRefused(
                429, f"budget: other calls held the rest of the limit for {wait_s:g} s"
            ) from None
        if admitted.body is not None:
            exchange.replace_body(admitted.body)
        return admitted.meter

    @contextmanager
    def _buffering(self, exchange: Exchange) -> Iterator[None]:
        """Bound the memory for bodies that the budget needs."""
        if self._budget is None or not self._budget.is_limited:
            yield
            return
        length = exchange.head.length
        size = self._limits.call_body if length is None else length
        if self.buffered_bytes + size > self._limits.buffered_bodies:
            raise CallRefused(503, "there are too many large calls at once")
        self.buffered_bytes += size
        try:
            yield
        finally:
            self.buffered_bytes -= size

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


def is_warm_up(head: Head) -> bool:
    """Tell whether a request only opens a connection: it asks for nothing and shows no key."""
    name = head.target.removeprefix(PREFIX).removesuffix("/")
    shows_key = any(field in head.fields for field in ("x-api-key", "authorization"))
    is_base_url = bool(name) and not {"/", "?", "%"} & set(name)
    return head.method == "HEAD" and is_base_url and not shows_key and head.length == 0


def error_body(dialect: Dialect, status: int, reason: str) -> bytes:
    """Return the body of a refusal as the provider's API would write it."""
    match dialect:
        case "anthropic":
            kind = _ANTHROPIC_ERRORS.get(status, "invalid_request_error")
            error: dict[str, object] = {"type": kind, "message": reason}
            return json.dumps({"type": "error", "error": error}).encode()
        case "openai":
            code = "insufficient_quota" if status == 402 else None
            error = {"message": reason, "type": code or "invalid_request_error"}
            return json.dumps({"error": {**error, "param": None, "code": code}}).encode()


_ANTHROPIC_ERRORS = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    413: "request_too_large",
    429: "rate_limit_error",
    502: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}


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
