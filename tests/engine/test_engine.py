"""The machine: walks, loops, parallels, calls, endings, each as a table or a playbook."""

from __future__ import annotations

from typing import Any

import pytest

from infloop.model.events import (
    RunBudget,
    RunFinished,
    RunResumed,
    StepFinished,
    StepPassed,
    StepStarted,
    TemplateWarning,
)
from support.playbook import Playbook
from support.workflows import agent, edges, node, workflow

START = node("s", "start")
END = node("e", "end", outcome="succeeded")
SAID: tuple[str, dict[str, Any]] = ("next", {"stdout": "hello"})


def sentinel(id: str, pattern: str, against: str) -> dict[str, Any]:
    return node(
        id,
        "condition",
        kind="sentinel",
        against=against,
        sentinel={"pattern": pattern, "isRegex": False},
    )


MET = sentinel("c", "x", "x")
UNMET = sentinel("c", "x", "y")


def loop(id: str, *children: dict[str, Any], **config: Any) -> dict[str, Any]:
    return node(id, "loop", list(children), **config)


def test_a_run_without_an_end_node_succeeds_when_no_edge_is_left() -> None:
    play = Playbook(workflow([START, agent("a")], edges("s next a")), answers={"a": SAID}).settle()
    assert play.result == RunFinished("succeeded")
    assert play.scope["a"] == {"stdout": "hello"}


def test_an_error_without_an_edge_fails_the_run_and_names_step_and_reason() -> None:
    play = Playbook(
        workflow([START, agent("a")], edges("s next a")), answers={"a": ("error", {})}
    ).settle()
    assert play.result == RunFinished("failed", "step 'a' failed: it broke", "a")


def test_an_end_that_fails_names_the_step_that_led_there() -> None:
    bad = node("bad", "end", outcome="failed")
    play = Playbook(
        workflow([START, agent("a"), bad], edges("s next a error bad")),
        answers={"a": ("error", {})},
    ).settle()
    assert play.result.status == "failed"
    assert "'bad'" in play.result.error
    assert "step 'a' failed: it broke" in play.result.error


def test_only_the_first_edge_of_a_handle_is_followed() -> None:
    links = edges("s next a", "s next b")
    play = Playbook(workflow([START, agent("a"), agent("b")], links), answers={"a": SAID}).settle()
    assert play.paths == ["s", "a"]


def test_a_cycle_gives_each_visit_its_own_path() -> None:
    tries = iter([("error", {}), ("error", {}), SAID])
    play = Playbook(
        workflow([START, agent("a"), END], edges("s next a error a", "a next e")),
        answers={"a": lambda _: next(tries)},
    ).settle()
    assert play.paths == ["s", "a", "a#2", "a#3", "e"]
    assert play.result.status == "succeeded"


# -- loops ----------------------------------------------------------------------------------------


@pytest.mark.claim("I77")
def test_a_loop_repeats_until_its_condition_is_met() -> None:
    said = iter(["no", "no", "DONE"])
    body = [agent("a"), sentinel("c", "DONE", "{{a.stdout}}")]
    play = Playbook(
        workflow(
            [START, loop("l", *body, maxIterations=9), END], edges("s next l next e", "a next c")
        ),
        answers={"a": lambda _: ("next", {"stdout": next(said)})},
    ).settle()
    assert play.result.status == "succeeded"
    assert play.scope["l"] == {"iterations": 3, "broke": True}


@pytest.mark.claim("I77")
@pytest.mark.parametrize(
    ("config", "rounds"),
    [
        ({"maxIterations": 3}, 3),
        ({"maxIterations": 0}, 0),
        ({}, 100),
        ({"maxIterations": 3, "mode": "unbounded"}, 3),
        ({"maxIterations": 3, "infinite": False}, 3),
    ],
)
def test_a_loop_is_capped_by_max_iterations(config: dict[str, Any], rounds: int) -> None:
    play = Playbook(
        workflow([START, loop("l", UNMET, **config), END], edges("s next l next e"))
    ).settle()
    assert play.result.status == "succeeded"
    assert play.scope["l"] == {"iterations": rounds, "broke": False, "exhausted": True}


