"""The JSON Schemas of all file formats, by name. Each is imported when it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from infloop.model.values import JsonObject


def _workflow() -> JsonObject:
    from infloop.model.workflow import workflow_schema

    return workflow_schema()


def _loop() -> JsonObject:
    from infloop.model.loop_file.schema import loop_schema

    return loop_schema()


def _provider() -> JsonObject:
    from infloop.model.provider import provider_schema

    return provider_schema()


def _trigger() -> JsonObject:
    from infloop.model.trigger import trigger_schema

    return trigger_schema()


def _plugin() -> JsonObject:
    from infloop.model.plugin import plugin_schema

    return plugin_schema()


def _connection() -> JsonObject:
    from infloop.model.connection import connection_schema

    return connection_schema()


def _dev() -> JsonObject:
    from infloop.model.dev.config import DevConfig

    return DevConfig.model_json_schema()


SCHEMAS: Mapping[str, Callable[[], JsonObject]] = {
    "workflow": _workflow,
    "loop": _loop,
    "provider": _provider,
    "trigger": _trigger,
    "plugin": _plugin,
    "connection": _connection,
    "dev": _dev,
}
