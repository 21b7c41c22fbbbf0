"""Taint analysis: finds the fields that an untrusted value can reach.

An input that a sender of a webhook filled in is untrusted. It is followed through references, from
node to node and into called workflows. The output of an agent, a script, a command or a judge is
untrusted if one of its inputs is. The `untrusted` rules of a workflow decide where such a value may
go.

    agents      never            nowhere
                sandboxed-only   as text, to agents and judges that are confined (the default)
                text             as text, to agents and judges at any level, `host` included
                any              anywhere, also as the directory or the name of an agent
    commands    never            nowhere, scripts included
                env              as variables, arguments and standard input (the default)
                any              anywhere, also in a shell line or as a directory

- A called workflow must obey its own rules and those of the workflow that was started.
- The analysis is static and errs on the safe side: all calls of a workflow count together, and a
  condition without a text of its own counts as reading every untrusted output.
- Values that pass from step to step in files are not followed. Confinement limits those.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, assert_never

import msgspec

from infloop.model.nodes import UntrustedRule, node_model
from infloop.model.references import INPUT_ROOTS, config_templates

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from infloop.model.schema import TextUse
    from infloop.model.values import JsonObject

Mode: TypeAlias = Literal["never", "sandboxed-only", "text", "env", "any"]

DEFAULT: Mapping[UntrustedRule, Mode] = {"agents": "sandboxed-only", "commands": "env"}
# The strictest first.
_STRICTNESS: Mapping[UntrustedRule, tuple[Mode, ...]] = {
    "agents": ("never", "sandboxed-only", "text", "any"),
    "commands": ("never", "env", "any"),
}

_MAX_IN_MESSAGE = 5


class TaintedField(msgspec.Struct, frozen=True):
    """A field that an untrusted value reaches, and the references through which it does.

    - Without references, the node is a condition that reads the output of the step before it.
    - `use` is what the field is used for.
    - `rule` decides about its node; None for a node that only compares texts.
    """

    workflow: str
    node: str
    node_type: str
    field: str
    references: tuple[str, ...] = ()
    use: TextUse = "text"
    rule: UntrustedRule | None = None


class TaintViolation(msgspec.Struct, frozen=True):
    """A field that an untrusted value must not reach, and the mode that forbids it."""

    at: TaintedField
    rule: UntrustedRule
    allowed: Mode

    def __str__(self) -> str:
        at = self.at
        through = ", ".join(f"{{{{{one}}}}}" for one in at.references)
        by = f" through {through}" if through else ""
        return (
            f"a value from outside reaches {at.field!r} of {at.node_type} {at.node!r} in workflow "
            f"{at.workflow!r}{by}, and `untrusted.{self.rule}` allows {self.allowed!r}; "
            f"{_way_out(self)}"
        )


def _way_out(violation: TaintViolation) -> str:
    if violation.at.use == "shell" and violation.allowed == "env":
        return 'pass it in the command\'s `env` and write "$NAME" in the line'
    if violation.at.use == "text" and violation.allowed == "sandboxed-only":
        return (
            "agents are not confined here: choose another level than `host` (see `infloop doctor`),"
            ' or write "untrusted": {"agents": "text"} in the workflow'
        )
    return f'take it out, or write "untrusted": {{"{violation.rule}": …}} in the workflow'


def tainted_fields(
    workflows: Mapping[str, JsonObject], root: str, untrusted: Collection[str]
) -> tuple[TaintedField, ...]:
    """Return every field that the inputs `untrusted` of workflow `root` can reach.

    Inputs that are declared as numbers or booleans are harmless and left out.
    """
    texts = set(untrusted) - _typed(workflows[root])
    if not texts:
        return ()
    propagation = _Propagation(workflows)
    propagation.propagate(root, texts)
    return tuple(propagation.tainted_fields())


def _typed(workflow: JsonObject) -> set[str]:
    specs = workflow.get("inputs")
    return {
        str(spec.get("name"))
        for spec in (specs if isinstance(specs, list) else ())
        if isinstance(spec, dict) and spec.get("type") in ("number", "boolean")
    }


def find_violations(
    workflows: Mapping[str, JsonObject], root: str, untrusted: Collection[str], *, confined: bool
) -> tuple[TaintViolation, ...]:
    """Return the fields that an untrusted value would reach and must not.

    `confined` says whether the run's children are confined; at `host` they are not.
    """
    found: list[TaintViolation] = []
    for field in tainted_fields(workflows, root, untrusted):
        if field.rule is None:
            continue
        mode = _allowed(workflows, root, field.workflow, field.rule)
        if not _is_allowed(field, mode, confined=confined):
            found.append(TaintViolation(field, field.rule, mode))
    return tuple(found)


def violations_message(found: Sequence[TaintViolation]) -> str:
    """Return one message for the first few violations."""
    return "; ".join(map(str, found[:_MAX_IN_MESSAGE]))


# -- rules -----------------------------------------------------------------------------------


def _allowed(
    workflows: Mapping[str, JsonObject], root: str, workflow: str, rule: UntrustedRule
) -> Mode:
    rank = _STRICTNESS[rule].index
    return min((_declared(workflows[name], rule) for name in (root, workflow)), key=rank)


def _declared(workflow: JsonObject, rule: UntrustedRule) -> Mode:
    rules = workflow.get("untrusted")
    declared = rules.get(rule) if isinstance(rules, dict) else None
    if declared is None:
        return DEFAULT[rule]
    # An unknown mode allows nothing.
    return next((mode for mode in _STRICTNESS[rule] if mode == declared), "never")


def _is_allowed(at: TaintedField, mode: Mode, *, confined: bool) -> bool:
    match mode:
        case "any":
            return True
        case "sandboxed-only":
            return confined and at.use != "selector"
        case "text":
            return at.use != "selector"
        case "env":
            return at.use not in ("selector", "shell")
        case "never":
            return False
        case _:
            assert_never(mode)


# -- propagation -----------------------------------------------------------------------------


class _Node:
    """A node, as far as values flow through it."""

    def __init__(self, workflow: str, raw: Mapping[str, Any], parent: _Node | None) -> None:
        self.workflow = workflow
        self.parent = parent
        self.id: str = raw["id"]
        self.type: str = raw["type"]
        self.config: JsonObject = raw.get("config") or {}
        self.model = node_model(self.type)
        self.rule = self.model.untrusted_rule(self.config)
        self.fields = [
            (".".join(path), template.references, use)
            for path, template, use in config_templates(self.type, self.config)
        ]
        declared = self.config.get("outputs")
        self._own_outputs = frozenset(declared if isinstance(declared, dict | list) else ())
        # A condition without a text of its own looks at what the step before it mode.
        field = self.model.previous_output_field
        self.reads_any_output = bool(field) and self.config.get(field) is None

    def is_trusted(self, output: str) -> bool:
        """Tell whether we produce an output ourselves, and not the script that declares it."""
        return output in self.model.trusted_outputs and output not in self._own_outputs


class _Propagation:
    """The untrusted inputs and nodes of all workflows, propagated to a fixed point."""

    def __init__(self, workflows: Mapping[str, JsonObject]) -> None:
        self._nodes: dict[str, dict[str, _Node]] = {}
        self._inputs: dict[str, set[str]] = {name: set() for name in workflows}
        self._tainted: dict[str, set[str]] = {name: set() for name in workflows}
        # (workflow, head of a reference) -> the nodes that contain such a reference
        self._readers: dict[tuple[str, str], list[_Node]] = {}
        for name, body in workflows.items():
            self._nodes[name] = {node.id: node for node in _all_nodes(name, body.get("nodes"))}
            for node in self._nodes[name].values():
                heads = {_head(one) for _, references, _ in node.fields for one in references}
                for head in heads | ({_ANY_NODE} if node.reads_any_output else set()):
                    self._readers.setdefault((name, head), []).append(node)
        self._queue: deque[_Node] = deque()

    def propagate(self, root: str, untrusted: Collection[str]) -> None:
        """Propagate the untrusted inputs of `root`."""
        self._taint_inputs(root, untrusted)
        while self._queue:
            node = self._queue.popleft()
            if any(True for _ in self._tainted_in(node)):
                self._taint(node)
            if node.model.opens == "call":
                passed = [one.field.removeprefix("inputs.") for one in self._tainted_in(node)]
                self._taint_inputs(str(node.config.get("workflowId")), passed)

    def tainted_fields(self) -> Iterator[TaintedField]:
        """Yield every field that an untrusted value reaches."""
        for nodes in self._nodes.values():
            for node in nodes.values():
                yield from self._tainted_in(node)

    def _tainted_in(self, node: _Node) -> Iterator[TaintedField]:
        name = node.workflow
        for field, references, use in node.fields:
            by = tuple(".".join(one) for one in references if self._is_untrusted(name, one))
            if by:
                label = _field_name(node, field)
                yield TaintedField(
                    workflow=name,
                    node=node.id,
                    node_type=node.type,
                    field=label,
                    references=by,
                    use=use,
                    rule=node.rule,
                )
        tainted = self._tainted[name]
        if node.reads_any_output and len(tainted) > (node.id in tainted):
            label = _field_name(node, node.model.previous_output_field)
            yield TaintedField(name, node.id, node.type, label, rule=node.rule)

    def _taint_inputs(self, workflow: str, names: Collection[str]) -> None:
        known = self._inputs.get(workflow)
        if known is not None and not known.issuperset(names):
            known.update(names)
            self._queue.extend(self._readers.get((workflow, _INPUTS), ()))

    def _taint(self, node: _Node) -> None:
        """Mark a node and its containers, whose outputs include those of the node."""
        container: _Node | None = node
        while container is not None and container.id not in self._tainted[container.workflow]:
            tainted = self._tainted[container.workflow]
            tainted.add(container.id)
            self._queue.extend(self._readers.get((container.workflow, container.id), ()))
            if len(tainted) <= 2:  # from the second on, every condition can read another one
                self._queue.extend(self._readers.get((container.workflow, _ANY_NODE), ()))
            container = container.parent

    def _is_untrusted(self, workflow: str, reference: Sequence[str]) -> bool:
        head = _head(reference)
        if head == _INPUTS:
            inputs = self._inputs[workflow]
            return reference[1] in inputs if len(reference) > 1 else bool(inputs)
        if head not in self._tainted[workflow]:
            return False
        node = self._nodes[workflow][head]
        return len(reference) < 2 or not node.is_trusted(reference[1])


# These cannot be node ids: a node id in a reference contains no braces.
_INPUTS, _ANY_NODE = "{inputs}", "{any}"


def _head(reference: Sequence[str]) -> str:
    return _INPUTS if reference[0] in INPUT_ROOTS else reference[0]


def _all_nodes(workflow: str, nodes: Any, parent: _Node | None = None) -> Iterator[_Node]:
    for raw in nodes or ():
        node = _Node(workflow, raw, parent)
        yield node
        yield from _all_nodes(workflow, raw.get("children"), node)


def _field_name(node: _Node, field: str) -> str:
    """Return the name of a field; one that all variants of a node share is prefixed."""
    kind = node.model.variant(node.config)
    return f"{kind}.{field}" if kind and "." not in field else field
