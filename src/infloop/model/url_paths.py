"""Paths of URLs, by decoded segments, and references to other URLs.

A server may decode a path, drop dots or merge slashes before it uses it. A path that it could read
differently than we do is ambiguous and refused.
"""

from __future__ import annotations

import re

from infloop.errors import EgressError
from infloop.model.hosts import quoted

# Our own fixed patterns: no nested repeats over the same characters.
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})", re.ASCII)  # noqa: TID251
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:", re.ASCII)  # noqa: TID251


def decoded_segments(path: str) -> tuple[str, ...]:
    """Return the decoded segments of a path that begins with a slash.

    A slash at the end makes no segment. Raises EgressError if the path is ambiguous: dot segments,
    encoded slashes or escapes, a backslash, control characters, bytes that are not UTF-8.
    """
    if not path.startswith("/"):
        raise EgressError(f"the path {quoted(path)} does not begin with a slash")
    return tuple(_decoded(segment, path) for segment in path.removesuffix("/").split("/")[1:])


def _decoded(segment: str, path: str) -> str:
    if "%" in _ESCAPE.sub("", segment):
        raise _ambiguous(path, "an escape that is not two hexadecimal digits")
    try:
        raw = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), segment).encode("latin-1")
        text = raw.decode()
    except UnicodeError:
        raise _ambiguous(path, "bytes that are not UTF-8") from None
    if _ESCAPE.search(text):
        raise _ambiguous(path, "an escape inside an escape")
    if "/" in text or "\\" in text:
        raise _ambiguous(path, "an encoded slash")
    if not text.isprintable():
        raise _ambiguous(path, "control characters")
    if text.partition(";")[0] in (".", ".."):
        raise _ambiguous(path, "dot segments")
    return text


def _ambiguous(path: str, why: str) -> EgressError:
    return EgressError(f"the path {quoted(path)} has {why}")


def is_below(segments: tuple[str, ...], prefix: tuple[str, ...]) -> bool:
    """Tell whether a path begins with all segments of a prefix."""
    return segments[: len(prefix)] == prefix


def joined_url(base: str, reference: str) -> str:
    """Return the URL that a reference in a response of `base` means, as RFC 3986 resolves it.

    `base` is a plain http(s) URL. The result is not checked.
    """
    if _SCHEME.match(reference):
        return reference
    scheme, _, rest = base.partition("://")
    if reference.startswith("//"):
        return f"{scheme}:{reference}"
    end = min(at for at in (rest.find("/"), rest.find("?"), len(rest)) if at >= 0)
    origin, path = f"{scheme}://{rest[:end]}", rest[end:].partition("?")[0] or "/"
    if reference.startswith("/"):
        return f"{origin}{_without_dots(reference)}"
    if reference.startswith("?") or not reference:
        return f"{origin}{path}{reference}"
    return f"{origin}{_without_dots(path[: path.rindex('/') + 1] + reference)}"


def _without_dots(target: str) -> str:
    path, question, query = target.partition("?")
    kept: list[str] = []
    *parents, last = path.split("/")[1:]
    for segment in parents:
        _append(kept, segment)
    if last in (".", ".."):
        _append(kept, last)
        last = ""
    return f"/{'/'.join([*kept, last])}{question}{query}"


def _append(kept: list[str], segment: str) -> None:
    if segment == "..":
        del kept[-1:]
    elif segment != ".":
        kept.append(segment)
