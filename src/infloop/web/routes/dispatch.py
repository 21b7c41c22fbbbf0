"""The page where an operator sees to triggers: their addresses and their secrets.

Plain forms without a script. Every change is the API's own, with its checks and its audit entry.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import Request
from starlette.datastructures import QueryParams
from starlette.responses import HTMLResponse, RedirectResponse, Response

from infloop.errors import NotFound
from infloop.web.errors import Refused
from infloop.web.guards import DISPATCH, DISPATCH_ADDRESS, DISPATCH_SECRET
from infloop.web.pages import dispatch_page
from infloop.web.routes.triggers import move_trigger, set_secret
from infloop.web.routing import CorrelationId, Parts, Who, router

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
async def dispatch(parts: Parts) -> HTMLResponse:
    """Show what starts workflows by itself."""
    return await _page(parts)


@ROUTER.post(
    DISPATCH_ADDRESS,
    response_class=RedirectResponse,
    status_code=303,
    responses=_CHANGED,
    openapi_extra=_form("trigger"),
)
async def new_address(
    request: Request, parts: Parts, who: Who, correlation_id: CorrelationId
) -> Response:
    """Give a trigger a new address; the old one is dead at once."""
    form = QueryParams(await request.body())
    try:
        await move_trigger(form.get("trigger", ""), parts, who, correlation_id)
    except (NotFound, Refused) as refused:
        return await _page(parts, refused)
    return RedirectResponse(DISPATCH, 303)


@ROUTER.post(
    DISPATCH_SECRET,
    response_class=RedirectResponse,
    status_code=303,
    responses=_CHANGED,
    openapi_extra=_form("trigger", "secret"),
)
async def new_secret(
    request: Request, parts: Parts, who: Who, correlation_id: CorrelationId
) -> Response:
    """Set the secret that a trigger's sender signs with."""
    form = QueryParams(await request.body())
    try:
        await set_secret(
            form.get("trigger", ""), form.get("secret", ""), parts, who, correlation_id
        )
    except (NotFound, Refused) as refused:
        return await _page(parts, refused)
    return RedirectResponse(DISPATCH, 303)


async def _page(parts: Parts, wrong: NotFound | Refused | None = None) -> HTMLResponse:
    lookup = parts.triggering.lookup
    triggers = await asyncio.to_thread(lookup.triggers.all)
    plugins, _ = await asyncio.to_thread(lookup.plugins.load)
    signing = {plugin.id for plugin in plugins if plugin.signature is not None}
    page = dispatch_page(triggers, signing, str(wrong or ""))
    return HTMLResponse(page, 400 if wrong else 200)