@pytest.mark.claim("I53", "I77")
def test_an_infinite_loop_goes_past_max_iterations_and_hits_the_node_ceiling() -> None:
    play = Playbook(
        workflow(
            [START, loop("l", UNMET, maxIterations=2, infinite=True), END], edges("s next l next e")
        ),
        limits=RunBudget(max_node_executions=50),
    ).settle()
    assert play.result.status == "failed"
    assert "limit of 50 node executions" in play.result.error
    assert len(play.paths) == 50


@pytest.mark.claim("I53")
def test_nested_infinite_loops_hit_the_same_ceiling() -> None:
    inner = loop("i", UNMET, infinite=True)
    play = Playbook(
        workflow([START, loop("o", inner, infinite=True)], edges("s next o")),
        limits=RunBudget(max_node_executions=40),
    ).settle()
    assert play.result.status == "failed"
    assert "budget" in play.result.error


def test_an_inner_break_does_not_end_the_outer_loop() -> None:
    inner = loop("i", MET, maxIterations=5)
    play = Playbook(
        workflow([START, loop("o", inner, maxIterations=3), END], edges("s next o next e"))
    ).settle()
    assert play.scope["i"] == {"iterations": 1, "broke": True}
    assert play.scope["o"] == {"iterations": 3, "broke": False}
    assert play.result.status == "succeeded"


@pytest.mark.parametrize("last", ["parallel", "subworkflow", "branch"])
def test_a_body_may_end_in_any_node_and_still_repeats(last: str) -> None:
    child = workflow([START, END], edges("s next e"), id="child")
    bodies = {
        "parallel": node("p", "parallel", [sentinel("x", "a", "b"), sentinel("y", "a", "b")]),
        "subworkflow": node("p", "subworkflow", workflowId="child"),
        "branch": node("p", "branch", lhs="1", op="==", rhs="2"),
    }
    play = Playbook(
        workflow(
            [START, loop("l", bodies[last], maxIterations=3), agent("a"), END],
            edges("s next l next a next e"),
        ),
        child,
        answers={"a": SAID},
    ).settle()
    assert play.scope["l"] == {"iterations": 3, "broke": False}
    assert play.paths[-2:] == ["a", "e"]


def test_loops_in_parallel_branches_do_not_share_signals() -> None:
    one = loop("l1", sentinel("c1", "x", "x"), maxIterations=4)
    two = loop("l2", sentinel("c2", "x", "y"), maxIterations=4)
    play = Playbook(
        workflow([START, node("p", "parallel", [one, two]), END], edges("s next p all_done e"))
    ).settle()
    children = play.scope["p"]["children"]
    assert children["l1"]["outputs"]["l1"] == {"iterations": 1, "broke": True}
    assert children["l2"]["outputs"]["l2"] == {"iterations": 4, "broke": False, "exhausted": True}


def test_a_signal_wins_over_an_edge_on_the_same_handle() -> None:
    body = [sentinel("c", "x", "x"), agent("never")]
    play = Playbook(
        workflow(
            [START, loop("l", *body, maxIterations=2), END], edges("s next l next e", "c met never")
        )
    ).settle()
    assert play.scope["l"]["broke"] is True
    assert "l[1]/never" not in play.paths


def test_an_error_in_a_body_follows_its_edge_or_fails_the_run() -> None:
    with_edge = Playbook(
        workflow(
            [START, loop("l", agent("a"), agent("b"), maxIterations=2), END],
            edges("s next l next e", "a error b"),
        ),
        answers={"a": ("error", {}), "b": SAID},
    ).settle()
    assert with_edge.scope["l"]["iterations"] == 2
    without = Playbook(
        workflow([START, loop("l", agent("a"), maxIterations=2), END], edges("s next l next e")),
        answers={"a": ("error", {})},
    ).settle()
    assert without.result == RunFinished("failed", "step 'l[1]/a' failed: it broke", "l[1]/a")


def test_a_loop_with_an_error_edge_catches_what_fails_inside_it() -> None:
    inner = loop("i", agent("a"), maxIterations=3)
    play = Playbook(
        workflow(
            [START, loop("o", inner, maxIterations=3), agent("z"), END],
            edges("s next o next e", "o error z"),
        ),
        answers={"a": ("error", {}), "z": SAID},
    ).settle()
    assert play.paths == ["s", "o", "o[1]/i", "o[1]/i[1]/a", "z"]
    assert play.result.status == "succeeded"
    assert "it broke" in play.scope["o"]["errorMessage"]


