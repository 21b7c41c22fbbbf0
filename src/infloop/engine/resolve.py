"""Fills in the references of a node's configuration."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from infloop.engine.shellline import UnusableReference, shell_line
from infloop.model.patterns import quote

if TYPE_CHECKING:
    from collections.abc import Callable

    from infloop.engine.graph import GraphNode
    from infloop.model.template import Scope, Template
    from infloop.model.values import JsonObject, JsonValue


class Unresolved(ValueError):
    """A field that must not be empty has a reference that does not resolve."""


def resolve(node: GraphNode, scope: Scope, warn: Callable[[str, str], None]) -> JsonObject:
    """Return the node's configuration with its references filled in.

    `warn(field, reference)` is called for every reference that does not resolve.
    """
    if not node.templates:
        return node.config
    config = dict(node.config)
    for path, template, use in node.templates:
        missing = partial(_warn, warn, path)
        if use == "text" and len(path) == 1:  # nearly always, and half the time of what follows
            config[path[0]] = template.render(scope, missing)
            continue
        # The node's own configuration stays as it is.
        holder, name = _copied_holder(config, path), path[-1]
        if use == "shell":
            assert isinstance(holder, dict)
            holder[name], holder["env"] = _shell_line(holder, template, scope)
        elif use == "pattern":
            assert isinstance(holder, dict)
            holder[name] = _pattern(holder, template, scope)
        elif use == "variable":
            _assign(holder, name, template.render(scope, partial(_refuse_variable, name)))
        else:
            _assign(holder, name, template.render(scope, missing))
    return config


def _warn(warn: Callable[[str, str], None], path: tuple[str, ...], key: str) -> None:
    warn(".".join(path), key)


def _refuse_variable(name: str, key: str) -> None:
    raise Unresolved(
        f"the command was not run: {{{{{key}}}}} has no value, and the variable {name!r} needs it"
    )


def _pattern(holder: JsonObject, template: Template, scope: Scope) -> str:
    """Render a pattern. Values are matched literally; a missing one would match everything."""

    def refuse(key: str) -> None:
        raise Unresolved(f"the pattern refers to {key!r}, which does not exist")

    is_regex = holder.get("isRegex") is True
    return template.render(scope, refuse, quote if is_regex else None)


def _shell_line(holder: JsonObject, template: Template, scope: Scope) -> tuple[str, JsonObject]:
    """Return the shell line, and the variables of the command with those for its references."""
    declared = holder.get("env")
    env: JsonObject = declared if isinstance(declared, dict) else {}
    try:
        line, variables = shell_line(template.pieces(), scope, env)
    except UnusableReference as error:
        raise Unresolved(f"the command was not run: {error}") from None
    return line, {**env, **variables}


def _copied_holder(config: JsonObject, path: tuple[str, ...]) -> JsonValue:
    """Copy the objects and lists along `path`; return the one that holds the value."""
    holder: JsonValue = config
    for key in path[:-1]:
        inner = _get(holder, key)
        copy: JsonValue = dict(inner) if isinstance(inner, dict) else list(inner)  # type: ignore[arg-type]
        _assign(holder, key, copy)
        holder = copy
    return holder


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
