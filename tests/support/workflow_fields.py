"""Values for any field of a file, from its type."""

from __future__ import annotations

from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from hypothesis import strategies as st

from infloop.model.schema import FileModel
from infloop.model.texts import HostPattern
from infloop.model.workflow import Workspace

ODD_TEXTS = (
    "", " ", "~", "null", "true", "No", "10", "1.10", "0x1f", "1e5", ".inf", "2026-11-16", "12:30",
    "a: b", "- a", "# c", "a # b", "{{x.y}}", "{{ rounds.check.stdout }}", "[1]", "*x", "&x", "!x",
    "%x", "@x", "`x`", "'q'", '"q"', "it's", "back\\slash", "two\nlines", "two\nlines\n", "\n",
    "end\n\n", " lead\nline", "tab\there", "\ttab", "a\n\n  deep\n", "trail  \nline", "cr\r\nlf",
    "\u2028", "\x85", "\ufeff", "\x07", "\x7f", "é😀", "---", "...", "=", "<<", "10m", "$5",
    "a == b", "a contains b", "x" * 200,
)  # fmt: skip
TEXTS = st.one_of(
    st.sampled_from(ODD_TEXTS),
    st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9),
    st.text(alphabet="ab:#-{}'\"\n \\|>", max_size=12),
)
JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**40), 2**40),
        st.floats(allow_nan=False, allow_infinity=False), TEXTS,
    ),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)  # fmt: skip


def field_values(
    annotation: Any, fields: Callable[[type[FileModel]], st.SearchStrategy[Any]]
) -> st.SearchStrategy[Any]:
    """Values for a field of this type; `fields` draws the parts of a file."""
    if annotation == HostPattern:
        return st.sampled_from(["example.com", "*.example.com"])
    if annotation == Workspace:
        addresses = st.sampled_from(["https://example.com/a", "ssh://git@example.com/a", "/srv/a"])
        ref = st.sampled_from(["main", "v1.0", "HEAD", ""])
        return st.fixed_dictionaries({"repository": addresses}, optional={"ref": ref})
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return field_values(inner[0], fields)
    if origin in (Union, UnionType):
        return st.one_of(*(field_values(one, fields) for one in inner))
    if origin is Literal:
        return st.sampled_from(inner)
    if origin is tuple:
        return st.lists(field_values(inner[0], fields), max_size=2)
    if origin is dict:
        return st.dictionaries(TEXTS, field_values(inner[1], fields), max_size=2)
    if isinstance(annotation, type) and issubclass(annotation, FileModel):
        return fields(annotation)
    simple = {
        str: TEXTS,
        bool: st.booleans(),
        int: st.one_of(st.integers(-3, 10**9), st.sampled_from([0, 1000, 60_000, 5_400_000])),
        float: st.one_of(st.sampled_from([0.0, 5.0, 0.5]), st.floats(-9, 1e9)),
        type(None): st.none(),
    }
    return simple.get(annotation, JSON)