def test_an_end_inside_nested_loops_ends_the_run_and_closes_the_loops() -> None:
    inner = loop("i", END, maxIterations=5)
    play = Playbook(
        workflow([START, loop("o", inner, maxIterations=5)], edges("s next o"))
    ).settle()
    assert play.result == RunFinished("succeeded")
    closed = [e.path for e in play.events if isinstance(e, StepFinished)]
    assert closed == ["o[1]/i", "o"]


def test_an_edge_may_leave_the_body_and_keeps_the_loop_rules() -> None:
    outside = agent("out")
    play = Playbook(
        workflow(
            [START, loop("l", agent("a"), maxIterations=2), outside, END],
            edges("s next l next e", "a next out"),
        ),
        answers={"a": SAID, "out": SAID},
    ).settle()
    assert play.paths == ["s", "l", "l[1]/a", "l[1]/out", "l[2]/a", "l[2]/out", "e"]


def test_an_edge_back_to_the_loop_around_it_is_stopped_at_the_depth_limit() -> None:
    play = Playbook(
        workflow([START, loop("l", agent("a"), maxIterations=2)], edges("s next l", "a next l")),
        answers={"a": SAID},
    ).settle()
    assert play.result.status == "failed"
    assert "nested deeper than 64" in play.result.error


def test_memory_does_not_grow_with_rounds() -> None:
    from infloop.engine.state import encode_state

    sizes = []
    for rounds in (10, 1000):
        play = Playbook(
            workflow(
                [START, loop("l", UNMET, maxIterations=rounds), agent("a")],
                edges("s next l next a"),
            )
        ).settle()
        sizes.append(len(encode_state(play.state)))
    assert sizes[1] - sizes[0] < 16


# -- parallels ------------------------------------------------------------------------------------


def parallel(*children: dict[str, Any], **config: Any) -> dict[str, Any]:
    return node("p", "parallel", list(children), **config)


OK: tuple[str, dict[str, Any]] = ("next", {"stdout": "ok"})
BAD: tuple[str, dict[str, Any]] = ("error", {})


@pytest.mark.parametrize(
    ("config", "answers", "handle", "statuses"),
    [
        ({"mode": "wait-all"}, {"a": OK, "b": OK, "c": OK}, "all_done", "sss"),
        ({"mode": "wait-all"}, {"a": OK, "b": BAD}, "error", "sfc"),
        (
            {"mode": "wait-all", "onError": "best-effort"},
            {"a": BAD, "b": OK, "c": OK},
            "error",
            "fss",
        ),
        ({"mode": "race"}, {"b": OK}, "first_done", " s "),
        ({"mode": "race"}, {"b": BAD}, "error", "cfc"),
        ({"mode": "race", "onError": "best-effort"}, {"a": BAD, "b": OK}, "first_done", "fsc"),
        (
            {"mode": "race", "onError": "best-effort"},
            {"a": BAD, "b": BAD, "c": BAD},
            "error",
            "fff",
        ),
        ({"mode": "quorum", "quorumN": 2}, {"a": OK, "b": OK}, "quorum_met", "ss "),
        ({"mode": "quorum", "quorumN": 2}, {"a": OK, "b": BAD}, "error", "sfc"),
        (
            {"mode": "quorum", "quorumN": 2, "onError": "best-effort"},
            {"a": OK, "b": BAD, "c": OK},
            "quorum_met",
            "sfs",
        ),
        (
            {"mode": "quorum", "quorumN": 2, "onError": "best-effort"},
            {"a": BAD, "b": BAD},
            "error",
            "ffc",
        ),
        ({"mode": "quorum", "quorumN": 3}, {"a": OK, "b": OK, "c": OK}, "quorum_met", "sss"),
    ],
)
def test_modes_and_error_policies(
    config: dict[str, Any], answers: dict[str, Any], handle: str, statuses: str
) -> None:
    tree = workflow(
        [START, parallel(agent("a"), agent("b"), agent("c"), **config)], edges("s next p")
    )
    play = Playbook(tree, answers=answers).settle()
    finished = play.events[-2]
    assert isinstance(finished, StepFinished)
    assert finished.handle == handle
    children = play.scope["p"]["children"]
    shown = "".join(children[root]["status"][0] if root in children else " " for root in "abc")
    assert shown == statuses
    assert play.result.status == ("failed" if handle == "error" else "succeeded")


