"""Workflows compiled for execution.

A `Definition` holds a workflow and all workflows that it may call, as they were when the run began.
It is plain JSON: the form that is stored and hashed. It is compiled once into a `Program`: edges by
handle, roots of branches, parsed templates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

import msgspec

from infloop.model.nodes import NodeBase, NodeModel, node_model
from infloop.model.references import config_templates

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from infloop.model.references import ConfigTemplate
    from infloop.model.values import JsonObject

    RawNode: TypeAlias = dict[str, Any]

MAX_DEPTH = 64


class GraphNode(msgspec.Struct, frozen=True):
    """A node as the machine sees it; `model` holds the facts of its type.

    A struct, because the machine reads it fifteen times for each step: a named tuple would take a
    tenth more of its time.
    """

    id: str
    type: str
    config: JsonObject
    edges: Mapping[str, str]
    model: NodeModel = NodeBase
    costs_money: bool = False
    carried_outputs: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    check: str = ""  # the last child that can end the loop
    roots: tuple[str, ...] = ()
    templates: Sequence[ConfigTemplate] = ()


class Graph(msgspec.Struct, frozen=True):
    """One workflow."""

    id: str
    name: str
    start: str
    nodes: Mapping[str, GraphNode]
    globals: JsonObject
    inputs: tuple[JsonObject, ...]
    parallels_around: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    strict: bool = False


class Program(msgspec.Struct, frozen=True):
    """All the workflows of one run."""

    root: str
    graphs: Mapping[str, Graph]
    providers: Mapping[str, JsonObject] = msgspec.field(default_factory=dict)


class Definition(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a run executes: plain JSON, stored under its hash.

    `providers` has the manifests of the operator's own providers that its nodes name, for a machine
    that does not have them.
    """

    root: str
    workflows: dict[str, dict[str, Any]]
    providers: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        return msgspec.json.encode(self, order="deterministic")


def decode_definition(data: bytes) -> Definition:
    """Return the definition that `Definition.encode` wrote."""
    return msgspec.json.decode(data, type=Definition)


def compile_program(definition: Definition) -> Program:
    """Return the compiled definition."""
    graphs = {name: compile_graph(body) for name, body in definition.workflows.items()}
    return Program(definition.root, graphs, definition.providers)


def compile_graph(workflow: JsonObject) -> Graph:
    """Return one compiled workflow. It must have been checked."""
    edges: dict[str, dict[str, str]] = {}
    for edge in cast("list[dict[str, str]]", workflow["edges"]):
        # The first edge that leaves a handle is the one that is followed.
        edges.setdefault(edge["source"], {}).setdefault(edge["sourceHandle"], edge["target"])
    listed = cast("list[RawNode]", workflow["nodes"])
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
        start=next((raw["id"] for raw in listed if node_model(raw["type"]).is_start), ""),
        nodes=nodes,
        globals=cast("JsonObject", workflow.get("globals") or {}),
        inputs=tuple(cast("list[JsonObject]", workflow.get("inputs") or [])),
        parallels_around=around,
        strict=workflow.get("strict") is True,
    )


def _every_node(
    nodes: list[RawNode], parallels: tuple[str, ...] = ()
) -> Iterator[tuple[RawNode, tuple[str, ...]]]:
    """Yield each node with the ids of the parallels around it, outermost first."""
    for node in nodes:
        yield node, parallels
        children = node.get("children")
        if children:
            is_parallel = node_model(node["type"]).opens == "branch"
            yield from _every_node(children, (*parallels, node["id"]) if is_parallel else parallels)


def _compile_node(raw: RawNode, edges: Mapping[str, Mapping[str, str]]) -> GraphNode:
    kind, config = raw["type"], raw.get("config") or {}
    model = node_model(kind)
    nested = raw.get("children")
    children = tuple(child["id"] for child in nested) if nested else ()
    entered = {target for child in children for target in edges.get(child, {}).values()}
    return GraphNode(
        id=raw["id"],
        type=kind,
        config=config,
        edges=edges.get(raw["id"], {}),
        model=model,
        costs_money=model.costs_money(config),
        carried_outputs=model.carried_outputs(config),
        children=children,
        check=_last_check(nested) if nested and model.opens == "round" else "",
        roots=tuple(child for child in children if child not in entered) if children else (),
        templates=config_templates(kind, config),
    )


def _last_check(children: list[RawNode]) -> str:
    checks = (
        child["id"] for child in reversed(children) if node_model(child["type"]).gives_verdict
    )
    return next(checks, "")
