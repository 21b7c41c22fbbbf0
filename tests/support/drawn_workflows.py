"""Workflows that hypothesis draws: every node type, nesting, error paths, jumps, odd texts.

They have the right shape and need not make sense: a converter must keep what it is given.
"""

from __future__ import annotations

from typing import Any, cast

from hypothesis import strategies as st

from infloop.model.nodes import NODE_MODELS
from infloop.model.parsing import parse_content
from infloop.model.positions import JsonSource
from infloop.model.problems import Report
from infloop.model.schema import FileModel, part_model
from infloop.model.workflow import Workflow
from support.workflow_fields import TEXTS, field_values

IDS = st.one_of(
    st.sampled_from(["start", "agent", "agent-2", "if", "rounds", "rounds-check", "check", "null"]),
    st.sampled_from(["loop", "10", "true", "a b", "a.b", "é", "~", "on", "x: y", "'q'"]),
    st.text(alphabet="abcxyz-_", min_size=1, max_size=6),
)  # fmt: skip
HEADER = ("id", "name", "nodes", "edges", "inputs", "schema_uri", "requires", "workspace")
LABELS = st.lists(st.sampled_from(["gpu", "repo:web", "a/b.c"]), unique=True)
WORKSPACE = {"repository": "https://example.com/web.git", "ref": "main"}


@st.composite
def drawn_nodes(draw: st.DrawFn, taken: set[str], depth: int) -> list[dict[str, Any]]:
    made = []
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(list(NODE_MODELS)))
        name = draw(IDS.filter(lambda one: one not in taken))
        taken.add(name)
        made.append(draw(drawn_node(kind, name, taken, depth)))
    return made


@st.composite
def drawn_node(
    draw: st.DrawFn, kind: str, name: str, taken: set[str], depth: int
) -> dict[str, Any]:
    model = NODE_MODELS[kind]
    config = part_model(model.model_fields["config"].annotation)
    assert config is not None
    node: dict[str, Any] = {"id": name, "type": kind, "config": draw(drawn_fields(config))}
    if draw(st.booleans()):
        node["label"] = draw(TEXTS)
    if draw(st.booleans()):
        node["position"] = {"x": draw(st.integers(-9, 9)), "y": draw(st.floats(-9, 9))}
    if model.holds_nodes:
        node["size"] = {"width": 10, "height": 20.5}
        if depth:
            node["children"] = draw(drawn_nodes(taken, depth - 1))
    return node


@st.composite
def drawn_fields(draw: st.DrawFn, model: type[FileModel]) -> dict[str, Any]:
    """Some of the fields of a part of the file."""
    made = {}
    for name, info in model.model_fields.items():
        if draw(st.booleans()):
            made[info.alias or name] = draw(field_values(info.annotation, drawn_fields))
    return made


@st.composite
def drawn_edges(draw: st.DrawFn, nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Edges between any two nodes, mostly along the order, sometimes across everything."""
    every = list(_every(nodes))
    targets = [node["id"] for node in every if NODE_MODELS[node["type"]].runs]
    edges: list[dict[str, Any]] = []
    for node in every:
        for handle in NODE_MODELS[node["type"]].handles:
            if targets and draw(st.sampled_from([True, True, False])):
                near = _sibling_after(nodes, node)
                target = near if near and draw(st.booleans()) else draw(st.sampled_from(targets))
                edge = {"source": node["id"], "sourceHandle": handle, "target": target}
                if draw(st.booleans()):
                    edge |= {"id": f"e{len(edges)}", "targetHandle": "in"}
                edges.append(edge)
    return draw(st.permutations(edges))


def _every(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for node in nodes for one in (node, *_every(node.get("children", [])))]


def _sibling_after(nodes: list[dict[str, Any]], node: dict[str, Any]) -> str:
    for level in (nodes, *(one.get("children", []) for one in _every(nodes))):
        if node in level:
            later = level[level.index(node) + 1 :]
            return next((one["id"] for one in later if NODE_MODELS[one["type"]].runs), "")
    return ""


@st.composite
def drawn_workflows(draw: st.DrawFn) -> Workflow:
    """A workflow as a JSON file could hold it."""
    taken: set[str] = set()
    nodes = draw(drawn_nodes(taken, 2))
    name = draw(IDS.filter(lambda one: one not in taken))
    nodes.insert(draw(st.integers(0, len(nodes))), {"id": name, "type": "start"})
    header = {
        info.alias or name: draw(field_values(info.annotation, drawn_fields))
        for name, info in Workflow.model_fields.items()
        if name not in HEADER and draw(st.booleans())
    }
    content = {
        **header,
        "id": "drawn",
        "name": draw(TEXTS),
        "nodes": nodes,
        "edges": draw(drawn_edges(nodes)),
    }
    if draw(st.booleans()):
        content["inputs"] = draw(drawn_inputs())
    if draw(st.booleans()):
        content |= {"requires": draw(LABELS), "workspace": WORKSPACE}
    report = Report()
    parsed = parse_content(cast("Any", content), report, JsonSource("{}", {}))
    assert parsed.workflow is not None
    assert not report.failed, report.problems
    return parsed.workflow


@st.composite
def drawn_inputs(draw: st.DrawFn) -> list[dict[str, Any]]:
    names = draw(st.lists(TEXTS, unique=True, max_size=3))
    kinds = st.sampled_from(["string", "number", "boolean", "text"])
    scalars = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.floats(-9, 9), TEXTS)
    made = []
    for name in names:
        spec = {"name": name, "type": draw(kinds), "default": draw(scalars)}
        if draw(st.booleans()):
            spec["description"] = draw(TEXTS)
        made.append(spec)
    return made
