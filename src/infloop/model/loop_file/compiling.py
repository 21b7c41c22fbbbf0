"""Reads the steps of a loop file and links them into the workflow that a run executes.

Order is written order: each step leads to the next one of its list by its flow handles
(`NodeBase.flow_handles`). A handle that is written as a key leads elsewhere:

    onError: clean-up      a jump to a step
    onError: [steps]       steps of its own, which then go on after the step that has them
    next: null             nothing follows

`then` and `else` are the handles of an `if`. The steps in all these lists are nodes of the same
level; only `steps` of a loop and `branches` of a parallel are inside it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import msgspec

from infloop.model.loop_file.forms import FORMS, read_check
from infloop.model.loop_file.keys import STEP_KEYS, Key, config_model, kinds, model_keys, step_words
from infloop.model.loop_file.steps import Arm, Spot, Step, spot_of
from infloop.model.loop_file.tree import Fields, Items, Scalar, plain
from infloop.model.loop_file.values import Values
from infloop.model.problems import short_repr
from infloop.model.unknown_keys import add_unknown_keys, nodes_of
from infloop.model.workflow import InputSpec, Workflow

if TYPE_CHECKING:
    from collections.abc import Callable

    from infloop.model.loop_file.tree import Member, Tree
    from infloop.model.positions import Path
    from infloop.model.problems import Report
    from infloop.model.values import JsonObject, JsonValue

CHECK_SUFFIX = "-check"
# Where a step works. A command that `until` runs has the place of the agent unless it has its own.
PLACE_KEYS = (
    *("cwd", "useWorktree", "worktree", "worktreeRef"),
    *("includeUncommitted", "worktreeInclude"),
)
HEADER = model_keys(Workflow, ("nodes", "edges", "inputs", "$schema"))
_FILE_KEYS = ("inputs", "steps", "layout", "unknown")
_LAYOUT_KEYS = ("nodes", "edges")


class Compiled(msgspec.Struct):
    """A workflow as JSON, and where its parts are in the loop file.

    `checks` are the conditions of `until` by the loop that has them. `unknown` holds the ids of
    steps that could not be read. `with_unknown_keys` is the content with what is kept for other
    programs.
    """

    content: JsonObject
    spots: dict[Path, Spot]
    checks: dict[str, str] = msgspec.field(default_factory=dict)
    unknown: set[str] = msgspec.field(default_factory=set)
    files: tuple[str, ...] = ()
    with_unknown_keys: JsonObject = msgspec.field(default_factory=dict)


def compile_tree(
    tree: Fields, workflow_id: str, report: Report, read_file: Callable[[str], str]
) -> Compiled:
    """Return the workflow of a loop file; mistakes are reported and left out."""
    values = Values(report, read_file)
    reader = _Reader(values)
    whole = Spot("", tree.start, tree.end)
    spots: dict[Path, Spot] = {(): whole._replace(words="file")}
    content: JsonObject = {"id": workflow_id, **Workflow.loop_defaults}
    content |= values.fields(tree, HEADER, whole, spots, (), _FILE_KEYS)
    content.setdefault("name", content["id"])
    if "inputs" in tree.members:
        content["inputs"] = _inputs(tree.members["inputs"], values, spots)
    steps: list[Step] = []
    if "steps" in tree.members:
        steps = reader.steps(tree.members["steps"], "steps")
    else:
        values.error(whole._replace(words="file"), "has no steps", "write them under `steps:`")
    linker = _Linker(values, reader.ids, spots)
    linker.top(steps, Spot("steps", tree.start, tree.start.offset))
    content["nodes"], content["edges"] = linker.nodes, linker.edges
    if "layout" in tree.members:
        _apply_layout(tree.members["layout"], content, values, spots)
    whole_content = _with_unknown_keys(tree.members.get("unknown"), content, values)
    files = tuple(values.files)
    return Compiled(content, spots, reader.checks, linker.unknown, files, whole_content)


# -- reading ---------------------------------------------------------------------------------


class _Reader:
    """Reads steps in written order, which their ids are derived from."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._counts: dict[str, int] = {}
        self.ids: dict[str, Spot] = {}
        self.checks: dict[str, str] = {}

    def steps(self, member: Member, words: str, first_id: str = "") -> list[Step]:
        """Read a list of steps; `first_id` is the id of the first one."""
        tree = member.value
        if isinstance(tree, Scalar) and tree.value is None:
            return []
        if not isinstance(tree, Items):
            self._values.error(
                spot_of(words, tree, member.key),
                f"expected a list of steps, got {short_repr(plain(tree))}",
                "begin each step with a dash: `- agent: claude`",
            )
            return []
        return [
            self._step(item, f"{words}[{number}]", first_id if number == 0 else "")
            for number, item in enumerate(tree.items)
        ]

    def _step(self, tree: Tree, words: str, given_id: str) -> Step:
        spot = Spot(words, tree.start, tree.end)
        kind = self._kind(tree, spot)
        if kind is None:
            return self._broken(tree, spot, given_id)
        assert isinstance(tree, Fields)
        step = Step(step_words(kind), "", spot)
        self._name(step, tree, kind, given_id)
        named = f"{words} {short_repr(step.id)}"
        step.spot = spot._replace(words=named)
        self._main(step, tree.members[kind], named)
        if "label" in tree.members:
            label = tree.members["label"].value
            step.label = None if not isinstance(label, Scalar) or _is_null(label) else label.text
        nested = self._nested_keys(step)
        known = [kind, *STEP_KEYS, *nested, *step.words.handles, "next"]
        keys: dict[str, Key] = {} if step.words.node_type in FORMS else dict(step.words.keys)
        config = self._values.fields(tree, keys, step.spot, step.spots, ("config",), known)
        step.config = {**config_model(step.words.model).loop_defaults, **step.config, **config}
        for key, member in tree.members.items():
            if key in nested:
                self._nested(step, key, member, named)
            elif (handle := self._handle(step, key)) is not None:
                arm = self._arm(member, f"{named} {key}")
                if arm is not None:
                    step.arms[handle] = arm
        return step

    def _kind(self, tree: Tree, spot: Spot) -> str | None:
        if not isinstance(tree, Fields):
            self._values.error(
                spot,
                f"expected a step, got {short_repr(plain(tree))}",
                "write its kind first, for example `command: make test`",
            )
            return None
        found = [kind for kind in kinds() if kind in tree.members]
        if len(found) == 1:
            return found[0]
        if found:
            second = tree.members[found[1]].key
            self._values.error(
                Spot(spot.words, second, second.offset),
                f"is both {' and '.join(map(repr, found))}",
                "begin a step of its own with a dash",
            )
            return None
        first = next(iter(tree.members), "")
        self._values.error(
            spot,
            f"has no kind; its first key is {short_repr(first)}" if first else "is empty",
            self._values.report.guess(first, kinds()),
        )
        return None

    def _broken(self, tree: Tree, spot: Spot, given_id: str) -> Step:
        """Stand in for a step that cannot be read, so that others may refer to it."""
        step = Step(step_words("note"), given_id, spot, broken=True)
        if isinstance(tree, Fields) and "id" in tree.members:
            name = tree.members["id"].value
            step.id = name.text if isinstance(name, Scalar) else step.id
        self._counts["step"] = self._counts.get("step", 0) + 1
        step.id = step.id or f"step {self._counts['step']}"
        self.ids.setdefault(step.id, spot)
        return step

    def _name(self, step: Step, tree: Fields, kind: str, given_id: str) -> None:
        """Set the id of a step: as it is written, or from its kind and number."""
        self._counts[kind] = number = self._counts.get(kind, 0) + 1
        words = step.spot.words
        written: list[tuple[str, Spot]] = []
        for key in ("id", *((kind,) if step.words.main_is_id else ())):
            member = tree.members.get(key)
            if member is None:
                continue
            here = spot_of(f"{words} {key}", member.value, member.key)
            if not isinstance(member.value, Scalar):
                self._values.error(here, f"expected an id, got {short_repr(plain(member.value))}")
            elif member.value.value is not None:
                written.append((member.value.text, here))
        if len(written) > 1:
            self._values.error(written[0][1], "the step has an id already", "keep one of them")
        name, spot = written[-1] if written else (given_id, step.spot)
        if given_id and name != given_id:
            self._values.error(
                spot,
                f"the first step of a branch has the name of the branch, {short_repr(given_id)}",
                "rename the branch, or leave out the id",
            )
            name = given_id
        self._claim(step, name or (kind if number == 1 else f"{kind}-{number}"), spot)

    def _claim(self, step: Step, name: str, spot: Spot) -> None:
        step.id = name
        step.spots["id",] = spot
        if name in self.ids:
            self._values.error(
                spot,
                f"the id {short_repr(name)} is used in line {self.ids[name].start.line} already",
                "give this step an `id` of its own",
            )
        self.ids.setdefault(name, spot)

    def _main(self, step: Step, member: Member, named: str) -> None:
        """Read the value of the key that names the kind."""
        words = step.words
        spot = spot_of(f"{named} {words.kind}", member.value, member.key)
        form = FORMS.get(words.node_type)
        if form is not None:
            step.spots["config",] = spot
            config = form[0](member.value, self._values, spot, step.spots)
            step.config, step.broken = config or {}, config is None
        elif words.main is not None:
            at = ("config", words.main.name)
            value = self._values.field(words.main, member.value, spot, step.spots, at)
            if value is not None:
                step.config = {words.main.name: value}
        elif not words.main_is_id and not _is_null(member.value):
            self._values.error(spot, f"takes no value, got {short_repr(plain(member.value))}")

    def _nested_keys(self, step: Step) -> tuple[str, ...]:
        match step.words.model.opens if step.words.model.holds_nodes else None:
            case "round":
                return ("steps", "until")
            case "branch":
                return ("branches",)
            case _:
                return ()

    def _nested(self, step: Step, key: str, member: Member, named: str) -> None:
        where = f"{named} {key}"
        if key == "steps":
            step.bodies.append(self.steps(member, where))
        elif key == "until":
            step.until = self._until(step, member, where)
        elif isinstance(member.value, Fields):
            for name, branch in member.value.members.items():
                steps = self.steps(branch, f"{where}.{name}", first_id=name)
                if steps:
                    step.bodies.append(steps)
                else:
                    spot = spot_of(f"{where}.{name}", branch.value, branch.key)
                    self._values.error(spot, "the branch is empty", "write its steps, or remove it")
        else:
            self._values.error(
                spot_of(where, member.value, member.key),
                "expected named lists of steps",
                "write `name: [steps]` for each branch",
            )

    def _until(self, loop: Step, member: Member, words: str) -> Step:
        """Read the condition that ends a loop: a step at the end of its body."""
        tree = member.value
        spot = spot_of(words, tree, member.key)
        step = Step(step_words("check"), "", spot)
        name, name_spot = f"{loop.id}{CHECK_SUFFIX}", spot
        for key in STEP_KEYS:
            inner = tree.members.get(key) if isinstance(tree, Fields) else None
            if inner is None or _is_null(inner.value):
                continue
            here = spot_of(f"{words}.{key}", inner.value, inner.key)
            if not isinstance(inner.value, Scalar):
                self._values.error(here, f"expected a text, got {short_repr(plain(inner.value))}")
            elif key == "id":
                name, name_spot = inner.value.text, here
            else:
                step.label = inner.value.text
        self._claim(step, name, name_spot)
        self.checks[loop.id] = name
        step.spots["config",] = spot
        config = read_check(tree, self._values, spot, step.spots, STEP_KEYS)
        step.config, step.broken = config or {}, config is None
        if isinstance(tree, Fields):
            step.has_own_place = not {"kind", *PLACE_KEYS}.isdisjoint(tree.members)
        return step

    def _handle(self, step: Step, key: str) -> str | None:
        """Return the handle that a key means; `next` is the way to the step after."""
        handle = step.words.handles.get(key)
        if handle is None and key == "next":
            flow = step.words.model.flow_handles(step.config)
            return flow[0] if len(flow) == 1 else None
        return handle

    def _arm(self, member: Member, words: str) -> Arm | None:
        tree = member.value
        spot = spot_of(words, tree, member.key)
        if isinstance(tree, Items):
            return Arm(spot, steps=self.steps(member, words))
        if isinstance(tree, Scalar):
            return Arm(spot, target=None if tree.value is None else tree.text)
        self._values.error(spot, "expected the id of a step, or a list of steps")
        return None


