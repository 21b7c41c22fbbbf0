"""What a value from outside may reach.

An input that a webhook's sender filled in is untrusted: nobody vouches for it. It is followed
through references, from node to node and into called workflows: what an agent, a script, a command
or a judge returns is untrusted as soon as something untrusted went in. Then each workflow's
`untrusted` decides whether it may arrive where it arrives.

    agents      never            not at all
                sandboxed-only   as text, to agents and judges that are confined (the default)
                any              anywhere, also as the directory or the name of an agent
    commands    never            not at all, scripts included
                env              as variables, arguments and standard input (the default)
                any              anywhere, also in a shell line or as a directory

A called workflow is held to its own rules and to those of the workflow that was started. Looking
at the file alone errs on the safe side: all calls of a workflow count together, and a condition
without a text of its own counts as reading whatever is untrusted around it. What goes from one step
to another by way of files is not seen here; confinement is what bounds that.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infloop.model.nodes import UntrustedRule, node_model
from infloop.model.references import INPUT_ROOTS, config_templates

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from infloop.model.schema import TextUse
    from infloop.model.values import JsonObject

DEFAULT: Mapping[UntrustedRule, str] = {"agents": "sandboxed-only", "commands": "env"}
# From the strictest on.
_STRICTNESS: Mapping[UntrustedRule, tuple[str, ...]] = {
    "agents": ("never", "sandboxed-only", "any"),
    "commands": ("never", "env", "any"),
}

_MOST_TOLD = 5


@dataclass(frozen=True, slots=True)
class Reached:
    """A field that an untrusted value arrives at, and the references that bring it there.

    Without references it arrives unnamed: the condition looks at what the step before said. `use`
    is what the field is used for, and `rule` what decides about its node; none decides about a node
    that only compares texts.
    """

    workflow: str
    node: str
    node_type: str
    field: str
    references: tuple[str, ...] = ()
    use: TextUse = "text"
    rule: UntrustedRule | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A field that an untrusted value must not arrive at, and what would allow it."""

    reached: Reached
    rule: UntrustedRule
    allowed: str

    def __str__(self) -> str:
        at = self.reached
        through = ", ".join(f"{{{{{one}}}}}" for one in at.references)
        by = f" through {through}" if through else ""
        return (
            f"a value from outside reaches {at.field!r} of {at.node_type} {at.node!r} in workflow "
            f"{at.workflow!r}{by}, and `untrusted.{self.rule}` allows {self.allowed!r}; "
            f"{_way_out(self)}"
        )


def _way_out(refusal: Refusal) -> str:
    if refusal.reached.use == "shell" and refusal.allowed == "env":
        return 'pass it in the command\'s `env` and write "$NAME" in the line'
    return f'take it out, or write "untrusted": {{"{refusal.rule}": …}} in the workflow'


def reached(
    workflows: Mapping[str, JsonObject], root: str, untrusted: Collection[str]
) -> tuple[Reached, ...]:
    """Return every field that the inputs in `untrusted` of workflow `root` arrive at.

    Those that are declared as numbers or truth values are nothing but that, and do no harm.
    """
    texts = set(untrusted) - _typed(workflows[root])
    if not texts:
        return ()
    flow = _Flow(workflows)
    flow.spread(root, texts)
    return tuple(flow.arrivals())


def _typed(workflow: JsonObject) -> set[str]:
    specs = workflow.get("inputs")
    return {
        str(spec.get("name"))
        for spec in (specs if isinstance(specs, list) else ())
        if isinstance(spec, dict) and spec.get("type") in ("number", "boolean")
    }


def refusals(
    workflows: Mapping[str, JsonObject], root: str, untrusted: Collection[str], *, confined: bool
) -> tuple[Refusal, ...]:
    """Return where an untrusted value would arrive and must not.

    `confined` says whether the run's children are confined as far as the operator demands of runs
    that somebody outside caused.
    """
    found = (
        _judge(one, one.rule, _allowed(workflows, root, one.workflow, one.rule), confined=confined)
        for one in reached(workflows, root, untrusted)
        if one.rule is not None
    )
    return tuple(one for one in found if one is not None)


def told(found: Sequence[Refusal]) -> str:
    """Return refusals as one message, which names the first few."""
    return "; ".join(map(str, found[:_MOST_TOLD]))


# -- judging ---------------------------------------------------------------------------------


def _allowed(
    workflows: Mapping[str, JsonObject], root: str, workflow: str, rule: UntrustedRule
) -> str:
    rank = _STRICTNESS[rule].index
    return min((_declared(workflows[name], rule) for name in (root, workflow)), key=rank)


def _declared(workflow: JsonObject, rule: UntrustedRule) -> str:
    rules = workflow.get("untrusted")
    said = rules.get(rule) if isinstance(rules, dict) else None
    if said is None:
        return DEFAULT[rule]
    # A word that is not known opens nothing.
    return said if isinstance(said, str) and said in _STRICTNESS[rule] else "never"


