"""What a trigger demands of a request, and what it makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from infloop.model.inputs import InputError
from infloop.model.nodes import StartNode
from infloop.model.template import MISSING
from infloop.model.trigger import Predicate, Trigger
from infloop.model.workflow import InputSpec, Workflow
from infloop.triggers.firing import prepare
from infloop.triggers.payload import Values, request_values
from infloop.triggers.predicates import holds, map_inputs

SCOPE = Values(
    {
        "headers": {"x-kind": "push"},
        "body": {
            "action": "opened",
            "number": 7,
            "draft": False,
            "nothing": None,
            "labels": ["bug", "urgent"],
            "user": {"login": "ada"},
            "dot": "a.c",
            "braces": "{{body.action}}",
            "star": ".*",
            "empty": "",
        },
    }
)

# lhs, op, rhs -> whether it holds
COMPARED: list[tuple[str, str, str, bool]] = [
    ("{{body.action}}", "==", "opened", True),
    ("{{body.action}}", "==", "Opened", False),
    ("{{body.action}}", "==", "opened ", False),
    ("{{body.action}}", "!=", "closed", True),
    ("{{body.action}}", "!=", "opened", False),
    ("{{body.action}}", "contains", "pen", True),
    ("{{body.action}}", "contains", "", True),
    ("{{body.empty}}", "contains", "x", False),
    ("{{body.action}}", "matches", "^open(ed)?$", True),
    ("{{body.action}}", "matches", "^pen", False),
    ("{{body.number}}", "==", "7", True),
    ("{{body.draft}}", "==", "false", True),
    ("{{body.labels}}", "==", "bug,urgent", True),
    ("{{body.labels.1}}", "==", "urgent", True),
    ("{{body.labels.length}}", "==", "2", True),
    ("{{body.labels.2}}", "==", "", True),
    ("{{body.user}}", "contains", '"login":"ada"', True),
    ("{{body.user.login}}/{{body.number}}", "==", "ada/7", True),
    ("{{headers.x-kind}}", "==", "push", True),
    ("{{body.nothing}}", "==", "", True),
    ("{{body.missing.deep}}", "==", "", True),
    ("{{body.missing}}", "!=", "", False),
    ("{{globals.x}}", "==", "", True),
    ("{{body.action.length}}", "==", "", True),
    ("{{body.__class__}}", "==", "", True),
    ("{{body.braces}}", "==", "{{body.action}}", False),
    ("{{body.braces}}", "contains", "{{", True),
    ("literal", "==", "literal", True),
    ("", "==", "", True),
    # A pattern that cannot run in linear time, or is none, matches nothing.
    ("aa", "matches", r"(a)\1", False),
    ("ab", "matches", "a(?=b)", False),
    ("a", "matches", "(", False),
    ("a", "matches", "a{1000}{1000}", False),
    ("a", "matches", "a" * 20_000, False),
    ("a" * 100_000, "matches", "(a+)+$", True),
    ("a" * 100_000 + "!", "matches", "(a+)+$", False),
    # A value inside a pattern stands for itself.
    ("abc", "matches", "^{{body.dot}}$", False),
    ("a.c", "matches", "^{{body.dot}}$", True),
    ("anything", "matches", "{{body.star}}", False),
]


@pytest.mark.parametrize(("lhs", "op", "rhs", "expected"), COMPARED)
def test_a_predicate_holds_or_not(lhs: str, op: Any, rhs: str, expected: bool) -> None:
    assert holds([Predicate(lhs=lhs, op=op, rhs=rhs)], SCOPE) is expected


def test_all_must_hold_and_none_always_do() -> None:
    yes = Predicate(lhs="a", op="==", rhs="a")
    no = Predicate(lhs="a", op="==", rhs="b")
    assert holds([], SCOPE)
    assert holds([yes, yes], SCOPE)
    assert not holds([yes, no], SCOPE)


def test_a_value_is_never_expanded_again() -> None:
    mapped = map_inputs({"a": "{{body.braces}}", "b": "{{body.{{body.action}}}}"}, SCOPE)
    assert mapped.values == {"a": "{{body.action}}", "b": "{{body.opened}}"}


def test_only_what_a_reference_brought_in_is_from_outside() -> None:
    mapped = map_inputs({"a": "fixed", "b": "x{{body.action}}", "c": "{{ no reference"}, SCOPE)
    assert mapped.filled_in == ("b",)


def workflow(*specs: dict[str, Any]) -> Workflow:
    return Workflow(
        id="w",
        name="w",
        nodes=(StartNode(id="s"),),
        inputs=tuple(InputSpec(**one) for one in specs),
    )


def trigger(**inputs: str) -> Trigger:
    return Trigger(id="a" * 16, enabled=True, workflow_id="w", inputs=inputs)


# type, template -> value, or what was expected and given
COERCED: list[tuple[str, str, Any]] = [
    ("number", "{{body.number}}", 7),
    ("number", " 1.5 ", 1.5),
    ("number", "1e3", 1000),
    ("number", "{{body.action}}", ("number", "string")),
    ("number", "", ("number", "string")),
    ("number", "inf", ("number", "string")),
    ("number", "nan", ("number", "string")),
    ("number", "1_000", ("number", "string")),
    ("boolean", "{{body.draft}}", False),
    ("boolean", "TRUE", True),
    ("boolean", "1", ("boolean", "string")),
    ("boolean", "{{body.missing}}", ("boolean", "string")),
    ("string", "{{body.number}}", "7"),
    ("text", "{{body.missing}}", ""),
]


@pytest.mark.parametrize(("kind", "template", "expected"), COERCED)
def test_a_text_is_brought_to_the_type_of_the_input(
    kind: str, template: str, expected: Any
) -> None:
    made = workflow({"name": "x", "type": kind, "default": None})
    if isinstance(expected, tuple):
        with pytest.raises(InputError) as caught:
            prepare(trigger(x=template), made, SCOPE)
        assert (caught.value.expected, caught.value.got) == expected
        return
    firing = prepare(trigger(x=template), made, SCOPE)
    assert firing is not None
    assert firing.inputs == {"x": expected}
    assert type(firing.inputs["x"]) is type(expected)


def test_an_input_that_is_not_mapped_has_its_default_or_is_missing() -> None:
    firing = prepare(trigger(), workflow({"name": "x", "type": "string", "default": "d"}), SCOPE)
    assert firing is not None
    assert firing.inputs == {"x": "d"}
    with pytest.raises(InputError, match="'x' is required"):
        prepare(trigger(), workflow({"name": "x", "type": "string"}), SCOPE)


def test_a_mapped_input_that_resolves_to_nothing_is_empty_and_not_its_default() -> None:
    made = workflow({"name": "x", "type": "string", "default": "d"})
    firing = prepare(trigger(x="{{body.missing}}"), made, SCOPE)
    assert firing is not None
    assert firing.inputs == {"x": ""}


def test_a_run_does_not_name_the_address_of_its_trigger() -> None:
    """The address is a credential, and the cause of a run is in logs and exports."""
    firing = prepare(trigger(), workflow(), SCOPE)
    assert firing is not None
    assert firing.cause.detail == "w webhook"
    assert trigger().id not in str(firing.cause)


def test_an_input_that_the_workflow_does_not_have_is_left_out() -> None:
    made = workflow({"name": "x", "type": "string", "default": "d"})
    firing = prepare(trigger(y="{{body.action}}"), made, SCOPE)
    assert firing is not None
    assert firing.inputs == {"x": "d"}
    assert firing.cause.untrusted == ()


def test_a_header_that_is_there_twice_is_joined_and_of_a_query_the_last_counts() -> None:
    scope = request_values((("X-A", "1"), ("x-a", "2")), (("q", "1"), ("q", "2")), {})
    assert scope.lookup(("headers", "x-a")) == "1, 2"
    assert scope.lookup(("query", "q")) == "2"
    assert scope.lookup(("body", "x")) is MISSING
