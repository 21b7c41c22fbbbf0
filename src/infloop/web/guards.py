"""What every request passes before a route sees it, in the order of `app.GUARDS`.

Each guard is an ASGI application around another one and does one thing. A refusal is answered in
the one shape of `errors`; what is refused by an outer guard never reaches an inner one.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse

from infloop.application.login import is_token
from infloop.application.triggers import MAX_BODY_BYTES as MAX_WEBHOOK_BYTES
from infloop.model.reading import MAX_FILE_BYTES
from infloop.web.credentials import COOKIE, SECURE_COOKIE, bearer
from infloop.web.errors import Refused, answer, error_response, log
from infloop.web.exposure import Asked, refuse_forwarded, refuse_host, refuse_origin

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from infloop.application.sessions import Sessions
    from infloop.model.audit import ActorKind
    from infloop.web.dependencies import WebDependencies

WEBHOOKS = "/api/webhook/"
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/login", "/logout", "/page.css"})
"""What is answered without a token, beside webhooks; none of it says anything about runs."""

DISPATCH = "/dispatch"
DISPATCH_ADDRESS = "/dispatch/address"
DISPATCH_SECRET = "/dispatch/secret"  # noqa: S105  (a path)

PAGES = frozenset({"/", DISPATCH})
FORMS = frozenset({"/login", "/logout", DISPATCH_ADDRESS, DISPATCH_SECRET})
"""Where a page of ours sends a form; a page of another origin is refused before that."""

MAX_BODY_BYTES = MAX_FILE_BYTES
MAX_FORM_BYTES = 8 << 10
BODY_SECONDS = 30.0

SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with no referrer a browser's own forms have no Origin
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "cache-control": "no-store",
}


def is_webhook(path: str) -> bool:
    """Say whether a path is where webhooks arrive, the one place under `/api/` without a token."""
    return path.startswith(WEBHOOKS) and "/" not in path[len(WEBHOOKS) :]


class Guard:
    """An application around another one; things that are not HTTP requests pass."""

    def __init__(self, app: ASGIApp, web: WebDependencies) -> None:
        self._app = app
        self._web = web

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Let a request pass, or answer it."""
        if scope["type"] == "http":
            return self.handle(scope, receive, send)
        return self._app(scope, receive, send) if scope["type"] == "lifespan" else _no_answer()

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let an HTTP request pass, or answer it."""
        await self._app(scope, receive, send)


async def _no_answer() -> None:
    """What is neither a request nor the server's own."""


