"""ASGI middleware that every request passes before a route sees it, in the order of `app.GUARDS`.

Each guard does one thing. A refusal is answered in the one shape of `errors`; what an outer guard
refuses never reaches an inner one.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, QueryParams
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse

from infloop.application.login import is_token
from infloop.application.triggers import MAX_BODY_BYTES as MAX_WEBHOOK_BYTES
from infloop.model.reading import MAX_FILE_BYTES
from infloop.web.credentials import COOKIE, SECURE_COOKIE, bearer
from infloop.web.errors import Refused, answer, error_response, log
from infloop.web.exposure import (
    RequestOrigin,
    refuse_forwarded,
    refuse_host,
    refuse_origin,
    refuse_user,
)
from infloop.web.pages import is_page

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from infloop.application.refused_access import Wrong
    from infloop.application.sessions import Sessions
    from infloop.model.audit import ActorKind
    from infloop.web.dependencies import WebDependencies

WEBHOOKS = "/api/webhook/"
HEALTH = frozenset({"/healthz", "/readyz"})
OPEN_PATHS = HEALTH | {"/login", "/logout", "/page.css"}
"""Answered without a token, as webhooks and assets are; none of it says anything about runs."""

ASSETS = "/assets/"
FORMS = frozenset({"/login", "/logout"})
"""Where our own pages send forms; a page of another origin is refused earlier."""

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
    """Webhooks are the only paths under `/api/` that need no token."""
    return path.startswith(WEBHOOKS) and "/" not in path[len(WEBHOOKS) :]


class Guard:
    """Middleware around another application; only HTTP requests are looked at."""

    def __init__(self, app: ASGIApp, web: WebDependencies) -> None:
        self._app = app
        self._web = web

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http":
            return self.handle(scope, receive, send)
        return self._app(scope, receive, send) if scope["type"] == "lifespan" else _ignore()

    def handle(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Handle an HTTP request; a guard that only checks raises Refused, without a coroutine."""
        return self._app(scope, receive, send)


async def _ignore() -> None:
    """Do nothing for scopes that are neither HTTP nor lifespan."""


class AssignCorrelationId(Guard):
    """Gives each request a correlation id, which its response carries."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = f"cid_{next(_IDS)}"
        scope.setdefault("state", {})["correlation_id"] = name

        def named(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-correlation-id", name.encode())]
            return send(message)

        await self._app(scope, receive, named)


def _random_ids() -> Iterator[str]:
    """Yield 128 random bits each; the kernel is asked for many at once."""
    while True:
        drawn = secrets.token_hex(16 * _IDS_PER_READ)
        yield from (drawn[at : at + 32] for at in range(0, len(drawn), 32))


_IDS_PER_READ = 64
_IDS = _random_ids()


class SecurityHeaders(Guard):
    """Puts the security headers on every response, errors included."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        def with_headers(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                own = message["headers"]
                set_already = {name for name, _ in own}
                message["headers"] = [
                    *own,
                    *[each for each in _SECURITY_HEADERS if each[0] not in set_already],
                ]
            return send(message)

        await self._app(scope, receive, with_headers)


_SECURITY_HEADERS = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]


