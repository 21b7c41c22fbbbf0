"""Finds what must be visible for a child's programs to run, outside the system's own directories.

Interpreters and tools are often installed in a home, in a virtual environment or under /opt. They
are found from the child's program, the links it is reached by, the interpreter in its first line,
and the directories of its PATH.

Outside homes, a directory of programs is shown with the installation around it if there clearly is
one (`_INSTALLATIONS`), otherwise alone. In a home, nothing is shown but

- the parts of an installation that hold programs and libraries,
- a directory of PATH that is called `bin` or so, with the targets of its links,
- of another directory of PATH, the programs in it,
- the child's program and its interpreter, as single files.

So what lies beside them (`share`, `state`, `etc`, credentials) is never shown. A home, or a
directory above one, is never returned. Every decision is about real paths: a link to a home is a
home.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import os
import stat
from typing import TYPE_CHECKING

from infloop.lowlevel.link_free import visited_paths

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_PROGRAM_DIRECTORIES = frozenset({"bin", "sbin", "shims", ".bin"})
_BASIC = ("bin", "sbin", "lib", "lib32", "lib64", "libexec", "include")
_INSTALLATIONS: dict[str, tuple[str, ...]] = {
    # A virtual environment: pipx, uv, poetry, venv.
    "pyvenv.cfg": (*_BASIC, "pyvenv.cfg"),
    # A Python, or the packages of `pip install --user` in ~/.local.
    "lib/python3.*": _BASIC,
    # conda brings certificates, and terminal descriptions in `share`.
    "conda-meta": (*_BASIC, "conda-meta", "ssl", "share/terminfo"),
    # A Node, or a prefix of `npm install -g`.
    "lib/node_modules": _BASIC,
    "include/node": _BASIC,
    # A Rust toolchain.
    "lib/rustlib": _BASIC,
    # A Go toolchain; its standard library is in `src`.
    "pkg/tool": (*_BASIC, "pkg", "src", "go.env", "VERSION"),
    # Homebrew.
    "Cellar": (*_BASIC, "Cellar", "opt", "Homebrew", "etc/openssl@3", "etc/ca-certificates"),
    # pyenv, rbenv, nodenv: `shims` choose one of the `versions`.
    "versions": (*_BASIC, "shims", "versions", "plugins", "completions", "version"),
    # asdf and mise.
    "installs": (*_BASIC, "shims", "installs", "plugins"),
    # volta.
    "tools/image": (*_BASIC, "tools"),
}
"""What marks an installation, and the parts of it that are shown in a home."""

_MARKERS_IN_A_HOME = ("pyvenv.cfg", "lib/python3.*", "lib/node_modules")
"""The installations that a home itself can be."""

_COMPANIONS = {
    # The programs of rustup start those of a toolchain.
    ".cargo/bin": (".rustup/toolchains", ".rustup/settings.toml"),
    # pnpm and bun keep global packages beside their programs.
    ".local/share/pnpm": (".local/share/pnpm/global", ".local/share/pnpm/nodejs"),
    ".bun/bin": (".bun/install/global/node_modules",),
}
"""What else programs in a directory of a home need; paths below the home."""

_CERTIFICATE_VARIABLES = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    *("NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"),
)
_SHOWN_ANYWAY = ("/usr", "/bin", "/sbin")
_PARENTS_OF_HOMES = ("/home", "/var/home", "/Users", "/export/home")
_HOMES = ("/root",)
_NO_INSTALLATIONS = ("/etc", "/proc", "/sys", "/dev", "/run", "/boot", "/var")
_MAX_LINKS = 16
_MAX_ENTRIES = 256
_MAX_FIRST_LINE = 256
_MAX_CERTIFICATE_BYTES = 4 << 20


def needed_paths(
    program: str, env: Mapping[str, str], homes: Collection[str], writable: Collection[str] = ()
) -> dict[str, str]:
    """Return the files and directories of `program` and of the programs on PATH.

    The keys are the paths by which they are found, the values their real paths, without links.
    `homes` are those of the child's user. Links and scripts in a `writable` directory are ignored:
    a child could create one there that names what it wants to see.
    """
    search = env.get("PATH", os.defpath).split(os.pathsep)
    search = [
        each for each in search if each.startswith("/") and not _passes_through(each, writable)
    ]
    finder = _Finder(tuple(search), frozenset(homes) - {"/"}, tuple(writable))
    found = dict(finder.program(program))
    for directory in search:
        found |= finder.directory(directory)
    for name in _CERTIFICATE_VARIABLES:
        found |= finder.certificates(env.get(name, ""))
    return {
        path: real
        for path, real in found.items()
        if os.path.exists(real) and not _contains_any(real, homes)  # noqa: PTH110  (every spawn)
    }


class _Finder:
    """Finds what programs need; all results are pairs of a path and its real path."""

    def __init__(
        self, search: tuple[str, ...], homes: frozenset[str], writable: tuple[str, ...]
    ) -> None:
        self._search = search
        self._homes = homes
        self._writable = writable
        self._known_parts: dict[str, tuple[str, ...]] = {}
        self._known_installations: dict[tuple[str, str], list[tuple[str, str]]] = {}
        self._real = functools.cache(os.path.realpath)

    def program(self, program: str, depth: int = 0) -> Iterator[tuple[str, str]]:
        """Yield what one program needs, link by link, and then what its interpreter needs."""
        file = self._real(program)
        for path in _links(program):
            if _passes_through(path, self._writable):
                return
            directory = os.path.dirname(path)  # noqa: PTH120
            if _is_program_directory(directory):
                yield from self._installation(directory, alone=path)
            elif _is_executable(file):
                yield path, file
            if modules := _node_modules(path):
                yield modules, modules
        if depth < _MAX_LINKS and (interpreter := _interpreter(program, self._search)):
            yield from self.program(interpreter, depth + 1)

    def directory(self, directory: str) -> dict[str, str]:
        """Return what the programs in a directory of PATH need."""
        real = self._real(directory)
        if _is_below(real, _SHOWN_ANYWAY):
            return {}
        home = self._home(real)
        if not home:
            if _is_program_directory(directory):
                return dict(self._installation(directory))
            apart = not _is_below(real, _NO_INSTALLATIONS) and real.count("/") > 1
            return {directory: real, real: real} if apart else {}
        if real == home:
            return {}
        found: dict[str, str] = {}
        if _is_program_directory(real):
            found |= dict(self._installation(directory))
            found |= self._linked_programs(real)
        else:
            found |= {path: path for path in _programs_in(real)}
        for companion in _COMPANIONS.get(os.path.relpath(real, home), ()):
            path = self._real(f"{home}/{companion}")
            if self._home(path) == home and os.path.exists(path):  # noqa: PTH110
                found[path] = path
        return found

    def certificates(self, path: str) -> dict[str, str]:
        """Return a file or directory of certificates; in a home, only a file with nothing else."""
        real = self._real(path) if path.startswith("/") else ""
        if not real or not os.path.exists(real) or _passes_through(path, self._writable):  # noqa: PTH110
            return {}
        shown = not self._home(real) or _holds_certificates(real)
        return {path: real, real: real} if shown else {}

    def _installation(self, directory: str, alone: str = "") -> list[tuple[str, str]]:
        """Return the installation that a directory of programs belongs to; it is looked up once."""
        if not self._home(self._real(directory)):
            alone = ""
        known = self._known_installations.get((directory, alone))
        if known is None:
            known = self._known_installations[directory, alone] = []
            known += self._find_installation(directory, alone)
        return known

    def _find_installation(self, directory: str, alone: str) -> Iterator[tuple[str, str]]:
        """Yield the installation that a directory of programs belongs to.

        Without an installation around it that is the directory itself. In a home it is the file
        `alone`, if given.
        """
        real = self._real(directory)
        if _is_below(real, _SHOWN_ANYWAY):
            return
        prefix, home = os.path.dirname(real), self._home(real)  # noqa: PTH120
        parts = self._parts(prefix, home)
        if os.path.basename(prefix) == "node_modules" or (parts and not home):  # noqa: PTH119
            yield prefix, prefix
        elif parts:
            for part in dict.fromkeys((*parts, os.path.basename(real))):  # noqa: PTH119
                path = self._real(f"{prefix}/{part}")
                if os.path.exists(path) and (_is_below(path, (prefix,)) or not self._home(path)):  # noqa: PTH110
                    yield f"{prefix}/{part}", path
        elif home and alone:
            file = self._real(alone)
            if _is_executable(file):
                yield alone, file
            return
        else:
            yield real, real
        if real != directory:
            yield directory, real
        if "pyvenv.cfg" in parts:
            yield from self._base_python(real)

    def _parts(self, prefix: str, home: str) -> tuple[str, ...]:
        """Return the parts of the installation at a prefix that are shown; empty without one."""
        if prefix not in self._known_parts:
            markers = _MARKERS_IN_A_HOME if prefix == home else tuple(_INSTALLATIONS)
            self._known_parts[prefix] = _parts(prefix, markers)
        return self._known_parts[prefix]

    def _base_python(self, directory: str) -> Iterator[tuple[str, str]]:
        """Yield the Python that a virtual environment was made with."""
        for link in _links(f"{directory}/python"):
            base = os.path.dirname(self._real(link))  # noqa: PTH120
            if base != directory and _is_program_directory(base):
                yield from self._installation(base, alone=link)

    def _linked_programs(self, directory: str) -> dict[str, str]:
        """Return what the programs need to which links in a directory lead."""
        with contextlib.suppress(OSError):
            changed = os.stat(directory).st_mtime_ns  # noqa: PTH116
            links = _links_in(directory, changed)
            return {path: real for link in links for path, real in self.program(link)}
        return {}

    def _home(self, path: str) -> str:
        """Return the home that a real path is in; empty if it is in none."""
        for home in (*self._homes, *_HOMES):
            if _is_below(path, (home,)):
                return home
        for parent in _PARENTS_OF_HOMES:
            if path.startswith(f"{parent}/"):
                return f"{parent}/{path[len(parent) + 1 :].partition('/')[0]}"
        return ""


def _links(path: str) -> Iterator[str]:
    """Yield a path and every link target, up to the file itself."""
    for _ in range(_MAX_LINKS):
        yield path
        try:
            target = os.readlink(path)  # noqa: PTH115
        except OSError:
            break
        above = os.path.realpath(os.path.dirname(path))  # noqa: PTH120
        path = os.path.normpath(os.path.join(above, target))  # noqa: PTH118
    yield os.path.realpath(path)


@functools.lru_cache(maxsize=64)
def _links_in(directory: str, changed: int) -> tuple[str, ...]:
    """Return the links in a directory; `changed` is when it was last changed."""
    with os.scandir(directory) as entries:
        return tuple(sorted(each.path for each in entries if each.is_symlink()))[:_MAX_ENTRIES]


def _programs_in(directory: str) -> list[str]:
    """Return the programs in a directory that are not links."""
    try:
        with os.scandir(directory) as entries:
            files = sorted(each.path for each in entries if each.is_file(follow_symlinks=False))
    except OSError:
        return []
    return [path for path in files[:_MAX_ENTRIES] if _is_executable(path)]


def _parts(prefix: str, markers: Collection[str]) -> tuple[str, ...]:
    found = (_INSTALLATIONS[marker] for marker in markers if _has_marker(prefix, marker))
    return tuple(dict.fromkeys(part for parts in found for part in parts))


def _has_marker(prefix: str, marker: str) -> bool:
    if "*" not in marker:
        return os.path.exists(f"{prefix}/{marker}")  # noqa: PTH110
    directory, pattern = os.path.split(marker)
    try:
        return bool(fnmatch.filter(os.listdir(f"{prefix}/{directory}"), pattern))  # noqa: PTH208
    except OSError:
        return False


def _is_program_directory(directory: str) -> bool:
    return os.path.basename(directory) in _PROGRAM_DIRECTORIES  # noqa: PTH119


def _is_executable(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode) and os.access(path, os.X_OK)  # noqa: PTH116
    except OSError:
        return False


def _holds_certificates(path: str) -> bool:
    """Whether a file holds certificates and no private key."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            text = file.read(_MAX_CERTIFICATE_BYTES + 1)
    except OSError:
        return False
    fits = len(text) <= _MAX_CERTIFICATE_BYTES
    return fits and b"BEGIN CERTIFICATE" in text and b"PRIVATE KEY" not in text


def _node_modules(path: str) -> str:
    """Return the outermost `node_modules` above the path, where packages find each other."""
    before, mark, _ = os.path.realpath(path).partition("/node_modules/")
    return f"{before}/node_modules" if mark else ""


def _interpreter(program: str, search: tuple[str, ...]) -> str:
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
    directories = (f"{directory}/{name}" for directory in search)
    return next((candidate for candidate in directories if os.access(candidate, os.X_OK)), "")


def _passes_through(path: str, directories: Collection[str]) -> bool:
    """Return whether resolving a path passes through one of the directories."""
    return any(_is_below(step, directories) for step in visited_paths(path))


def _is_below(path: str, directories: Collection[str]) -> bool:
    return any(path == each or path.startswith(f"{each}/") for each in directories)


def _contains_any(real: str, homes: Collection[str]) -> bool:
    return any(home == real or home.startswith(real.rstrip("/") + "/") for home in homes)