class Correlated(Guard):
    """Gives each request an id of its own, which its answer carries."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Name the request, and its answer after it."""
        name = f"cid_{next(_NAMES)}"
        scope.setdefault("state", {})["correlation_id"] = name

        def named(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-correlation-id", name.encode())]
            return send(message)

        await self._app(scope, receive, named)


def _names() -> Iterator[str]:
    """Yield 128 random bits each, drawn many at once: asking the kernel takes its time."""
    while True:
        drawn = secrets.token_hex(16 * _DRAWN_AT_ONCE)
        yield from (drawn[at : at + 32] for at in range(0, len(drawn), 32))


_DRAWN_AT_ONCE = 64
_NAMES = _names()


class Hardened(Guard):
    """Puts the security headers on every answer, refusals and failures included."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Add the headers that the answer does not set itself."""

        def hardened(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                own = message["headers"]
                set_already = {name for name, _ in own}
                added = (each for each in _SECURITY_HEADERS if each[0] not in set_already)
                message["headers"] = [*own, *added]
            return send(message)

        await self._app(scope, receive, hardened)


_SECURITY_HEADERS = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]


class Answered(Guard):
    """Sees to it that every request is answered and counted, whatever goes wrong inside."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what an inner guard refuses; log what nobody expected."""
        begun = asyncio.get_running_loop().time()
        status = 0

        def noted(message: Message) -> Awaitable[None]:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            return send(message)

        name = scope["state"]["correlation_id"]
        try:
            await self._app(scope, receive, noted)
        except Refused as refused:
            if not status:
                await answer(refused, name)(scope, receive, noted)
        except Exception:  # noqa: BLE001  (the edge of a request: the caller gets an answer)
            log.exception("%s: a request failed", name)
            if not status:
                failed = error_response(name, 500, "internal", "the server's log says more")
                await failed(scope, receive, noted)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            seconds = asyncio.get_running_loop().time() - begun
            self._web.metrics.request(scope["method"], route, status, seconds)


class FromHere(Guard):
    """Refuses what does not mean this server, and what a web page of another origin asks."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Look at Host, Origin and Sec-Fetch headers."""
        found: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            if name in _LOOKED_AT:
                found.setdefault(name.decode(), []).append(value.decode("latin-1"))
        server = scope.get("server")
        asked = Asked(
            scope["method"],
            scope["path"],
            found.get("host", ()),
            found.get("origin", ()),
            {name: found[name][0] for name in _FETCH if name in found},
            server[0] if server else "",
            forwarded=not _FORWARDED.isdisjoint(found),
        )
        reason = refuse_host(asked, self._web.exposure)
        if not reason and not is_webhook(asked.path):
            reason = refuse_forwarded(asked, self._web.exposure) or refuse_origin(asked)
        if reason:
            raise Refused(403, "forbidden", reason)
        await self._app(scope, receive, send)


_FETCH = ("sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest")
_FORWARDED = frozenset({"x-forwarded-for", "forwarded", "x-real-ip", "cf-connecting-ip", "via"})
_LOOKED_AT = frozenset(name.encode() for name in ("host", "origin", *_FETCH, *_FORWARDED))


class Bounded(Guard):
    """Bounds a body while it arrives: its size, its time, and what it may claim to be."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count the bytes; a body that is announced as too large is not read at all."""
        headers = Headers(scope=scope)
        most = _most(scope["path"])
        announced = headers.get("content-length", "0")
        if not announced.isdecimal() or int(announced[:20]) > most:
            raise _too_large(most)
        self._refuse_type(scope, headers)
        deadline = asyncio.get_running_loop().time() + BODY_SECONDS
        arrived, complete = 0, False

        async def counted() -> Message:
            nonlocal arrived, complete
            if complete:
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise Refused(
                    408,
                    "too-slow",
                    f"the body did not arrive in {BODY_SECONDS:.0f} seconds",
                    headers={"connection": "close"},
                ) from None
            arrived += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if arrived > most:
                raise _too_large(most)
            return message

        await self._app(scope, counted, send)

    def _refuse_type(self, scope: Scope, headers: Headers) -> None:
        """Raise for a body that a plain web form could send to the API without being asked."""
        path = scope["path"]
        if scope["method"] in ("GET", "HEAD") or is_webhook(path) or path in FORMS:
            return
        has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if (has_body or kind) and kind != "application/json":
            raise Refused(
                415,
                "unsupported-media-type",
                f"a body must be application/json, not {kind[:60] or 'of no type'!r}",
            )


def _most(path: str) -> int:
    if is_webhook(path):
        return MAX_WEBHOOK_BYTES
    return MAX_FORM_BYTES if path in OPEN_PATHS | FORMS else MAX_BODY_BYTES


def _too_large(most: int) -> Refused:
    return Refused(
        413, "too-large", f"a body may have {most} bytes here", headers={"connection": "close"}
    )


class Authenticated(Guard):
    """Demands the token, or a session that was opened with it, where one is set."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Find out who asks; a browser that asks for a page is sent to log in."""
        path = scope["path"]
        actor: ActorKind | None = "webhook"
        if not is_webhook(path):
            actor = who(HTTPConnection(scope), self._web.exposure.token, self._web.sessions)
        scope["state"]["actor"] = actor or "anonymous"
        if actor or path in OPEN_PATHS:
            await self._app(scope, receive, send)
        elif path in PAGES and scope["method"] in ("GET", "HEAD"):
            await RedirectResponse("/login", 303)(scope, receive, send)
        else:
            raise Refused(
                401,
                "unauthorized",
                "send the header `Authorization: Bearer TOKEN`, or log in at /login",
                headers={"www-authenticate": "Bearer"},
            )


def who(connection: HTTPConnection, token: str, sessions: Sessions) -> ActorKind | None:
    """Return who asks, or None for somebody who may not."""
    if not token:
        return "open"
    given = connection.headers.getlist("authorization")
    if given:
        shown = bearer(given[0]) if len(given) == 1 else None
        return "api-token" if shown is not None and is_token(shown, token) else None
    cookies = connection.cookies
    for name in (SECURE_COOKIE, COOKIE):
        if name in cookies and sessions.knows(cookies[name]):
            return "browser-session"
    return None
