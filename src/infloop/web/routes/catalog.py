"""What there is to build with: node types, file formats and settings, with JSON Schemas."""

from __future__ import annotations

from infloop.application.catalog import CatalogContent
from infloop.web.routing import App, router

ROUTER = router("catalog")


@ROUTER.get("/api/catalog")
async def read_catalog(app: App) -> CatalogContent:
    """Return node types, the schemas of all files, and the settings; a secret is set or not set."""
    return app.catalog.read()
