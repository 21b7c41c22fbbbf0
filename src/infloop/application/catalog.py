"""What there is to build with: node types, file formats and settings, with JSON Schemas."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import msgspec

from infloop.application.configuration import SettingSource
from infloop.application.models import Model
from infloop.application.schemas import SCHEMAS
from infloop.model.json_schema import json_schema
from infloop.model.nodes import NODE_MODELS, NodeGroup
from infloop.model.schema import part_model, tidy_schema
from infloop.model.starter import new_node
from infloop.model.values import JsonObject

if TYPE_CHECKING:
    from infloop.application.resources import FileResources
    from infloop.model.nodes import NodeModel


class HandlesByField(Model, kw_only=True):
    """Handles that depend on a field of the configuration: those for each of its values."""

    field: str
    handles: dict[str, list[str]]


class NodeType(Model, kw_only=True):
    """A node type: what it does, where it leads, what it outputs, and what can be set.

    A form is made from `config`, the JSON Schema of the configuration: `widget` says how a field is
    edited, `template` that it may hold references. Of the parts in `variants`, the field `kind`
    selects one. `summary` are the paths of the fields that a card shows. A type that is no
    `container` has no children; one that never `runs` is a note without edges. `new` is a node to
    begin with.
    """

    type: str
    title: str
    description: str
    group: NodeGroup
    stamp: str
    container: bool
    runs: bool
    is_start: bool
    is_end: bool
    gives_verdict: bool
    summary: list[str]
    variants: list[str]
    handles: list[str]
    handles_by: HandlesByField | None
    outputs: dict[str, str]
    new: JsonObject
    config: JsonObject


class SettingsView(Model, kw_only=True):
    """The settings with their JSON Schema, and where each is from.

    A secret is shown as set or not set.
    """

    values: dict[str, str | int | float | bool | None]
    sources: dict[str, SettingSource]
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
        title=model.model_title or kind,
        description=str(model.__doc__),
        group=model.group,
        stamp=model.stamp,
        container=model.holds_nodes,
        runs=model.runs,
        is_start=model.is_start,
        is_end=model.is_end,
        gives_verdict=model.gives_verdict,
        summary=list(model.summary),
        variants=list(model.variants),
        handles=list(model.handles),
        handles_by=_handles_by(model),
        outputs=dict(model.outputs),
        new=new_node(kind, ""),
        config=tidy_schema(json_schema(config)) if config else {},
    )


def _handles_by(model: NodeModel) -> HandlesByField | None:
    choice = model.handle_choice
    if choice is None:
        return None
    handles = {value: list(names) for value, names in choice.handles.items()}
    return HandlesByField(field=choice.field, handles=handles)
