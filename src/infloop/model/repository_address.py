"""Addresses of git repositories and names in them, as a workflow may write them.

An address is one of three forms, each with one protocol of git:

    https://host[:port]/path          https
    ssh://[user@]host[:port]/path     ssh
    /path/of/a/repository             file, on the machine that starts the run

Everything else is refused: other schemes, helpers (`ext::`), passwords, `..`, escapes, spaces and
control characters, names that begin with a dash. A message never repeats an address that may hold
a password.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, NamedTuple, TypeAlias

from infloop.errors import EgressError
from infloop.model.hosts import canonical_host
from infloop.model.problems import short_repr
from infloop.model.texts import unless_empty

Protocol: TypeAlias = Literal["https", "ssh", "file"]

HEAD = "HEAD"
"""The ref that means the repository's default branch."""
_LONGEST = 1000
_LONGEST_REF = 200

# Our own fixed patterns: no nested repeats over the same characters.
_REMOTE = re.compile(  # noqa: TID251
    r"(https|ssh)://(?:([A-Za-z0-9_][A-Za-z0-9._-]*)@)?([A-Za-z0-9.-]+)(?::([0-9]{1,5}))?(/.+)",
    re.ASCII | re.IGNORECASE,
)
_PATH = re.compile(r"[A-Za-z0-9._~+@/-]+", re.ASCII)  # noqa: TID251
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+@#=-]*", re.ASCII)  # noqa: TID251
_CREDENTIAL = re.compile(r"//[^/]*:[^/]*@|^https?://[^/]*@", re.ASCII | re.IGNORECASE)  # noqa: TID251


class RepositoryAddress(NamedTuple):
    """A repository: the one protocol that reaches it, and its address in canonical form."""

    protocol: Protocol
    url: str


def parse_repository(text: str) -> RepositoryAddress:
    """Return the address in canonical form; raise ValueError that says what to write instead."""
    if _CREDENTIAL.search(text):
        raise ValueError(
            "a repository's address must not hold a user or password; use an ssh key or a "
            "credential helper of the machine (INFLOOP_REPOSITORY_CREDENTIAL_HELPER)"
        )
    if len(text) > _LONGEST:
        raise ValueError(f"an address of a repository has at most {_LONGEST} characters")
    if text.startswith("/"):
        return RepositoryAddress("file", _checked_path(text, text))
    if remote := _REMOTE.fullmatch(text):
        scheme, user, host, port, path = remote.groups()
        return _remote(text, scheme.lower(), user, host, port, path)
    raise ValueError(
        f"{_shown(text)} is not the address of a repository; write https://host/path, "
        "ssh://user@host/path, or the full path of a repository on the machine"
    )


def _shown(text: str) -> str:
    """Return an address for a message; what stands before an @ could be a password."""
    return "this" if "@" in text else short_repr(text)


def _remote(
    text: str, scheme: str, user: str | None, host: str, port: str | None, path: str
) -> RepositoryAddress:
    try:
        host = canonical_host(host)
    except EgressError as error:
        raise ValueError(str(error)) from None
    if port is not None and not 1 <= int(port) <= 65_535:
        raise ValueError(f"{_shown(text)} has no valid port")
    before = f"{user}@" if user else ""
    after = f":{int(port)}" if port else ""
    where = f"{scheme}://{before}{host}{after}{_checked_path(text, path)}"
    return RepositoryAddress("https" if scheme == "https" else "ssh", where)


def _checked_path(text: str, path: str) -> str:
    names = path.split("/")[1:]
    if names and names[-1] == "":
        names.pop()
    if not names or not _PATH.fullmatch(path):
        raise ValueError(
            f"{_shown(text)} has no plain path: letters, digits and ._~+@/- are allowed"
        )
    if any(name in ("", ".", "..") or name.startswith("-") for name in names):
        raise ValueError(f"{_shown(text)} must not have `..`, `//` or a name with `-` first")
    return "/" + "/".join(names)


def check_ref(text: str) -> str:
    """Return the name of a branch, a tag or a commit; raise ValueError for anything else."""
    names = text.split("/")
    odd = any(
        not name or name.startswith((".", "-")) or name.endswith((".", ".lock")) for name in names
    )
    if (
        len(text) > _LONGEST_REF
        or not _REF.fullmatch(text)
        or odd
        or ".." in text
        or "@{" in text
        or text == "@"
        or (names[0] == "refs" and (names[1:2] not in (["heads"], ["tags"]) or len(names) < 3))
    ):
        raise ValueError(f"{short_repr(text)} is not the name of a branch, a tag or a commit")
    return text


def is_prefix(text: str) -> bool:
    """Say whether addresses can begin with `text`: at least a host or a directory."""
    return _base(text) is not None


def is_inside(address: RepositoryAddress, prefix: str) -> bool:
    """Say whether an address is `prefix` or below it, by whole names; False for a bad prefix."""
    base = _base(prefix)
    return base is not None and (address.url == base or address.url.startswith(f"{base}/"))


def _base(prefix: str) -> str | None:
    try:
        return parse_repository(f"{prefix.rstrip('/')}/x").url.removesuffix("/x") or None
    except ValueError:
        return None


Repository = Annotated[str, unless_empty(lambda text: parse_repository(text).url)]
Ref = Annotated[str, unless_empty(check_ref)]