def test_winners_are_named() -> None:
    three = [agent("a"), agent("b"), agent("c")]
    race = Playbook(
        workflow([START, parallel(*three, mode="race")], edges("s next p")), answers={"c": OK}
    ).settle()
    assert race.scope["p"]["winner"] == "c"
    quorum = Playbook(
        workflow([START, parallel(*three, mode="quorum", quorumN=2)], edges("s next p")),
        answers={"c": OK, "a": OK},
    ).settle()
    assert quorum.scope["p"]["winners"] == ["a", "c"]


def test_losers_are_interrupted_and_waited_for() -> None:
    play = Playbook(
        workflow(
            [START, parallel(agent("a"), agent("b"), mode="race"), END],
            edges("s next p first_done e"),
        ),
        answers={"a": OK},
    ).settle()
    assert play.interrupted == ["p{b}/b"]
    order = [e.path for e in play.events if isinstance(e, StepFinished)]
    assert order == ["p{a}/a", "p{b}/b", "p"]


def test_branches_do_not_see_each_other_and_nothing_is_hoisted() -> None:
    peek = node("peek", "branch", lhs="[{{a.stdout}}]", op="==", rhs="[]")
    play = Playbook(
        workflow([START, parallel(agent("a"), peek), END], edges("s next p all_done e")),
        answers={"a": OK},
    ).settle()
    assert play.scope["p"]["children"]["peek"]["outputs"]["peek"]["result"] is True
    assert "a" not in play.scope


def test_a_bare_branch_node_id_resolves_outside_when_it_is_unambiguous() -> None:
    after = node("after", "branch", lhs="{{a.stdout}}|{{inner.stdout}}", op="==", rhs="ok|deep")
    nested = node("q", "parallel", [agent("inner")])
    play = Playbook(
        workflow([START, parallel(agent("a"), nested), after], edges("s next p all_done after")),
        answers={"a": OK, "inner": ("next", {"stdout": "deep"})},
    ).settle()
    assert play.scope["after"]["result"] is True
    assert play.warnings == []


def test_a_bare_id_that_two_branches_produced_stays_missing() -> None:
    after = node("after", "branch", lhs="{{shared.stdout}}", op="==", rhs="")
    shared = agent("shared")
    play = Playbook(
        workflow(
            [START, parallel(agent("a"), agent("b"), shared), after],
            edges("s next p all_done after", "a next shared", "b next shared"),
        ),
        answers={"a": OK, "b": OK, "shared": OK},
    ).settle()
    assert play.warnings == ["shared.stdout"]


