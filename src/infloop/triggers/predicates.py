"""Evaluates the conditions of a trigger and maps its inputs.

References are filled in once: braces inside a value are plain text. Inside a pattern a value is
quoted, so a sender cannot inject a pattern that matches everything.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from infloop.engine.decide import compare
from infloop.model.patterns import BadPattern, quote
from infloop.model.template import Template

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from infloop.model.template import Scope
    from infloop.model.trigger import Predicate


class Mapped(msgspec.Struct, frozen=True):
    """The input texts of a workflow, and the names of those that contain a reference.

    Text of the trigger's author is trusted; what a reference inserts is not.
    """

    values: dict[str, str]
    filled_in: tuple[str, ...]


def holds(predicates: Sequence[Predicate], scope: Scope) -> bool:
    """Tell whether all predicates hold; an invalid pattern matches nothing."""
    return all(_holds(predicate, scope) for predicate in predicates)


def _holds(predicate: Predicate, scope: Scope) -> bool:
    left = _render(_template(predicate.lhs), scope)
    if predicate.op != "matches":
        return compare(left, predicate.op, _render(_template(predicate.rhs), scope))
    pattern = _template(predicate.rhs).render(scope, _ignore, quote)
    try:
        return compare(left, "matches", pattern)
    except BadPattern:
        return False


def map_inputs(templates: Mapping[str, str], scope: Scope) -> Mapped:
    """Return the input texts; a missing reference is empty.

    Raises TooLong for a text over the limit.
    """
    parsed = {name: _template(text) for name, text in templates.items()}
    return Mapped(
        {name: _render(template, scope) for name, template in parsed.items()},
        tuple(name for name, template in parsed.items() if template.references),
    )


@lru_cache(maxsize=1024)
def _template(text: str) -> Template:
    """Parse a template; cached, because every request uses the same ones."""
    return Template(text)


def _render(template: Template, scope: Scope) -> str:
    return template.render(scope, _ignore)


def _ignore(reference: str) -> None:
    """Ignore a missing reference: requests need not contain everything."""
