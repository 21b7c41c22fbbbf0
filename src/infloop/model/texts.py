"""Validated texts for the fields of definitions: names, hosts, URLs.

Each validator returns the normalised text, or raises ValueError that says what to write instead.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Annotated

from infloop.model.names import FILE_NAME_RULE, is_file_name
from infloop.model.problems import short_repr
from infloop.model.type_checks import After

if TYPE_CHECKING:
    from collections.abc import Callable

# Our own fixed patterns: no nested repeats over the same characters.
_VARIABLES = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[A-Za-z][A-Za-z0-9_]*_\*", re.ASCII)  # noqa: TID251
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)  # noqa: TID251
_WORKER_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}", re.ASCII)  # noqa: TID251
_HEADER = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)  # noqa: TID251
_URL = re.compile(r"(https?://)([^\s/?#@\\]+)(/[^\s?#\\]*)?", re.ASCII)  # noqa: TID251
_PORT = re.compile(r":[0-9]{1,5}\Z", re.ASCII)  # noqa: TID251

LABEL_RULE = "write a letter or a digit, then up to 63 of letters, digits and . _ : / -"


def _variable_name(text: str) -> str:
    if not _VARIABLES.fullmatch(text):
        raise ValueError(f"{text!r} is neither a variable's name nor PREFIX_*")
    return text


def host_pattern(text: str) -> str:
    """Return a host pattern in lower case; raise ValueError for anything else.

    A pattern is a name, an address, or `*.name` for every name below it but not the name itself. A
    name may be followed by `:port`.
    """
    try:
        return str(ipaddress.ip_address(text.lower()))
    except ValueError:
        return _host_name(text)


def _host_name(text: str) -> str:
    port = _PORT.search(text)
    suffix = port[0] if port else ""
    name = text.lower().removesuffix(suffix).removeprefix("*.").removesuffix(".")
    labels = name.split(".")
    wild = text.startswith("*.")
    # A name whose last label is a number is another spelling of an address (127.1, 0x7f.1).
    numeric = labels[-1].isdecimal() or labels[-1].startswith("0x")
    if (
        len(name) > 253
        or numeric
        or (wild and len(labels) < 2)
        or not all(map(_LABEL.fullmatch, labels))
        or (suffix and not 1 <= int(suffix[1:]) <= 65_535)
    ):
        raise ValueError(
            f"{text!r} is not a host; write a name, *.name.tld or an address, "
            "without scheme or path"
        )
    return f"{'*.' if wild else ''}{name}{suffix}"


def _base_url(text: str) -> str:
    if not _URL.fullmatch(text):
        raise ValueError(
            f"{text!r} is not an http(s) address; write it without user, query and fragment"
        )
    return text.rstrip("/")


def _bare_host(text: str) -> str:
    match = _URL.fullmatch(text)
    if match is None or (match[3] or "/") != "/":
        raise ValueError(f"{text!r} is not http(s)://host without a path")
    return match[1] + _PORT.sub("", match[2])


def _endpoint(text: str) -> str:
    if not text.startswith("/"):
        raise ValueError(f"{text!r} must begin with a slash")
    return text


def _header_name(text: str) -> str:
    if not _HEADER.fullmatch(text.lower()):
        raise ValueError(f"{text!r} is not the name of an HTTP header")
    return text.lower()


def _path_below(text: str) -> str:
    parts = text.split("/")
    if not all(parts) or "." in parts or ".." in parts or "\0" in text:
        raise ValueError(f"{text!r} is not a path below your home; write .config/tool")
    return text


def _file_name(text: str) -> str:
    if not is_file_name(text):
        raise ValueError(f"{short_repr(text)} is not a plain file name; {FILE_NAME_RULE}")
    return text


def _label(text: str) -> str:
    if not is_label(text):
        raise ValueError(f"{short_repr(text)} is not a label; {LABEL_RULE}")
    return text


def is_label(text: str) -> bool:
    """Tell whether a text can be a label of a worker."""
    return bool(_WORKER_LABEL.fullmatch(text))


def unless_empty(rule: Callable[[str], str]) -> After:
    """Apply a rule to texts that are not empty; an empty one is reported as missing."""
    return After(lambda text: rule(text) if text else text)


FileName = Annotated[str, unless_empty(_file_name)]
BaseUrl = Annotated[str, unless_empty(_base_url)]
BareHost = Annotated[str, unless_empty(_bare_host)]
Endpoint = Annotated[str, unless_empty(_endpoint)]
HeaderName = Annotated[str, unless_empty(_header_name)]
PathBelow = Annotated[str, After(_path_below)]
VariableName = Annotated[str, After(_variable_name)]
HostPattern = Annotated[str, After(host_pattern)]
Label = Annotated[str, After(_label)]
