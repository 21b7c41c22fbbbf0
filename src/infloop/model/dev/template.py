"""`{{ key }}` in a message or a value. A value is inserted as it is and never expanded again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# Our own fixed pattern: linear, no nested repeats.
_REFERENCE = re.compile(r"\{\{ *([A-Za-z0-9_.-]+) *\}\}", re.ASCII)  # noqa: TID251


def has_references(template: str) -> bool:
    """Tell whether a text takes values of the state."""
    return _REFERENCE.search(template) is not None


def render(template: str, state: Mapping[str, object]) -> str:
    """Return the text; a key that is missing or holds no text becomes empty."""

    def value(found: re.Match[str]) -> str:
        text = state.get(found[1])
        return text if isinstance(text, str) else ""

    return _REFERENCE.sub(value, template)
