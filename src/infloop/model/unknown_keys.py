"""The keys of a workflow file that infloop does not know, apart from the rest of the file.

They have no effect. They are kept when a workflow is converted between its languages:

    file     keys of the workflow itself, in the shape of the file
    inputs   keys of declared inputs, by the name of the input
    nodes    keys of nodes and of their configuration, by the id of the node
    edges    a list of edges, each with its ends (`from`, `handle`, `to`) and its `keys`
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.model.nodes import node_model
from infloop.model.schema import part_model
from infloop.model.values import compact_json
from infloop.model.workflow import Edge, InputSpec, Workflow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from infloop.model.schema import FileModel
    from infloop.model.values import JsonObject, JsonValue


def unknown_keys(content: Mapping[str, JsonValue]) -> JsonObject:
    """Return the keys of a workflow file that infloop does not know."""
    made: JsonObject = {
        "file": _unknown(Workflow, content),
        "inputs": _by_name("name", _objects(content.get("inputs"))),
        "nodes": _by_name("id", nodes_of(content.get("nodes"))),
        "edges": sorted(_edges(content), key=compact_json),
    }
    return {name: part for name, part in made.items() if part}


def add_unknown_keys(content: JsonObject, unknown: JsonObject) -> list[str]:
    """Add to a file what `unknown_keys` returned; return the places that it names wrongly.

    A key that infloop knows is not added: it would take effect.
    """
    targets: dict[str, tuple[type[FileModel], JsonObject]] = {"file": (Workflow, content)}
    for spec in _objects(content.get("inputs")):
        targets[f"inputs.{spec.get('name')}"] = InputSpec, spec
    for node in nodes_of(content.get("nodes")):
        targets[f"nodes.{node.get('id')}"] = node_model(str(node.get("type"))), node
    for edge in _objects(content.get("edges")):
        targets.setdefault(f"edges.{_ends(edge)}", (Edge, edge))
    wrong: list[str] = []
    for place, keys in _wanted(unknown):
        model, target = targets.get(place, (None, {}))
        if model is None or not isinstance(keys, dict) or _unknown(model, keys) != keys:
            wrong.append(place)
        else:
            _merge(target, keys)
    return wrong


def nodes_of(nodes: JsonValue) -> Iterator[JsonObject]:
    """Yield the nodes of a plain file, those inside containers too."""
    for node in _objects(nodes):
        yield node
        yield from nodes_of(node.get("children"))


def _wanted(unknown: JsonObject) -> Iterator[tuple[str, JsonValue]]:
    """Yield each place that has unknown keys, with these."""
    for part, value in unknown.items():
        if part == "file":
            yield part, value
        elif part == "edges":
            for edge in _objects(value):
                ends = {name: edge.get(name) for name in ("from", "handle", "to")}
                yield f"edges.{ends}", edge.get("keys")
        elif part in ("inputs", "nodes") and isinstance(value, dict):
            yield from ((f"{part}.{name}", keys) for name, keys in value.items())
        else:
            yield part, None


def _edges(content: Mapping[str, JsonValue]) -> Iterator[JsonObject]:
    for edge in _objects(content.get("edges")):
        if found := _unknown(Edge, edge):
            yield {**_ends(edge), "keys": found}


def _by_name(key: str, items: Iterator[JsonObject]) -> JsonObject:
    """Return the unknown keys of inputs or nodes by the value of their `key`."""
    made: JsonObject = {}
    for item in items:
        model = InputSpec if key == "name" else node_model(str(item.get("type")))
        found = _unknown(model, item)
        if found:
            made[str(item.get(key))] = found
    return made


def _unknown(model: type[FileModel], raw: Mapping[str, JsonValue]) -> JsonObject:
    """Return the keys of an object that its model does not have, also those inside its parts."""
    fields = {info.alias: info for info in model.model_fields.values()}
    made: JsonObject = {}
    for key, value in raw.items():
        if key == "triggers" and model is Workflow:
            continue
        if key not in fields:
            made[key] = value
            continue
        part = part_model(fields[key].annotation)
        found = _unknown(part, value) if part is not None and isinstance(value, dict) else None
        if found:
            made[key] = found
    return made


def _merge(target: JsonObject, keys: JsonObject) -> None:
    for key, value in keys.items():
        inner = target.setdefault(key, {} if isinstance(value, dict) else value)
        if isinstance(inner, dict) and isinstance(value, dict):
            _merge(inner, value)


def _ends(edge: JsonObject) -> JsonObject:
    handle = edge.get("sourceHandle") or "next"
    return {"from": edge.get("source"), "handle": handle, "to": edge.get("target")}


def _objects(value: JsonValue) -> Iterator[JsonObject]:
    found = value if isinstance(value, list) else []
    return (item for item in found if isinstance(item, dict))