def _is_null(tree: Tree) -> bool:
    return isinstance(tree, Scalar) and tree.value is None


def _inputs(member: Member, values: Values, spots: dict[Path, Spot]) -> JsonValue:
    """Return the declared inputs: a default, or a mapping with type, default and description."""
    tree = member.value
    spot = spot_of("inputs", tree, member.key)
    spots["inputs",] = spot
    if _is_null(tree):
        return []
    if not isinstance(tree, Fields):
        values.error(spot, "expected names with their defaults", "write `task: Fix the tests`")
        return []
    made: list[JsonValue] = []
    keys = model_keys(InputSpec, ("name",))
    for number, (name, inner) in enumerate(tree.members.items()):
        at = ("inputs", number)
        here = spot_of(f"inputs.{name}", inner.value, inner.key)
        spots[at] = spots[(*at, "name")] = spots[(*at, "default")] = here
        if isinstance(inner.value, Fields):
            spec = values.fields(inner.value, keys, here, spots, at)
            if "type" not in spec:
                spec["type"] = input_type(spec.get("default"))
        else:
            default = plain(inner.value)
            spec = {"type": input_type(default)}
            if default is not None:
                spec["default"] = default
        made.append({"name": name, **spec})
    return made


def input_type(default: JsonValue) -> str:
    """Return the type of an input that its default implies."""
    match default:
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "text" if "\n" in default else "string"
        case _:
            return "string"


