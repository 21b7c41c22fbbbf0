"""References in texts: what is one, what is literal text, and how to write braces."""

from __future__ import annotations

from typing import Any

import pytest

from infloop.model.patterns import search
from infloop.model.template import MISSING, Missing, Template
from infloop.model.values import JsonValue, as_text


class Values:
    def lookup(self, path: object) -> JsonValue | Missing:
        return "VALUE" if path == ("a", "b") else MISSING


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("{{a.b}}", "VALUE"),
        ("x{{ a.b }}y{{a.b}}", "xVALUEyVALUE"),
        ("${{ a.b }}", "${{ a.b }}"),
        ("${{ a.b }} {{a.b}}", "${{ a.b }} VALUE"),
        ("\\{{a.b}}", "{{a.b}}"),
        ("\\{{a.b}} {{a.b}} \\{{ a.b }}", "{{a.b}} VALUE {{ a.b }}"),
        ("\\{{not a path!}}", "\\{{not a path!}}"),
        ("{{not a path!}}", "{{not a path!}}"),
        ("{{gone.x}}", ""),
    ],
)
def test_text(text: str, rendered: str) -> None:
    assert Template(text).render(Values(), lambda _: None) == rendered


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"caf\u00e9", "a café", 2),
        (r"[\u0400-\u04ff]+", "abc д", 4),
        (r"\\u00e9", r"x\u00e9", 1),
        (r"\u00e9", "e", None),
    ],
)
def test_patterns_take_the_escapes_of_javascript(
    pattern: str, text: str, found: int | None
) -> None:
    assert search(pattern, text) == found


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (-1.0, "-1"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (-1.5e300, "-1.5e+300"),
        (1.2345678901234567e20, "123456789012345670000"),
        (0.000001, "0.000001"),
        (1e-7, "1e-7"),
        (1.25e-9, "1.25e-9"),
        (5e-324, "5e-324"),
        (2**64 - 1, "18446744073709551615"),
        (-(2**63), "-9223372036854775808"),
        (True, "true"),
        (False, "false"),
        (None, ""),
        ([1.0, None, True, "x"], "1,,true,x"),
        (
            {"a": 1.0, "b": [1e21, -0.0, None], "c": {"d": "\u00e9\n"}},
            '{"a":1,"b":[1e+21,0,null],"c":{"d":"\u00e9\\n"}}',
        ),
        ([[1.0], {}], "[[1],{}]"),
    ],
)
def test_values_are_text_as_javascript_and_json_write_them(value: Any, text: str) -> None:
    assert as_text(value) == text
