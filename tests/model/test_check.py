"""Checking workflows: every problem, with its place and what to do, all at once."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infloop.errors import Problem
from infloop.model.check import check_workflow
from infloop.model.nodes import NODE_MODELS
from infloop.model.parsing import parse_workflow
from infloop.model.schema import FileModel, part_model
from infloop.model.workflow import Workflow
from support.paths import FIXTURES
from support.thorough import amount

if TYPE_CHECKING:
    from collections.abc import Iterator

Raw = dict[str, Any]


def node(id: str, type: str, *children: Raw, **config: Any) -> Raw:
    made: Raw = {"id": id, "type": type, "config": config}
    return {**made, "children": list(children)} if children else made


def agent(id: str, prompt: str = "go") -> Raw:
    return node(id, "agent", prompt=prompt)


def branch(id: str, lhs: str = "a", **config: Any) -> Raw:
    return node(id, "branch", lhs=lhs, **config)


def edges(*chains: str) -> list[Raw]:
    """Edges from lines such as `start next a next b`."""
    words = [chain.split() for chain in chains]
    made = [line[at : at + 3] for line in words for at in range(0, len(line) - 2, 2)]
    return [
        {"id": f"e{index}", "source": source, "sourceHandle": handle, "target": target}
        for index, (source, handle, target) in enumerate(made)
    ]


def flow(*nodes: Raw, links: tuple[str, ...] = (), **more: Any) -> Raw:
    """A strict workflow that begins at `start` and goes through `links`."""
    return {
        "id": "w",
        "name": "w",
        "strict": True,
        "nodes": [node("start", "start"), *nodes],
        "edges": edges(*links),
        **more,
    }


def check(raw: Raw, **known: Any) -> list[Problem]:
    return check_workflow(parse_workflow(json.dumps(raw).encode()), **known)


def made(raw: Raw) -> Workflow:
    workflow = parse_workflow(json.dumps(raw).encode()).workflow
    assert workflow is not None
    return workflow


ONE = ("start next a",)
CHECK = node("c", "condition", kind="command", command={"cmd": "true"})

# name -> the workflow, and its only problem: place, message, hint, severity
PROBLEMS: dict[str, tuple[Raw, str, str, str, str]] = {
    "a script that is not Python": (
        flow(node("a", "script", language="py", code="def run():\n    return (\n"), links=ONE),
        "nodes[1] 'a' config.code",
        "line 2: not Python: '(' was never closed",
        "this is how Python 3.",
        "warning",
    ),
    # failures that a run would not show
    "a loop that is not strict": (
        flow(
            node("l", "loop", agent("a"), CHECK), links=("start next l", "a next c"), strict=False
        ),
        "nodes[1] 'l'",
        "when its rounds are used up, the run goes on as if its condition were met",
        "connect `exhausted`",
        "warning",
    ),
    "a condition that is not strict": (
        flow(CHECK, links=("start next c",), strict=False),
        "nodes[1] 'c'",
        "when it is not met, the run ends as succeeded",
        "connect `not_met`",
        "warning",
    ),
    "a check that is asked first and does not exist": (
        flow(node("l", "loop", agent("a"), checkFirst=True), links=("start next l",)),
        "nodes[1] 'l' config.checkFirst",
        "the loop has no condition that could be asked first",
        "add a condition",
        "error",
    ),
    "an empty command": (
        flow(node("a", "command", cmd=" "), links=ONE),
        "nodes[1] 'a' config.cmd",
        "is empty",
        "write a shell command",
        "error",
    ),
    # ids
    "no id": (flow(id=None), "id", "is missing", "use 1 to 128 letters", "error"),
    "no name": (flow(name=" "), "name", "is missing", "say what", "error"),
    "two nodes with one id": (
        flow(agent("a"), agent("a"), links=ONE),
        "nodes[2] 'a'",
        "the id 'a' is used twice",
        "rename one",
        "error",
    ),
    "one id in a container and outside": (
        flow(node("l", "loop", agent("a")), agent("a"), links=("start next l next a",)),
        "nodes[2] 'a'",
        "the id 'a' is used twice",
        "rename one",
        "error",
    ),
    "a node without id": (
        flow({"type": "end"}, links=("start next start",)),
        "nodes[1]",
        "has no id",
        "every node needs one",
        "error",
    ),
    "a node called inputs": (
        flow(agent("inputs"), links=("start next inputs",)),
        "nodes[1] 'inputs'",
        "'inputs' cannot be a node id",
        "{{inputs.…}}",
        "error",
    ),
    "two edges with one id": (
        flow(
            agent("a"),
            agent("b"),
            edges=[{**edge, "id": "e"} for edge in edges("start next a next b")],
        ),
        "edges[1] 'e'",
        "the id 'e' is used twice",
        "rename one",
        "error",
    ),
    # start
    "no start": (
        {"id": "w", "name": "w", "nodes": [agent("a")], "edges": []},
        "nodes",
        "there is no start node",
        "add a node of type 'start'",
        "error",
    ),
    "two starts": (
        flow(node("again", "start"), agent("a"), links=ONE),
        "nodes",
        "there are 2 start nodes; only 'start' is used",
        "remove the others",
        "warning",
    ),
    # edges
    "an edge to nowhere": (
        flow(agent("agent-1"), links=("start next agent-1 next agent-2",)),
        "edges[1] 'e1' target",
        "there is no node 'agent-2'",
        "did you mean 'agent-1'?",
        "error",
    ),
    "an edge from nowhere": (
        flow(agent("a"), links=("start next a", "zzz next a")),
        "edges[1] 'e1' source",
        "there is no node 'zzz'",
        "known: start, a",
        "error",
    ),
    "an edge without target": (
        flow(agent("a"), edges=[*edges("start next a"), {"source": "a"}]),
        "edges[1] target",
        "is missing",
        "name a node's id",
        "error",
    ),
    "an unknown handle": (
        flow(agent("a"), agent("b"), links=("start next a done b",)),
        "edges[1] 'e1' sourceHandle",
        "a node of type 'agent' has no handle 'done'",
        "it leaves by next, error",
        "error",
    ),
    "a handle left out where there is no next": (
        flow(
            branch("b"), agent("a"), edges=[*edges("start next b"), {"source": "b", "target": "a"}]
        ),
        "edges[1] sourceHandle",
        "a node of type 'branch' has no handle 'next'",
        "it leaves by true, false, error",
        "error",
    ),
    "a handle of another mode": (
        flow(
            node("p", "parallel", agent("x"), mode="race"),
            agent("a"),
            links=("start next p all_done a",),
        ),
        "edges[1] 'e1' sourceHandle",
        "a node of type 'parallel' in mode 'race' has no handle 'all_done'",
        "it leaves by first_done, error",
        "error",
    ),
    "something after an end": (
        flow(node("e", "end"), agent("a"), links=("start next e next a",)),
        "edges[1] 'e1' source",
        "nothing follows a node of type 'end'",
        "remove the edge",
        "error",
    ),
    "a sidenote as a step": (
        flow(node("n", "sidenote"), links=("start next n",)),
        "edges[0] 'e0' target",
        "'n' is a sidenote, which never runs",
        "",
        "error",
    ),
    "two edges from one handle": (
        flow(agent("a"), agent("b"), links=("start next a next b", "a next a")),
        "edges[2] 'e2'",
        "'a' has another edge from 'next'; only the first is followed",
        "use a parallel node",
        "warning",
    ),
    "an edge that a loop overrules": (
        flow(
            node(
                "l",
                "loop",
                agent("x"),
                node("c", "condition", kind="command", command={"cmd": "true"}),
            ),
            links=("start next l", "x next c not_met x"),
        ),
        "edges[2] 'e2'",
        "directly inside a loop 'not_met' begins the next round; this edge is never followed",
        "decide with a branch",
        "warning",
    ),
    # nodes that can never run
    "a node nothing leads to": (
        flow(agent("a"), agent("lost"), links=ONE),
        "nodes[2] 'lost'",
        "can never run: no edge leads to it",
        "connect it, or remove it",
        "error",
    ),
    "a container nothing leads to": (
        flow(agent("a"), node("l", "loop", agent("inside")), links=ONE),
        "nodes[2] 'l'",
        "can never run: no edge leads to it",
        "connect it, or remove it",
        "error",
    ),
    "a body that does not begin with its first child": (
        flow(node("l", "loop", agent("first"), agent("second")), links=("start next l",)),
        "nodes[1].children[1] 'second'",
        "can never run: no edge leads to it",
        "the body begins at 'first'",
        "error",
    ),
    # what each node needs
    "an agent without prompt": (
        flow(agent("a", " "), links=ONE),
        "nodes[1] 'a' config.prompt",
        "is empty",
        "say what the agent should do",
        "error",
    ),
    "an agent with a negative time limit": (
        flow(node("a", "agent", prompt="x", timeoutMs=-1), links=ONE),
        "nodes[1] 'a' config.timeoutMs",
        "-1 is negative",
        "use 0 or more",
        "error",
    ),
    "an agent without provider": (
        flow(node("a", "agent", prompt="x", providerId=" "), links=ONE),
        "nodes[1] 'a' config.providerId",
        "is empty",
        "name a provider",
        "error",
    ),
    "a script without code": (
        flow(node("a", "script"), links=ONE),
        "nodes[1] 'a' config.code",
        "is empty",
        "function run",
        "error",
    ),
    "a script with an output twice": (
        flow(node("a", "script", code="x", outputs=["o", "o"]), links=ONE),
        "nodes[1] 'a' config.outputs[1]",
        "'o' is already an output of this node",
        "another name",
        "error",
    ),
    "a script with an output that is one already": (
        flow(node("a", "script", code="x", outputs=["stdout"]), links=ONE),
        "nodes[1] 'a' config.outputs[0]",
        "'stdout' is already an output of this node",
        "another name",
        "error",
    ),
    "a script with a negative time limit": (
        flow(node("a", "script", code="x", timeoutMs=-5.0), links=ONE),
        "nodes[1] 'a' config.timeoutMs",
        "-5 is negative",
        "use 0 or more",
        "error",
    ),
    "a sentinel without pattern": (
        flow(node("a", "condition"), links=ONE),
        "nodes[1] 'a' config.sentinel.pattern",
        "is empty",
        "say what to look for",
        "error",
    ),
    "a command without command": (
        flow(node("a", "condition", kind="command", command={"cmd": ""}), links=ONE),
        "nodes[1] 'a' config.command.cmd",
        "is empty",
        "write a shell command",
        "error",
    ),
    "a command with a negative time limit": (
        flow(
            node("a", "condition", kind="command", command={"cmd": "x", "timeoutMs": -1}), links=ONE
        ),
        "nodes[1] 'a' config.command.timeoutMs",
        "-1 is negative",
        "use 0 or more",
        "error",
    ),
    "a reference that a shell would read again": (
        flow(
            node(
                "a", "condition", kind="command", command={"cmd": 'x\ny "$(find {{inputs.b-c}})"'}
            ),
            links=ONE,
            inputs=[{"name": "b-c", "type": "string"}],
        ),
        "nodes[1] 'a' config.command.cmd",
        "line 2: {{inputs.b-c}} is in a command substitution ($(…)), where its value would be read",
        'add "env": {"B_C": "{{inputs.b-c}}"} to the command, and write "$B_C" in its place',
        "error",
    ),
    "a variable that is none": (
        flow(
            node("a", "condition", kind="command", command={"cmd": "x", "env": {"A-B": "1"}}),
            links=ONE,
        ),
        "nodes[1] 'a' config.command.env",
        "'A-B' cannot be the name of a variable",
        "letters, digits and underscores",
        "error",
    ),
    "a variable of ours": (
        flow(
            node("a", "condition", kind="command", command={"cmd": "x", "env": {"infloop_X": "1"}}),
            links=ONE,
        ),
        "nodes[1] 'a' config.command.env",
        "'infloop_X' never reaches a child",
        "without INFLOOP_",
        "error",
    ),
    "a judge condition without rubric": (
        flow(node("a", "condition", kind="judge"), links=ONE),
        "nodes[1] 'a' config.judge.rubric",
        "is empty",
        "say what must hold",
        "error",
    ),
    "a loop with negative rounds": (
        flow(node("a", "loop", agent("x"), maxIterations=-1), links=ONE),
        "nodes[1] 'a' config.maxIterations",
        "-1 is negative",
        "use 0 or more",
        "error",
    ),
    "an empty loop": (
        flow(node("a", "loop"), links=ONE),
        "nodes[1] 'a'",
        "the loop is empty",
        "put nodes into its children",
        "warning",
    ),
    "an empty parallel": (
        flow(node("a", "parallel"), links=ONE),
        "nodes[1] 'a'",
        "the parallel has no branches: it is empty",
        "",
        "warning",
    ),
    "a quorum that is missing": (
        flow(node("a", "parallel", agent("x"), mode="quorum"), links=ONE),
        "nodes[1] 'a' config.quorumN",
        "is missing",
        "use a number from 1 to 1",
        "error",
    ),
    "a quorum of none": (
        flow(node("a", "parallel", agent("x"), mode="quorum", quorumN=0), links=ONE),
        "nodes[1] 'a' config.quorumN",
        "0 of 1 branches is no quorum",
        "use a number from 1 to 1",
        "error",
    ),
    "a quorum of more than there are branches": (
        flow(
            node("a", "parallel", agent("x"), agent("then"), agent("y"), mode="quorum", quorumN=3),
            links=("start next a", "x next then"),
        ),
        "nodes[1] 'a' config.quorumN",
        "3 of 2 branches is no quorum",
        "use a number from 1 to 2",
        "error",
    ),
    "a judge with nothing to compare": (
        flow(node("a", "judge", criteria="x", candidates=["one"]), links=ONE),
        "nodes[1] 'a' config.candidates",
        "1 given; a judge compares at least two",
        "add another",
        "error",
    ),
    "a judge without criteria": (
        flow(node("a", "judge", candidates=["one", "two"]), links=ONE),
        "nodes[1] 'a' config.criteria",
        "is empty",
        "say what makes one better",
        "warning",
    ),
    "children of a node that has none": (
        flow(node("a", "agent", agent("x"), prompt="x"), links=ONE),
        "nodes[1] 'a' children",
        "a node of type 'agent' holds no other nodes",
        "only loop and parallel do",
        "error",
    ),
    # the workflow's own settings
    "a negative limit": (
        flow(limits={"maxCostUsd": -0.5}),
        "limits.maxCostUsd",
        "-0.5 is negative",
        "use 0 or more",
        "error",
    ),
    "a global no reference can reach": (
        flow(globals={"a b": "x"}),
        "globals 'a b'",
        "no reference can reach this name",
        "letters, digits",
        "warning",
    ),
    # inputs
    "an input twice": (
        flow(inputs=[{"name": "x"}, {"name": "x"}]),
        "inputs[1] 'x'",
        "is declared twice",
        "rename one",
        "error",
    ),
    "an input no reference can reach": (
        flow(inputs=[{"name": "a.b"}]),
        "inputs[0] 'a.b'",
        "no reference can reach the name 'a.b'",
        "letters, digits",
        "error",
    ),
    "an input without name": (
        flow(inputs=[{"type": "string"}]),
        "inputs[0]",
        "no reference can reach the name ''",
        "letters, digits",
        "error",
    ),
    "a default of another type": (
        flow(inputs=[{"name": "n", "type": "number", "default": "many"}]),
        "inputs[0] 'n' default",
        "'many' is not a number",
        "write a number",
        "error",
    ),
    "a default that is no text": (
        flow(inputs=[{"name": "n", "type": "text", "default": [1]}]),
        "inputs[0] 'n' default",
        "[1] is not a string",
        "write a string",
        "error",
    ),
    "inputs that are not declared": (
        flow(agent("a", "{{inputs.x}} {{__inputs.y}} {{inputs.x}}"), links=ONE),
        "inputs",
        "none are declared, so these are optional texts: x, y",
        "declare them",
        "warning",
    ),
    # patterns
    "a sentinel with a bad pattern": (
        flow(node("a", "condition", sentinel={"pattern": "(", "isRegex": True}), links=ONE),
        "nodes[1] 'a' config.sentinel.pattern",
        "not a pattern that can run in linear time: missing )",
        "no look-around",
        "error",
    ),
    "a sentinel that looks ahead": (
        flow(node("a", "condition", sentinel={"pattern": "a(?=b)", "isRegex": True}), links=ONE),
        "nodes[1] 'a' config.sentinel.pattern",
        "not a pattern that can run in linear time",
        "no look-around",
        "error",
    ),
    "a sentinel with a huge repeat": (
        flow(
            node("a", "condition", sentinel={"pattern": "a{1,1000000}", "isRegex": True}), links=ONE
        ),
        "nodes[1] 'a' config.sentinel.pattern",
        "not a pattern that can run in linear time",
        "RE2",
        "error",
    ),
    "a branch with a bad pattern": (
        flow(branch("a", op="matches", rhs="[z-a]"), links=ONE),
        "nodes[1] 'a' config.rhs",
        "not a pattern that can run in linear time",
        "RE2",
        "error",
    ),
    # subworkflows
    "a call of nothing": (
        flow(node("a", "subworkflow"), links=ONE),
        "nodes[1] 'a' config.workflowId",
        "is empty",
        "name the workflow",
        "error",
    ),
    "a call out of the folder": (
        flow(node("a", "subworkflow", workflowId="../x"), links=ONE),
        "nodes[1] 'a' config.workflowId",
        "'../x' is not a plain file name",
        "use 1 to 128 letters",
        "error",
    ),
    "a call of itself": (
        flow(node("a", "subworkflow", workflowId="w"), links=ONE),
        "nodes[1] 'a' config.workflowId",
        "workflows call each other in a circle: w → w",
        "repeat with a loop",
        "error",
    ),
}


@pytest.mark.parametrize(
    ("links", "more"),
    [
        (("l exhausted a2",), {}),
        (("l next b",), {"nodes": [branch("b", "{{l.broke}}", rhs="true")]}),
        ((), {"config": {"infinite": True}}),
    ],
)
def test_a_loop_whose_end_somebody_looks_at_needs_no_warning(
    links: tuple[str, ...], more: dict[str, Any]
) -> None:
    loop = node("l", "loop", agent("a"), CHECK, **more.get("config", {}))
    others = [agent("a2")] if links == ("l exhausted a2",) else more.get("nodes", [])
    raw = flow(loop, *others, links=("start next l", "a next c", *links), strict=False)
    assert check(raw) == []


# What workflows of other tools contain, and run all the same: only strict ones refuse it.
TOLERATED: dict[str, Raw] = {
    "an unconnected node": flow(agent("a"), agent("b"), links=ONE),
    "a reference to no node": flow(agent("a", "{{gone.stdout}}"), links=ONE),
    "a reference to no output": flow(agent("a", "{{start.stdout}}"), links=ONE),
    "a reference to no input": flow(agent("a", "{{inputs.x}}"), links=ONE, inputs=[]),
    "an empty prompt": flow(agent("a", " "), links=ONE),
    "an edge of another mode": flow(
        node("p", "parallel", agent("a"), mode="race"), agent("b"),
        links=("start next p first_done b", "p all_done b"),
    ),
    "an edge into a loop from outside": flow(
        node("l", "loop", agent("x"), agent("y")), links=("start next l", "x next y", "l next x"),
    ),
    "a missing workflow behind an error edge": flow(
        node("c", "subworkflow", workflowId="gone"), agent("b"),
        links=("start next c next b", "c error b"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", TOLERATED)
def test_what_can_run_is_refused_only_in_a_strict_workflow(name: str, strict: bool) -> None:
    (problem,) = check({**TOLERATED[name], "strict": strict}, known_workflows={})
    assert problem.severity == ("error" if strict else "warning")


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_is_found_with_its_place_and_hint(name: str) -> None:
    raw, place, message, hint, severity = PROBLEMS[name]
    (problem,) = check(raw)
    assert problem.place == place
    assert message in problem.message
    assert hint in problem.hint
    assert problem.severity == severity


# name -> a reference in `a` (after `start`, before `b`), why it can never resolve, and the hint
REFERENCES: dict[str, tuple[str, str, str]] = {
    "an unknown node": ("agnet.stdout", "there is no node 'agnet'", "did you mean 'agent'?"),
    "an unknown output": (
        "agent.stdot",
        "agent 'agent' has no output 'stdot'",
        "did you mean 'stdout'?",
    ),
    "an output of start": (
        "start.stdout",
        "start 'start' has no output 'stdout'",
        "has no outputs",
    ),
    "inside a text": ("agent.stdout.length", "'stdout' is a single value", "remove .length"),
    "an undeclared output": ("script.two", "script 'script' has no output 'two'", "known: result"),
    "inside a declared output": ("script.one.x", "'one' is a single value", "remove .x"),
    "an output a call does not declare": (
        "call.other",
        "subworkflow 'call' has no output 'other'",
        "known",
    ),
    "an unknown input": ("inputs.tsak", "there is no input 'tsak'", "did you mean 'task'?"),
    "an unknown input by its older name": (
        "__inputs.nope",
        "there is no input 'nope'",
        "known: task",
    ),
    "inside an input": ("inputs.task.0", "input 'task' is a single value", "remove .0"),
    "an unknown global": ("globals.tnoe", "there is no global 'tnoe'", "did you mean 'tone'?"),
    "a global without name": ("globals.", "there is no global ''", "known: tone"),
    "inside a global": ("globals.tone.x", "global 'tone' is a single value", "remove .x"),
    "an unknown branch": (
        "both.children.nope.status",
        "'both' has no branch 'nope'",
        "known: left, right",
    ),
    "a node that is no branch": (
        "both.children.more.status",
        "'both' has no branch 'more'",
        "known: left",
    ),
    "an unknown part of a branch": (
        "both.children.left.state",
        "a branch has no 'state'",
        "'status'",
    ),
    "inside a branch's status": ("both.children.left.status.x", "'status' is a single value", ""),
    "an unknown node of a branch": ("both.children.left.outputs.x.y", "there is no node 'x'", ""),
    "an unknown output in a branch": (
        "both.children.left.outputs.left.x",
        "branch 'left' has no output 'x'",
        "known: result",
    ),
    "itself": ("a.stdout", "the node refers to itself and runs only once", "put it into a loop"),
    "a later node": ("b.stdout", "'b' cannot have run before", "do not see each other"),
    "only dots": ("..", "there is no node ''", ""),
}


def all_kinds(reference: str) -> Raw:
    both = node("both", "parallel", branch("left"), branch("right"), branch("more"))
    return flow(
        agent("agent"),
        node("script", "script", code="x", outputs=["one"]),
        both,
        node("call", "subworkflow", workflowId="x", outputs={"said": "ask.stdout"}),
        agent("a", f"{{{{{reference}}}}}"),
        agent("b"),
        links=(
            "start next agent next script next both all_done call next a next b",
            "right true more",
        ),
        inputs=[{"name": "task", "type": "string", "default": "x"}],
        globals={"tone": "kind"},
    )


@pytest.mark.parametrize("name", REFERENCES)
def test_a_reference_that_can_never_resolve_is_found(name: str) -> None:
    reference, reason, hint = REFERENCES[name]
    (problem,) = check(all_kinds(reference))
    assert problem.place == "nodes[5] 'a' config.prompt"
    assert problem.message == f"{{{{{reference}}}}} can never resolve: {reason}"
    assert hint in problem.hint
    assert problem.severity == "error"


@pytest.mark.parametrize(
    "reference",
    [
        "agent",
        "agent.stdout",
        "agent.tokens.input",
        "agent.costUsd",
        "agent.sessionId",
        "agent.errorMessage",
        "script.result.any.thing.0",
        "script.one",
        "call.said.deep",
        "call.status",
        "inputs",
        "inputs.task",
        "__inputs.task",
        "globals",
        "globals.tone",
        "both.completed",
        "both.winners.length",
        "both.children",
        "both.children.left",
        "both.children.left.status",
        "both.children.left.outputs",
        "both.children.right.outputs.more.result",
        "left.result",
        "more.result",
        "not a reference",
        "é.stdout",
    ],
)
def test_a_reference_that_may_resolve_is_left_alone(reference: str) -> None:
    assert check(all_kinds(reference)) == []


def test_every_template_of_a_node_is_checked() -> None:
    bad = "{{nope.x}}"
    problems = check(
        flow(
            node("a", "agent", prompt=bad, cwd=bad, profile=bad, agent=bad, worktreeRef=bad),
            node("s", "script", code=bad, cwd=bad, inputs={"x": bad, "n": 1}),
            node(
                "c", "condition", against=bad, cwd=bad, sentinel={"pattern": bad, "isRegex": True}
            ),
            node(
                "d",
                "condition",
                kind="command",
                command={"cmd": f"test {bad}", "cwd": bad, "env": {"E": bad}},
            ),
            node("e", "condition", kind="judge", judge={"rubric": bad, "model": bad}),
            branch("f", bad, rhs=bad),
            node("g", "subworkflow", workflowId="x", inputs={"y": bad}),
            node("h", "judge", criteria=bad, candidates=["", bad], judgePrompt=bad, model=bad),
            links=("start next a next s next c met d met e met f true g next h",),
        )
    )
    assert [problem.place.split(" config.")[1] for problem in problems] == [
        *("prompt", "cwd", "profile", "agent", "worktreeRef"),
        *("inputs.x", "cwd"),
        *("against", "sentinel.pattern", "cwd"),
        *("command.cmd", "command.env.E", "command.cwd"),
        *("judge.rubric", "judge.model"),
        *("lhs", "rhs"),
        "inputs.y",
        *("criteria", "candidates.1", "judgePrompt", "model"),
    ]


# -- order -----------------------------------------------------------------------------------


def never(raw: Raw) -> list[str]:
    return [problem.message for problem in check(raw) if "can never resolve" in problem.message]


def test_a_node_in_a_loop_may_refer_to_itself_and_to_what_follows_it() -> None:
    body = (agent("x", "{{x.stdout}} {{y.stdout}}"), agent("y", "{{x.stdout}}"))
    assert never(flow(node("l", "loop", *body), links=("start next l", "x next y"))) == []


def test_a_node_in_a_circle_may_refer_to_itself() -> None:
    assert never(flow(branch("b", "{{b.result}}"), links=("start next b", "b false b"))) == []


def test_a_loop_has_no_outputs_while_it_runs() -> None:
    raw = flow(node("l", "loop", agent("x", "{{l.iterations}}")), links=("start next l",))
    (message,) = never(raw)
    assert "'l' has no outputs before it is over" in message


def test_a_loop_in_a_loop_has_the_outputs_of_its_last_time() -> None:
    inner = node("inner", "loop", agent("x", "{{inner.iterations}}"))
    assert never(flow(node("outer", "loop", inner), links=("start next outer",))) == []


def test_branches_that_run_side_by_side_do_not_see_each_other() -> None:
    raw = flow(
        node("p", "parallel", agent("x"), agent("y", "{{x.stdout}}")), links=("start next p",)
    )
    (message,) = never(raw)
    assert "{{x.stdout}} can never resolve: 'x' cannot have run before" in message


def test_branches_in_a_loop_see_the_round_before() -> None:
    parallel = node("p", "parallel", agent("x"), agent("y", "{{x.stdout}}"))
    assert never(flow(node("l", "loop", parallel), links=("start next l",))) == []


def test_ways_that_exclude_each_other_do_not_see_each_other() -> None:
    raw = flow(
        branch("b"),
        agent("yes", "{{no.stdout}}"),
        agent("no", "{{yes.stdout}}"),
        agent("after", "{{yes.stdout}} {{no.stdout}}"),
        links=("start next b true yes next after", "b false no next after"),
    )
    assert len(never(raw)) == 2


def test_order_is_not_judged_when_an_edge_leaves_a_container() -> None:
    # The loop's rules go along with such an edge: `out` leads to the next round.
    raw = flow(
        node("l", "loop", agent("x", "{{out.stdout}}")),
        agent("out"),
        links=("start next l", "x next out"),
    )
    assert never(raw) == []


def test_order_is_not_judged_when_an_edge_leads_into_a_container_from_outside() -> None:
    raw = flow(
        node("l", "loop", agent("x"), agent("y", "{{x.stdout}}")),
        links=("start next y", "y error l", "x next y"),
    )
    (problem,) = check(raw)
    assert "leads into 'l' from outside; 'y' would run once" in problem.message


# -- unknown types ---------------------------------------------------------------------------


def test_what_a_node_of_unknown_type_does_is_not_judged() -> None:
    raw = flow(
        {"id": "m", "type": "mystery", "children": [agent("x"), agent("y")]},
        agent("a", "{{m.anything.at.all}} {{x.stdout}}"),
        links=("start next m any-handle a",),
    )
    (problem,) = check(raw)
    assert problem.message == "unknown node type 'mystery'"


# -- hostile ids -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "/etc/passwd",
        "a/b",
        "a\\b",
        ".hidden",
        "..",
        "a..b",
        "-rf",
        "a b",
        "a\n",
        "\x1b[2J",
        "é",
        "\uff41",  # a full-width letter
        "con",
        "NUL.json",
        "lpt1",
        "x" * 129,
        "a%2fb",
        "a:b",
        "~",
        "$(id)",
    ],
)
def test_an_id_that_is_no_plain_file_name_is_refused(name: str) -> None:
    (problem,) = check(flow(id=name))
    assert problem.place == "id"
    assert "is not a plain file name" in problem.message
    assert "use 1 to 128 letters, digits, dots, dashes and underscores" in problem.hint


@pytest.mark.parametrize(
    "name", ["a", "Mp3bBKPc04r3UQGQt71Dsw", "a.b-c_d", "0", "console", "x" * 128]
)
def test_a_plain_file_name_is_an_id(name: str) -> None:
    assert check(flow(id=name)) == []


@pytest.mark.parametrize(
    "name", ["a/b", "a[0]", "{a}", "a#2", "a\tb", "a\x7fb", "a\u202eb", "a\u200bb", "x" * 201]
)
def test_a_node_id_that_would_be_mistaken_for_a_path_is_refused(name: str) -> None:
    raw = flow({"id": name, "type": "end"}, edges=[{"source": "start", "target": name}])
    (problem,) = check(raw)
    assert "cannot be a node id" in problem.message
    assert "printable characters other than / [ ] { } #" in problem.hint


@pytest.mark.parametrize("name", ["__proto__", "constructor", "schön", "a b", "x" * 200])
def test_other_texts_are_node_ids(name: str) -> None:
    raw = flow({"id": name, "type": "end"}, edges=[{"source": "start", "target": name}])
    assert check(raw) == []


def test_prototype_names_are_no_outputs() -> None:
    raw = flow(agent("a", "{{start.constructor}} {{globals.__class__}}"), links=ONE)
    assert len(check(raw)) == 2


# -- patterns, providers ---------------------------------------------------------------------


def test_a_pattern_that_holds_a_reference_is_judged_when_it_is_known() -> None:
    raw = flow(
        node("a", "condition", sentinel={"pattern": "({{globals.x}}", "isRegex": True}),
        links=ONE,
        globals={"x": ")"},
    )
    assert check(raw) == []


def test_a_text_to_look_for_is_no_pattern() -> None:
    assert check(flow(node("a", "condition", sentinel={"pattern": "("}), links=ONE)) == []


def test_a_provider_that_is_not_here_is_a_warning() -> None:
    raw = flow(
        node("a", "agent", prompt="x", providerId="clade"),
        node("j", "judge", criteria="x", candidates=["a", "b"]),
        node("c", "condition", kind="judge", judge={"rubric": "x", "providerId": "other"}),
        links=("start next a next j next c",),
    )
    problems = check(raw, known_providers={"claude", "codex"})
    assert [(p.place, p.hint, p.severity) for p in problems] == [
        ("nodes[1] 'a' config.providerId", "did you mean 'claude'?", "warning"),
        ("nodes[3] 'c' config.judge.providerId", "known: claude, codex", "warning"),
    ]
    assert check(raw) == []


# -- calls -----------------------------------------------------------------------------------


def caller(id: str, *called: str, **config: Any) -> Raw:
    calls = [
        node(f"call{i}", "subworkflow", workflowId=name, **config) for i, name in enumerate(called)
    ]
    chain = " next ".join(["start", *(f"call{index}" for index in range(len(called)))])
    return flow(*calls, links=(chain,), id=id)


def test_a_workflow_that_is_not_there_is_found_when_it_is_known_which_are() -> None:
    raw = caller("w", "helpr")
    (problem,) = check(raw, known_workflows={"helper": made(caller("helper"))})
    assert problem.place == "nodes[1] 'call0' config.workflowId"
    assert problem.message == "there is no workflow 'helpr'"
    assert problem.hint == "did you mean 'helper'?"
    assert check(raw) == []
    (asked,) = check(raw, known_workflows=lambda name: None)
    assert asked.hint == "add helpr.json"


def test_workflows_that_call_each_other_in_a_circle_are_found() -> None:
    known = {
        "b": made(caller("b", "c")),
        "c": made(caller("c", "d", "b")),
        "d": made(caller("d")),
    }
    (problem,) = check(caller("a", "d", "b"), known_workflows=known)
    assert problem.place == "nodes[2] 'call1' config.workflowId"
    assert problem.message == "workflows call each other in a circle: b → c → b"


def test_a_circle_through_the_workflow_itself_is_found() -> None:
    known = {"b": made(caller("b", "a"))}
    (problem,) = check(caller("a", "b"), known_workflows=known)
    assert "a → b → a" in problem.message


@pytest.mark.parametrize(
    "code",
    [
        "def run(): return '\\d'",
        "-" * 90_000 + "1",
        "x = (" + "1 + " * 20_000 + "1)",
        "f(" * 110_000,
    ],
    ids=lambda code: code[:20],
)
def test_a_script_that_is_right_or_too_much_to_parse_is_left_alone(code: str) -> None:
    assert check(flow(node("a", "script", language="py", code=code), links=ONE)) == []


def test_one_workflow_called_twice_is_no_circle() -> None:
    known = {"b": made(caller("b", "d")), "c": made(caller("c", "d")), "d": made(caller("d"))}
    assert check(caller("a", "b", "c", "d", "b"), known_workflows=known) == []


def test_a_long_chain_of_calls_is_followed_without_recursion() -> None:
    known = {f"w{i}": made(caller(f"w{i}", f"w{i + 1}")) for i in range(2000)}
    known["w2000"] = made(caller("w2000", "w0"))
    (problem,) = check(caller("a", "w0"), known_workflows=known)
    assert "in a circle: w0 → w1 →" in problem.message


def test_what_a_called_workflow_needs_must_be_passed() -> None:
    helper = flow(id="helper", inputs=[{"name": "x"}, {"name": "y", "default": "1"}])
    known = {"helper": made(helper)}
    (problem,) = check(caller("w", "helper", inputs={"y": "2"}), known_workflows=known)
    assert problem.place == "nodes[1] 'call0' config.inputs"
    assert problem.message == "'helper' needs the input 'x'"
    assert check(caller("w", "helper", inputs={"x": "", "z": 1}), known_workflows=known) == []


def test_what_is_taken_from_a_called_workflow_must_be_there() -> None:
    known = {"helper": made(flow(agent("ask"), links=("start next ask",), id="helper"))}
    outputs = {"good": "ask.stdout", "bad": "ask.stdot", "worse": "aks.stdout"}
    problems = check(caller("w", "helper", outputs=outputs), known_workflows=known)
    assert [(problem.place, problem.hint) for problem in problems] == [
        ("nodes[1] 'call0' config.outputs.bad", "did you mean 'stdout'?"),
        ("nodes[1] 'call0' config.outputs.worse", "did you mean 'ask'?"),
    ]


# -- anything at all -------------------------------------------------------------------------

EVERYTHING = (FIXTURES / "workflows/everything.json").read_text()

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(place for key, item in items for place in places(item, (*path, key)))]


ALL_PLACES = places(json.loads(EVERYTHING))[1:]


@settings(max_examples=amount(50, thorough=200))
@given(st.lists(st.tuples(st.sampled_from(ALL_PLACES), json_values), min_size=1, max_size=4))
def test_whatever_a_file_holds_is_answered_with_problems_and_never_with_a_crash(
    changes: list[tuple[tuple[Any, ...], Any]],
) -> None:
    raw = json.loads(EVERYTHING)
    for path, value in changes:
        target = raw
        with suppress(LookupError, TypeError):  # an earlier change took the place away
            for key in path[:-1]:
                target = target[key]
            target[path[-1]] = value
    parsed = parse_workflow(json.dumps(raw).encode())
    problems = check_workflow(parsed, known_workflows={}, known_providers={"claude"})
    assert all(str(problem).isprintable() for problem in problems)
    if parsed.usable:
        assert parsed.workflow is not None
        again = parse_workflow(json.dumps(parsed.workflow.to_json()).encode())
        assert again.workflow == parsed.workflow.model_copy(update={"schema_uri": None})


@given(st.binary(max_size=40))
def test_bytes_that_are_no_workflow_are_a_problem(data: bytes) -> None:
    assert not parse_workflow(data).usable or check_workflow(parse_workflow(data))


# -- size ------------------------------------------------------------------------------------


def test_ten_thousand_nodes_are_checked() -> None:
    steps = [agent(f"a{i}", f"{{{{a{i - 1}.stdout}}}}" if i else "x") for i in range(9_998)]
    chain = " next ".join(["start", *(step["id"] for step in steps), "end"])
    raw = flow(*steps, node("end", "end"), links=(chain,))
    raw["nodes"][5000]["config"]["prompt"] = "{{a9000.stdout}}"
    (problem,) = check(raw)
    assert problem.place == "nodes[5000] 'a4999' config.prompt"


def test_ten_thousand_nodes_that_all_refer_into_one_parallel_are_checked() -> None:
    children = [branch(f"c{i}", f"{{{{p.children.c0.outputs.c{i}.result}}}}") for i in range(9_000)]
    raw = flow(node("p", "parallel", *children), links=("start next p all_done start",))
    assert check(raw) == []


def number_fields(model: type[FileModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield where a part of the file holds a number, parts inside it included."""
    for name, info in model.model_fields.items():
        inside = part_model(info.annotation)
        if inside is not None and name != "children":
            yield from number_fields(inside, (*path, info.alias or name))
        elif inside is None and any(kind in str(info.annotation) for kind in ("int", "float")):
            yield (*path, info.alias or name)