# -- linking ---------------------------------------------------------------------------------


class _Linker:
    """Makes nodes and edges from steps."""

    def __init__(self, values: Values, ids: dict[str, Spot], spots: dict[Path, Spot]) -> None:
        self._values = values
        self._ids = ids
        self._spots = spots
        self.nodes: list[JsonValue] = []
        self.edges: list[JsonValue] = []
        self.unknown: set[str] = set()

    def top(self, steps: list[Step], spot: Spot) -> None:
        """Link the steps of the file; a start goes before them unless one is written."""
        if not any(step.words.model.is_start for step in every_step(steps, inside=False)):
            first = next((step.id for step in steps if step.flows), None)
            name = "start" if "start" not in self._ids else "start-1"
            self._spots["nodes", 0] = self._ids[name] = spot
            self.nodes.append({"id": name, "type": "start"})
            if first is not None:
                self._edge(name, "next", first, spot)
        self._list(steps, None, self.nodes, ("nodes",), in_loop=False)

    def _list(
        self,
        steps: list[Step],
        follow: str | None,
        nodes: list[JsonValue],
        at: Path,
        *,
        in_loop: bool,
    ) -> None:
        """Add the nodes of a list of steps; `follow` is what comes after its last step."""
        following = follow
        after: list[str | None] = []
        for step in reversed(steps):
            after.append(following)
            following = step.id if step.flows else following
        for step, then in zip(steps, reversed(after), strict=True):
            self._node(step, nodes, at, in_loop=in_loop)
            self._exits(step, then, nodes, at, in_loop=in_loop)

    def _node(self, step: Step, nodes: list[JsonValue], at: Path, *, in_loop: bool) -> None:
        here = (*at, len(nodes))
        self._spots[here] = step.spot
        for path, spot in step.spots.items():
            self._spots[(*here, *path)] = spot
        if step.broken:
            self.unknown.add(step.id)
            nodes.append({"id": step.id, "type": "sidenote"})
            return
        raw: JsonObject = {"id": step.id, "type": step.words.node_type}
        if step.label is not None:
            raw["label"] = step.label
        raw["config"] = step.config
        nodes.append(raw)
        if step.until is not None:
            step.config.setdefault("checkFirst", True)
            self._place_check(step)
        if step.bodies or step.until is not None:
            children: list[JsonValue] = []
            raw["children"] = children
            inside = (*here, "children")
            last = step.until.id if step.until is not None else None
            is_loop = step.words.model.opens == "round"
            for body in step.bodies:
                self._list(body, last, children, inside, in_loop=is_loop)
            if step.until is not None:
                self._list([step.until], None, children, inside, in_loop=is_loop)

    def _place_check(self, loop: Step) -> None:
        """Let the command of `until` run where the loop's agent works, unless it says where."""
        assert loop.until is not None
        command = loop.until.config.get("command")
        if loop.until.has_own_place or not isinstance(command, dict):
            return
        body = [step for steps in loop.bodies for step in every_step(steps)]
        places = [
            place_of_work(step.id, step.config) for step in body if "worktreePath" in step.outputs
        ]
        working = [place for place in places if place is not None]
        if not working:
            return
        command.update(working[-1])
        names = list(dict.fromkeys(str(place["worktree"]) for place in working))
        if len(names) > 1:
            self._values.error(
                loop.until.spot,
                f"runs in the worktree {names[-1]!r}; the loop has {len(names)} worktrees",
                "say where with `until: {command: …, useWorktree: true, worktree: …}`",
                "warning",
            )

    def _exits(
        self, step: Step, then: str | None, nodes: list[JsonValue], at: Path, *, in_loop: bool
    ) -> None:
        model = step.words.model
        flow = model.flow_handles(step.config) if not step.broken else ("next",)
        if in_loop and model.gives_verdict:
            flow = ()
        for handle in flow:
            if handle not in step.arms and then is not None:
                self._edge(step.id, handle, then, step.spot)
        for handle, arm in step.arms.items():
            if arm.steps is None:
                if arm.target is not None:
                    self._jump(step.id, handle, arm.target, arm.spot)
                continue
            first = next((one.id for one in arm.steps if one.flows), then)
            if first is not None:
                self._edge(step.id, handle, first, arm.spot)
            self._list(arm.steps, then, nodes, at, in_loop=in_loop)

    def _jump(self, source: str, handle: str, target: str, spot: Spot) -> None:
        if target not in self._ids:
            hint = self._values.report.guess(target, self._ids)
            self._values.error(spot, f"there is no step {short_repr(target)}", hint)
            return
        self._edge(source, handle, target, spot)

    def _edge(self, source: str, handle: str, target: str, spot: Spot) -> None:
        self._spots["edges", len(self.edges)] = spot
        self.edges.append({"source": source, "sourceHandle": handle, "target": target})