def test_outcomes_in_any_order_give_the_same_outputs() -> None:
    tree = workflow([START, parallel(agent("a"), agent("b"), agent("c"))], edges("s next p"))
    results = []
    for order in (["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]):
        play = Playbook(tree).settle()
        for name in order:
            play.finish(f"p{{{name}}}/{name}", "next", {"stdout": name})
        play.settle()
        results.append(play.scope["p"])
    assert results[0] == results[1] == results[2]
    assert results[0]["children"]["b"]["outputs"]["b"]["stdout"] == "b"


def test_an_empty_parallel_succeeds() -> None:
    play = Playbook(workflow([START, parallel(), END], edges("s next p all_done e"))).settle()
    assert play.result.status == "succeeded"
    assert play.scope["p"]["children"] == {}


def test_an_end_inside_a_branch_ends_that_branch_only() -> None:
    bad = node("bad", "end", outcome="failed")
    play = Playbook(
        workflow(
            [START, parallel(agent("a"), bad, agent("b"), onError="best-effort"), agent("z")],
            edges("s next p error z", "a next bad"),
        ),
        answers={"a": OK, "b": OK, "z": OK},
    ).settle()
    children = play.scope["p"]["children"]
    assert (children["a"]["status"], children["b"]["status"]) == ("failed", "succeeded")
    assert play.result.status == "succeeded"


# -- calls ----------------------------------------------------------------------------------------

CHILD = workflow(
    [
        START,
        node(
            "b",
            "branch",
            lhs="{{inputs.x}}|{{__inputs.x}}|{{inputs.n}}|{{globals.g}}|{{s.zzz}}",
            op="==",
            rhs="q",
        ),
        END,
    ],
    edges("s next b false e"),
    id="child",
    globals={"g": "child"},
    inputs=[{"name": "x", "type": "string"}, {"name": "n", "type": "number", "default": 4}],
)


def call(**config: Any) -> dict[str, Any]:
    return node("c", "subworkflow", **{"workflowId": "child", **config})


def test_a_called_workflow_gets_its_inputs_defaults_types_and_globals() -> None:
    play = Playbook(
        workflow(
            [
                START,
                call(inputs={"x": "{{inputs.q}}", "n": "7"}, outputs={"got": "b.lhs", "all": "b"}),
            ],
            edges("s next c"),
            globals={"g": "parent"},
        ),
        CHILD,
        inputs={"q": "Q"},
    ).settle()
    assert play.scope["c"]["got"] == "Q|Q|7|child|"
    assert play.scope["c"]["all"]["op"] == "=="
    assert play.scope["c"]["status"] == "succeeded"
    assert "b" not in play.scope
    assert [e.node for e in play.events if isinstance(e, StepPassed) and e.path == "c/b"] == ["c/b"]


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"inputs": {"x": "a", "n": "many"}}, "input 'n' must be a number"),
        ({"workflowId": "gone", "inputs": {}}, "workflow 'gone' was not found"),
    ],
)
def test_a_call_that_cannot_begin_leaves_by_error(config: dict[str, Any], reason: str) -> None:
    play = Playbook(workflow([START, call(**config)], edges("s next c")), CHILD).settle()
    assert play.result.status == "failed"
    assert reason in play.result.error
    assert play.scope["c"]["status"] == "failed"
    assert reason in play.scope["c"]["errorMessage"]


def test_an_input_that_a_call_does_not_pass_is_empty_unless_the_caller_is_strict() -> None:
    parts = [START, call(inputs={}, outputs={"got": "b.lhs"})], edges("s next c")
    play = Playbook(workflow(*parts), CHILD).settle()
    assert play.scope["c"]["got"] == "||4|child|"
    assert {e.missing_key for e in play.events if isinstance(e, TemplateWarning)} >= {"inputs.x"}
    strict = Playbook(workflow(*parts, strict=True), CHILD).settle()
    assert "input 'x' is required" in strict.result.error


def test_a_call_may_return_what_a_branch_inside_it_produced() -> None:
    child = workflow(
        [START, node("p", "parallel", [agent("a"), agent("b")])], edges("s next p"), id="child"
    )
    play = Playbook(
        workflow([START, call(outputs={"got": "a.stdout"})], edges("s next c")),
        child,
        answers={"c/a": ("next", {"stdout": "deep"}), "c/b": SAID},
    ).settle()
    assert play.scope["c"]["got"] == "deep"


def test_a_failing_call_says_which_step_inside_failed() -> None:
    child = workflow([START, agent("a")], edges("s next a"), id="child")
    play = Playbook(
        workflow([START, call()], edges("s next c")), child, answers={"c/a": BAD}
    ).settle()
    assert play.result.error == "step 'c' failed: step 'c/a' failed: it broke"


# -- templates ------------------------------------------------------------------------------------


@pytest.mark.claim("I78")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{inputs.s}}", "x"),
        ("{{ inputs.s }}|{{__inputs.s}}", "x|x"),
        ("{{inputs.n}} {{inputs.b}} {{inputs.f}}", "5 true 1.5"),
        ("{{inputs.list}}", "1,two,true"),
        ("{{inputs.list.1}} {{inputs.list.length}}", "two 3"),
        ("{{inputs.obj}}", '{"k":[1,{"z":null}]}'),
        ("{{inputs.rows}}", '[{"a":1}]'),
        ("{{globals.T}}", "{{inputs.s}}"),
        ("{{}} {{a b}} {{é}} {x}", "{{}} {{a b}} {{é}} {x}"),
        ("{{nope.x}}|{{inputs.zzz}}|{{inputs.s.length}}|{{globals.constructor}}", "|||"),
        ("$& $' $` \\1", "$& $' $` \\1"),
    ],
)
def test_values_as_text(text: str, expected: str) -> None:
    inputs = {
        "s": "x",
        "n": 5,
        "b": True,
        "f": 1.5,
        "list": [1, "two", True],
        "obj": {"k": [1, {"z": None}]},
        "rows": [{"a": 1}],
    }
    play = Playbook(
        workflow([START, agent("a", text)], edges("s next a"), globals={"T": "{{inputs.s}}"}),
        inputs=inputs,
        answers={"a": SAID},
    ).settle()
    started = next(e for e in play.events if isinstance(e, StepStarted))
    assert started.config["prompt"] == expected