class AnswerErrors(Guard):
    """Answers and counts every request, whatever goes wrong inside."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
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


class CheckUser(Guard):
    """Refuses connections of another user of this machine, where no token is set.

    Webhooks have a credential of their own, and whether the server is well is no secret.
    """

    def handle(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        path = scope["path"]
        if path not in HEALTH and not is_webhook(path):
            peer = scope["state"].get("peer_user")
            reason = refuse_user(peer, self._web.own_user, self._web.exposure)
            if reason:
                raise Refused(403, "forbidden", reason)
        return self._app(scope, receive, send)


class CheckOrigin(Guard):
    """Refuses requests for another host, and requests of a web page of another origin."""

    def handle(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        found: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            if name in _ORIGIN_HEADERS:
                found.setdefault(name.decode(), []).append(value.decode("latin-1"))
        server = scope.get("server")
        origin = RequestOrigin(
            scope["method"],
            scope["path"],
            found.get("host", ()),
            found.get("origin", ()),
            {name: found[name][0] for name in _FETCH if name in found},
            (server[0], server[1] or 0) if server else ("", 0),
            forwarded=not _FORWARDED.isdisjoint(found),
        )
        reason = refuse_host(origin, self._web.exposure)
        if not reason and not is_webhook(origin.path):
            reason = refuse_forwarded(origin, self._web.exposure) or refuse_origin(origin)
        if reason:
            raise Refused(403, "forbidden", reason)
        return self._app(scope, receive, send)


_FETCH = ("sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest")
_FORWARDED = frozenset({"x-forwarded-for", "forwarded", "x-real-ip", "cf-connecting-ip", "via"})
_ORIGIN_HEADERS = frozenset(name.encode() for name in ("host", "origin", *_FETCH, *_FORWARDED))


class LimitBody(Guard):
    """Limits a body while it arrives: its size, its time, its media type."""

    def handle(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        headers = Headers(scope=scope)
        limit = _body_limit(scope["path"])
        announced = headers.get("content-length", "0")
        if not announced.isdecimal() or int(announced[:20]) > limit:
            raise _too_large(limit)
        self._refuse_type(scope, headers)
        deadline = asyncio.get_running_loop().time() + BODY_SECONDS
        arrived, complete = 0, False

        async def counted() -> Message:
            nonlocal arrived, complete
            if complete:
                return await receive()
            if scope["state"].get("has_arrived"):  # most bodies come with the head
                message = await receive()
            else:
                message = await _receive_in_time(receive, deadline)
            arrived += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if arrived > limit:
                raise _too_large(limit)
            return message

        return self._app(scope, counted, send)

    def _refuse_type(self, scope: Scope, headers: Headers) -> None:
        """Refuse the media types that a web form can send without a CORS preflight."""
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


async def _receive_in_time(receive: Receive, deadline: float) -> Message:
    try:
        async with asyncio.timeout_at(deadline):
            return await receive()
    except TimeoutError:
        raise Refused(
            408,
            "too-slow",
            f"the body did not arrive in {BODY_SECONDS:.0f} seconds",
            headers={"connection": "close"},
        ) from None


def _body_limit(path: str) -> int:
    if is_webhook(path):
        return MAX_WEBHOOK_BYTES
    return MAX_FORM_BYTES if path in OPEN_PATHS | FORMS else MAX_BODY_BYTES


def _too_large(limit: int) -> Refused:
    return Refused(
        413, "too-large", f"a body may have {limit} bytes here", headers={"connection": "close"}
    )


class Authenticate(Guard):
    """Asks for the token, or a session that was opened with it, where a token is set."""

    def handle(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if not is_webhook(scope["path"]):
            return self._authenticate(scope, receive, send)
        scope["state"]["actor"] = "webhook"
        return self._app(scope, receive, send)

    async def _authenticate(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        actor, wrong = authenticate(
            HTTPConnection(scope), self._web.exposure.token, self._web.sessions
        )
        scope["state"]["actor"] = actor or "anonymous"
        if actor or path in OPEN_PATHS or path.startswith(ASSETS):
            await self._app(scope, receive, send)
        elif is_page(path) and scope["method"] in ("GET", "HEAD"):
            await self._lead_to_login(scope, receive, send)
        else:
            if wrong is not None:
                await self._count(wrong, scope)
            raise Refused(
                401,
                "unauthorized",
                "send the header `Authorization: Bearer TOKEN`, or log in at /login",
                headers={"www-authenticate": "Bearer"},
            )

    async def _lead_to_login(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A link on another site comes without the session's cookie. The console itself says nothing
        # about runs: it asks again from its own origin, and then the cookie is sent.
        if Headers(scope=scope).get("sec-fetch-site") == "cross-site":
            await self._app(scope, receive, send)
            return
        query = scope["query_string"].decode("latin-1")
        wanted = scope["path"] + (f"?{query}" if query else "")
        address = "/login" if wanted == "/" else f"/login?{QueryParams({'next': wanted})}"
        await RedirectResponse(address, 303)(scope, receive, send)

    async def _count(self, wrong: Wrong, scope: Scope) -> None:
        remote = scope["client"][0] if scope.get("client") else ""
        correlation_id = scope["state"]["correlation_id"]
        wait = await self._web.application.refused_access.note(wrong, remote, correlation_id)
        if wait:
            self._web.metrics.limited("access")
            raise Refused(
                429,
                "rate-limited",
                f"too many wrong tokens or sessions; try again in {wait} seconds",
                headers={"retry-after": str(wait)},
            )


def authenticate(
    connection: HTTPConnection, token: str, sessions: Sessions
) -> tuple[ActorKind | None, Wrong | None]:
    """Return the kind of caller, or else which of its credentials is wrong, if it has any."""
    if not token:
        return "open", None
    given = connection.headers.getlist("authorization")
    if given:
        shown = bearer(given[0]) if len(given) == 1 else None
        if shown is not None and is_token(shown, token):
            return "api-token", None
        return None, "wrong-token"
    shown_cookies = [
        connection.cookies[name] for name in (SECURE_COOKIE, COOKIE) if name in connection.cookies
    ]
    if any(map(sessions.knows, shown_cookies)):
        return "browser-session", None
    return None, "wrong-session" if shown_cookies else None
