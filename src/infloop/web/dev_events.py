"""The listeners of a development loop: external events, and browsers that wait for a reload.

External events, in this order. Nothing is revealed before the token was checked.

    401  the token is missing or wrong, or does not allow this event
    403  the Host or Origin header is not acceptable
    404  405  there is one method on one form of path: POST /events/NAME
    429  too many requests for this event
    413  415  400  422  the body: at most 64 KiB of JSON, an object with a text as `value`
    400  the value does not match the event's pattern
    204  stored; or equal to what was stored
    500  503  not stored, or no room in the queue: nothing has changed

Browsers: GET /browser-events is a stream, GET /reload.js a script that listens to it. Both are open
to every page, and say nothing but when to reload.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from infloop.errors import SettingsError
from infloop.web.exposure import (
    Exposure,
    RequestOrigin,
    is_loopback,
    refuse_host,
    refuse_origin,
)
from infloop.web.streams import EventStream

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from starlette.types import Receive, Scope, Send

    from infloop.web.streams import Streams

EVENTS = "/events/"
BROWSER_EVENTS = "/browser-events"
RELOAD_SCRIPT = "/reload.js"
MAX_BODY_BYTES = 64 << 10
BODY_SECONDS = 10.0

ROUTES = (
    ("POST", f"{EVENTS}{{name}}", "events"),
    ("GET", BROWSER_EVENTS, "browser reload"),
    ("GET", RELOAD_SCRIPT, "browser reload"),
)
"""All routes of a development loop. docs/dev-loop.md says for each of them who is trusted there."""

Outcome: TypeAlias = Literal["accepted", "unchanged", "mismatch", "not-stored", "queue-full"]

_STATUS: Mapping[Outcome, tuple[int, str]] = {
    "accepted": (204, ""),
    "unchanged": (204, ""),
    "mismatch": (400, "the value does not match the event's pattern"),
    "not-stored": (500, "the value could not be stored; nothing has changed"),
    "queue-full": (503, "too many events are waiting; nothing has changed"),
}


def dev_exposure(table: str, host: str, *, allow_insecure: bool) -> Exposure:
    """Return how a listener may be reached; raise SettingsError if others could reach it."""
    if is_loopback(host):
        return Exposure(host)
    reachable = f"{table} listens on {host}, which other machines can reach"
    if not allow_insecure:
        raise SettingsError(
            f"will not start: {reachable}. Bind it to 127.0.0.1, or set INFLOOP_ALLOW_INSECURE=1"
        )
    return Exposure(host, warnings=(f"{reachable}: INFLOOP_ALLOW_INSECURE is set",), insecure=True)


class AllowedEvents(Protocol):
    """The events that a token allows."""

    @property
    def events(self) -> frozenset[str]: ...
    @property
    def limited(self) -> bool: ...


class EventGate(Protocol):
    """Who may send what, and what follows."""

    def scope(self, token: str) -> AllowedEvents | None: ...
    def knows(self, name: str) -> bool: ...
    def wait_s(self, name: str) -> int: ...
    def receive(self, name: str, value: str) -> Outcome: ...


class _Posted(msgspec.Struct):
    """The body of an event; other fields mean nothing."""

    value: str


class _Refused(Exception):
    """A request is refused."""

    def __init__(self, status: int, text: str = "", **headers: str) -> None:
        super().__init__(text)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class EventsApp:
    """Receives external events."""

    def __init__(self, gate: EventGate, exposure: Exposure) -> None:
        self._gate = gate
        self._exposure = exposure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            status = await self._answer(scope, receive)
            response = Response(status_code=status)
        except ClientDisconnect:
            return
        except _Refused as refused:
            text = f"{refused}\n" if str(refused) else ""
            close = {"connection": "close"} if refused.status in (401, 413) else {}
            headers = {**refused.headers, **close}
            response = Response(text, refused.status, headers, "text/plain")
        await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> int:
        headers = _headers(scope)
        name = _event_name(scope)
        self._authenticate(headers, name)
        _check_origin(scope, headers, self._exposure)
        if name is None or not self._gate.knows(name):
            raise _Refused(404)
        if scope["method"] != "POST":
            raise _Refused(405, allow="POST")
        if wait := self._gate.wait_s(name):
            raise _Refused(429, "too many requests for this event", retry_after=str(wait))
        value = _value(await _body(headers, receive))
        status, text = _STATUS[self._gate.receive(name, value)]
        if text:
            raise _Refused(status, text)
        return status

    def _authenticate(self, headers: Mapping[str, list[str]], name: str | None) -> None:
        given = headers.get("authorization", [])
        is_bearer = len(given) == 1 and given[0].startswith("Bearer ")
        allowed = self._gate.scope(given[0].removeprefix("Bearer ")) if is_bearer else None
        if allowed is None or (allowed.limited and name not in allowed.events):
            raise _Refused(401, www_authenticate="Bearer")


class Reloads:
    """Tells browsers to load their page again."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Event] = set()

    def notify(self) -> None:
        for each in self._waiting:
            each.set()

    async def stream(self) -> AsyncGenerator[bytes]:
        """Yield an event for each reload; several at once are one."""
        reload = asyncio.Event()
        self._waiting.add(reload)
        try:
            while True:
                await reload.wait()
                reload.clear()
                yield b"data: reload\n\n"
        finally:
            self._waiting.discard(reload)