def test_each_missing_reference_is_one_warning_before_the_step() -> None:
    play = Playbook(
        workflow([START, agent("a", "{{gone.x}} {{gone.y}}")], edges("s next a")),
        answers={"a": SAID},
    ).settle()
    assert play.warnings == ["gone.x", "gone.y"]
    kinds = [type(e).__name__ for e in play.events]
    assert kinds.index("TemplateWarning") < kinds.index("StepStarted")


def test_a_text_that_grows_past_the_limit_fails_its_step() -> None:
    big = "x" * (1 << 20)
    play = Playbook(
        workflow([START, agent("a", "{{inputs.big}}" * 20)], edges("s next a")), inputs={"big": big}
    ).settle()
    assert "grew past" in play.result.error


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("test {{i.v}} = ok", 'test "${VALUE_1}" = ok'),
        ('echo "got {{i.v}}"', 'echo "got ${VALUE_1}"'),
        ("echo 'got {{i.v}}'", "echo 'got '\"${VALUE_1}\"''"),
        ('echo "it\'s {{i.v}}"', 'echo "it\'s ${VALUE_1}"'),
        ('echo \\"{{i.v}}', 'echo \\""${VALUE_1}"'),
        ("a {{i.v}} b {{i.w}}", 'a "${VALUE_1}" b "${VALUE_2}"'),
    ],
)
def test_a_value_never_becomes_shell_text(line: str, expected: str) -> None:
    from infloop.engine.shellline import shell_line
    from infloop.model.template import Template

    class Values:
        def lookup(self, path: Any) -> Any:
            return "$(touch PWN); `id`"

    text, variables = shell_line(Template(line).pieces(), Values())
    assert text == expected
    assert set(variables.values()) == {"$(touch PWN); `id`"}


@pytest.mark.parametrize(
    "command",
    [
        {"cmd": 'rm -rf "/{{inputs.gone}}"'},
        {"cmd": "rm -rf /{{globals.gone}}"},
        {"cmd": "rm -rf '{{before.stdout}}/x'"},
        {"cmd": "rm -rf {{inputs.given.gone}}"},
        {"cmd": "rm -rf {{inputs.nothing}}"},
        {"cmd": 'rm -rf "/$X"', "env": {"X": "{{inputs.gone}}"}},
        {"cmd": "rm -rf {{inputs.given}}", "env": {"X": "a{{inputs.gone}}"}},
    ],
)
def test_a_command_whose_reference_has_no_value_is_not_run(command: Any) -> None:
    made = node("c", "condition", kind="command", command=command)
    inputs: Any = {"given": {"a": 1}, "nothing": None}
    play = Playbook(workflow([START, made], edges("s next c")), inputs=inputs).settle()
    assert play.result.status == "failed"
    assert "the command was not run: {{" in play.result.error
    assert "has no value" in play.result.error


def test_a_reference_that_is_not_one_word_fails_the_step_of_an_older_run() -> None:
    made = node("c", "condition", kind="command", command={"cmd": "echo $(find {{inputs.a}})"})
    play = Playbook(workflow([START, made], edges("s next c")), inputs={"a": "x"}).settle()
    assert "{{inputs.a}} is in a command substitution" in play.result.error


def test_a_shell_variable_never_takes_the_name_of_a_declared_one() -> None:
    made = node(
        "c",
        "condition",
        kind="command",
        command={"cmd": "test {{inputs.a}} = $VALUE_1", "env": {"VALUE_1": "mine"}},
    )
    play = Playbook(workflow([START, made], edges("s next c")), inputs={"a": "A"}).settle()
    ran: Any = play.waiting["c"].config["command"]
    assert ran["cmd"] == 'test "${VALUE_2}" = $VALUE_1'
    assert ran["env"] == {"VALUE_1": "mine", "VALUE_2": "A"}


