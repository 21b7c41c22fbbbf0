"""Reads a workflow file: migrates older formats and keeps what is usable.

Each part is validated separately, so that one mistake does not hide the next. `check` decides
whether the result makes sense.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec

from infloop.model.nodes import NODE_MODELS, SidenoteNode
from infloop.model.positions import JsonSource, at_the_top
from infloop.model.problem_subjects import with_subjects
from infloop.model.problems import Report, short_repr
from infloop.model.reading import load_json, read_object
from infloop.model.schema import Model, fit
from infloop.model.type_checks import ValidationError
from infloop.model.values import as_text
from infloop.model.workflow import Edge, Workflow

if TYPE_CHECKING:
    from infloop.errors import Problem, Severity
    from infloop.model.nodes import Node
    from infloop.model.positions import Source
    from infloop.model.values import JsonObject, JsonValue

MAX_NODES = 10_000
# A node leaves by at most four handles, and only the first edge of a handle is followed.
MAX_EDGES = 4 * MAX_NODES


class Parsed(msgspec.Struct, frozen=True):
    """A workflow file, as far as it could be read.

    If `problems` has an error, the workflow can be checked but not run. `unknown` holds the ids of
    nodes with an unknown type, which are replaced by sidenotes. `source` knows where a problem is
    in the text. `files` are the names of other files whose text is in the workflow. `content` is
    what the file says, migrated, with everything that infloop does not know.
    """

    workflow: Workflow | None
    problems: tuple[Problem, ...]
    triggers: tuple[JsonObject, ...] = ()
    unknown: frozenset[str] = frozenset()
    source: Source | None = None
    files: tuple[str, ...] = ()
    content: JsonObject = msgspec.field(default_factory=dict)

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
    if raw is None:
        return Parsed(None, tuple(_unreadable(data, report.problems)))
    source = JsonSource(data.decode(), raw)
    return parse_content(raw, report, source, expected_id=expected_id)


def parse_content(
    raw: JsonObject,
    report: Report,
    source: Source,
    *,
    expected_id: str | None = None,
    files: tuple[str, ...] = (),
) -> Parsed:
    """Read the content of a workflow file: the same for every language that it is written in."""
    if not _bounded(raw, report):
        return Parsed(None, tuple(source.located(report.problems)), source=source)
    triggers = _triggers(raw, report)
    known = {key: value for key, value in raw.items() if key != "triggers"}
    unknown: set[str] = set()
    try:
        workflow = Workflow.model_validate(known)
    except ValidationError:
        workflow = _salvage(known, report, unknown)
    if expected_id is not None and workflow.id != expected_id:
        report.error(
            "id",
            f"{short_repr(workflow.id)} is not the name of its file, {short_repr(expected_id)}",
            "rename the file or change the id; a workflow is found by its file name",
        )
    problems = tuple(source.located(with_subjects(report.problems, raw)))
    return Parsed(workflow, problems, triggers, frozenset(unknown), source, files, raw)


def _unreadable(data: bytes, problems: list[Problem]) -> list[Problem]:
    """Return the problems of a file that cannot be used at all, with their positions."""
    try:
        text = data.decode()
        return JsonSource(text, load_json(text)).located(problems)
    except (ValueError, RecursionError):
        return at_the_top(problems)


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


def _triggers(raw: JsonObject, report: Report) -> tuple[JsonObject, ...]:
    triggers = raw.get("triggers")
    if triggers is None:
        return ()
    if not isinstance(triggers, list):
        report.warning("triggers", f"expected a list, got {short_repr(triggers)}")
        return ()
    taken: list[JsonObject] = []
    for index, trigger in enumerate(triggers):
        if isinstance(trigger, dict):
            taken.append(trigger)
        else:
            report.warning(f"triggers[{index}]", f"expected an object, got {short_repr(trigger)}")
    return tuple(taken)


def _salvage(raw: JsonObject, report: Report, unknown: set[str]) -> Workflow:
    """Return the usable parts of a file with mistakes; each part is validated separately."""
    return _Salvage(raw, report, unknown).workflow()


class _Salvage:
    """Reads a file part by part. An unknown key is an error only in a strict workflow."""

    def __init__(self, raw: JsonObject, report: Report, unknown: set[str]) -> None:
        self._raw = raw
        self._report = report
        self._unknown = unknown
        self._unknown_keys: Severity = "error" if raw.get("strict") is True else "warning"

    def workflow(self) -> Workflow:
        rest = {key: value for key, value in self._raw.items() if key not in ("nodes", "edges")}
        header = self._fit(Workflow, rest, "") or Workflow()
        edges = tuple(
            self._fit(Edge, item, f"edges[{index}]{_named(item)}") or Edge()
            for index, item in enumerate(self._list(self._raw.get("edges"), "edges"))
        )
        nodes = self._nodes(self._raw.get("nodes"), "nodes")
        return header.model_copy(update={"nodes": nodes, "edges": edges})

    def _nodes(self, raw: JsonValue, path: str) -> tuple[Node, ...]:
        return tuple(
            self._node(item, f"{path}[{index}]") for index, item in enumerate(self._list(raw, path))
        )

    def _node(self, raw: JsonValue, path: str) -> Node:
        place = path + _named(raw)
        if not isinstance(raw, dict):
            self._report.error(place, f"expected an object, got {short_repr(raw)}")
            return SidenoteNode()
        children = self._nodes(raw.get("children"), f"{path}.children")
        kind = raw.get("type")
        model = NODE_MODELS.get(kind) if isinstance(kind, str) else None
        if model is None:
            hint = self._report.guess(as_text(kind), NODE_MODELS)
            message = f"unknown node type {short_repr(kind)}" if kind else "has no type"
            self._report.error(place, message, hint)
            model, raw = SidenoteNode, {"id": raw.get("id"), "type": "sidenote"}
            if isinstance(raw["id"], str):
                self._unknown.add(raw["id"])
        rest = {key: value for key, value in raw.items() if key != "children"}
        node = self._fit(model, rest, place) or SidenoteNode()
        return cast("Node", node.model_copy(update={"children": children}))

    def _fit(self, model: type[Model], raw: JsonValue, place: str) -> Model | None:
        return fit(model, raw, self._report, place, unknown_keys=self._unknown_keys)

    def _list(self, value: JsonValue, place: str) -> list[JsonValue]:
        if isinstance(value, list):
            return value
        if value is not None:
            self._report.error(place, f"expected a list, got {short_repr(value)}")
        return []


def _named(raw: JsonValue) -> str:
    name = raw.get("id") if isinstance(raw, dict) else None
    return f" {short_repr(name)}" if isinstance(name, str) and name else ""
