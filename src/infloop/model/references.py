"""What a workflow refers to: the texts that hold references, the inputs they name, other workflows.

Which fields may hold `{{references}}` is said where they are declared (`template=True`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from infloop.model.inputs import resolve_inputs
from infloop.model.schema import part_model
from infloop.model.template import Template
from infloop.model.values import as_text
from infloop.model.walking import every_node
from infloop.model.workflow import NODE_MODELS, SubworkflowNode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from infloop.model.schema import FileModel
    from infloop.model.values import JsonObject, JsonValue
    from infloop.model.workflow import Node, NodeBase, Workflow

INPUT_ROOTS = ("inputs", "__inputs")


# -- templates -------------------------------------------------------------------------------


def _template_fields(config: type[FileModel], prefix: str = "") -> Iterator[str]:
    for name, info in config.model_fields.items():
        path = f"{prefix}{info.alias or name}"
        part = part_model(info.annotation)
        if part is not None:
            yield from _template_fields(part, f"{path}.")
        elif isinstance(info.json_schema_extra, dict) and info.json_schema_extra.get("template"):
            many = str(info.annotation).startswith(("dict", "tuple"))
            yield f"{path}.*" if many else path


def _config_model(node: type[NodeBase]) -> type[FileModel]:
    return cast("type[FileModel]", node.model_fields["config"].annotation)


# Node type -> paths into its configuration; `*` stands for every key or index.
TEMPLATE_FIELDS: Mapping[str, tuple[str, ...]] = {
    kind: tuple(_template_fields(_config_model(model))) for kind, model in NODE_MODELS.items()
}


def template_texts(
    node_type: str, config: Mapping[str, JsonValue]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path and text of every template in a node's plain configuration.

    Parts of a condition's other kinds are left out: nothing reads them.
    """
    unused = {"sentinel", "command", "judge"} - {config.get("kind", "sentinel")}
    for name in TEMPLATE_FIELDS.get(node_type, ()):
        path = name.split(".")
        if node_type != "condition" or path[0] not in unused:
            yield from _texts(cast("JsonValue", config), path)


def _texts(value: JsonValue, path: list[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    if not path:
        if isinstance(value, str):
            yield (), value
        return
    for key, item in _items(value, path[0]):
        for tail, text in _texts(item, path[1:]):
            yield (key, *tail), text


def _items(value: JsonValue, key: str) -> list[tuple[str, JsonValue]]:
    if isinstance(value, dict):
        return list(value.items()) if key == "*" else [(key, value[key])] if key in value else []
    if isinstance(value, list) and key == "*":
        return [(str(index), item) for index, item in enumerate(value)]
    return []


def node_templates(node: Node) -> Iterator[tuple[tuple[str, ...], Template]]:
    """Yield the path and template of every text of a node that holds a reference."""
    if not TEMPLATE_FIELDS[node.type]:
        return
    for path, text in template_texts(node.type, node.config.to_json()):
        if "{{" in text:
            template = Template(text)
            if template.references:
                yield path, template


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
