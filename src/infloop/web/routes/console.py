"""The console's pages and their assets, and the style of the login page."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Request
from starlette.responses import Response

from infloop.web.console_files import ConsoleFile, asset, index_page
from infloop.web.errors import Refused, documented
from infloop.web.pages import PAGES, STYLE
from infloop.web.routing import router

ROUTER = router("pages")

FOREVER = "public, max-age=31536000, immutable"


async def console_page(request: Request) -> Response:
    """Return the console; the address says which of its pages the browser draws."""
    return _response(request, index_page(), "no-cache")


for page in PAGES:
    ROUTER.add_api_route(page, console_page, include_in_schema=False)


_ASSET: dict[int | str, dict[str, Any]] = {200: {"content": {"*/*": {}}}}


@ROUTER.get("/assets/{name}", response_class=Response, responses=_ASSET | documented(404))
async def read_asset(request: Request, name: Annotated[str, Path(max_length=200)]) -> Response:
    """Return a part of the console; its name changes with its content."""
    found = asset(name)
    if found is None:
        raise Refused(404, "not-found", "the console has no such file; reload the page")
    return _response(request, found, FOREVER)


@ROUTER.get("/page.css", response_class=Response, responses={200: {"content": {"text/css": {}}}})
async def style() -> Response:
    """Return how the login page looks."""
    return Response(STYLE, media_type="text/css", headers={"cache-control": "max-age=3600"})


def _response(request: Request, file: ConsoleFile, caching: str) -> Response:
    headers = {"cache-control": caching, "vary": "accept-encoding"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(file.content, media_type=file.media_type, headers=headers)
    headers["content-encoding"] = "gzip"
    return Response(file.compressed, media_type=file.media_type, headers=headers)
