"""Print the JSON Schema of a file format, for editors and other tools.

Name it in a workflow's `$schema` and an editor completes and checks the file as you type.

  infloop schema workflow > workflow.schema.json
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable


def _workflow() -> dict[str, Any]:
    from infloop.model.workflow import workflow_schema

    return workflow_schema()


def _provider() -> dict[str, Any]:
    from infloop.model.provider import provider_schema

    return provider_schema()


def _trigger() -> dict[str, Any]:
    from infloop.model.trigger import trigger_schema

    return trigger_schema()


def _plugin() -> dict[str, Any]:
    from infloop.model.plugin import plugin_schema

    return plugin_schema()


def _connection() -> dict[str, Any]:
    from infloop.model.connection import connection_schema

    return connection_schema()


def _settings() -> dict[str, Any]:
    from infloop.settings import Settings

    return Settings.model_json_schema()


SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "workflow": _workflow,
    "provider": _provider,
    "trigger": _trigger,
    "plugin": _plugin,
    "connection": _connection,
    "settings": _settings,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be given."""
    parser.add_argument("name", metavar="NAME", choices=SCHEMAS, help=", ".join(SCHEMAS))


def main(args: argparse.Namespace) -> int:
    """Print the schema."""
    import json

    print(json.dumps(SCHEMAS[args.name](), indent=2))
    return 0
