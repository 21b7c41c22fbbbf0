"""Reading workflow files: what loads, what is brought up to date, what is refused outright."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from infloop.model.check import check_workflow
from infloop.model.inputs import InputError
from infloop.model.nodes import (
    NODE_MODELS,
    AgentNode,
    ConditionNode,
    LoopNode,
    Node,
    NodeBase,
    ParallelNode,
    node_model,
)
from infloop.model.parsing import MAX_EDGES, MAX_NODES, parse_workflow
from infloop.model.problems import MAX_PROBLEMS
from infloop.model.reading import MAX_FILE_BYTES, MAX_VALUES
from infloop.model.references import (
    implicit_inputs,
    template_fields,
    template_texts,
    workflow_inputs,
)
from infloop.model.schema import FileModel, part_model
from infloop.model.values import JsonObject
from infloop.model.workflow import Workflow, workflow_schema
from support.paths import FIXTURES

WORKFLOWS = sorted((FIXTURES / "workflows").glob("*.json"))


def written(**parts: Any) -> bytes:
    """A small workflow that is right, with `parts` in place of its own."""
    whole = {
        "id": "w",
        "name": "w",
        "nodes": [{"id": "start", "type": "start"}],
        "edges": [],
        **parts,
    }
    return json.dumps(whole).encode()


def loaded(data: bytes) -> Workflow:
    parsed = parse_workflow(data)
    assert parsed.usable, parsed.problems
    assert parsed.workflow is not None
    return parsed.workflow


# -- what loads ------------------------------------------------------------------------------


@pytest.mark.claim("I6")
@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_a_json_file(path: Path) -> None:
    name = path.name.removesuffix(".json").removesuffix(".workflow")
    parsed = parse_workflow(path.read_bytes(), expected_id=name)
    assert parsed.usable
    assert [p for p in check_workflow(parsed) if p.severity == "error"] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_the_plain_form_of_a_workflow_loads_as_the_same_workflow(path: Path) -> None:
    workflow = loaded(path.read_bytes())
    again = loaded(json.dumps(workflow.to_json()).encode())
    assert again.to_json() == workflow.to_json()


def test_a_file_written_by_hand_gets_every_default() -> None:
    workflow = loaded(
        written(
            nodes=[{"id": "a", "type": "agent", "config": {"prompt": "x"}}],
            edges=[{"source": "a", "target": "a"}],
        )
    )
    assert workflow.on_crash == "fail"
    assert workflow.version == 1
    plain = workflow.to_json()
    assert plain["edges"] == [{"id": "", "source": "a", "sourceHandle": "next", "target": "a"}]
    assert plain["nodes"] == [
        {
            "id": "a",
            "type": "agent",
            "position": {"x": 0.0, "y": 0.0},
            "config": {
                "providerId": "claude",
                "prompt": "x",
                "timeoutMs": 0,
                "useWorktree": False,
                "includeUncommitted": False,
                "worktreeInclude": [],
                "onRateLimit": "fail",
                "rateLimitMaxWaitMs": 21_600_000,
                "idleTimeoutMs": 0,
                "continueSession": False,
                "skipPermissions": False,
            },
        }
    ]


def test_what_a_canvas_leaves_behind_is_understood() -> None:
    path = next(path for path in WORKFLOWS if path.name == "from-canvas.json")
    workflow = loaded(path.read_bytes())
    loop = workflow.nodes[1]
    assert isinstance(loop, LoopNode)
    agent, condition = loop.children
    assert isinstance(agent, AgentNode)
    assert isinstance(condition, ConditionNode)
    assert (loop.config.max_iterations, loop.config.infinite) == (3, False)
    assert (agent.config.timeout_ms, agent.config.cwd, agent.config.profile) == (120_000, "", None)
    assert condition.config.kind == "command"
    assert condition.config.sentinel is not None
    assert workflow.inputs is None


def test_an_empty_default_is_a_default() -> None:
    workflow = loaded(written(inputs=[{"name": "a", "type": "string", "default": ""}]))
    assert workflow_inputs(workflow, {}) == {"a": ""}


def test_a_loop_without_a_number_of_rounds_has_a_hundred() -> None:
    loop = loaded(written(nodes=[{"id": "l", "type": "loop", "config": {}}])).nodes[0]
    assert isinstance(loop, LoopNode)
    assert loop.config.max_iterations == 100


# -- what is brought up to date --------------------------------------------------------------


def test_claude_nodes_become_agents_at_any_depth_and_triggers_stand_beside() -> None:
    path = next(path for path in WORKFLOWS if path.name == "old-claude.json")
    parsed = parse_workflow(path.read_bytes())
    assert parsed.workflow is not None
    parallel = parsed.workflow.nodes[1]
    assert isinstance(parallel, ParallelNode)
    assert [
        (node.type, node.config.provider_id) for node in parallel.children if node.type == "agent"
    ] == [
        ("agent", "claude"),
        ("agent", "claude"),
    ]
    assert [trigger["id"] for trigger in parsed.triggers] == ["oldTrigger00000000000001"]
    assert "triggers" not in parsed.workflow.to_json()


def test_triggers_that_are_no_triggers_are_reported() -> None:
    places = [p.place for p in parse_workflow(written(triggers=[{}, 5])).problems]
    assert places == ["triggers[1]"]
    assert parse_workflow(written(triggers={})).problems[0].place == "triggers"


# -- what is refused outright ----------------------------------------------------------------


def nested(depth: int) -> bytes:
    return b'{"id":"w","name":"w","edges":[],"nodes":' + b"[" * depth + b"]" * depth + b"}"


def nested_loops(depth: int) -> bytes:
    node: dict[str, Any] = {"id": "innermost", "type": "start"}
    for level in range(depth):
        node = {"id": f"l{level}", "type": "loop", "children": [node]}
    return written(nodes=[node])


REFUSED = {
    "too large": (b" " * (MAX_FILE_BYTES + 1), "larger than 5 MiB"),
    "nested lists": (nested(64), "nested deeper than 64 levels"),
    "a bomb of lists": (nested(100_000), "nested deeper than 64 levels"),
    "a bomb of objects": (b'{"a":' * 100_000, "nested deeper than 64 levels"),
    "nested loops": (nested_loops(40), "nested deeper than 64 levels"),
    "too many nodes": (
        written(nodes=[{"id": f"n{i}"} for i in range(MAX_NODES + 1)]),
        f"more than {MAX_NODES} nodes",
    ),
    "too many nodes inside": (
        written(nodes=[{"children": [{"children": [{}] * (MAX_NODES - 1)}]}]),
        f"more than {MAX_NODES} nodes",
    ),
    "too many edges": (written(edges=[{}] * (MAX_EDGES + 1)), f"more than {MAX_EDGES} edges"),
    "too many values": (written(globals=[[]] * (MAX_VALUES + 1)), "holds more than 500000 values"),
    "not JSON": (b"{'id': 'w'}", "not JSON: line 1 column 2"),
    "cut off": (b'{"id": "w",\n "name"', "not JSON: line 2"),
    "empty": (b"", "not JSON"),
    "a list": (b"[]", "expected a JSON object, got []"),
    "null": (b"null", "expected a JSON object, got null"),
    "a text": (b'"w"', "expected a JSON object, got 'w'"),
    "not UTF-8": (b'{"id": "\xff"}', "not UTF-8 text (byte 8)"),
    "UTF-16": ('{"id": "w"}'.encode("utf-16"), "not UTF-8 text"),
    "a byte order mark": (b"\xef\xbb\xbf" + written(), "begins with a byte order mark"),
    "NaN": (b'{"a": NaN}', "not a finite number"),
    "Infinity": (b'{"a": [-Infinity]}', "not a finite number"),
    "infinite by overflow": (b'{"a": 1e999}', "not a finite number"),
    "a number of 65 bits": (b'{"a": 18446744073709551616}', "more than 64 bits"),
    "a number of 5000 digits": (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
    "a NUL": (b'{"a": "x\\u0000y"}', "NUL character"),
    "half a pair": (b'{"\\ud800": 1}', "half of a surrogate pair"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_cannot_be_read_is_one_clear_problem(name: str) -> None:
    data, message = REFUSED[name]
    parsed = parse_workflow(data)
    assert parsed.workflow is None
    assert not parsed.usable
    (problem,) = parsed.problems
    assert message in problem.message
    assert check_workflow(parsed) == [problem]


def test_the_deepest_and_largest_files_that_are_allowed_load() -> None:
    # A node's configuration lies at 4 + 2 per loop around it; 64 levels leave room for 29 loops.
    assert parse_workflow(nested_loops(29)).usable
    many = [{"id": f"n{index}", "type": "start"} for index in range(MAX_NODES)]
    assert parse_workflow(written(nodes=many)).usable


def test_a_value_that_cannot_be_kept_is_named_with_its_place() -> None:
    data = b'{"nodes": [{"config": {"prompt": "\\u0000"}}, {"position": {"x": 1e400}}]}'
    assert [problem.place for problem in parse_workflow(data).problems] == [
        "nodes[0].config.prompt",
        "nodes[1].position.x",
    ]


def test_a_key_that_occurs_twice_is_reported_where_it_does() -> None:
    data = written().replace(b'"type": "start"', b'"type": "start", "type": "end"')
    parsed = parse_workflow(data)
    (problem,) = parsed.problems
    assert (problem.place, problem.severity) == ("nodes[0]", "error")
    assert "'type' occurs more than once" in problem.message
    assert not parsed.usable


# -- mistakes inside -------------------------------------------------------------------------

AGENT = {"id": "a", "type": "agent", "config": {"prompt": "x"}}

UNKNOWN_KEYS: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "a key of the workflow": (
        {"inptus": []},
        "file",
        "unknown field 'inptus'",
        "did you mean 'inputs'?",
    ),
    "a key of a node": (
        {"nodes": [{**AGENT, "lable": "x"}]},
        "nodes[0] 'a'",
        "unknown field 'lable'",
        "did you mean 'label'?",
    ),
    "a key of a configuration": (
        {"nodes": [{**AGENT, "config": {"prompt": "x", "timeout": 5}}]},
        "nodes[0] 'a' config",
        "unknown field 'timeout'",
        "did you mean 'timeoutMs'?",
    ),
    "a key in Python's spelling": (
        {"nodes": [{**AGENT, "config": {"prompt": "x", "timeout_ms": 5}}]},
        "nodes[0] 'a' config",
        "unknown field 'timeout_ms'",
        "did you mean 'timeoutMs'?",
    ),
    "a key of a part of a configuration": (
        {
            "nodes": [
                {
                    "id": "c",
                    "type": "condition",
                    "config": {"kind": "command", "command": {"command": "x"}},
                }
            ]
        },
        "nodes[0] 'c' config.command",
        "unknown field 'command'",
        "did you mean 'cmd'?",
    ),
    "a key of a node inside": (
        {"nodes": [{"id": "l", "type": "loop", "children": [AGENT, {**AGENT, "id": "b", "x": 1}]}]},
        "nodes[0].children[1] 'b'",
        "unknown field 'x'",
        "known: id, label, position, size, children, type, config",
    ),
    "a key of an edge": (
        {"edges": [{"id": "e", "source": "a", "target": "a", "sourcehandle": "next"}]},
        "edges[0] 'e'",
        "unknown field 'sourcehandle'",
        "did you mean 'sourceHandle'?",
    ),
    "a key of an input": (
        {"inputs": [{"name": "x", "kind": "string"}]},
        "inputs[0]",
        "unknown field 'kind'",
        "known: name, type, default, description",
    ),
}

MISTAKES: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "a key of the limits": (
        {"limits": {"maxCost": 1}},
        "limits",
        "unknown field 'maxCost'",
        "did you mean 'maxCostUsd'?",
    ),
    "a node type": (
        {"nodes": [{**AGENT, "type": "agnet"}]},
        "nodes[0] 'a'",
        "unknown node type 'agnet'",
        "did you mean 'agent'?",
    ),
    "no node type": ({"nodes": [{"id": "a"}]}, "nodes[0] 'a'", "has no type", "known: start, end"),
    "a type that is no text": (
        {"nodes": [{"id": "a", "type": []}]},
        "nodes[0] 'a'",
        "has no type",
        "known",
    ),
    "a node that is no object": ({"nodes": ["a"]}, "nodes[0]", "expected an object, got 'a'", ""),
    "nodes that are no list": ({"nodes": {}}, "nodes", "expected a list, got {}", ""),
    "edges that are no list": ({"edges": "a"}, "edges", "expected a list, got 'a'", ""),
    "children that are no list": (
        {"nodes": [{"id": "l", "type": "loop", "children": 5}]},
        "nodes[0].children",
        "expected a list, got 5",
        "",
    ),
    "an edge that is no object": ({"edges": [5]}, "edges[0]", "expected an object, got 5", ""),
    "a number as text": (
        {"nodes": [{**AGENT, "config": {"prompt": "x", "timeoutMs": "5"}}]},
        "nodes[0] 'a' config.timeoutMs",
        "expected a whole number, got '5'",
        "",
    ),
    "half a millisecond": (
        {"nodes": [{**AGENT, "config": {"prompt": "x", "timeoutMs": 0.5}}]},
        "nodes[0] 'a' config.timeoutMs",
        "expected a whole number, got 0.5",
        "",
    ),
    "truth as a number": (
        {"nodes": [{**AGENT, "config": {"prompt": "x", "useWorktree": 1}}]},
        "nodes[0] 'a' config.useWorktree",
        "expected true or false, got 1",
        "",
    ),
    "a number for a text": (
        {"nodes": [{**AGENT, "config": {"prompt": 5}}]},
        "nodes[0] 'a' config.prompt",
        "expected text, got 5",
        "",
    ),
    "a configuration that is a list": (
        {"nodes": [{**AGENT, "config": []}]},
        "nodes[0] 'a' config",
        "expected an object, got []",
        "",
    ),
    "a mode": (
        {"nodes": [{"id": "p", "type": "parallel", "config": {"mode": "wait_all"}}]},
        "nodes[0] 'p' config.mode",
        "'wait_all' is not a choice here",
        "did you mean 'wait-all'?",
    ),
    "what to do on error": (
        {"nodes": [{"id": "p", "type": "parallel", "config": {"onError": "ignore"}}]},
        "nodes[0] 'p' config.onError",
        "'ignore' is not a choice here",
        "known: fail-fast, best-effort",
    ),
    "an operator": (
        {"nodes": [{"id": "b", "type": "branch", "config": {"op": "="}}]},
        "nodes[0] 'b' config.op",
        "'=' is not a choice here",
        "did you mean '=='?",
    ),
    "an outcome": (
        {"nodes": [{"id": "e", "type": "end", "config": {"outcome": "success"}}]},
        "nodes[0] 'e' config.outcome",
        "'success' is not a choice here",
        "did you mean 'succeeded'?",
    ),
    "a kind of condition": (
        {"nodes": [{"id": "c", "type": "condition", "config": {"kind": "comand"}}]},
        "nodes[0] 'c' config.kind",
        "'comand' is not a choice here",
        "did you mean 'command'?",
    ),
    "a language": (
        {"nodes": [{"id": "s", "type": "script", "config": {"language": "python"}}]},
        "nodes[0] 's' config.language",
        "'python' is not a choice here",
        "known: ts, py",
    ),
    "what follows a crash": (
        {"onCrash": "retry"},
        "onCrash",
        "'retry' is not a choice here",
        "known: fail",
    ),
    "an isolation": (
        {"isolation": "none"},
        "isolation",
        "'none' is not a choice",
        "known: container, sandbox",
    ),
    "an input's type": (
        {"inputs": [{"name": "x", "type": "int"}]},
        "inputs[0].type",
        "'int' is not a choice here",
        "known: string, number, boolean, text",
    ),
    "a global that is no text": ({"globals": {"a": 1}}, "globals.a", "expected text, got 1", ""),
    "a candidate that is no text": (
        {"nodes": [{"id": "j", "type": "judge", "config": {"candidates": ["a", 1, "b", 2]}}]},
        "nodes[0] 'j' config.candidates[1]",
        "expected text, got 1",
        "",
    ),
}


@pytest.mark.parametrize("name", UNKNOWN_KEYS)
def test_an_unknown_key_is_a_warning_and_a_mistake_in_a_strict_file(name: str) -> None:
    parts, place, message, hint = UNKNOWN_KEYS[name]
    for strict, severity in ((False, "warning"), (True, "error")):
        parsed = parse_workflow(written(**parts, strict=strict))
        assert parsed.usable is not strict
        assert parsed.workflow == parse_workflow(written(**parts)).workflow or strict
        (first,) = parsed.problems
        assert (first.place, first.severity) == (place, severity)
        assert message in first.message
        assert hint in first.hint


@pytest.mark.claim("L50")
@pytest.mark.parametrize(
    "parts",
    [
        {"limit": {"maxCostUsd": 1}},
        {"Limits": {"maxCostUsd": 1}},
        {"limits": {"maxCosts": 1}},
        {"isolaton": "sandbox"},
        {"isolationLevel": "sandbox"},
        {"egres": "none"},
        {"egressPolicy": "none"},
        {"untrusted": {"agent": "never"}},
        {"unTrusted": {"agents": "never"}},
        {"stict": True},
        {"nodes": [{**AGENT, "config": {"prompt": "x", "useWorkTree": True}}]},
        {"nodes": [{**AGENT, "config": {"prompt": "x", "use_worktree": True}}]},
    ],
)
def test_a_misspelt_protection_is_never_left_out(parts: dict[str, Any]) -> None:
    assert not parse_workflow(written(**parts)).usable


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_with_its_place_and_what_was_meant(name: str) -> None:
    parts, place, message, hint = MISTAKES[name]
    parsed = parse_workflow(written(**parts))
    assert not parsed.usable
    first = parsed.problems[0]
    assert first.place == place
    assert message in first.message
    assert hint in first.hint
    assert first.severity == "error"


def test_all_mistakes_are_reported_at_once_and_none_hides_the_rest_of_the_file() -> None:
    data = written(
        colour="red",
        nodes=[
            {"id": "start", "type": "start"},
            {
                "id": "a",
                "type": "agent",
                "config": {"promt": "x", "timeoutMs": "5", "prompt": "{{zzz.stdout}}"},
            },
            {"id": "m", "type": "mystery", "children": [{"id": "inside", "type": "end"}]},
            {"id": "b", "type": "branch", "config": {"lhs": "{{m.anything}}", "op": "~"}},
        ],
        edges=[
            {"id": "e1", "source": "start", "target": "a"},
            {"id": "e2", "source": "a", "target": "m"},
            {"id": "e3", "source": "m", "sourceHandle": "whatever", "target": "b"},
            {"id": "e4", "source": "b", "sourceHandle": "true", "target": "nowhere"},
        ],
    )
    problems = check_workflow(parse_workflow(data))
    assert {(problem.place, problem.message) for problem in problems} == {
        ("file", "unknown field 'colour'"),
        ("nodes[1] 'a' config", "unknown field 'promt'"),
        ("nodes[1] 'a' config.timeoutMs", "expected a whole number, got '5'"),
        ("nodes[2] 'm'", "unknown node type 'mystery'"),
        ("nodes[3] 'b' config.op", "'~' is not a choice here"),
        ("edges[3] 'e4' target", "there is no node 'nowhere'"),
        (
            "nodes[1] 'a' config.prompt",
            "{{zzz.stdout}} can never resolve: there is no node 'zzz'",
        ),
    }


def test_a_file_full_of_mistakes_is_reported_within_bounds() -> None:
    nodes = [{"id": f"n{index}", "type": "x" * 5000} for index in range(900)]
    problems = check_workflow(parse_workflow(written(nodes=nodes, edges=[{}] * 900)))
    assert len(problems) == MAX_PROBLEMS + 1
    assert "more problems are not listed" in problems[-1].message
    assert max(len(str(problem)) for problem in problems) < 2000


def test_more_mistakes_in_one_place_than_anyone_reads_are_counted() -> None:
    parsed = parse_workflow(written(**{f"key{index}": 1 for index in range(20_000)}))
    assert [problem.message for problem in parsed.problems] == ["holds 20000 mistakes"]


def test_a_problem_cannot_steer_a_terminal() -> None:
    data = written(**{"\x1b[2J": 1, "nodes": [{"id": "\x1b]0;x\x07\n", "type": "\x9b31m"}]})
    problems = check_workflow(parse_workflow(data))
    assert len(problems) > 2
    assert all(str(problem).isprintable() for problem in problems)


def test_an_id_must_be_the_name_of_its_file() -> None:
    (problem,) = parse_workflow(written(), expected_id="other").problems
    assert problem.place == "id"
    assert "'w' is not the name of its file, 'other'" in problem.message


# -- templates -------------------------------------------------------------------------------


def test_every_text_of_a_node_is_a_template_and_code_is_not() -> None:
    listed = {
        kind: tuple(".".join(field.path) + ".*" * field.many for field in template_fields(kind))
        for kind in NODE_MODELS
    }
    assert {kind: fields for kind, fields in listed.items() if fields} == {
        "agent": ("prompt", "cwd", "profile", "agent", "worktreeRef", "sessionId"),
        "script": ("inputs.*", "cwd"),
        "command": ("cmd", "env.*", "cwd", "worktreeRef"),
        "condition": (
            "against",
            "sentinel.pattern",
            "command.cmd",
            "command.env.*",
            "command.cwd",
            "command.worktreeRef",
            "judge.rubric",
            "judge.model",
            "cwd",
        ),
        "branch": ("lhs", "rhs"),
        "subworkflow": ("inputs.*",),
        "judge": ("criteria", "candidates.*", "judgePrompt", "model"),
        "approval": ("question", "details"),
    }


def test_template_texts_have_the_path_that_warnings_show() -> None:
    config: JsonObject = {
        "inputs": {"x": "{{a.b}}", "n": 5},
        "outputs": ["o"],
        "code": "{{c.d}}",
        "cwd": "here",
    }
    assert list(template_texts("script", config)) == [
        (("inputs", "x"), "{{a.b}}", "text"),
        (("cwd",), "here", "selector"),
    ]
    assert list(template_texts("judge", {"candidates": ["p", "q"]})) == [
        (("candidates", "0"), "p", "text"),
        (("candidates", "1"), "q", "text"),
    ]


def test_parts_of_a_condition_that_nothing_reads_are_no_templates() -> None:
    config: JsonObject = {
        "kind": "command",
        "sentinel": {"pattern": "{{x.y}}"},
        "command": {"cmd": "true"},
    }
    assert list(template_texts("condition", config)) == [(("command", "cmd"), "true", "shell")]


def test_texts_that_are_not_only_read_say_what_they_are_used_for() -> None:
    uses = {
        (kind, ".".join(field.path)): field.use
        for kind in NODE_MODELS
        for field in template_fields(kind)
        if field.use != "text"
    }
    assert uses == {
        ("agent", "cwd"): "selector",
        ("agent", "profile"): "selector",
        ("agent", "agent"): "selector",
        ("agent", "worktreeRef"): "selector",
        ("agent", "sessionId"): "selector",
        ("script", "cwd"): "selector",
        ("command", "cmd"): "shell",
        ("command", "cwd"): "selector",
        ("command", "env"): "variable",
        ("command", "worktreeRef"): "selector",
        ("condition", "command.worktreeRef"): "selector",
        ("condition", "sentinel.pattern"): "pattern",
        ("condition", "command.cmd"): "shell",
        ("condition", "command.env"): "variable",
        ("condition", "command.cwd"): "selector",
        ("condition", "judge.model"): "selector",
        ("condition", "cwd"): "selector",
        ("judge", "model"): "selector",
    }


# -- inputs ----------------------------------------------------------------------------------


def test_a_workflow_that_declares_no_inputs_has_those_it_uses_as_optional_texts() -> None:
    path = next(path for path in WORKFLOWS if path.name == "undeclared-team.json")
    workflow = loaded(path.read_bytes())
    assert implicit_inputs(workflow) == ("task", "criteria")
    assert workflow_inputs(workflow, {"task": 5, "other": "x"}) == {"task": "5"}
    assert workflow_inputs(workflow, {}) == {}


def test_a_workflow_that_declares_inputs_has_no_others() -> None:
    agent = {"id": "a", "type": "agent", "config": {"prompt": "{{inputs.x}}"}}
    assert implicit_inputs(loaded(written(nodes=[agent], inputs=[]))) == ()
    assert implicit_inputs(loaded(written(nodes=[agent]))) == ("x",)


def test_declared_inputs_are_typed_and_take_text_from_a_command_line() -> None:
    path = next(path for path in WORKFLOWS if path.name == "everything.json")
    workflow = loaded(path.read_bytes())
    given: JsonObject = {"task": "t", "times": "4", "loud": "FALSE", "unknown": 1}
    assert workflow_inputs(workflow, given) == {"task": "t", "times": 4, "loud": False, "who": ""}
    with pytest.raises(InputError) as missing:
        workflow_inputs(workflow, {})
    assert (missing.value.field, missing.value.reason) == ("task", "required")
    with pytest.raises(InputError) as wrong:
        workflow_inputs(workflow, {"task": "t", "times": "many"})
    assert (wrong.value.field, wrong.value.expected) == ("times", "number")


# -- the JSON Schema -------------------------------------------------------------------------


def accepts(schema: dict[str, Any], value: Any, whole: dict[str, Any]) -> bool:
    """A reading of JSON Schema just wide enough for ours."""
    if "$ref" in schema:
        return accepts(whole["$defs"][schema["$ref"].removeprefix("#/$defs/")], value, whole)
    if "oneOf" in schema:
        return sum(accepts(one, value, whole) for one in schema["oneOf"]) == 1
    if "if" in schema:
        asked = {"type": "object", **schema["if"]}
        return not accepts(asked, value, whole) or accepts(schema["then"], value, whole)
    if not all(accepts(one, value, whole) for one in schema.get("allOf", ())):
        return False
    if "const" in schema and value != schema["const"]:
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    match schema.get("type"):
        case "object":
            known = schema.get("properties", {})
            others = schema.get("additionalProperties", True)
            return (
                isinstance(value, dict)
                and set(schema.get("required", ())) <= set(value)
                and all(
                    accepts(known[key], item, whole)
                    if key in known
                    else others is True
                    or (isinstance(others, dict) and accepts(others, item, whole))
                    for key, item in value.items()
                )
            )
        case "array":
            return isinstance(value, list) and all(
                accepts(schema["items"], v, whole) for v in value
            )
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case _:
            return True


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_the_published_schema_accepts_what_loads(path: Path) -> None:
    schema = workflow_schema()
    assert accepts(schema, loaded(path.read_bytes()).to_json(), schema)


@pytest.mark.parametrize(
    "name", ["by-hand.workflow.json", "everything.json", "undeclared-team.json"]
)
def test_the_published_schema_accepts_a_file_as_it_is_written(name: str) -> None:
    schema = workflow_schema()
    path = next(path for path in WORKFLOWS if path.name == name)
    assert accepts(schema, json.loads(path.read_bytes()), schema)


def test_the_published_schema_refuses_what_does_not_load() -> None:
    schema = workflow_schema()
    right = json.loads(written(nodes=[AGENT]))
    assert accepts(schema, right, schema)
    for wrong in (
        {**right, "colour": "red"},
        {**right, "nodes": [{**AGENT, "type": "agnet"}]},
        {**right, "nodes": [{**AGENT, "children": []}]},
        {**right, "nodes": [{"id": "a", "config": {}}]},
        {**right, "nodes": [{**AGENT, "config": {"promt": "x"}}]},
        {key: value for key, value in right.items() if key != "edges"},
    ):
        assert not accepts(schema, wrong, schema), wrong


def test_the_schema_says_what_every_field_is_for() -> None:
    schema = workflow_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == "urn:infloop:schema:workflow"
    parts = {"Workflow": schema, **schema["$defs"]}
    for name, part in parts.items():
        for key, shape in part.get("properties", {}).items():
            assert {"title", "description"} <= shape.keys() or "$ref" in shape, f"{name}.{key}"
    assert parts["AgentConfig"]["properties"]["prompt"]["template"] is True
    assert "template" not in parts["ScriptConfig"]["properties"]["code"]


def test_every_node_type_is_in_the_union_and_in_the_table() -> None:
    union = set(get_args(get_args(Node)[0]))
    assert union == set(NODE_MODELS.values())
    for kind, model in NODE_MODELS.items():
        assert model.model_fields["type"].default == kind
        config = part_model(model.model_fields["config"].annotation)
        assert config is not None
        assert issubclass(config, FileModel)
        assert model.nested_outputs <= set(model.outputs)
        assert model.trusted_outputs <= set(model.outputs)
        assert model.previous_output_field in ("", *config.model_fields)
        assert set(model.variants) <= set(config.model_fields)
        config.model_validate(model.new_config)  # raises unless it fits


def test_a_type_that_is_not_known_does_nothing_and_nothing_of_it_is_trusted() -> None:
    assert node_model("teleport") is NodeBase
    assert not NodeBase.has_effects
    assert NodeBase.opens is None
    assert not NodeBase.trusted_outputs


def test_a_type_with_effects_is_under_a_rule_for_untrusted_values_by_default() -> None:
    class New(NodeBase):
        has_effects = True

    assert New.untrusted_rule({}) == "commands"
    assert NodeBase.untrusted_rule({}) is None
