"""Loop files: what they mean, what is refused, and where a mistake is."""

from __future__ import annotations

import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infloop.errors import Problem
from infloop.model.check import check_workflow
from infloop.model.loop_file.quantities import (
    BadQuantity,
    duration_text,
    money_text,
    read_duration,
    read_money,
)
from infloop.model.loop_file.reading import parse_loop_file
from infloop.model.loop_file.schema import loop_schema
from infloop.model.loop_file.tree import plain, read_tree
from infloop.model.loop_file.values import UnusableFile
from infloop.model.loop_file.writing import write_loop_file
from infloop.model.nodes import NODE_MODELS
from infloop.model.parsing import Parsed, parse_workflow
from infloop.model.problems import Report
from infloop.model.workflow import workflow_schema
from support.paths import FIXTURES

UNTIL_GREEN = """\
name: Until green
limits: {cost: $5, time: 2h, steps: 500}
inputs:
  task: Fix the failing tests
steps:
  - loop: rounds
    max: 10
    until: pytest -q
    steps:
      - agent: claude
        id: fix
        prompt: |
          {{inputs.task}}
          {{rounds.check.stdout}}
  - command: git diff --stat
"""


def no_files(name: str) -> str:
    raise UnusableFile("does not exist")


def parsed(text: str | bytes) -> Parsed:
    data = text.encode() if isinstance(text, str) else text
    return parse_loop_file(data, "flow", no_files)


def problems(text: str | bytes) -> list[Problem]:
    return check_workflow(parsed(text), known_providers=["claude"])


def compiled(text: str) -> dict[str, Any]:
    """The workflow of a loop file that is right."""
    made = parsed(text)
    errors = [one for one in check_workflow(made) if one.severity == "error"]
    assert errors == []
    assert made.workflow is not None
    return made.workflow.to_json()


