"""What a workflow refers to: the texts that hold references, the inputs they name, other workflows.

Which fields may hold `{{references}}` is said where they are declared (`template=True`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from infloop.model.inputs import resolve_inputs
from infloop.model.schema import part_model
from infloop.model.template import Template
from infloop.model.values import as_text
from infloop.model.walk import every_node
from infloop.model.workflow import NODE_MODELS, SubworkflowNode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from infloop.model.schema import FileModel
    from infloop.model.values import JsonObject, JsonValue
    from infloop.model.workflow import Node, NodeBase, Workflow

INPUT_ROOTS = ("inputs", "__inputs")
# The kind of a condition -> the parts that belong to its other kinds.
UNUSED = {
    "sentinel": ("command", "judge"),
    "command": ("sentinel", "judge"),
    "judge": ("sentinel", "command"),
}


# -- templates -------------------------------------------------------------------------------


class TemplateField(NamedTuple):
    """A path into a node's configuration, and whether there is a text or a collection of texts."""

    path: tuple[str, ...]
    many: bool


def _template_fields(
    config: type[FileModel], prefix: tuple[str, ...] = ()
) -> Iterator[TemplateField]:
    for name, info in config.model_fields.items():
        path = (*prefix, info.alias or name)
        part = part_model(info.annotation)
        if part is not None:
            yield from _template_fields(part, path)
        elif isinstance(info.json_schema_extra, dict) and info.json_schema_extra.get("template"):
            yield TemplateField(path, str(info.annotation).startswith(("dict", "tuple")))


def _config_model(node: type[NodeBase]) -> type[FileModel]:
    return cast("type[FileModel]", node.model_fields["config"].annotation)


TEMPLATE_FIELDS: Mapping[str, tuple[TemplateField, ...]] = {
    kind: tuple(_template_fields(_config_model(model))) for kind, model in NODE_MODELS.items()
}


def template_texts(
    node_type: str, config: Mapping[str, JsonValue]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path and text of every template in a node's plain configuration.

    Parts of a condition's other kinds are left out: nothing reads them.
    """
    unused = UNUSED.get(str(config.get("kind", "sentinel")), ()) if node_type == "condition" else ()
    for path, many in TEMPLATE_FIELDS.get(node_type, ()):
        if path[0] in unused:
            continue
        value = config.get(path[0])
        for key in path[1:]:
            value = value.get(key) if isinstance(value, dict) else None
        if many:
            for name, item in _items(value):
                if isinstance(item, str):
                    yield (*path, str(name)), item
        elif isinstance(value, str):
            yield path, value


def _items(value: JsonValue) -> Iterable[tuple[str | int, JsonValue]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()


def config_templates(
    node_type: str, config: Mapping[str, JsonValue]
) -> list[tuple[tuple[str, ...], Template]]:
    """Return the path and template of every text of a configuration that holds a reference."""
    return [
        (path, template)
        for path, text in template_texts(node_type, config)
        if "{{" in text and (template := Template(text)).references
    ]


def node_templates(node: Node) -> list[tuple[tuple[str, ...], Template]]:
    """Return the path and template of every text of a node that holds a reference."""
    if not TEMPLATE_FIELDS[node.type]:
        return []
    return config_templates(node.type, node.config.to_json())


# -- inputs ----------------------------------------------------------------------------------


def implicit_inputs(workflow: Workflow) -> tuple[str, ...]:
    """Return the inputs that a workflow without an `inputs` key refers to, in order."""
    if workflow.inputs is not None:
        return ()
    return input_names(
        template for seat in every_node(workflow) for _, template in node_templates(seat.node)
    )


def input_names(templates: Iterable[Template]) -> tuple[str, ...]:
    """Return the inputs that templates refer to, each once."""
    names = {
        reference[1]: None
        for template in templates
        for reference in template.references
        if reference[0] in INPUT_ROOTS and len(reference) > 1
    }
    return tuple(names)


def workflow_inputs(workflow: Workflow, supplied: Mapping[str, JsonValue]) -> JsonObject:
    """Return the inputs a run begins with; raise `InputError` for the first that does not fit.

    Declared inputs are typed and have defaults; implicit ones are optional texts. Other keys are
    left out.
    """
    if workflow.inputs is not None:
        return resolve_inputs([spec.to_json() for spec in workflow.inputs], dict(supplied))
    return {name: as_text(supplied[name]) for name in implicit_inputs(workflow) if name in supplied}


# -- other workflows -------------------------------------------------------------------------


def called_workflows(workflow: Workflow) -> dict[str, str]:
    """Return the ids of the workflows it calls, each with the place of the first call."""
    called: dict[str, str] = {}
    for seat in every_node(workflow):
        if isinstance(seat.node, SubworkflowNode):
            called.setdefault(seat.node.config.workflow_id, seat.place)
    return called