def test_a_condition_without_a_text_looks_at_what_the_step_before_said() -> None:
    bare = node("c", "condition", kind="sentinel", sentinel={"pattern": "hello", "isRegex": False})
    play = Playbook(
        workflow([START, agent("a"), bare, END], edges("s next a next c met e")),
        answers={"a": SAID},
    ).settle()
    assert play.scope["c"]["met"] is True


def test_a_pattern_that_refers_to_nothing_is_an_error_and_matches_nothing() -> None:
    play = Playbook(
        workflow([START, sentinel("c", "{{gone.x}}", "anything"), END], edges("s next c met e"))
    ).settle()
    assert play.result.status == "failed"
    assert "'gone.x'" in play.result.error


@pytest.mark.parametrize(
    ("lhs", "op", "rhs", "handle"),
    [
        ("a", "==", "a", "true"),
        ("a", "==", "A", "false"),
        ("a", "!=", "b", "true"),
        ("abc", "contains", "b", "true"),
        ("abc", "contains", "", "true"),
        ("abc", "matches", "^a.c$", "true"),
        ("abc", "matches", "^b", "false"),
        ("abc", "matches", "(", "error"),
        ("abc", "matches", "(?=a)", "error"),
        ("a", "~", "a", "error"),
    ],
)
def test_branch_operators(lhs: str, op: str, rhs: str, handle: str) -> None:
    from infloop.engine.decide import branch

    assert branch({"lhs": lhs, "op": op, "rhs": rhs}).handle == handle


@pytest.mark.parametrize("pattern", ["(a+)+$", "(.*)*x", "^(([a-z])+.)+[A-Z]$"])
def test_a_pattern_that_explodes_elsewhere_is_linear_here(pattern: str) -> None:
    from infloop.engine.decide import sentinel as check

    config: Any = {
        "against": "a" * 100_000 + "!",
        "sentinel": {"pattern": pattern, "isRegex": True},
    }
    assert check(config).handle == "not_met"


# -- endings --------------------------------------------------------------------------------------


def test_a_stop_interrupts_every_running_step_and_is_always_cancelled() -> None:
    tree = workflow(
        [START, parallel(agent("a"), loop("l", agent("b"))), END], edges("s next p all_done e")
    )
    play = Playbook(tree).settle().stop()
    assert play.result.status == "cancelled"
    assert sorted(play.interrupted) == ["p{a}/a", "p{l}/l[1]/b"]


def test_a_stop_during_steps_without_effects_is_cancelled_too() -> None:
    play = Playbook(workflow([START, loop("l", UNMET, infinite=True)], edges("s next l")))
    for _ in range(20):
        command = play.queue.popleft()
        play.record(command.event)  # type: ignore[union-attr]
    play.stop()
    assert play.result.status == "cancelled"


@pytest.mark.claim("I46")
def test_the_node_ceiling_ends_parallel_branches_too() -> None:
    tree = workflow(
        [START, parallel(agent("a"), loop("l", UNMET, infinite=True))], edges("s next p")
    )
    play = Playbook(tree, limits=RunBudget(max_node_executions=30)).settle()
    assert play.result.status == "failed"
    assert play.interrupted == ["p{a}/a"]
    assert "INFLOOP_MAX_RUN_NODE_EXECUTIONS" in play.result.error


def test_the_ceiling_reached_while_branches_open_leaves_nothing_behind() -> None:
    tree = workflow([START, parallel(agent("a"), agent("b"), agent("c"))], edges("s next p"))
    play = Playbook(tree, limits=RunBudget(max_node_executions=3)).settle()
    assert play.result.status == "failed"


@pytest.mark.claim("I48")
def test_a_run_that_spends_more_than_its_limit_fails_before_its_next_step() -> None:
    tree = workflow([START, loop("l", agent("a"), infinite=True)], edges("s next l"))
    play = Playbook(
        tree,
        limits=RunBudget(0, 0, max_cost_usd=1.0),
        answers={"a": ("next", {"costUsd": 0.4, "stdout": ""})},
    ).settle()
    assert play.result.status == "failed"
    assert "spent $1.2000, more than its limit of $1.0000" in play.result.error
    assert play.paths.count("l[3]/a") == 1
    assert "l[4]/a" not in play.paths


