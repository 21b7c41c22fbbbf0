"""Regular expressions from files or the network.

They run in RE2, which needs linear time. Look-around, back-references and very large repeats are
refused, because RE2 does not support them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re2

MAX_PATTERN_CHARS = 10_000
# JavaScript's way to write a character: \\u00e9. Our own fixed pattern: no nested repeats.
_UNICODE_ESCAPE = re.compile(r"(?<!\\)((?:\\\\)*)\\u([0-9A-Fa-f]{4})")  # noqa: TID251
_MAX_PROGRAM_BYTES = 4 << 20


class BadPattern(ValueError):
    """The text is not a pattern that can run in linear time; the message says why."""


def compile_pattern(pattern: str) -> re2._Regexp:
    """Return the compiled pattern or raise BadPattern."""
    import re2  # not above: most workflows have no pattern, and RE2 takes 8 ms to load

    if len(pattern) > MAX_PATTERN_CHARS:
        raise BadPattern(f"longer than {MAX_PATTERN_CHARS} characters")
    pattern = _UNICODE_ESCAPE.sub(_as_re2_escape, pattern)
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_PROGRAM_BYTES
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeError) as error:
        reason = error.args[0] if error.args else "not a valid pattern"
        raise BadPattern(reason.decode() if isinstance(reason, bytes) else str(reason)) from None


def _as_re2_escape(found: re.Match[str]) -> str:
    return f"{found[1]}\\x{{{found[2]}}}"


def search(pattern: str, text: str) -> int | None:
    """Return the index of the first match, or None; raise BadPattern."""
    match = compile_pattern(pattern).search(text)
    return None if match is None else int(match.start())


def quote(text: str) -> str:
    """Return a pattern that matches exactly `text`."""
    import re2

    return str(re2.escape(text))
