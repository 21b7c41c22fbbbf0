"""The page where an operator sees to triggers: their addresses and their secrets.

Plain forms without a script. Every change is the same use case as the API's.
"""

from __future__ import annotations

from typing import Any

from fastapi import Request
from starlette.datastructures import QueryParams
from starlette.responses import HTMLResponse, RedirectResponse, Response

from infloop.errors import NotFound, UsageError
from infloop.web.guards import DISPATCH, DISPATCH_ADDRESS, DISPATCH_SECRET
from infloop.web.pages import dispatch_page
from infloop.web.routing import App, Who, router

ROUTER = router("pages")

_PAGE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/html": {}}},
    303: {"description": "To the login page."},
}
_CHANGED: dict[int | str, dict[str, Any]] = {
    303: {"description": "Changed: to the page again."},
    400: {"description": "Not changed: the page again, and why.", "content": {"text/html": {}}},
}


def _form(*names: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "required": list(names),
        "properties": {name: {"type": "string"} for name in names},
    }
    return {
        "requestBody": {
            "required": True,
            "content": {"application/x-www-form-urlencoded": {"schema": schema}},
        }
    }


@ROUTER.get(DISPATCH, response_class=HTMLResponse, responses=_PAGE)
async def dispatch(app: App) -> HTMLResponse:
    """Show what starts workflows without a person."""
    return await _page(app)


@ROUTER.post(
    DISPATCH_ADDRESS,
    response_class=RedirectResponse,
    status_code=303,
    responses=_CHANGED,
    openapi_extra=_form("trigger"),
)
async def new_address(request: Request, app: App, who: Who) -> Response:
    """Give a trigger a new address; the old one is dead at once."""
    form = QueryParams(await request.body())
    try:
        await app.triggers.regenerate(form.get("trigger", ""), who)
    except (NotFound, UsageError) as error:
        return await _page(app, error)
    return RedirectResponse(DISPATCH, 303)


@ROUTER.post(
    DISPATCH_SECRET,
    response_class=RedirectResponse,
    status_code=303,
    responses=_CHANGED,
    openapi_extra=_form("trigger", "secret"),
)
async def new_secret(request: Request, app: App, who: Who) -> Response:
    """Set the secret that a trigger's sender signs with."""
    form = QueryParams(await request.body())
    try:
        await app.triggers.set_secret(form.get("trigger", ""), form.get("secret", ""), who)
    except (NotFound, UsageError) as error:
        return await _page(app, error)
    return RedirectResponse(DISPATCH, 303)


async def _page(app: App, wrong: Exception | None = None) -> HTMLResponse:
    triggers, signing = await app.triggers.overview()
    page = dispatch_page(triggers, signing, str(wrong or ""))
    return HTMLResponse(page, 400 if wrong else 200)
