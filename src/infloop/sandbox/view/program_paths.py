"""Finds what must be visible for a child's programs to run, outside the system's own directories.

Interpreters and tools are often installed in a home, in a virtual environment or under /opt. They
are found from the child's program, the links it is reached by, the interpreter in its first line,
and the directories of its PATH.

A directory of programs is shown with the installation around it if there clearly is one (a virtual
environment, a Python, a Node with its modules, …). Otherwise it is shown alone: the directory above
`~/bin` is a home. A home, or a directory above one, is never returned.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_PROGRAM_DIRECTORIES = frozenset({"bin", "sbin", "shims", ".bin"})
_INSTALLATION_MARKERS = (
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
_CERTIFICATE_VARIABLES = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    *("NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"),
)
_MAX_LINKS = 16
_MAX_FIRST_LINE = 256


def needed_paths(
    program: str, env: Mapping[str, str], homes: Collection[str], writable: Collection[str] = ()
) -> list[str]:
    """Return the files and directories of `program` and of the programs on PATH.

    `homes` and the directories above them are never among them. Links and scripts in a `writable`
    directory are ignored: a child could create one there that names what it wants to see.
    """
    search = env.get("PATH", os.defpath).split(os.pathsep)
    search = [each for each in search if not _passes_through(each, writable)]
    found = [*_program_paths(program, search, writable, depth=0)]
    for directory in search:
        if directory.startswith("/"):
            found += _installation(directory) if _is_program_directory(directory) else [directory]
    found += [
        path for name in _CERTIFICATE_VARIABLES if (path := env.get(name, "")).startswith("/")
    ]
    return [
        path
        for path in dict.fromkeys(found)
        if os.path.exists(path) and not _contains_any(path, homes)  # noqa: PTH110  (every spawn)
    ]


def _program_paths(
    program: str, search: list[str], writable: Collection[str], depth: int
) -> Iterator[str]:
    """Yield the paths of a program, link by link, and then those of its interpreter."""
    for path in _links(program):
        if _passes_through(path, writable):
            return
        directory = os.path.dirname(path)  # noqa: PTH120
        yield from _installation(directory) if _is_program_directory(directory) else [path]
        if module := _node_modules(path):
            yield module
    if depth < _MAX_LINKS:
        interpreter = _interpreter(program, search)
        if interpreter:
            yield from _program_paths(interpreter, search, writable, depth + 1)


def _links(path: str) -> Iterator[str]:
    """Yield a path and every link target, up to the file itself."""
    for _ in range(_MAX_LINKS):
        yield path
        try:
            target = os.readlink(path)  # noqa: PTH115
        except OSError:
            break
        path = os.path.normpath(os.path.join(os.path.dirname(path), target))  # noqa: PTH118, PTH120
    yield os.path.realpath(path)


def _installation(directory: str) -> list[str]:
    """Return the installation that a directory of programs belongs to, or only the directory."""
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


def _is_program_directory(directory: str) -> bool:
    return os.path.basename(directory) in _PROGRAM_DIRECTORIES  # noqa: PTH119


def _is_installation(prefix: str) -> bool:
    if any(os.path.exists(f"{prefix}/{marker}") for marker in _INSTALLATION_MARKERS):  # noqa: PTH110
        return True
    try:
        return any(name.startswith("python3.") for name in os.listdir(f"{prefix}/lib"))  # noqa: PTH208
    except OSError:
        return False


def _node_modules(path: str) -> str:
    """Return the outermost `node_modules` above the path, where packages find each other."""
    before, mark, _ = path.partition("/node_modules/")
    return f"{before}/node_modules" if mark else ""


def _interpreter(program: str, search: list[str]) -> str:
    """Return the program in the first line of a script."""
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
    directories = (f"{directory}/{name}" for directory in search if directory.startswith("/"))
    return next((candidate for candidate in directories if os.access(candidate, os.X_OK)), "")


def _passes_through(path: str, directories: Collection[str]) -> bool:
    """Return whether resolving a path passes through one of the directories."""
    return any(
        step == candidate or step.startswith(f"{candidate}/")
        for step in _path_and_links(path)
        for candidate in directories
    )


def _path_and_links(path: str) -> Iterator[str]:
    """Yield every path that is visited when this one is resolved, link after link."""
    at, remaining = "", path.split("/")[::-1]
    links = 0
    while remaining and links < _MAX_LINKS:
        name = remaining.pop()
        if name in ("", "."):
            continue
        at = at.rpartition("/")[0] if name == ".." else f"{at}/{name}"
        yield at
        with contextlib.suppress(OSError):
            target = os.readlink(at)  # noqa: PTH115
            links += 1
            remaining += target.split("/")[::-1]
            at = "" if target.startswith("/") else at.rpartition("/")[0]


def _contains_any(path: str, homes: Collection[str]) -> bool:
    real = os.path.realpath(path)
    return any(home == real or home.startswith(real.rstrip("/") + "/") for home in homes)
