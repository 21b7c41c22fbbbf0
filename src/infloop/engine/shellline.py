"""Turns references in a shell line into environment variables.

The value of a reference never becomes shell text. It is put into a variable, and the line refers to
that variable, quoted for its position:

    test {{a.b}} = ok          ->  test "${VALUE_1}" = ok
    echo "got {{a.b}}"         ->  echo "got ${VALUE_1}"
    echo 'got {{a.b}}'         ->  echo 'got '"${VALUE_1}"''

So `$(…)`, backticks, quotes, semicolons and newlines in a value are only text, and the value is one
word. A reference stands only where that holds (see `infloop.model.shell_references`), and its value
must exist: an empty text in its place could name another file.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from infloop.model.shell_references import reference_positions
from infloop.model.template import Missing
from infloop.model.values import as_text

if TYPE_CHECKING:
    from collections.abc import Collection

    from infloop.model.shell_references import Quote
    from infloop.model.template import Scope


class UnusableReference(ValueError):
    """A reference in a shell line has no value, or may not stand where it is."""


def shell_line(
    pieces: tuple[str | tuple[str, ...], ...], scope: Scope, taken: Collection[str] = ()
) -> tuple[str, dict[str, str]]:
    """Return the line, and the variables that it uses; their names are not in `taken`.

    Raises UnusableReference.
    """
    text = "".join(piece for piece in pieces if isinstance(piece, str))
    names = (f"VALUE_{n}" for n in count(1))
    free_names = (name for name in names if name not in taken and name not in text)
    positions = iter(reference_positions(pieces))
    line: list[str] = []
    variables: dict[str, str] = {}
    for piece in pieces:
        if isinstance(piece, str):
            line.append(piece)
            continue
        position, name = next(positions), next(free_names)
        if position.problem:
            raise UnusableReference(f"{_shown(piece)} {position.problem}")
        value = scope.lookup(piece)
        if isinstance(value, Missing):
            raise UnusableReference(f"{_shown(piece)} has no value")
        variables[name] = as_text(value)
        line.append(_refer(name, position.quote))
    return "".join(line), variables


def _shown(reference: tuple[str, ...]) -> str:
    return f"{{{{{'.'.join(reference)}}}}}"


def _refer(name: str, quote: Quote) -> str:
    if quote == '"':
        return f"${{{name}}}"
    if quote == "'":
        return f"'\"${{{name}}}\"'"
    return f'"${{{name}}}"'
