"""What a value from outside may reach: followed through references, and stopped by rules."""

from __future__ import annotations

from typing import Any

import pytest

from infloop.model.parsing import parse_workflow
from infloop.model.values import compact_json
from infloop.model.workflow import Workflow
from infloop.policy.taint import find_violations, tainted_fields
from support.workflows import edges, node, workflow

Raw = dict[str, Any]


def agent(name: str, **config: Any) -> Raw:
    return node(name, "agent", providerId="p", **config)


def command(name: str, cmd: str = "true", **more: Any) -> Raw:
    against = {"against": more.pop("against")} if "against" in more else {}
    return node(name, "condition", kind="command", command={"cmd": cmd, **more}, **against)


def flow(*nodes: Raw, untrusted: Raw | None = None, id: str = "w", **more: Any) -> Raw:
    rules = {"untrusted": untrusted} if untrusted is not None else {}
    return workflow(
        [node("start", "start"), *nodes], edges("start next end"), id=id, **rules, **more
    )


def arrivals(root: Raw, *called: Raw, outside: tuple[str, ...] = ("x",)) -> list[str]:
    workflows = {each["id"]: each for each in (root, *called)}
    return [
        f"{one.workflow}/{one.node}.{one.field}"
        for one in tainted_fields(workflows, root["id"], outside)
    ]


def refused(
    root: Raw, *called: Raw, outside: tuple[str, ...] = ("x",), confined: bool = True
) -> list[str]:
    workflows = {each["id"]: each for each in (root, *called)}
    found = find_violations(workflows, root["id"], outside, confined=confined)
    return [f"{one.at.node}.{one.at.field}" for one in found]


# -- following -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{inputs.x}}", True),
        ("{{__inputs.x}}", True),
        ("{{ inputs.x }}", True),
        ("{{inputs}}", True),
        ("a {{inputs.y}} b {{inputs.x}}", True),
        ("{{inputs.y}}", False),
        ("{{inputs.x", False),
        ("{{globals.x}}", False),
        ("x", False),
    ],
)
def test_a_reference_to_an_untrusted_input_brings_it_along(text: str, expected: bool) -> None:
    assert bool(arrivals(flow(agent("a", prompt=text)))) is expected


def test_nothing_untrusted_reaches_nothing() -> None:
    assert arrivals(flow(agent("a", prompt="{{inputs.x}}")), outside=()) == []


def test_a_number_is_only_a_number() -> None:
    inputs = [{"name": "x", "type": "number"}, {"name": "y", "type": "string"}]
    root = flow(command("c", "gh pr view {{inputs.x}}"), inputs=inputs)
    assert refused(root) == []
    assert refused(root, outside=("x", "y")) == []
    inputs[0]["type"] = "text"
    assert refused(root) == ["c.command.cmd"]


CHAINS: dict[str, list[Raw]] = {
    "an agent": [agent("b", prompt="{{inputs.x}}")],
    "a script": [node("b", "script", inputs={"v": "{{inputs.x}}"}, code="…")],
    "a branch": [node("b", "branch", lhs="{{inputs.x}}", op="==", rhs="1")],
    "a command": [command("b", against="{{inputs.x}}")],
    "a judge": [node("b", "judge", criteria="c", candidates=["{{inputs.x}}", "other"])],
    "two agents": [agent("a", prompt="{{inputs.x}}"), agent("b", prompt="{{a.stdout}}")],
    "an agent that is listed later": [
        agent("b", prompt="{{z.result}}"),
        agent("z", prompt="{{inputs.x}}"),
    ],
    "a parallel": [
        node("b", "parallel", children=[agent("in", prompt="{{inputs.x}}")], mode="wait-all")
    ],
    "a parallel in a loop": [
        node(
            "b",
            "loop",
            children=[node("p", "parallel", children=[agent("in", prompt="{{inputs.x}}")])],
        )
    ],
}


@pytest.mark.parametrize("chain", CHAINS)
def test_what_comes_out_is_untrusted_when_something_untrusted_went_in(chain: str) -> None:
    last = agent("last", prompt="{{b.stdout}}")
    assert "w/last.prompt" in arrivals(flow(*CHAINS[chain], last))
    assert arrivals(flow(*CHAINS[chain], last), outside=("y",)) == []


def test_a_node_inside_a_parallel_is_found_by_its_bare_id_and_by_its_full_path() -> None:
    inside = node("p", "parallel", children=[agent("in", prompt="{{inputs.x}}"), agent("clean")])
    paths = ("{{in.stdout}}", "{{p.children.in.outputs.in.stdout}}")
    for path in paths:
        assert "w/last.prompt" in arrivals(flow(inside, agent("last", prompt=path)))
    assert "w/last.prompt" not in arrivals(flow(inside, agent("last", prompt="{{clean.stdout}}")))


