"""Writes a workflow as a loop file that means the same.

The written order says most of the edges. For each handle this compares what the order says with
what the workflow says, and writes a key where they differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from infloop.errors import Problem, WorkflowError
from infloop.model.loop_file.arranging import Arrangement, config_of
from infloop.model.loop_file.compiling import CHECK_SUFFIX, PLACE_KEYS, input_type, place_of_work
from infloop.model.loop_file.forms import FORMS
from infloop.model.loop_file.keys import config_model, kind_of, step_words
from infloop.model.loop_file.rendering import render_fields
from infloop.model.loop_file.yaml_text import Inline, yaml_text
from infloop.model.problems import short_repr
from infloop.model.references import node_templates
from infloop.model.walk import every_node
from infloop.model.workflow import Workflow

if TYPE_CHECKING:
    from infloop.model.loop_file.arranging import Placed
    from infloop.model.nodes import Node
    from infloop.model.values import JsonObject, JsonValue

# The fields of a workflow that are written in another way.
_ELSEWHERE = ("id", "name", "nodes", "edges", "inputs", "$schema")


def write_loop_file(workflow: Workflow, workflow_id: str, unknown: JsonObject | None = None) -> str:
    """Return the loop file of a workflow; `workflow_id` is the id that its name will say.

    `unknown` is what its file has for other programs: see `infloop.model.unknown_keys`.

    Raises WorkflowError for a workflow that no loop file can say.
    """
    problems = _unsayable(workflow)
    if problems:
        raise WorkflowError("the workflow cannot be written as a loop file", problems)
    content: JsonObject = {}
    if workflow.id != workflow_id:
        content["id"] = workflow.id
    header = workflow.to_json()
    if workflow.name != workflow.id:
        content["name"] = workflow.name
    content |= render_fields(
        Workflow, header, ("id", "name", "nodes", "edges", "inputs", "$schema")
    )
    if workflow.inputs is not None:
        content["inputs"] = _inputs(cast("list[JsonObject]", header["inputs"]))
    writer = _Writer(workflow)
    content["steps"] = writer.steps()
    layout = _layout(workflow, writer.order)
    if layout:
        content["layout"] = layout
    if unknown:
        content["unknown"] = unknown
    return yaml_text(content)


def _unsayable(workflow: Workflow) -> list[Problem]:
    """Return what a loop file has no words for; a workflow that can run has nothing of it."""
    problems: list[Problem] = []
    seen: dict[str, Node] = {}
    for placed in every_node(workflow):
        node = placed.node
        if not node.id or node.id in seen:
            problems.append(Problem(placed.place, "has no id of its own", "every node needs one"))
        if node.children and not node.holds_nodes:
            problems.append(Problem(placed.place, "holds nodes although it is no container"))
        seen[node.id] = node
    for index, edge in enumerate(workflow.edges):
        place = f"edges[{index}]"
        if edge.source not in seen or edge.target not in seen:
            problems.append(Problem(place, "leads from or to a node that does not exist"))
        elif edge.source_handle not in seen[edge.source].handles:
            handle = short_repr(edge.source_handle)
            problems.append(Problem(place, f"begins at {handle}, which is no handle of its node"))
        elif not seen[edge.target].runs:
            problems.append(Problem(place, "leads to a note"))
    if not any(node.is_start for node in workflow.nodes):
        problems.append(Problem("nodes", "there is no start node", "add one at the top level"))
    names = [spec.name for spec in workflow.inputs or ()]
    if len(set(names)) < len(names):
        problems.append(Problem("inputs", "two inputs have the same name"))
    return problems


def _inputs(specs: list[JsonObject]) -> JsonObject:
    made: JsonObject = {}
    for spec in specs:
        default = spec.get("default")
        rest: JsonObject = {key: value for key, value in spec.items() if key != "name"}
        short = "description" not in spec and spec["type"] == input_type(default)
        if short and not isinstance(default, dict | list):
            made[str(spec["name"])] = default
        else:
            if spec["type"] == input_type(default):
                del rest["type"]
            made[str(spec["name"])] = rest or {"type": spec["type"]}
    return made


class _Writer:
    """Turns placed nodes into steps, in the order in which they are written."""

    def __init__(self, workflow: Workflow) -> None:
        self._arrangement = Arrangement(workflow, _named_checks(workflow))
        self._followed = self._arrangement.followed
        self._counts: dict[str, int] = {}
        self._starts = sum(node.is_start for node in workflow.nodes)

    @property
    def order(self) -> list[Node]:
        """The nodes in written order."""
        return _nodes_of([self._arrangement.steps])

    def steps(self) -> list[JsonValue]:
        """Return the steps of the file."""
        placed = self._arrangement.steps
        if self._starts == 1 and placed and self._is_implied(placed):
            placed = placed[1:]
        return self._list(placed, None)

    def _is_implied(self, placed: list[Placed]) -> bool:
        """Say whether the file means this start without a word."""
        start = placed[0].node
        first = next((one.node.id for one in placed[1:] if one.node.runs), None)
        return (
            start.is_start
            and start.id == "start"
            and start.label is None
            and self._followed.get(start.id, {}).get("next") == first
        )

    def _list(
        self, row: list[Placed], follow: str | None, *, in_loop: bool = False, named: bool = False
    ) -> list[JsonValue]:
        """Return a list of steps; `follow` is what comes after the last one."""
        after: list[str | None] = []
        following = follow
        for placed in reversed(row):
            after.append(following)
            following = placed.node.id if placed.node.runs else following
        return [
            self._step(placed, then, in_loop=in_loop, has_name=named and number == 0)
            for number, (placed, then) in enumerate(zip(row, reversed(after), strict=True))
        ]

    def _step(
        self, placed: Placed, then: str | None, *, in_loop: bool, has_name: bool
    ) -> JsonObject:
        node = placed.node
        words = step_words(kind_of(node.type))
        config = config_of(node)
        step: JsonObject = {words.kind: self._main(node, config)}
        self._counts[words.kind] = number = self._counts.get(words.kind, 0) + 1
        derived = words.kind if number == 1 else f"{words.kind}-{number}"
        if words.main_is_id:
            step[words.kind] = node.id
        elif not has_name and node.id != derived:
            step["id"] = node.id
        if node.label is not None:
            step["label"] = node.label
        if node.type not in FORMS:
            main = words.main.name if words.main is not None else ""
            fields = render_fields(config_model(words.model), config, (main,))
            if placed.until is not None and fields.pop("checkFirst", False) is False:
                fields["checkFirst"] = False  # `until` means it
            step |= fields
        self._inside(placed, step)
        self._exits(placed, then, step, in_loop=in_loop)
        return step

    def _main(self, node: Node, config: JsonObject) -> JsonValue:
        """Return the value of the key that names the kind."""
        words = step_words(kind_of(node.type))
        form = FORMS.get(node.type)
        if form is not None:
            return _short_line(form[1](config))
        return config.get(words.main.name) if words.main is not None else None

    def _inside(self, placed: Placed, step: JsonObject) -> None:
        node = placed.node
        if node.opens == "round":
            last = placed.until.id if placed.until is not None else None
            if placed.until is not None:
                step["until"] = self._until(placed)
            body = [one for row in placed.bodies for one in row]
            if body:
                step["steps"] = self._list(body, last, in_loop=True)
        elif placed.bodies:
            step["branches"] = {
                row[0].node.id: self._list(row, None, named=True) for row in placed.bodies
            }

    def _until(self, placed: Placed) -> JsonValue:
        """Return the condition of a loop; its directory only where that is not the agent's."""
        check = placed.until
        assert check is not None
        config = config_of(check)
        written = FORMS[check.type][1](config)
        command = config.get("command")
        if isinstance(written, dict) and "kind" not in written and isinstance(command, dict):
            written = self._without_place(placed, command, written)
        more: JsonObject = {}
        if check.id != f"{placed.node.id}{CHECK_SUFFIX}":
            more["id"] = check.id
        if check.label is not None:
            more["label"] = check.label
        return {**cast("JsonObject", written), **more} if more else _short_line(written)

    def _without_place(
        self, placed: Placed, command: JsonObject, written: JsonObject
    ) -> JsonObject:
        """Leave out where a command runs if the file means it without a word."""
        nodes = [node for node in _nodes_of(placed.bodies) if "worktreePath" in node.outputs]
        places = [place_of_work(node.id, config_of(node)) for node in nodes]
        working = [place for place in places if place is not None]
        if not working:
            return written
        if {key: command[key] for key in PLACE_KEYS if key in command} == working[-1]:
            return {key: value for key, value in written.items() if key not in PLACE_KEYS}
        if not set(PLACE_KEYS) & set(written):
            return {**written, "useWorktree": False}
        return written

    def _exits(self, placed: Placed, then: str | None, step: JsonObject, *, in_loop: bool) -> None:
        """Write the handles that lead elsewhere than the order says."""
        node = placed.node
        words = step_words(kind_of(node.type))
        handles = self._followed.get(node.id, {})
        flow = node.flow_handles(config_of(node))
        implied = {} if in_loop and node.gives_verdict else dict.fromkeys(flow, then)
        for handle in node.handles:
            target = handles.get(handle)
            arm = placed.arms.get(handle)
            key = words.handle_key(handle)
            if arm:
                step[key] = self._list(arm, then, in_loop=in_loop)
            elif target != implied.get(handle):
                step[key] = target


