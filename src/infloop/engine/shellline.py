"""Turns references in a shell line into environment variables.

The value of a reference never becomes shell text. It is put into a variable, and the line refers to
that variable, quoted for its position:

    test {{a.b}} = ok          ->  test "${VALUE_1}" = ok
    echo "got {{a.b}}"         ->  echo "got ${VALUE_1}"
    echo 'got {{a.b}}'         ->  echo 'got '"${VALUE_1}"''

So `$(…)`, backticks, quotes, semicolons and newlines in a value are only text. The shell expands a
variable once. If the scan below misjudges a position (for example in a here-document), the worst
result is a wrong word, never a command.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from infloop.model.template import Missing
from infloop.model.values import as_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from infloop.model.template import Scope


def shell_line(
    pieces: Sequence[str | tuple[str, ...]],
    scope: Scope,
    missing: Callable[[str], None],
    taken: Collection[str] = (),
) -> tuple[str, dict[str, str]]:
    """Return the line, and the variables that it uses; their names are not in `taken`."""
    names = (name for n in count(1) if (name := f"VALUE_{n}") not in taken)
    line: list[str] = []
    variables: dict[str, str] = {}
    quote: str = ""
    for piece in pieces:
        if isinstance(piece, str):
            line.append(piece)
            quote = _quote_after(piece, quote)
            continue
        value = scope.lookup(piece)
        if isinstance(value, Missing):
            missing(".".join(piece))
            value = ""
        name = next(names)
        variables[name] = as_text(value)
        line.append(_refer(name, quote))
    return "".join(line), variables


def _refer(name: str, quote: str) -> str:
    if quote == '"':
        return f"${{{name}}}"
    if quote == "'":
        return f"'\"${{{name}}}\"'"
    return f'"${{{name}}}"'


def _quote_after(text: str, quote: str) -> str:
    """Return the open quote at the end of `text`, if `quote` was open at its start."""
    escaped = False
    for char in text:
        if escaped:
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = True
        elif quote:
            if char == quote:
                quote = ""
        elif char == "'" or char == '"':
            quote = char
    return quote
