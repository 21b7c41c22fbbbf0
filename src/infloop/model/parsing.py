"""Reads a workflow file: migrates older formats and keeps what is usable.

Each part is validated separately, so that one mistake does not hide the next. `check` decides
whether the result makes sense.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from pydantic import ValidationError

from infloop.model.nodes import NODE_MODELS, SidenoteNode
from infloop.model.problems import Report, short_repr
from infloop.model.reading import read_object
from infloop.model.schema import fit
from infloop.model.values import as_text
from infloop.model.workflow import Edge, Workflow

if TYPE_CHECKING:
    from infloop.errors import Problem
    from infloop.model.nodes import Node
    from infloop.model.values import JsonObject, JsonValue

MAX_NODES = 10_000
# A node leaves by at most four handles, and only the first edge of a handle is followed.
MAX_EDGES = 4 * MAX_NODES


@dataclass(frozen=True, slots=True)
class Parsed:
    """A workflow file, as far as it could be read.

    If `problems` has an error, the workflow can be checked but not run. `unknown` holds the ids of
    nodes with an unknown type, which are replaced by sidenotes.
    """

    workflow: Workflow | None
    problems: tuple[Problem, ...]
    triggers: tuple[JsonObject, ...] = ()
    unknown: frozenset[str] = frozenset()

    @property
    def usable(self) -> bool:
        """Whether there is a workflow without errors."""
        return self.workflow is not None and all(p.severity != "error" for p in self.problems)


def parse_workflow(data: bytes, *, expected_id: str | None = None) -> Parsed:
    """Read a workflow file and migrate it to the current format.

    `expected_id` is the id that the file's name implies. Inline triggers of older files are not
    part of the workflow and are returned separately.
    """
    report = Report()
    raw = read_object(data, report)
    if raw is None or not _bounded(raw, report):
        return Parsed(None, tuple(report.problems))
    triggers = _take_triggers(raw, report)
    unknown: set[str] = set()
    try:
        workflow = Workflow.model_validate(raw, by_alias=True, by_name=False)
    except ValidationError:
        workflow = _salvage(raw, report, unknown)
    if expected_id is not None and workflow.id != expected_id:
        report.error(
            "id",
            f"{short_repr(workflow.id)} is not the name of its file, {short_repr(expected_id)}",
            "rename the file or change the id; a workflow is found by its file name",
        )
    return Parsed(workflow, tuple(report.problems), triggers, frozenset(unknown))


def _bounded(raw: JsonObject, report: Report) -> bool:
    """Migrate the nodes and count them; return False if there are too many."""
    edges = raw.get("edges")
    if isinstance(edges, list) and len(edges) > MAX_EDGES:
        report.error("edges", f"more than {MAX_EDGES} edges", "split it into subworkflows")
        return False
    count = 0
    waiting: list[JsonValue] = [raw.get("nodes")]
    while waiting:
        nodes = waiting.pop()
        if not isinstance(nodes, list):
            continue
        count += len(nodes)
        if count > MAX_NODES:
            report.error("nodes", f"more than {MAX_NODES} nodes", "split it into subworkflows")
            return False
        for node in nodes:
            if isinstance(node, dict):
                _migrate(node)
                waiting.append(node.get("children"))
    return True


def _migrate(node: JsonObject) -> None:
    """Turn a node of type `claude` into an agent."""
    if node.get("type") == "claude":
        node["type"] = "agent"
        config = node.get("config")
        if config is None or isinstance(config, dict):
            node["config"] = {**(config or {}), "providerId": "claude"}


def _take_triggers(raw: JsonObject, report: Report) -> tuple[JsonObject, ...]:
    triggers = raw.pop("triggers", None)
    if triggers is None:
        return ()
    if not isinstance(triggers, list):
        report.error("triggers", f"expected a list, got {short_repr(triggers)}")
        return ()
    taken: list[JsonObject] = []
    for index, trigger in enumerate(triggers):
        if isinstance(trigger, dict):
            taken.append(trigger)
        else:
            report.error(f"triggers[{index}]", f"expected an object, got {short_repr(trigger)}")
    return tuple(taken)


def _salvage(raw: JsonObject, report: Report, unknown: set[str]) -> Workflow:
    """Return the usable parts of a file with mistakes; each part is validated separately."""
    rest = {key: value for key, value in raw.items() if key not in ("nodes", "edges")}
    header = fit(Workflow, rest, report) or Workflow()
    edges = tuple(
        fit(Edge, item, report, f"edges[{index}]{_named(item)}") or Edge()
        for index, item in enumerate(_list(raw.get("edges"), "edges", report))
    )
    nodes = _salvage_nodes(raw.get("nodes"), "nodes", report, unknown)
    return header.model_copy(update={"nodes": nodes, "edges": edges})


def _salvage_nodes(
    raw: JsonValue, path: str, report: Report, unknown: set[str]
) -> tuple[Node, ...]:
    return tuple(
        _salvage_node(item, f"{path}[{index}]", report, unknown)
        for index, item in enumerate(_list(raw, path, report))
    )


def _salvage_node(raw: JsonValue, path: str, report: Report, unknown: set[str]) -> Node:
    place = path + _named(raw)
    if not isinstance(raw, dict):
        report.error(place, f"expected an object, got {short_repr(raw)}")
        return SidenoteNode()
    children = _salvage_nodes(raw.get("children"), f"{path}.children", report, unknown)
    kind = raw.get("type")
    model = NODE_MODELS.get(kind) if isinstance(kind, str) else None
    if model is None:
        hint = report.guess(as_text(kind), NODE_MODELS)
        message = f"unknown node type {short_repr(kind)}" if kind else "has no type"
        report.error(place, message, hint)
        model, raw = SidenoteNode, {"id": raw.get("id"), "type": "sidenote"}
        if isinstance(raw["id"], str):
            unknown.add(raw["id"])
    rest = {key: value for key, value in raw.items() if key != "children"}
    node = fit(model, rest, report, place) or SidenoteNode()
    return cast("Node", node.model_copy(update={"children": children}))


def _list(value: JsonValue, place: str, report: Report) -> list[JsonValue]:
    if isinstance(value, list):
        return value
    if value is not None:
        report.error(place, f"expected a list, got {short_repr(value)}")
    return []


def _named(raw: JsonValue) -> str:
    name = raw.get("id") if isinstance(raw, dict) else None
    return f" {short_repr(name)}" if isinstance(name, str) and name else ""