@pytest.mark.parametrize(
    "output", ["exitCode", "durationMs", "timedOut", "costUsd", "tokens", "worktreePath"]
)
def test_what_we_make_ourselves_is_trusted_whatever_went_in(output: str) -> None:
    root = flow(agent("a", prompt="{{inputs.x}}"), command("c", f"test {{{{a.{output}}}}}"))
    assert arrivals(root) == ["w/a.prompt", "w/c.command.against"]
    assert refused(root) == []


def test_an_output_that_a_script_names_like_one_of_ours_is_its_own() -> None:
    script = node("s", "script", inputs={"v": "{{inputs.x}}"}, outputs=["exitCode"], code="…")
    assert refused(flow(script, command("c", "test {{s.exitCode}}"))) == ["c.command.cmd"]


def test_a_whole_node_is_as_untrusted_as_the_worst_of_it() -> None:
    root = flow(agent("a", prompt="{{inputs.x}}"), command("c", "echo {{a}}"))
    assert refused(root) == ["c.command.cmd"]


def test_a_condition_without_a_text_looks_at_what_is_around_it() -> None:
    judged = node("c", "condition", kind="judge", judge={"rubric": "good?"})
    assert arrivals(flow(agent("a", prompt="{{inputs.x}}"), judged)) == [
        "w/a.prompt",
        "w/c.judge.against",
    ]
    given = node("c", "condition", kind="judge", judge={"rubric": "good?"}, against="fixed")
    assert arrivals(flow(agent("a", prompt="{{inputs.x}}"), given)) == ["w/a.prompt"]


def test_parts_of_a_condition_that_are_not_used_do_not_count() -> None:
    unused = {"cmd": "echo {{inputs.x}}"}
    assert arrivals(flow(node("c", "condition", against="a", command=unused))) == []


# -- called workflows ------------------------------------------------------------------------------


def test_a_called_workflow_gets_what_it_is_passed_and_gives_it_back() -> None:
    child = flow(agent("a", prompt="{{inputs.q}} {{inputs.x}}"), id="child")
    call = node(
        "call",
        "subworkflow",
        workflowId="child",
        inputs={"q": "{{inputs.x}}", "x": "fixed"},
        outputs={"said": "a.stdout"},
    )
    root = flow(call, agent("last", prompt="{{call.said}}"))
    (in_child,) = [
        one for one in tainted_fields({"w": root, "child": child}, "w", ("x",)) if one.node == "a"
    ]
    assert (in_child.workflow, in_child.references) == ("child", ("inputs.q",))
    assert "w/last.prompt" in arrivals(root, child)


def test_workflows_that_call_each_other_in_a_circle_come_to_an_end() -> None:
    def calls(name: str, other: str) -> Raw:
        call = node("c", "subworkflow", workflowId=other, inputs={"x": "{{inputs.x}}"})
        return flow(call, agent("a", prompt="{{c.said}}"), id=name)

    assert len(arrivals(calls("w", "v"), calls("v", "w"))) == 4


def test_a_called_workflow_that_does_not_exist_is_left_alone() -> None:
    call = node("c", "subworkflow", workflowId="gone", inputs={"x": "{{inputs.x}}"})
    assert arrivals(flow(call)) == ["w/c.inputs.x"]


def test_a_long_chain_backwards_costs_no_more_than_its_length() -> None:
    nodes = [agent(f"a{n}", prompt=f"{{{{a{n + 1}.stdout}}}}") for n in range(3_000)]
    conditions = [node(f"c{n}", "condition", kind="sentinel") for n in range(3_000)]
    last = agent("a3000", prompt="{{inputs.x}}")
    assert len(arrivals(flow(*nodes, *conditions, last))) == 6_001


# -- rules -----------------------------------------------------------------------------------------