def nodes(content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    def every(listed: list[Any]) -> list[Any]:
        return [one for node in listed for one in (node, *every(node.get("children", [])))]

    return {node["id"]: node for node in every(content["nodes"])}


def links(content: dict[str, Any]) -> set[str]:
    return {f"{e['source']} {e['sourceHandle']} {e['target']}" for e in content["edges"]}


# -- what it means ---------------------------------------------------------------------------


def test_a_short_file_is_a_whole_workflow() -> None:
    content = compiled(UNTIL_GREEN)
    made = nodes(content)
    assert content["id"] == "flow"
    assert content["strict"] is True
    assert content["limits"] == {
        "maxCostUsd": 5.0,
        "maxDurationMs": 7_200_000,
        "maxNodeExecutions": 500,
    }
    assert made["fix"]["config"]["useWorktree"] is True
    assert made["fix"]["config"]["prompt"] == "{{inputs.task}}\n{{rounds-check.stdout}}\n"
    assert made["rounds"]["config"]["checkFirst"] is True
    assert [child["id"] for child in made["rounds"]["children"]] == ["fix", "rounds-check"]
    check = made["rounds-check"]["config"]["command"]
    assert check["cmd"] == "pytest -q"
    assert (check["useWorktree"], check["worktree"]) == (True, "fix")
    assert check["mustRun"] is True
    assert links(content) == {
        "start next rounds",
        "fix next rounds-check",
        "rounds next command",
    }


def test_order_is_written_order_and_a_jump_is_a_key() -> None:
    content = compiled(
        """
steps:
  - command: one
    id: first
  - if: "{{first.stdout}} == a"
    then:
      - command: two
        id: yes
        onError: []
    else:
      - command: three
        id: no
        onError:
          - command: repair
            id: repair
  - note: two ways come together here
  - parallel: both
    mode: race
    branches:
      left: [{command: l}]
      right: [{command: r}, {command: r2}]
    error: first
  - command: last
    id: last
    next: null
    onError: other
  - command: never reached by order
    id: other
    onError: last
  - check: "true"
    notMet: other
"""
    )
    assert links(content) == {
        "start next first", "first next if",
        "if true yes", "yes next both", "yes error both",
        "if false no", "no next both", "no error repair", "repair next both",
        "right next command-7",
        "both first_done last", "both error first",
        "last error other", "other next check", "other error last", "check not_met other",
    }  # fmt: skip
    assert nodes(content)["left"]["config"]["cmd"] == "l"


@pytest.mark.parametrize(
    ("written", "config"),
    [
        ("pytest -q", {"kind": "command", "command": {"cmd": "pytest -q"}}),
        ("true", {"kind": "command", "command": {"cmd": "true"}}),
        (
            "{command: make, cwd: sub, timeout: 90s, env: {PORT: 8080, V: 1.10}}",
            {"command": {"cmd": "make", "cwd": "sub", "timeoutMs": 90_000,
                         "env": {"PORT": "8080", "V": "1.10"}}},
        ),
        (
            "{contains: DONE, in: '{{fix.result}}'}",
            {"kind": "sentinel", "against": "{{fix.result}}",
             "sentinel": {"pattern": "DONE", "isRegex": False}},
        ),
        ("{matches: ^ok$}", {"sentinel": {"pattern": "^ok$", "isRegex": True}}),
        (
            "{judge: It reads well., provider: claude, model: small}",
            {"kind": "judge",
             "judge": {"rubric": "It reads well.", "providerId": "claude", "model": "small"}},
        ),
        ("{kind: command, command: {cmd: x}}", {"command": {"cmd": "x", "timeoutMs": 30_000}}),
    ],
)  # fmt: skip
def test_a_condition_has_a_short_form_for_each_kind(written: str, config: dict[str, Any]) -> None:
    content = compiled(
        f"steps: [{{loop: l, until: {written}, steps: [{{agent: claude, id: fix, prompt: x}}]}}]"
    )
    made = nodes(content)["l-check"]["config"]
    for key, value in config.items():
        expected = {**made[key], **value} if isinstance(value, dict) else value
        assert made[key] == expected


@pytest.mark.parametrize(
    ("written", "left", "operator", "right"),
    [
        ('"{{a.b}} == true"', "{{a.b}}", "==", "true"),
        ('"{{a.b}} != two words"', "{{a.b}}", "!=", "two words"),
        ('"{{a.b}} contains x"', "{{a.b}}", "contains", "x"),
        ("{left: a == b, is: 3}", "a == b", "==", "3"),
        ("{left: a, matches: '^x'}", "a", "matches", "^x"),
    ],
)
def test_a_comparison_is_a_line_or_a_mapping(
    written: str, left: str, operator: str, right: str
) -> None:
    made = parsed(f"steps: [{{if: {written}}}]").workflow
    assert made is not None
    config = nodes(made.to_json())["if"]["config"]
    assert (config["lhs"], config["op"], config["rhs"]) == (left, operator, right)


def test_inputs_take_their_type_from_their_default() -> None:
    content = compiled("""
inputs:
  task: Do it
  long: |
    one
    two
  times: 3
  loud: true
  must:
  typed: {type: text, default: "3", description: what for}
steps: []
""")
    found = {one["name"]: (one["type"], one.get("default")) for one in content["inputs"]}
    assert found == {
        "task": ("string", "Do it"), "long": ("text", "one\ntwo\n"), "times": ("number", 3),
        "loud": ("boolean", True), "must": ("string", None), "typed": ("text", "3"),
    }  # fmt: skip


def test_words_that_older_yaml_takes_for_truth_are_texts() -> None:
    content = compiled("name: on\nglobals: {a: yes, b: No, c: 1.10, d: 012}\nsteps: []\n")
    assert content["name"] == "on"
    assert content["globals"] == {"a": "yes", "b": "No", "c": "1.10", "d": "012"}


def test_every_node_type_has_a_step_and_every_field_a_key() -> None:
    every = json.loads((FIXTURES / "workflows" / "everything.json").read_text())
    workflow = parse_workflow(json.dumps(every).encode()).workflow
    assert workflow is not None
    schema = loop_schema()
    for name, model in NODE_MODELS.items():
        kind = model.step_key or name
        assert kind in schema["$defs"]["step"]["oneOf"][list(NODE_MODELS).index(name)]["required"]


@given(st.integers(0, 10**12))
def test_a_duration_is_read_as_it_was_written(milliseconds: int) -> None:
    text = duration_text(milliseconds)
    assert text is not None
    assert read_duration(text) == milliseconds


@pytest.mark.parametrize("text", ["", "10", "1m1h", "-1s", "1e3s", "10 m", "1.01ms", "\u0661s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(BadQuantity):
        read_duration(text)


@given(st.floats(0, 1e9))
def test_money_is_read_as_it_was_written(amount: float) -> None:
    text = money_text(amount)
    assert text is None or read_money(text) == amount


# -- mistakes --------------------------------------------------------------------------------

AGENT = "steps:\n  - agent: claude\n    prompt: x\n"

MISTAKES = [
    # text, position, what is said
    ("steps:\n  - agnt: claude\n", "2:5", "did you mean 'agent'"),
    ("steps:\n  - agent: claude\n    promt: x\n", "3:5", "did you mean 'prompt'"),
    ("steps:\n  - agent: claude\n", "2:5", "prompt: is empty"),
    (AGENT + "    timeout: 10\n", "4:14", "has no unit"),
    (AGENT + "    timeout: soon\n", "4:14", "10m"),
    (AGENT + "    useWorktree: yes\n", "4:18", "expected true or false"),
    (AGENT + "    onError: nowhere\n", "4:14", "there is no step 'nowhere'"),
    (AGENT + "    next: agnet\n", "4:11", "did you mean 'agent'"),
    (AGENT + "  - command: x\n    id: agent\n", "5:9", "used in line 2"),
    (AGENT + "    promptFile: x.md\n", "4:17", "sets 'prompt', which another key sets"),
    ("steps:\n  - script: py\n    codeFile: x.py\n", "3:15", "does not exist"),
    ("steps:\n  - agent: cluade\n    prompt: x\n", "2:12", "did you mean 'claude'"),
    ("steps:\n  - end: failed\n  - command: x\n", "3:5", "can never run: no step leads to it"),
    ("limits: {cost: lots}\nsteps: []\n", "1:16", "$5"),
    ("limits: {time: 5}\nsteps: []\n", "1:16", "no unit"),
    ("isolation: strong\nsteps: []\n", "1:12", "is not a choice"),
    ("steps:\n  - agent: claude\n    prompt: |\n      a\n      {{b.c}} d\n", "5:7", "no step 'b'"),
    (
        "steps:\n  - loop: l\n    until: x\n    steps:\n      - command: 'y {{l.check.stdot}}'\n",
        "5:21",
        "{{l.check.stdot}} can never resolve",
    ),
    ("steps:\n  - if: a b\n", "2:9", "is not one comparison"),
    ("steps:\n  - if: \"a == 'b'\"\n", "2:9", "is not one comparison"),
    ("steps:\n  - check: {contains: a, judge: b}\n", "2:12", "'contains' and 'judge'"),
    ("steps:\n  - parallel: p\n    branches: {a: []}\n", "3:19", "the branch is empty"),
    (
        "steps:\n  - parallel: p\n    branches:\n      a: [{command: x, id: b}]\n",
        "4:28",
        "has the name of the branch",
    ),
    ("steps:\n  - agent: claude\n    script: py\n", "3:5", "is both 'agent' and 'script'"),
    ("steps:\n  - make test\n", "2:5", "expected a step"),
    ("steps:\n  - check: {command: x, id: y}\n", "2:25", "unknown key 'id'"),
    ("steps:\n  - loop: l\n    until: {command: x, id: [y]}\n", "3:29", "expected a text"),
    ("steps: {a: b}\n", "1:8", "expected a list of steps"),
    ("name: x\n", "1:1", "has no steps"),
    ("inputs: {n: {type: number, default: x}}\nsteps: []\n", "1:37", "is not a number"),
    ("layout: {nodes: {x: {x: 1}}}\nsteps: []\n", "1:21", "there is no step 'x'"),
]


@pytest.mark.parametrize(("text", "position", "said"), MISTAKES)
def test_a_mistake_has_its_position_and_the_words_of_the_file(
    text: str, position: str, said: str
) -> None:
    found = problems(text)
    assert [one for one in found if f"{one.line}:{one.column}" == position and said in str(one)], [
        (one.line, one.column, str(one)) for one in found
    ]
    for one in found:
        assert one.line
        assert one.column
        assert "config." not in str(one)
        assert "nodes[" not in str(one)


HOSTILE = [
    ("a: &x [1]\nb: *x\n", "1:4", "anchors"),
    ("prompt: *.py\n", "1:10", "quotes"),
    ("a: !!python/object:os.system x\n", "1:4", "tags"),
    ("a: !x y\n", "1:4", "tags"),
    ("steps: [{<<: {a: b}}]\n", "1:10", "merge keys"),
    ("a: 1\na: 2\nsteps: []\n", "2:1", "already in line 1"),
    ("a: 1\n---\nb: 2\n", "2:1", "second document"),
    ("%YAML 1.1\n---\na: 1\n", "1:1", "directives"),
    ("# x\n%TAG ! x\n---\na: 1\n", "2:1", "directives"),
    ("a:\n\tb: 1\n", "2:1", "tab"),
    ("a: x: y\n", "1:5", "quotes"),
    ("a: {{inputs.x}}\n", "1:5", "quotes"),
    ("a: [1\n", "2:1", "not YAML"),
    ("a: 'x\n", "2:1", "not YAML"),
    ("a: @x\n", "1:4", "quotes"),
    ("", "1:1", "expected keys"),
    ("# nothing\n", "1:1", "expected keys"),
    ("- a\n", "1:1", "expected keys"),
    ("text\n", "1:1", "expected keys"),
    ("\ufeffname: x\n", "1:1", "byte order mark"),
    ("name: x\0\n", "1:8", "NUL"),
    ('name: "\\0"\nsteps: []\n', "1:7", "cannot be stored"),
    ("name: a\u2028b\n", "1:8", "invisible"),
    ("name: a\x85b\n", "1:8", "invisible"),
    ("name: a\x1b[2Jb\n", "1:8", "invisible"),
    (b"name: \xff\n", "1:7", "UTF-8"),
    (b"\xff\xfen\0a\0", "1:1", "UTF-8"),
    ("version: " + "9" * 5000 + "\nsteps: []\n", "1:10", "64 bits"),
    ("version: .inf\nsteps: []\n", "1:10", "finite"),
    ("version: 1e999\nsteps: []\n", "1:10", "finite"),
    ("steps: " + "[" * 100_000, "1:135", "nested deeper"),
    ("steps:\n" + "".join(f"{' ' * n}-\n" for n in range(1, 500)), "129:129", "nested deeper"),
    ("a: [" + "1," * 600_000 + "]\n", "1:1000001", "more than 500000 values"),
    ("a: " + "x" * (6 << 20), "1:1", "larger than 5 MiB"),
    ("? [a, b]\n: c\n", "1:3", "plain text"),
]


@pytest.mark.parametrize(("text", "position", "said"), HOSTILE, ids=lambda value: repr(value)[:40])
def test_hostile_yaml_is_refused_with_its_position(
    text: str | bytes, position: str, said: str
) -> None:
    found = parsed(text).problems
    where = [f"{one.line}:{one.column}" for one in found if said in str(one)]
    assert where, [str(one) for one in found]
    # The parser may stop at a neighbouring character of a broken file.
    assert position in where


@given(st.binary(max_size=200) | st.text(alphabet="ab:-[]{}#&*!|>'\"%@ \n\t0", max_size=80))
def test_no_text_breaks_the_reader(text: str | bytes) -> None:
    for one in problems(text):
        assert one.line
        assert one.column


def test_a_mistake_in_a_json_file_has_its_position_too() -> None:
    text = """{
  "id": "w", "name": "w",
  "nodes": [
    {"id": "start", "type": "start"},
    {"id": "ask", "type": "agent",
     "config": {"prompt": "tell {{nobody.said}}", "timeoutMs": "soon"}},
    {"id": "x", "type": "agnet"}
  ],
  "edges": [{"source": "start", "target": "ask"},
            {"source": "ask", "target": "nowhere"}],
  "limit": {}
}"""
    found = check_workflow(parse_workflow(text.encode()))
    where = {f"{one.line}:{one.column}": one.message for one in found}
    assert "can never resolve" in where["6:33"]
    assert "expected a whole number" in where["6:64"]
    assert "unknown node type" in where["7:5"]
    assert "there is no node 'nowhere'" in where["10:41"]
    assert "unknown field 'limit'" in where["11:12"]


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ('{"id": "w",\n "a": {"x": 1, "x": 2}}', "2:7"),
        ('{"id": "w",\n "name": "\\u0000"}', "2:10"),
        ('{"id": "w",\n oops}', "2:2"),
        ("[1]", "1:1"),
        ("", "1:1"),
    ],
)
def test_an_unreadable_json_file_has_positions(text: str, position: str) -> None:
    found = parse_workflow(text.encode()).problems
    assert f"{found[0].line}:{found[0].column}" == position


# -- schemas ---------------------------------------------------------------------------------


def document(text: str) -> Any:
    tree = read_tree(text.encode(), Report())[1]
    assert tree is not None
    return plain(tree)


def schema_errors(schema: dict[str, Any], content: Any) -> set[str]:
    validator = jsonschema.Draft202012Validator(schema)
    return {error.json_path for error in validator.iter_errors(content)}


def test_the_schema_of_loop_files_accepts_what_the_reader_accepts() -> None:
    schema = loop_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema_errors(schema, document(UNTIL_GREEN)) == set()
    for path in (FIXTURES / "workflows").glob("*.json"):
        workflow = parse_workflow(path.read_bytes()).workflow
        assert workflow is not None
        assert schema_errors(schema, document(write_loop_file(workflow, "x"))) == set()


def test_an_editor_reports_a_mistake_at_its_key_and_not_at_the_loop() -> None:
    content = document(UNTIL_GREEN)
    content["steps"][0]["steps"][0]["timeout"] = 10
    content["steps"][0]["steps"][0]["promt"] = "x"
    assert schema_errors(loop_schema(), content) == {
        "$.steps[0].steps[0].timeout",
        "$.steps[0].steps[0]",
    }


def test_the_schema_of_json_files_reports_a_mistake_at_its_field() -> None:
    content = compiled(UNTIL_GREEN)
    content["nodes"][1]["children"][0]["config"]["timeoutMs"] = "soon"
    assert schema_errors(workflow_schema(), content) == {"$.nodes[1].children[0].config.timeoutMs"}
