"""The page where a browser gives the token, once; and logging out."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from starlette.datastructures import QueryParams
from starlette.responses import HTMLResponse, RedirectResponse, Response

from infloop.model.audit import Actor, ActorKind, EventName
from infloop.policy.secrets import same_secret
from infloop.web.credentials import COOKIE, SECURE_COOKIE, SESSION_MS
from infloop.web.dependencies import WebParts
from infloop.web.errors import Refused, documented
from infloop.web.pages import LOGIN_PAGE, LOGIN_REFUSED
from infloop.web.routing import CorrelationId, Parts, router

ROUTER = router("login")

_HTML: dict[int | str, dict[str, Any]] = {200: {"content": {"text/html": {}}}}
_FORM: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/x-www-form-urlencoded": {
                "schema": {
                    "type": "object",
                    "required": ["token"],
                    "properties": {"token": {"type": "string"}},
                }
            }
        },
    }
}
_ASKED_AGAIN: dict[int | str, dict[str, Any]] = {
    401: {"description": "That is not the token; the form again.", "content": {"text/html": {}}}
}
_TO_PAGE: dict[int | str, dict[str, Any]] = {303: {"description": "To the page that follows."}}


@ROUTER.get("/login", response_class=HTMLResponse, responses=_HTML)
async def login_page() -> HTMLResponse:
    """Show the form that asks for the token."""
    return HTMLResponse(LOGIN_PAGE)


@ROUTER.post(
    "/login",
    response_class=RedirectResponse,
    status_code=303,
    responses=_TO_PAGE | _ASKED_AGAIN | documented(429),
    openapi_extra=_FORM,
)
async def log_in(request: Request, parts: Parts, correlation_id: CorrelationId) -> Response:
    """Open a session for who gives the token; all logins together are counted."""
    wait = parts.logins.take("", parts.clock.now_ms())
    if wait:
        parts.metrics.limited("login")
        await _note(parts, "login.failed", correlation_id, "too-many")
        raise Refused(
            429,
            "rate-limited",
            f"too many logins; try again in {wait} seconds",
            headers={"retry-after": str(wait)},
        )
    given = QueryParams(await request.body()).get("token", "").strip()
    if not parts.posture.open and not same_secret(given, parts.posture.token):
        await _note(parts, "login.failed", correlation_id, "wrong-token")
        return HTMLResponse(LOGIN_REFUSED, 401)
    await _note(parts, "login.succeeded", correlation_id)
    answer = RedirectResponse("/", 303)
    if not parts.posture.open:
        _set_cookie(answer, request, parts.sessions.open(), SESSION_MS // 1000)
    return answer


@ROUTER.post("/logout", response_class=RedirectResponse, status_code=303, responses=_TO_PAGE)
async def log_out(request: Request, parts: Parts, correlation_id: CorrelationId) -> Response:
    """End the session for good: its cookie opens nothing any more, wherever it is kept."""
    ended = [
        parts.sessions.end(request.cookies[name])
        for name in (SECURE_COOKIE, COOKIE)
        if name in request.cookies
    ]
    if any(ended):
        await _note(parts, "login.ended", correlation_id)
    answer = RedirectResponse("/login", 303)
    _set_cookie(answer, request, "", 0)
    return answer


async def _note(parts: WebParts, event: EventName, correlation_id: str, outcome: str = "") -> None:
    who: ActorKind = "anonymous" if event == "login.failed" else "browser-session"
    if parts.posture.open:
        who = "open"
    await parts.audit.record(event, Actor(who), outcome=outcome, correlation_id=correlation_id)


def _set_cookie(answer: Response, request: Request, value: str, seconds: int) -> None:
    """Set the session's cookie, under a name that only HTTPS can set where there is HTTPS."""
    proto = request.headers.get("x-forwarded-proto", request.url.scheme)
    secure = proto.partition(",")[0].strip().lower() == "https"
    answer.set_cookie(
        SECURE_COOKIE if secure else COOKIE,
        value,
        max_age=seconds,
        path="/",
        secure=secure,
        httponly=True,
        samesite="strict",
    )