@pytest.mark.parametrize(
    ("step", "handle"),
    [
        (node("n", "script", language="py", code="x"), "next"),
        (node("n", "condition", kind="command", command={"cmd": "x"}), "met"),
    ],
)
def test_only_what_asks_a_model_costs_money(step: dict[str, Any], handle: str) -> None:
    tree = workflow([START, step, agent("a"), END], edges(f"s next n {handle} a next e"))
    play = Playbook(
        tree,
        limits=RunBudget(max_cost_usd=1.0),
        answers={"n": (handle, {"costUsd": 5.0}), "a": ("next", {"costUsd": 1.0})},
    ).settle()
    assert play.result.status == "succeeded", play.result


@pytest.mark.claim("I47")
def test_the_duration_limit_is_checked_at_each_step() -> None:
    tree = workflow([START, loop("l", UNMET, infinite=True)], edges("s next l"))
    play = Playbook(tree, limits=RunBudget(0, 500), step_ms=10).settle()
    assert play.result.status == "failed"
    assert "limit of 500 ms" in play.result.error


def test_zero_disables_a_limit() -> None:
    tree = workflow([START, loop("l", UNMET, maxIterations=20_000), END], edges("s next l next e"))
    play = Playbook(tree, limits=RunBudget(0, 0), step_ms=10_000).settle()
    assert play.result.status == "succeeded"


def test_after_a_crash_only_unfinished_effects_are_asked_for_again() -> None:
    tree = workflow(
        [START, agent("a"), parallel(agent("b"), agent("c")), END],
        edges("s next a next p all_done e"),
    )
    play = Playbook(tree, answers={"a": SAID, "b": SAID}).settle()
    play.crash()
    again = [e for e in play.events if isinstance(e, StepStarted) and e.attempt > 1]
    assert [(e.path, e.attempt) for e in again] == [("p{c}/c", 2)]
    play.finish("p{c}/c", "next")
    assert play.settle().result.status == "succeeded"


def test_a_crash_at_any_event_gives_the_same_end() -> None:
    said = {"a": SAID, "b": OK, "c": BAD}
    tree = workflow(
        [
            START,
            loop(
                "l",
                agent("a"),
                parallel(agent("b"), agent("c"), onError="best-effort"),
                sentinel("x", "n", "y"),
                maxIterations=2,
            ),
            END,
        ],
        edges("s next l next e", "a next p", "p all_done x", "p error x"),
    )
    whole = Playbook(tree, answers=said).settle()
    for cut in range(1, len(whole.events)):
        play = Playbook(tree, answers=said)
        for event in whole.events[1:cut]:
            play.record(event)
        play.crash()
        assert play.result == whole.result
        assert play.scope == whole.scope


@pytest.mark.claim("I47")
@pytest.mark.parametrize(("more_ms", "status"), [(9_000, "succeeded"), (11_000, "failed")])
def test_time_before_a_resume_counts_for_the_duration(more_ms: int, status: str) -> None:
    limits = RunBudget(max_duration_ms=60_000)
    steps = [START, agent("a"), agent("b"), agent("c"), END]
    play = Playbook(
        workflow(steps, edges("s next a next b next c next e")), limits=limits, step_ms=0
    ).settle()
    for number, name in enumerate(("a", "b"), 2):  # twice: each part counts
        play.now += 25_000
        play.finish(name, "next", {"stdout": "x"})
        play.settle()
        play.record(RunFinished("failed", "its process died", interrupted=True))
        play.now += 3_600_000
        play.record(RunResumed(number, limits))
        play.crash()
    play.now += more_ms
    play.finish("c", "next", {"stdout": "x"})
    assert play.settle().result.status == status
    assert ("limit of 60000 ms" in play.result.error) == (status == "failed")


def test_time_until_a_crash_was_noticed_does_not_count() -> None:
    play = Playbook(
        workflow([START, agent("a"), agent("b")], edges("s next a next b")),
        limits=RunBudget(max_duration_ms=60_000),
    ).settle()
    play.now += 3_600_000
    play.record(RunFinished("failed", "its process died", interrupted=True))
    play.now += 3_600_000
    play.record(RunResumed(2, RunBudget(max_duration_ms=60_000)))
    play.crash()
    play.finish("a", "next", {"stdout": "x"})
    play.settle()
    play.finish("b", "next", {"stdout": "x"})
    assert play.settle().result.status == "succeeded"