def every_step(steps: list[Step], *, inside: bool = True) -> list[Step]:
    """Return steps with all that stand under them; `inside` says whether inside containers too."""
    found: list[Step] = []
    for step in steps:
        found.append(step)
        for body in step.bodies if inside else ():
            found += every_step(body)
        for arm in step.arms.values():
            found += every_step(arm.steps or [], inside=inside)
    return found


def place_of_work(node_id: str, config: JsonObject) -> JsonObject | None:
    """Return the fields with which a command runs in the worktree of a step; None without one."""
    if config.get("useWorktree") is not True:
        return None
    same = {key: config[key] for key in PLACE_KEYS if key in config}
    return {**same, "worktree": config.get("worktree") or node_id}


# -- what other programs keep in the file ----------------------------------------------------


def _with_unknown_keys(member: Member | None, content: JsonObject, values: Values) -> JsonObject:
    """Return the content with the keys under `unknown`, which have no effect."""
    if member is None:
        return content
    spot = spot_of("unknown", member.value, member.key)
    wanted = plain(member.value)
    if not isinstance(wanted, dict):
        values.error(spot, "expected file, inputs, nodes and edges")
        return content
    made: JsonObject = json.loads(json.dumps(content))
    for place in add_unknown_keys(made, wanted):
        values.error(
            spot._replace(words=f"unknown.{place}"),
            "there is no such part, or it has a key that infloop knows",
            "write what has an effect in the step itself",
        )
    return made