def _judge(at: Reached, rule: UntrustedRule, allowed: str, *, confined: bool) -> Refusal | None:
    match allowed:
        case "any":
            return None
        case "sandboxed-only" if confined and at.use != "selector":
            return None
        case "env" if at.use not in ("selector", "shell"):
            return None
        case _:
            return Refusal(at, rule, allowed)


# -- following -------------------------------------------------------------------------------


class _Node:
    """A node as far as values go in and out of it."""

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
        # A condition without a text of its own looks at what the step before it said.
        field = self.model.previous_output_field
        self.looks_around = bool(field) and self.config.get(field) is None

    def is_ours(self, output: str) -> bool:
        """Say whether an output is made by us whatever went in; one that a script names is not."""
        return output in self.model.trusted_outputs and output not in self._own_outputs


class _Flow:
    """Which inputs and nodes of all workflows are untrusted, followed until nothing is added."""

    def __init__(self, workflows: Mapping[str, JsonObject]) -> None:
        self._nodes: dict[str, dict[str, _Node]] = {}
        self._inputs: dict[str, set[str]] = {name: set() for name in workflows}
        self._tainted: dict[str, set[str]] = {name: set() for name in workflows}
        # (workflow, what a reference begins with) -> the nodes that hold such a reference
        self._readers: dict[tuple[str, str], list[_Node]] = {}
        for name, body in workflows.items():
            self._nodes[name] = {node.id: node for node in _every_node(name, body.get("nodes"))}
            for node in self._nodes[name].values():
                heads = {_head(one) for _, references, _ in node.fields for one in references}
                for head in heads | ({_AROUND} if node.looks_around else set()):
                    self._readers.setdefault((name, head), []).append(node)
        self._waiting: deque[_Node] = deque()

    def spread(self, root: str, untrusted: Collection[str]) -> None:
        """Follow the untrusted inputs of `root` to wherever they go."""
        self._taint_inputs(root, untrusted)
        while self._waiting:
            node = self._waiting.popleft()
            if any(True for _ in self._arrivals_at(node)):
                self._taint(node)
            if node.model.opens == "call":
                passed = [one.field.removeprefix("inputs.") for one in self._arrivals_at(node)]
                self._taint_inputs(str(node.config.get("workflowId")), passed)

    def arrivals(self) -> Iterator[Reached]:
        """Yield every field at which something untrusted arrives."""
        for nodes in self._nodes.values():
            for node in nodes.values():
                yield from self._arrivals_at(node)

    def _arrivals_at(self, node: _Node) -> Iterator[Reached]:
        name = node.workflow
        for field, references, use in node.fields:
            by = tuple(".".join(one) for one in references if self._is_untrusted(name, one))
            if by:
                shown = _shown(node, field)
                yield Reached(name, node.id, node.type, shown, by, use=use, rule=node.rule)
        tainted = self._tainted[name]
        if node.looks_around and len(tainted) > (node.id in tainted):
            shown = _shown(node, node.model.previous_output_field)
            yield Reached(name, node.id, node.type, shown, rule=node.rule)

    def _taint_inputs(self, workflow: str, names: Collection[str]) -> None:
        known = self._inputs.get(workflow)
        if known is not None and not known.issuperset(names):
            known.update(names)
            self._waiting.extend(self._readers.get((workflow, _INPUTS), ()))

    def _taint(self, node: _Node) -> None:
        """Mark a node and the containers around it, whose outputs hold those of the node."""
        around: _Node | None = node
        while around is not None and around.id not in self._tainted[around.workflow]:
            tainted = self._tainted[around.workflow]
            tainted.add(around.id)
            self._waiting.extend(self._readers.get((around.workflow, around.id), ()))
            if len(tainted) <= 2:  # with two of them, each condition has another one around it
                self._waiting.extend(self._readers.get((around.workflow, _AROUND), ()))
            around = around.parent

    def _is_untrusted(self, workflow: str, reference: Sequence[str]) -> bool:
        head = _head(reference)
        if head == _INPUTS:
            inputs = self._inputs[workflow]
            return reference[1] in inputs if len(reference) > 1 else bool(inputs)
        if head not in self._tainted[workflow]:
            return False
        node = self._nodes[workflow][head]
        return len(reference) < 2 or not node.is_ours(reference[1])


# No id of a node: one that is referred to has neither of these characters.
_INPUTS, _AROUND = "{inputs}", "{around}"


def _head(reference: Sequence[str]) -> str:
    return _INPUTS if reference[0] in INPUT_ROOTS else reference[0]


def _every_node(workflow: str, nodes: Any, parent: _Node | None = None) -> Iterator[_Node]:
    for raw in nodes or ():
        node = _Node(workflow, raw, parent)
        yield node
        yield from _every_node(workflow, raw.get("children"), node)


def _shown(node: _Node, field: str) -> str:
    """Return a field's name; one that all kinds of a condition share is said with the kind."""
    kind = node.model.variant(node.config)
    return f"{kind}.{field}" if kind and "." not in field else field
