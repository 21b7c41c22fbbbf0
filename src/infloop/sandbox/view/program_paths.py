"""What must be visible for a child's programs to run, beyond the system's own directories.

Interpreters and tools are often installed elsewhere: below a home, in a virtual environment, under
/opt. They are found from what the child is given: its program, with what that is a link to and the
interpreter its first line names, and the directories of its PATH.

A directory of programs counts with the installation around it where there plainly is one (a
virtual environment, a Python, a Node with its modules, …), and else alone: the directory above
`~/bin` is a home. Nothing here ever names a home or a directory above one.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_BINARIES = frozenset({"bin", "sbin", "shims", ".bin"})
_SIGNS_OF_AN_INSTALLATION = (
    "pyvenv.cfg",
    "conda-meta",
    "lib/node_modules",
    "include/node",
    "lib/rustlib",
    "pkg/tool",
    "Cellar",
    "versions",
    "installs",
)
_CERTIFICATES = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    *("NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"),
)
_MAX_LINKS = 16
_MAX_FIRST_LINE = 256


def needed_paths(
    program: str, env: Mapping[str, str], homes: Collection[str], writable: Collection[str] = ()
) -> list[str]:
    """Return the files and directories that `program` and the programs on PATH live in.

    `homes` are never among them, nor what they are in. What lies in a `writable` directory has no
    say: a child could plant a link or a first line there that names whatever it wants to see.
    """
    search = env.get("PATH", os.defpath).split(os.pathsep)
    search = [each for each in search if not _lies_in(each, writable)]
    found = [*_around_program(program, search, writable, depth=0)]
    for directory in search:
        if directory.startswith("/"):
            found += _around(directory) if _holds_programs(directory) else [directory]
    found += [path for name in _CERTIFICATES if (path := env.get(name, "")).startswith("/")]
    return [
        path
        for path in dict.fromkeys(found)
        if os.path.exists(path) and not _holds_any(path, homes)  # noqa: PTH110  (every spawn)
    ]


def _around_program(
    program: str, search: list[str], writable: Collection[str], depth: int
) -> Iterator[str]:
    """Yield where a program is, link by link, and then where its interpreter is."""
    for path in _links(program):
        if _lies_in(path, writable):
            return
        directory = os.path.dirname(path)  # noqa: PTH120
        yield from _around(directory) if _holds_programs(directory) else [path]
        if module := _node_modules(path):
            yield module
    if depth < _MAX_LINKS:
        interpreter = _interpreter(program, search)
        if interpreter:
            yield from _around_program(interpreter, search, writable, depth + 1)


def _links(path: str) -> Iterator[str]:
    """Yield a path and everything it is a link to, up to the file itself."""
    for _ in range(_MAX_LINKS):
        yield path
        try:
            target = os.readlink(path)  # noqa: PTH115
        except OSError:
            break
        path = os.path.normpath(os.path.join(os.path.dirname(path), target))  # noqa: PTH118, PTH120
    yield os.path.realpath(path)


def _around(directory: str) -> list[str]:
    """Return the installation that a directory of programs belongs to, or the directory alone."""
    prefix, name = os.path.split(directory)
    if name == ".bin":
        return [prefix]
    if not _is_installation(prefix):
        return [directory]
    if not os.path.exists(f"{prefix}/pyvenv.cfg"):  # noqa: PTH110
        return [prefix]
    python = f"{directory}/python"
    bases = [os.path.dirname(os.path.dirname(link)) for link in _links(python)]  # noqa: PTH120
    return list(dict.fromkeys([prefix, *(base for base in bases if _is_installation(base))]))


def _holds_programs(directory: str) -> bool:
    return os.path.basename(directory) in _BINARIES  # noqa: PTH119


def _is_installation(prefix: str) -> bool:
    if any(os.path.exists(f"{prefix}/{sign}") for sign in _SIGNS_OF_AN_INSTALLATION):  # noqa: PTH110
        return True
    try:
        return any(name.startswith("python3.") for name in os.listdir(f"{prefix}/lib"))  # noqa: PTH208
    except OSError:
        return False


def _node_modules(path: str) -> str:
    """Return the outermost `node_modules` that holds the path, where packages find each other."""
    before, mark, _ = path.partition("/node_modules/")
    return f"{before}/node_modules" if mark else ""


def _interpreter(program: str, search: list[str]) -> str:
    """Return the program that a script's first line names."""
    try:
        with open(program, "rb") as file:  # noqa: PTH123
            line = file.readline(_MAX_FIRST_LINE)
    except OSError:
        return ""
    words = os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []
    if not words:
        return ""
    if os.path.basename(words[0]) != "env":  # noqa: PTH119
        return words[0]
    name = next((word for word in words[1:] if not word.startswith("-") and "=" not in word), "")
    places = (f"{directory}/{name}" for directory in search if directory.startswith("/"))
    return next((place for place in places if os.access(place, os.X_OK)), "")


def _lies_in(path: str, places: Collection[str]) -> bool:
    """Return whether a path, or anything on the way to what it means, lies in one of the places."""
    return any(
        way == place or way.startswith(f"{place}/") for way in _ways(path) for place in places
    )


def _ways(path: str) -> Iterator[str]:
    """Yield every path that is looked at when this one is followed, link after link."""
    at, ahead = "", path.split("/")[::-1]
    links = 0
    while ahead and links < _MAX_LINKS:
        name = ahead.pop()
        if name in ("", "."):
            continue
        at = at.rpartition("/")[0] if name == ".." else f"{at}/{name}"
        yield at
        with contextlib.suppress(OSError):
            target = os.readlink(at)  # noqa: PTH115
            links += 1
            ahead += target.split("/")[::-1]
            at = "" if target.startswith("/") else at.rpartition("/")[0]


def _holds_any(path: str, homes: Collection[str]) -> bool:
    real = os.path.realpath(path)
    return any(home == real or home.startswith(real.rstrip("/") + "/") for home in homes)