# -- layout ----------------------------------------------------------------------------------


def _apply_layout(
    member: Member, content: JsonObject, values: Values, spots: dict[Path, Spot]
) -> None:
    """Add what the console draws: positions and sizes of nodes, ids of edges."""
    spot = spot_of("layout", member.value, member.key)
    if not isinstance(member.value, Fields):
        values.error(spot, "expected nodes and edges")
        return
    for key, inner in member.value.members.items():
        here = spot_of(f"layout.{key}", inner.value, inner.key)
        if key not in _LAYOUT_KEYS:
            values.unknown_key(here, key, _LAYOUT_KEYS)
        elif key == "nodes":
            _place_nodes(inner.value, here, content, values)
        else:
            _name_edges(inner.value, here, content, values, spots)


def _place_nodes(tree: Tree, spot: Spot, content: JsonObject, values: Values) -> None:
    if not isinstance(tree, Fields):
        values.error(spot, "expected ids with x, y, width and height")
        return
    nodes = {node["id"]: node for node in nodes_of(content["nodes"])}
    for name, member in tree.members.items():
        here = spot_of(f"{spot.words}.{name}", member.value, member.key)
        node, drawn = nodes.get(name), plain(member.value)
        if node is None:
            values.error(here, f"there is no step {short_repr(name)}")
        elif not isinstance(drawn, dict) or set(drawn) - {"x", "y", "width", "height"}:
            values.error(here, "expected x, y, width and height")
        else:
            for part, keys in (("position", ("x", "y")), ("size", ("width", "height"))):
                found = {key: drawn[key] for key in keys if key in drawn}
                if found:
                    node[part] = found


