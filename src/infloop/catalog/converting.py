"""Converts a workflow between its languages: a JSON file, a loop file, and from Python to both.

The result is read again and compared before it is returned, so a conversion that would lose
something fails instead.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import msgspec
from msgspec.structs import replace

from infloop.catalog.files import read_bounded
from infloop.catalog.loop_files import LOOP_SUFFIXES, is_loop_file, loop_file_id
from infloop.errors import InfloopError, UsageError, WorkflowError
from infloop.model.parsing import parse_workflow
from infloop.model.unknown_keys import add_unknown_keys, unknown_keys
from infloop.model.walk import every_node

if TYPE_CHECKING:
    from pathlib import Path

    from infloop.catalog.workflows import WorkflowCatalog
    from infloop.model.parsing import Parsed
    from infloop.model.values import JsonObject, JsonValue
    from infloop.model.workflow import Workflow


class Converted(msgspec.Struct, frozen=True):
    """A workflow in the other language, and what the conversion leaves out."""

    text: str
    notes: tuple[str, ...] = ()


def convert_workflow(catalog: WorkflowCatalog, ref: str, target: str = "") -> Converted:
    """Return a workflow in the other language; `target` is the name of the file to write.

    Raises UsageError for a target of the wrong kind, and WorkflowError for a file with mistakes.
    """
    path, parsed = catalog.read(ref)
    workflow = _usable(path, parsed)
    if is_loop_file(path.name):
        if target and not target.endswith(".json"):
            raise UsageError(f"a loop file becomes a JSON file; {target!r} does not end in .json")
        has_comments = b"#" in read_bounded(path)
        notes = ("comments are not part of the JSON file",) if has_comments else ()
        return Converted(_json_text(workflow, unknown_keys(parsed.content)), notes)
    if target and not is_loop_file(target):
        wanted = " or ".join(LOOP_SUFFIXES)
        raise UsageError(f"a JSON file becomes a loop file; {target!r} does not end in {wanted}")
    unknown = unknown_keys(parsed.content)
    left_out: tuple[str, ...] = ()
    if "edges" not in unknown:
        workflow, left_out = _without_dead_edges(workflow)
    if parsed.triggers:
        how = "its triggers are left out; `infloop triggers adopt` makes files of them"
        left_out = (how, *left_out)
    name = loop_file_id(target) if target else ""
    return Converted(_loop_text(workflow, name, unknown), left_out)


def loop_file_as_json(text: str, workflow_id: str) -> str:
    """Return the JSON file of a loop file of our own that is not stored anywhere."""
    from infloop.model.loop_file.reading import parse_loop_file

    workflow = parse_loop_file(text.encode(), workflow_id, lambda _: "").workflow
    assert workflow is not None
    return _json_text(workflow, {})


def loop_file_content(data: bytes, workflow_id: str) -> JsonObject:
    """Return the JSON form of a loop file that is in no folder, so it cannot name other files.

    Raises WorkflowError for a file with mistakes.
    """
    from infloop.model.loop_file.reading import parse_loop_file

    parsed = parse_loop_file(data, workflow_id, _refuse_other_file)
    if parsed.workflow is None or not parsed.usable:
        raise WorkflowError("the loop file has mistakes; correct them first", parsed.problems)
    made = json.loads(_json_text(parsed.workflow, unknown_keys(parsed.content)))
    return cast("JsonObject", made)


def workflow_as_loop_file(parsed: Parsed) -> Converted:
    """Return a workflow that is in no folder as a loop file. Raises WorkflowError."""
    if parsed.workflow is None or not parsed.usable:
        raise WorkflowError("the workflow has mistakes; correct them first", parsed.problems)
    unknown = unknown_keys(parsed.content)
    workflow = parsed.workflow
    left_out: tuple[str, ...] = ()
    if "edges" not in unknown:
        workflow, left_out = _without_dead_edges(workflow)
    return Converted(_loop_text(workflow, "", unknown), left_out)


def _refuse_other_file(_: str) -> str:
    from infloop.model.loop_file.values import UnusableFile

    raise UnusableFile("is not in this file; write its text in place of its name")


def convert_built(path: Path, parsed: Parsed, target: str = "") -> Converted:
    """Return a workflow that was built as a loop file, or as JSON if the name `target` says so.

    Raises UsageError for a target of the wrong kind, and WorkflowError for a file with mistakes.
    """
    workflow = _usable(path, parsed)
    if target.endswith(".json"):
        return Converted(_json_text(workflow, {}))
    if target and not is_loop_file(target):
        raise UsageError(
            f"{target!r} does not end in {', '.join(LOOP_SUFFIXES)} or .json; a workflow in Python "
            "becomes a loop file or a JSON file"
        )
    return Converted(_loop_text(workflow, loop_file_id(target) if target else "", {}))


def _usable(path: Path, parsed: Parsed) -> Workflow:
    if parsed.workflow is None or not parsed.usable:
        problems = [replace(problem, file=str(path)) for problem in parsed.problems]
        raise WorkflowError(f"{str(path)!r} has mistakes; correct them first", problems)
    return parsed.workflow


def _without_dead_edges(workflow: Workflow) -> tuple[Workflow, tuple[str, ...]]:
    """Leave out edges that no run follows and no loop file can say, and say which."""
    nodes = {placed.node.id: placed.node for placed in every_node(workflow)}
    dead = {
        index: f"edges[{index}] has no effect and is left out"
        for index, edge in enumerate(workflow.edges)
        if edge.source in nodes
        and edge.target in nodes
        and (edge.source_handle not in nodes[edge.source].handles or not nodes[edge.target].runs)
    }
    kept = tuple(edge for index, edge in enumerate(workflow.edges) if index not in dead)
    return workflow.model_copy(update={"edges": kept}), tuple(dead.values())


def _loop_text(workflow: Workflow, name: str, unknown: JsonObject) -> str:
    from infloop.model.loop_file.comparing import same_meaning
    from infloop.model.loop_file.reading import parse_loop_file
    from infloop.model.loop_file.writing import write_loop_file

    name = name or workflow.id
    text = write_loop_file(workflow, name, unknown)
    again = parse_loop_file(text.encode(), name, lambda _: "")
    if (
        again.workflow is None
        or not same_meaning(again.workflow, workflow)
        or unknown_keys(again.content) != unknown
    ):
        raise InfloopError("the workflow cannot be converted without loss; please report this")
    return text


def _json_text(workflow: Workflow, unknown: JsonObject) -> str:
    from infloop.model.loop_file.comparing import same_meaning

    content = _brief(workflow)
    add_unknown_keys(content, unknown)
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    again = parse_workflow(text.encode())
    if (
        again.workflow is None
        or not again.usable
        or not same_meaning(again.workflow, workflow)
        or unknown_keys(again.content) != unknown
    ):
        raise InfloopError("the workflow cannot be converted without loss; please report this")
    return text


def _brief(workflow: Workflow) -> JsonObject:
    """Return the JSON of a workflow without what is a default."""
    content = _without_defaults(workflow.to_json(), type(workflow)().to_json())
    first: JsonObject = {"id": workflow.id, "name": workflow.name}
    nodes: JsonValue = [_brief_node(node) for node in _objects(workflow.to_json()["nodes"])]
    edges: JsonValue = [
        {key: value for key, value in edge.items() if (key, value) not in _EDGE_DEFAULTS}
        for edge in _objects(workflow.to_json()["edges"])
    ]
    return {**first, **content, **first, "nodes": nodes, "edges": edges}


_EDGE_DEFAULTS = (("id", ""), ("sourceHandle", "next"))


def _brief_node(node: JsonObject) -> JsonObject:
    from infloop.model.nodes import NODE_MODELS

    defaults = NODE_MODELS[str(node["type"])]().to_json()
    rest = _without_defaults(node, defaults)
    config = _without_defaults(
        cast("JsonObject", node["config"]), cast("JsonObject", defaults["config"])
    )
    made: JsonObject = {"id": node["id"], "type": node["type"]}
    if "label" in node:
        made["label"] = node["label"]
    if config:
        made["config"] = config
    if "children" in node:
        made["children"] = [_brief_node(child) for child in _objects(node["children"])]
    return {**made, **{key: value for key, value in rest.items() if key not in (*made, "config")}}


def _without_defaults(content: JsonObject, defaults: JsonObject) -> JsonObject:
    return {
        key: value
        for key, value in content.items()
        if key not in defaults
        or value != defaults[key]
        or type(value) is not type(defaults[key])  # false is no 0
    }


def _objects(value: JsonValue) -> list[JsonObject]:
    return cast("list[JsonObject]", value)
