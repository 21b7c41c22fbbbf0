"""What there is to build with: node types, file formats and settings, with their JSON Schemas."""

from __future__ import annotations

from functools import cache
from typing import Any

from infloop.model.connection import connection_schema
from infloop.model.nodes import NODE_MODELS
from infloop.model.plugin import plugin_schema
from infloop.model.provider import provider_schema
from infloop.model.schema import part_model
from infloop.model.starter import new_node
from infloop.model.trigger import trigger_schema
from infloop.model.values import JsonObject
from infloop.model.workflow import workflow_schema
from infloop.web.routing import Parts, Shape, router

ROUTER = router("catalog")


class NodeType(Shape):
    """A node type: what it does, where it leads, what it outputs, and what can be set."""

    type: str
    description: str
    handles: list[str]
    outputs: dict[str, str]
    new: dict[str, Any]
    config: dict[str, Any]


class Catalog(Shape):
    """Everything that forms are made from."""

    version: str
    nodes: list[NodeType]
    schemas: dict[str, dict[str, Any]]
    settings: dict[str, Any]


@ROUTER.get("/api/catalog")
async def read_catalog(parts: Parts) -> Catalog:
    """Return node types, the schemas of all files, and the settings; a secret is set or not set."""
    nodes, schemas = _fixed()
    return Catalog(version=parts.version, nodes=nodes, schemas=schemas, settings=parts.settings())


@cache
def _fixed() -> tuple[list[NodeType], dict[str, JsonObject]]:
    schemas = {
        "workflow": workflow_schema(),
        "provider": provider_schema(),
        "trigger": trigger_schema(),
        "plugin": plugin_schema(),
        "connection": connection_schema(),
    }
    return [_node_type(kind) for kind in NODE_MODELS], schemas


def _node_type(kind: str) -> NodeType:
    model = NODE_MODELS[kind]
    config = part_model(model.model_fields["config"].annotation)
    return NodeType(
        type=kind,
        description=str(model.__doc__),
        handles=list(model.handles),
        outputs=dict(model.outputs),
        new=new_node(kind, ""),
        config=config.model_json_schema(by_alias=True) if config else {},
    )
