"""The first page, until there is a console."""

from __future__ import annotations

from typing import Any

from starlette.responses import HTMLResponse, Response

from infloop.web.pages import HOME_PAGE, STYLE
from infloop.web.routing import router

ROUTER = router("pages")

_HTML: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/html": {}}},
    303: {"description": "To the login page."},
}


@ROUTER.get("/", response_class=HTMLResponse, responses=_HTML)
async def home() -> HTMLResponse:
    """Show the first page."""
    return HTMLResponse(HOME_PAGE)


@ROUTER.get("/page.css", response_class=Response, responses={200: {"content": {"text/css": {}}}})
async def style() -> Response:
    """Return how the server's own pages look."""
    return Response(STYLE, media_type="text/css", headers={"cache-control": "max-age=3600"})
