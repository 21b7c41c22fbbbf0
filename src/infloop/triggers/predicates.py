"""What a trigger demands of a request, and what it makes of it.

Every text may hold `{{references}}`; they are filled in once, and a value that holds braces itself
is only text. Inside a pattern a value stands for itself: whoever sends a request cannot bring a
pattern along that matches everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from infloop.engine.decide import compare
from infloop.model.patterns import BadPattern, quote
from infloop.model.template import Template

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from infloop.model.template import Scope
    from infloop.model.trigger import Predicate


@dataclass(frozen=True, slots=True)
class Mapped:
    """The texts that a trigger gives to a workflow, and which of them hold something from outside.

    What a trigger's author wrote is known; whatever a reference brought in is not.
    """

    values: dict[str, str]
    filled_in: tuple[str, ...]


def holds(predicates: Sequence[Predicate], scope: Scope) -> bool:
    """Say whether all predicates hold; none always do. A bad pattern matches nothing."""
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
    """Return the input texts; a reference that resolves to nothing is empty.

    Raises TooLong when a text grows past all bounds.
    """
    parsed = {name: _template(text) for name, text in templates.items()}
    return Mapped(
        {name: _render(template, scope) for name, template in parsed.items()},
        tuple(name for name, template in parsed.items() if template.references),
    )


@lru_cache(maxsize=1024)
def _template(text: str) -> Template:
    """Return a text of a trigger's author, ready to fill in: every request asks for the same."""
    return Template(text)


def _render(template: Template, scope: Scope) -> str:
    return template.render(scope, _ignore)


def _ignore(reference: str) -> None:
    """A request need not hold everything that a template refers to."""
