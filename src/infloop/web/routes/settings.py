"""The operator's settings, each with its source."""

from __future__ import annotations

from infloop.application.configuration import SettingList
from infloop.web.routing import App, router

ROUTER = router("settings")


@ROUTER.get("/api/settings")
async def list_settings(app: App) -> SettingList:
    """List the settings with their values and sources; a secret is set or not set."""
    return app.configuration.all()
