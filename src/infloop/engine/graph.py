"""Workflows compiled for walking.

A `Program` is the run's definition: the workflow it began with and every workflow that one may
call, as they were when the run began. It is made from plain JSON (the form that is stored and
hashed), and compiled once: edges by handle, branch roots, templates parsed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import msgspec

from infloop.model.references import template_texts
from infloop.model.template import Template

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from infloop.model.values import JsonObject

MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node as the machine sees it."""

    id: str
    type: str
    config: JsonObject
    edges: Mapping[str, str]
    children: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    templates: tuple[tuple[tuple[str, ...], Template], ...] = ()


@dataclass(frozen=True, slots=True)
class Graph:
    """One workflow."""

    id: str
    name: str
    start: str
    nodes: Mapping[str, GraphNode]
    globals: JsonObject
    inputs: tuple[JsonObject, ...]
    parallels_around: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Program:
    """All the workflows of one run."""

    root: str
    graphs: Mapping[str, Graph]


class Definition(msgspec.Struct, frozen=True):
    """What a run executes, as it is stored: plain JSON, named by its hash."""

    root: str
    workflows: dict[str, dict[str, Any]]

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        return msgspec.json.encode(self, order="deterministic")


def decode_definition(data: bytes) -> Definition:
    """Return the definition that `Definition.encode` wrote."""
    return msgspec.json.decode(data, type=Definition)


def compile_program(definition: Definition) -> Program:
    """Return the definition ready to walk."""
    graphs = {name: compile_graph(body) for name, body in definition.workflows.items()}
    return Program(definition.root, graphs)


def compile_graph(workflow: JsonObject) -> Graph:
    """Return one workflow ready to walk. It must have been checked."""
    edges: dict[str, dict[str, str]] = {}
    for edge in cast("list[dict[str, str]]", workflow["edges"]):
        # The first edge that leaves a handle is the one that is followed.
        edges.setdefault(edge["source"], {}).setdefault(edge["sourceHandle"], edge["target"])
    listed = cast("list[JsonObject]", workflow["nodes"])
    top = [cast("str", raw["id"]) for raw in listed]
    nodes: dict[str, GraphNode] = {}
    around: dict[str, tuple[str, ...]] = {}
    for raw, parallels in _every_node(listed):
        node = _compile_node(raw, edges)
        nodes[node.id] = node
        if parallels:
            around[node.id] = parallels
    return Graph(
        id=cast("str", workflow["id"]),
        name=cast("str", workflow["name"]),
        start=next((node_id for node_id in top if nodes[node_id].type == "start"), ""),
        nodes=nodes,
        globals=cast("JsonObject", workflow.get("globals") or {}),
        inputs=tuple(cast("list[JsonObject]", workflow.get("inputs") or [])),
        parallels_around=around,
    )


def _every_node(
    nodes: list[JsonObject], parallels: tuple[str, ...] = ()
) -> Iterator[tuple[JsonObject, tuple[str, ...]]]:
    """Yield each node with the ids of the parallels around it, outermost first."""
    for node in nodes:
        yield node, parallels
        children = cast("list[JsonObject]", node.get("children") or [])
        inside = (*parallels, cast("str", node["id"])) if node["type"] == "parallel" else parallels
        yield from _every_node(children, inside)


def _compile_node(raw: JsonObject, edges: Mapping[str, Mapping[str, str]]) -> GraphNode:
    children = tuple(
        cast("str", child["id"]) for child in cast("list[JsonObject]", raw.get("children") or [])
    )
    siblings = set(children)
    entered = {target for child in children for target in edges.get(child, {}).values()}
    kind = cast("str", raw["type"])
    config = cast("JsonObject", raw.get("config") or {})
    return GraphNode(
        id=cast("str", raw["id"]),
        type=kind,
        config=config,
        edges=edges.get(cast("str", raw["id"]), {}),
        children=children,
        roots=tuple(child for child in children if child not in entered & siblings),
        templates=tuple(_templates(kind, config)),
    )


def _templates(kind: str, config: JsonObject) -> Iterator[tuple[tuple[str, ...], Template]]:
    """Yield the template of every text that holds a reference."""
    for path, text in template_texts(kind, config):
        if "{{" in text:
            template = Template(text)
            if template.references:
                yield path, template
