"""A node's configuration with its references filled in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.engine.shellline import shell_line
from infloop.model.patterns import quote

if TYPE_CHECKING:
    from collections.abc import Callable

    from infloop.engine.graph import GraphNode
    from infloop.model.template import Scope, Template
    from infloop.model.values import JsonObject, JsonValue


class Unresolved(ValueError):
    """A field that must not be left empty refers to something that does not exist."""


def resolve(node: GraphNode, scope: Scope, warn: Callable[[str, str], None]) -> JsonObject:
    """Return the node's configuration as this visit sees it.

    `warn(field, reference)` is told of every reference that resolves to nothing.
    """
    if not node.templates:
        return node.config
    config = dict(node.config)
    for path, template in node.templates:
        field = ".".join(path)
        if field == "command.cmd":
            _set_command(config, template, scope, warn)
        elif field == "sentinel.pattern":
            _put(config, path, _pattern(config, template, scope))
        else:
            _put(config, path, template.render(scope, lambda key, field=field: warn(field, key)))  # type: ignore[misc]
    return config


def _pattern(config: JsonObject, template: Template, scope: Scope) -> str:
    """Render a pattern; a value stands for itself, and an empty one would match everything."""

    def refuse(key: str) -> None:
        raise Unresolved(f"the pattern refers to {key!r}, which does not exist")

    sentinel = config.get("sentinel")
    is_regex = isinstance(sentinel, dict) and sentinel.get("isRegex") is True
    return template.render(scope, refuse, quote if is_regex else None)


def _set_command(
    config: JsonObject, template: Template, scope: Scope, warn: Callable[[str, str], None]
) -> None:
    command = config["command"]
    assert isinstance(command, dict)
    declared = command.get("env")
    env: dict[str, JsonValue] = dict(declared) if isinstance(declared, dict) else {}
    line, variables = shell_line(
        template.pieces(), scope, lambda key: warn("command.cmd", key), env
    )
    config["command"] = {**command, "cmd": line, "env": {**env, **variables}}


def _put(config: JsonObject, path: tuple[str, ...], value: str) -> None:
    """Set one text, copying what lies on the way so that the node itself stays as it is."""
    target: JsonValue = config
    for key in path[:-1]:
        inner = _get(target, key)
        copy: JsonValue = dict(inner) if isinstance(inner, dict) else list(inner)  # type: ignore[arg-type]
        _assign(target, key, copy)
        target = copy
    _assign(target, path[-1], value)


def _get(container: JsonValue, key: str) -> JsonValue:
    if isinstance(container, dict):
        return container[key]
    assert isinstance(container, list)
    return container[int(key)]


def _assign(container: JsonValue, key: str, value: JsonValue) -> None:
    if isinstance(container, dict):
        container[key] = value
    else:
        assert isinstance(container, list)
        container[int(key)] = value
