"""What there is to build with: node types, file formats and settings, with JSON Schemas."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import msgspec

from infloop.application.models import Model
from infloop.application.schemas import SCHEMAS
from infloop.model.json_schema import json_schema
from infloop.model.nodes import NODE_MODELS
from infloop.model.schema import part_model
from infloop.model.starter import new_node
from infloop.model.values import JsonObject

if TYPE_CHECKING:
    from infloop.application.resources import FileResources


class NodeType(Model, kw_only=True):
    """A node type: what it does, where it leads, what it outputs, and what can be set.

    `new` is a node to begin with; `config` is the JSON Schema of its configuration.
    """

    type: str
    description: str
    handles: list[str]
    outputs: dict[str, str]
    new: JsonObject
    config: JsonObject


class SettingsView(Model, kw_only=True):
    """The settings with their JSON Schema; a secret is shown as set or not set."""

    values: dict[str, str | int | float | bool | None]
    schema: JsonObject


class CatalogContent(Model, kw_only=True):
    """Everything that forms are made from; `schemas` are the JSON Schemas of the file formats."""

    version: str
    nodes: list[NodeType]
    schemas: dict[str, JsonObject]
    settings: SettingsView


class Catalog:
    """Describes node types, file formats and settings."""

    def __init__(self, resources: FileResources) -> None:
        self._resources = resources

    def read(self) -> CatalogContent:
        nodes, schemas = _fixed()
        return CatalogContent(
            version=self._resources.version,
            nodes=nodes,
            schemas=schemas,
            settings=msgspec.convert(self._resources.settings(), SettingsView),
        )


@cache
def _fixed() -> tuple[list[NodeType], dict[str, JsonObject]]:
    schemas = {name: schema() for name, schema in SCHEMAS.items()}
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
        config=json_schema(config) if config else {},
    )
