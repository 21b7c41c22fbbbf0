"""The references of a workflow: templates in its nodes, inputs, and called workflows.

A field that may hold `{{references}}` is declared with `template=True`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple, cast

from infloop.model.inputs import resolve_inputs
from infloop.model.nodes import NODE_MODELS, SubworkflowNode, node_model
from infloop.model.schema import Used, part_model
from infloop.model.template import Template
from infloop.model.values import as_text
from infloop.model.walk import every_node

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from infloop.model.nodes import Node, NodeBase
    from infloop.model.records import FieldInfo
    from infloop.model.schema import FileModel, TextUse
    from infloop.model.values import JsonObject, JsonValue
    from infloop.model.workflow import Workflow

_PROVIDER_KEY = "providerId"

INPUT_ROOTS = ("inputs", "__inputs")


# -- templates -------------------------------------------------------------------------------


class TemplateField(NamedTuple):
    """A path into a node's configuration, where there is a text or a collection of texts."""

    path: tuple[str, ...]
    many: bool
    use: TextUse


class ConfigText(NamedTuple):
    """A text of a node's configuration that may hold references."""

    path: tuple[str, ...]
    text: str
    use: TextUse


class ConfigTemplate(NamedTuple):
    """A text of a node's configuration that holds references."""

    path: tuple[str, ...]
    template: Template
    use: TextUse


def _template_fields(
    config: type[FileModel], prefix: tuple[str, ...] = ()
) -> Iterator[TemplateField]:
    for info in config.model_fields.values():
        path = (*prefix, info.alias)
        part = part_model(info.annotation)
        if part is not None:
            yield from _template_fields(part, path)
        elif info.template:
            many = str(info.annotation).startswith(("dict", "tuple"))
            yield TemplateField(path, many, _use(info))


def _use(info: FieldInfo) -> TextUse:
    return next((one.use for one in info.metadata if isinstance(one, Used)), "text")


def _config_model(node: type[NodeBase]) -> type[FileModel]:
    return cast("type[FileModel]", node.model_fields["config"].annotation)


@cache
def template_fields(node_type: str) -> tuple[TemplateField, ...]:
    """Return where the configuration of a node type may hold references."""
    model = NODE_MODELS.get(node_type)
    return tuple(_template_fields(_config_model(model))) if model is not None else ()


def template_texts(node_type: str, config: Mapping[str, JsonValue]) -> Iterator[ConfigText]:
    """Yield every text of a node's plain configuration that may hold references.

    Variants that are not selected are left out: nothing reads them.
    """
    return map(ConfigText._make, _texts(node_type, config))


def _texts(
    node_type: str, config: Mapping[str, JsonValue]
) -> Iterator[tuple[tuple[str, ...], str, TextUse]]:
    unused = _unused(node_model(node_type), config)
    for path, many, use in template_fields(node_type):
        if unused and path[0] in unused:
            continue
        value = config.get(path[0])
        if len(path) > 1:
            for key in path[1:]:
                value = value.get(key) if isinstance(value, dict) else None
        if many:
            for name, item in _items(value):
                if isinstance(item, str):
                    yield (*path, str(name)), item, use
        elif isinstance(value, str):
            yield path, value, use


def _unused(model: type[NodeBase], config: Mapping[str, JsonValue]) -> tuple[str, ...]:
    if not model.variants:
        return ()
    selected = model.variant(config)
    if selected not in model.variants:
        return ()
    return tuple(name for name in model.variants if name != selected)


def _items(value: JsonValue) -> Iterable[tuple[str | int, JsonValue]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()


def config_templates(node_type: str, config: Mapping[str, JsonValue]) -> list[ConfigTemplate]:
    """Return every text of a plain configuration that holds a reference."""
    return [
        ConfigTemplate(path, template, use)
        for path, text, use in _texts(node_type, config)
        if "{{" in text and (template := Template(text)).references
    ]


def node_templates(node: Node) -> list[ConfigTemplate]:
    """Return every text of a node that holds a reference."""
    if not template_fields(node.type):
        return []
    return config_templates(node.type, node.config.to_json())


# -- inputs ----------------------------------------------------------------------------------


def implicit_inputs(workflow: Workflow) -> tuple[str, ...]:
    """Return the inputs that a workflow without the key `inputs` refers to, in order."""
    if workflow.inputs is not None:
        return ()
    return input_names(
        found.template for seat in every_node(workflow) for found in node_templates(seat.node)
    )


def input_names(templates: Iterable[Template]) -> tuple[str, ...]:
    """Return the inputs that templates refer to, without duplicates."""
    names = {
        reference[1]: None
        for template in templates
        for reference in template.references
        if reference[0] in INPUT_ROOTS and len(reference) > 1
    }
    return tuple(names)


def workflow_inputs(workflow: Workflow, supplied: Mapping[str, JsonValue]) -> JsonObject:
    """Return the inputs of a run; raise `InputError` for the first wrong value.

    Declared inputs are typed and have defaults; implicit ones are optional texts. Other keys are
    left out.
    """
    if workflow.inputs is not None:
        return resolve_inputs([spec.to_json() for spec in workflow.inputs], dict(supplied))
    return {name: as_text(supplied[name]) for name in implicit_inputs(workflow) if name in supplied}


# -- other workflows -------------------------------------------------------------------------


def called_workflows(workflow: Workflow) -> dict[str, str]:
    """Return the ids of the called workflows, each with the place of its first call."""
    called: dict[str, str] = {}
    for seat in every_node(workflow):
        if isinstance(seat.node, SubworkflowNode):
            called.setdefault(seat.node.config.workflow_id, seat.place)
    return called


# -- providers -------------------------------------------------------------------------------


def provider_ids(value: object) -> set[str]:
    """Return the ids of providers that the nodes of workflows name; `value` is plain JSON."""
    if isinstance(value, list):
        return set().union(*map(provider_ids, value))
    if not isinstance(value, dict):
        return set()
    named = value.get(_PROVIDER_KEY)
    found = {named} if isinstance(named, str) else set()
    return found.union(*map(provider_ids, value.values()))