NUMBERS = [
    *((kind, *path) for kind, model in NODE_MODELS.items() for path in number_fields(model)),
    *(("", *path) for path in number_fields(Workflow) if path[0] not in ("nodes", "edges")),
]
OUT_OF_RANGE = (
    "1e308",
    "-1e308",
    "1e400",
    "-1e400",
    "NaN",
    "Infinity",
    "1e16",
    str(2**64),
    "9" * 400,
)


def test_the_numbers_of_the_format_are_found() -> None:
    assert ("agent", "config", "timeoutMs") in NUMBERS
    assert ("", "limits", "maxCostUsd") in NUMBERS
    assert len(NUMBERS) > 40


@pytest.mark.parametrize("place", NUMBERS, ids=".".join)
def test_a_number_out_of_range_is_refused_wherever_it_is(place: tuple[str, ...]) -> None:
    kind, *path = place
    raw = flow(node("a", kind or "agent"), links=ONE)
    target = raw["nodes"][1] if kind else raw
    for key in path[:-1]:
        target = target.setdefault(key, {})
    target[path[-1]] = "HERE"
    for text in OUT_OF_RANGE:
        parsed = parse_workflow(json.dumps(raw).replace('"HERE"', text).encode())
        named = [each for each in check_workflow(parsed) if path[-1] in each.place]
        about_file = [each for each in parsed.problems if each.place == "file"]
        assert any(each.severity == "error" for each in named + about_file), text


@pytest.mark.parametrize("field", ["timeoutMs", "idleTimeoutMs", "rateLimitMaxWaitMs"])
@pytest.mark.parametrize("value", [-1, 10 * 365 * 86_400_000 + 1])
def test_a_time_is_neither_negative_nor_longer_than_ten_years(field: str, value: int) -> None:
    problems = check(flow(node("a", "agent", prompt="x", **{field: value}), links=ONE))
    assert [each.place for each in problems] == [f"nodes[1] 'a' config.{field}"]


def test_the_shell_line_of_a_command_is_checked_too() -> None:
    made = node("a", "command", cmd="echo $(( {{inputs.x}} ))")
    (problem,) = check(flow(made, links=ONE, inputs=[{"name": "x", "type": "string"}]))
    assert problem.place == "nodes[1] 'a' config.cmd"
    assert "line 1: {{inputs.x}} is in or after arithmetic" in problem.message