FIELDS: dict[str, Raw] = {
    "prompt": agent("n", prompt="{{inputs.x}}"),
    "cwd": agent("n", prompt="go", cwd="/src/{{inputs.x}}"),
    "agent": agent("n", prompt="go", agent="{{inputs.x}}"),
    "worktreeRef": agent("n", prompt="go", worktreeRef="{{inputs.x}}"),
    "rubric": node("n", "condition", kind="judge", judge={"rubric": "{{inputs.x}}"}, against="a"),
    "candidate": node("n", "judge", criteria="c", candidates=["{{inputs.x}}", "b"]),
    "judge's model": node("n", "judge", criteria="c", candidates=["a", "b"], model="{{inputs.x}}"),
    "shell line": command("n", "echo {{inputs.x}}", against="a"),
    "shell variable": command("n", 'echo "$X"', env={"X": "{{inputs.x}}"}, against="a"),
    "shell input": command("n", "cat", against="{{inputs.x}}"),
    "command's cwd": command("n", "make", cwd="{{inputs.x}}", against="a"),
    "script argument": node("n", "script", inputs={"v": "{{inputs.x}}"}, code="…"),
    "script's cwd": node("n", "script", inputs={}, cwd="{{inputs.x}}", code="…"),
    "branch": node("n", "branch", lhs="{{inputs.x}}", op="==", rhs="1"),
    "sentinel": node("n", "condition", kind="sentinel", against="{{inputs.x}}"),
}
DATA = {"prompt", "rubric", "candidate"}
CHOICES = {"cwd", "agent", "worktreeRef", "judge's model"}
AS_DATA = {"shell variable", "shell input", "script argument"}
IN_CODE = {"shell line", "command's cwd", "script's cwd"}

# rules, confined -> what is refused
RULES: list[tuple[Raw | None, bool, set[str]]] = [
    (None, True, CHOICES | IN_CODE),
    (None, False, DATA | CHOICES | IN_CODE),
    ({"agents": "sandboxed-only"}, False, DATA | CHOICES | IN_CODE),
    ({"agents": "text"}, True, CHOICES | IN_CODE),
    ({"agents": "text"}, False, CHOICES | IN_CODE),
    ({"agents": "never"}, True, DATA | CHOICES | IN_CODE),
    ({"agents": "any"}, False, IN_CODE),
    ({"commands": "never"}, True, CHOICES | IN_CODE | AS_DATA),
    ({"commands": "env"}, True, CHOICES | IN_CODE),
    ({"commands": "any"}, True, CHOICES),
    ({"agents": "any", "commands": "any"}, False, set()),
    ({"agents": "everything", "commands": True}, True, DATA | CHOICES | IN_CODE | AS_DATA),
]


@pytest.mark.parametrize("number", range(len(RULES)))
def test_a_rule_refuses_what_it_says(number: int) -> None:
    rules, confined, expected = RULES[number]
    for field, config in FIELDS.items():
        found = refused(flow(config, untrusted=rules), confined=confined)
        assert bool(found) == (field in expected), field


def test_by_default_no_text_from_outside_stands_in_a_shell_line() -> None:
    root = flow(agent("a", prompt="{{inputs.x}}"), command("c", "test '{{a.result}}' = ok"))
    workflows = {"w": root}
    (refusal,) = find_violations(workflows, "w", ("x",), confined=True)
    assert str(refusal) == (
        "a value from outside reaches 'command.cmd' of condition 'c' in workflow 'w' through "
        "{{a.result}}, and `untrusted.commands` allows 'env'; pass it in the command's `env` and "
        'write "$NAME" in the line'
    )


@pytest.mark.parametrize(
    ("outer", "inner", "allowed"),
    [("any", "any", True), ("any", None, False), (None, "any", False), ("never", "any", False)],
)
def test_a_called_workflow_is_held_to_its_own_rules_and_to_its_callers(
    outer: str | None, inner: str | None, allowed: bool
) -> None:
    child = flow(
        command("c", "echo {{inputs.x}}", against="a"),
        id="child",
        untrusted={"commands": inner} if inner else None,
    )
    call = node("call", "subworkflow", workflowId="child", inputs={"x": "{{inputs.x}}"})
    root = flow(call, untrusted={"commands": outer} if outer else None)
    assert (refused(root, child) == []) is allowed


def test_the_rules_are_part_of_the_file_and_a_misspelt_one_is_an_error() -> None:
    raw = flow(agent("a", prompt="{{inputs.x}}"), untrusted={"agents": "never"})
    parsed = parse_workflow(compact_json(raw).encode())
    assert parsed.usable
    assert isinstance(parsed.workflow, Workflow)
    plain = parsed.workflow.to_json()
    assert plain["untrusted"] == {"agents": "never", "commands": "env"}
    assert len(find_violations({"w": plain}, "w", ("x",), confined=True)) == 1
    for wrong in ({"agents": "nevr"}, {"agent": "never"}, "never"):
        broken = parse_workflow(compact_json({**raw, "untrusted": wrong}).encode())
        assert not broken.usable