def _name_edges(
    tree: Tree, spot: Spot, content: JsonObject, values: Values, spots: dict[Path, Spot]
) -> None:
    edges = cast("list[JsonObject]", content["edges"])
    known = {(one["source"], one["sourceHandle"], one["target"]): one for one in edges}
    followed = {(one["source"], one["sourceHandle"]) for one in edges}
    for number, item in enumerate(tree.items if isinstance(tree, Items) else ()):
        here = spot_of(f"{spot.words}[{number}]", item)
        drawn = plain(item)
        allowed = {"id", "from", "handle", "to", "targetHandle"}
        if not isinstance(drawn, dict) or set(drawn) - allowed:
            values.error(here, "expected id, from, handle, to and targetHandle")
            continue
        ends = drawn.get("from"), drawn.get("handle", "next"), drawn.get("to")
        more: JsonObject = {key: drawn[key] for key in drawn if key in ("id", "targetHandle")}
        edge = known.pop(cast("tuple[str, str, str]", ends), None)
        if edge is not None:
            edge.update(more)
        elif ends[:2] in followed:
            # Another edge of the same handle is never followed; it is kept as it was.
            spots["edges", len(edges)] = here
            edges.append({"source": ends[0], "sourceHandle": ends[1], "target": ends[2], **more})
        else:
            values.error(here, f"{short_repr(ends[0])} does not lead to {short_repr(ends[2])}")