class ReloadApp:
    """Serves the stream of reloads and the script that listens to it."""

    def __init__(self, reloads: Reloads, streams: Streams, exposure: Exposure) -> None:
        self._reloads = reloads
        self._streams = streams
        self._exposure = exposure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            response = self._answer(scope)
        except _Refused as refused:
            response = Response(f"{refused}\n", refused.status, refused.headers, "text/plain")
        await response(scope, receive, send)

    def _answer(self, scope: Scope) -> Response:
        headers = _headers(scope)
        if reason := refuse_host(_origin(scope, headers), self._exposure):
            raise _Refused(403, reason)
        if scope["path"] not in (BROWSER_EVENTS, RELOAD_SCRIPT):
            raise _Refused(404)
        if scope["method"] != "GET":
            raise _Refused(405, allow="GET")
        if scope["path"] == RELOAD_SCRIPT:
            response = Response(_SCRIPT, media_type="text/javascript")
        else:
            response = EventStream(self._reloads.stream(), self._streams)
        response.headers["access-control-allow-origin"] = "*"
        response.headers["cache-control"] = "no-store"
        response.headers["x-content-type-options"] = "nosniff"
        return response


_SCRIPT = f"""\
new EventSource(new URL("{BROWSER_EVENTS}", document.currentScript.src)).onmessage = function () {{
  location.reload();
}};
"""


def _headers(scope: Scope) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


def _event_name(scope: Scope) -> str | None:
    path: str = scope["path"]
    name = path.removeprefix(EVENTS)
    return name if path.startswith(EVENTS) and name and "/" not in name else None


def _origin(scope: Scope, headers: Mapping[str, list[str]]) -> RequestOrigin:
    server = scope.get("server")
    return RequestOrigin(
        scope["method"],
        "/api/",  # never a page that somebody follows a link to
        headers.get("host", ()),
        headers.get("origin", ()),
        {name: headers[name][0] for name in ("sec-fetch-site",) if name in headers},
        (server[0], server[1] or 0) if server else ("", 0),
    )


def _check_origin(scope: Scope, headers: Mapping[str, list[str]], exposure: Exposure) -> None:
    origin = _origin(scope, headers)
    if reason := refuse_host(origin, exposure) or refuse_origin(origin):
        raise _Refused(403, reason)


async def _body(headers: Mapping[str, list[str]], receive: Receive) -> bytes:
    announced = headers.get("content-length", ["0"])[0]
    if not announced.isdecimal() or int(announced[:20]) > MAX_BODY_BYTES:
        raise _Refused(413, f"a body may have {MAX_BODY_BYTES} bytes")
    kind = headers.get("content-type", [""])[0].partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and "+json" in kind):
        raise _Refused(415, "a body must be application/json")
    body = b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > MAX_BODY_BYTES:
                    raise _Refused(413, f"a body may have {MAX_BODY_BYTES} bytes")
    except TimeoutError:
        raise _Refused(408, "the body did not arrive in time", connection="close") from None
    return body


def _value(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_Posted).value
    except msgspec.ValidationError:
        raise _Refused(422, "the body must be an object whose `value` is a text") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise _Refused(400, "the body is not JSON") from None