def _named_checks(workflow: Workflow) -> frozenset[str]:
    """Return the nodes of which a text names `check`; `until` would give that a meaning."""
    return frozenset(
        reference[0]
        for placed in every_node(workflow)
        for found in node_templates(placed.node)
        for reference in found.template.references
        if len(reference) > 1 and reference[1] == "check"
    )


def _short_line(value: JsonValue) -> JsonValue:
    """Return a command without options as its shell line."""
    return value["command"] if isinstance(value, dict) and list(value) == ["command"] else value


def _nodes_of(rows: list[list[Placed]]) -> list[Node]:
    """Return the nodes of rows in written order, with all that stand under them."""
    found: list[Node] = []
    for row in rows:
        for placed in row:
            found += [placed.node, *_nodes_of(placed.bodies)]
            found += [placed.until] if placed.until is not None else []
            found += _nodes_of(list(placed.arms.values()))
    return found


def _layout(workflow: Workflow, order: list[Node]) -> JsonObject:
    """Return what the console draws: positions, sizes, and edges with ids."""
    nodes: JsonObject = {}
    for node in order:
        drawn = Inline()
        if node.position.to_json() != {"x": 0.0, "y": 0.0}:
            drawn |= node.position.to_json()
        if node.size is not None:
            drawn |= node.size.to_json()
        if drawn:
            nodes[node.id] = drawn
    made: JsonObject = {"nodes": nodes, "edges": _drawn_edges(workflow, order)}
    return {key: value for key, value in made.items() if value}


def _drawn_edges(workflow: Workflow, order: list[Node]) -> list[JsonValue]:
    """Return the edges that have more than two ends, or that are never followed."""
    rank = {node.id: number for number, node in enumerate(order)}
    handles = {node.id: node.handles for node in order}
    edges: list[JsonValue] = []
    taken: set[tuple[str, str]] = set()
    for edge in sorted(
        workflow.edges,
        key=lambda one: (rank[one.source], handles[one.source].index(one.source_handle)),
    ):
        followed = (edge.source, edge.source_handle) not in taken
        taken.add((edge.source, edge.source_handle))
        if followed and not edge.id and edge.target_handle is None:
            continue
        drawn = Inline({"id": edge.id} if edge.id else {})
        drawn["from"] = edge.source
        if edge.source_handle != "next":
            drawn["handle"] = edge.source_handle
        drawn["to"] = edge.target
        if edge.target_handle is not None:
            drawn["targetHandle"] = edge.target_handle
        edges.append(drawn)
    return edges
