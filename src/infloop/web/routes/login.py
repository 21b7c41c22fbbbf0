"""The page where a browser gives the token, once; and logging out."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from starlette.datastructures import QueryParams
from starlette.responses import HTMLResponse, RedirectResponse, Response

from infloop.application.sessions import SESSION_MS
from infloop.errors import RateLimited
from infloop.web.credentials import COOKIE, SECURE_COOKIE
from infloop.web.dependencies import WebDependencies
from infloop.web.errors import correlation_id, documented
from infloop.web.pages import login_page, next_page
from infloop.web.routing import Dependencies, router

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
                    "properties": {"token": {"type": "string"}, "next": {"type": "string"}},
                }
            }
        },
    }
}
_WRONG_TOKEN: dict[int | str, dict[str, Any]] = {
    401: {"description": "That is not the token; the form again.", "content": {"text/html": {}}}
}
_REDIRECT: dict[int | str, dict[str, Any]] = {303: {"description": "To the page that follows."}}


@ROUTER.get(
    "/login",
    response_class=HTMLResponse,
    responses=_HTML | _REDIRECT | _WRONG_TOKEN | documented(429),
)
async def login_form(request: Request, web: Dependencies, code: str = "") -> Response:
    """Show the form that asks for the token; with the `code` of a link, open a session."""
    wanted = next_page(request.query_params.get("next", "/"))
    # A browser that fetches a page in advance must not use up the link.
    if not code or "sec-purpose" in request.headers:
        return HTMLResponse(login_page(wanted))
    try:
        succeeded = await web.logins.use_code(code, correlation_id(request))
    except RateLimited:
        web.metrics.limited("login")
        raise
    if succeeded:
        return _logged_in(request, web, wanted)
    return HTMLResponse(login_page(wanted, "link"), 401)


@ROUTER.post(
    "/login",
    response_class=RedirectResponse,
    status_code=303,
    responses=_REDIRECT | _WRONG_TOKEN | documented(429),
    openapi_extra=_FORM,
)
async def log_in(request: Request, web: Dependencies) -> Response:
    """Open a session for whoever gives the token; all logins together are counted."""
    form = QueryParams(await request.body())
    given, wanted = form.get("token", "").strip(), next_page(form.get("next", "/"))
    try:
        succeeded = await web.logins.attempt(given, correlation_id(request))
    except RateLimited:
        web.metrics.limited("login")
        raise
    if succeeded:
        return _logged_in(request, web, wanted)
    return HTMLResponse(login_page(wanted, "token"), 401)


def _logged_in(request: Request, web: WebDependencies, wanted: str) -> Response:
    """Open a session, and lead to the page that was wanted."""
    answer = RedirectResponse(wanted, 303)
    if not web.exposure.open:
        _set_cookie(answer, request, web.sessions.open(), SESSION_MS // 1000)
    return answer


@ROUTER.post("/logout", response_class=RedirectResponse, status_code=303, responses=_REDIRECT)
async def log_out(request: Request, web: Dependencies) -> Response:
    """End the session for good: its cookie is worthless from now on."""
    ended = [
        web.sessions.end(request.cookies[name])
        for name in (SECURE_COOKIE, COOKIE)
        if name in request.cookies
    ]
    if any(ended):
        await web.logins.ended(correlation_id(request))
    answer = RedirectResponse("/login", 303)
    _set_cookie(answer, request, "", 0)
    return answer


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
