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

import fnmatch
import os
import time
from typing import TYPE_CHECKING, TypeAlias

from infloop.sandbox.view.observed_files import ObservedFiles, is_below

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

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
_MAX_KNOWN = 64

_Question: TypeAlias = tuple[str, str, tuple[str, ...], frozenset[str], tuple[str, ...]]
"""The program, PATH, where certificates are, the homes, and what is writable."""


class ProgramPaths:
    """Answers `needed_paths`, and keeps the answers as long as nothing they depend on is different.

    Finding takes 13 ms with a PATH of twelve directories, some of them in a home, and looking again
    at what was seen 0.5 ms (medians of CPU time on a busy machine).
    """

    def __init__(self, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._now_ns = now_ns
        self._known: dict[_Question, tuple[ObservedFiles, dict[str, str]]] = {}

    def needed(
        self,
        program: str,
        env: Mapping[str, str],
        homes: Collection[str],
        writable: Collection[str] = (),
    ) -> dict[str, str]:
        """Return what `needed_paths` returns."""
        variables = tuple(env.get(name, "") for name in _CERTIFICATE_VARIABLES)
        asked = (
            program,
            env.get("PATH", os.defpath),
            variables,
            frozenset(homes),
            tuple(writable),
        )
        known = self._known.pop(asked, None)
        if known is None or not known[0].unchanged():
            files = ObservedFiles(self._now_ns())
            known = files, needed_paths(program, env, homes, writable, files=files)
        if known[0].settled:
            self._known[asked] = known
        if len(self._known) > _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        return known[1]


def needed_paths(
    program: str,
    env: Mapping[str, str],
    homes: Collection[str],
    writable: Collection[str] = (),
    *,
    files: ObservedFiles | None = None,
) -> dict[str, str]:
    """Return the files and directories of `program` and of the programs on PATH.

    The keys are the paths by which they are found, the values their real paths, without links.
    `homes` are those of the child's user. Links and scripts in a `writable` directory are ignored:
    a child could create one there that names what it wants to see. `files` remembers what the
    answer depends on.
    """
    files = files or ObservedFiles()
    search = env.get("PATH", os.defpath).split(os.pathsep)
    search = [
        each for each in search if each.startswith("/") and not files.passes_through(each, writable)
    ]
    finder = _Finder(files, tuple(search), frozenset(homes) - {"/"}, tuple(writable))
    found = dict(finder.program(program))
    for directory in search:
        found |= finder.directory(directory)
    for name in _CERTIFICATE_VARIABLES:
        found |= finder.certificates(env.get(name, ""))
    return {
        path: real
        for path, real in found.items()
        if files.exists(real) and not _contains_any(real, homes)
    }


class _Finder:
    """Finds what programs need; all results are pairs of a path and its real path."""

    def __init__(
        self,
        files: ObservedFiles,
        search: tuple[str, ...],
        homes: frozenset[str],
        writable: tuple[str, ...],
    ) -> None:
        self._files = files
        self._search = search
        self._homes = homes
        self._writable = writable
        self._known_parts: dict[str, tuple[str, ...]] = {}
        self._known_installations: dict[tuple[str, str], list[tuple[str, str]]] = {}
        self._real = files.real

    def program(self, program: str, depth: int = 0) -> Iterator[tuple[str, str]]:
        """Yield what one program needs, link by link, and then what its interpreter needs."""
        file = self._real(program)
        for path in self._links(program):
            if self._files.passes_through(path, self._writable):
                return
            directory = os.path.dirname(path)  # noqa: PTH120
            if _is_program_directory(directory):
                yield from self._installation(directory, alone=path)
            elif self._files.is_executable(file):
                yield path, file
            if modules := self._node_modules(path):
                yield modules, modules
        if depth < _MAX_LINKS and (interpreter := self._interpreter(program)):
            yield from self.program(interpreter, depth + 1)

    def directory(self, directory: str) -> dict[str, str]:
        """Return what the programs in a directory of PATH need."""
        real = self._real(directory)
        if is_below(real, _SHOWN_ANYWAY):
            return {}
        home = self._home(real)
        if not home:
            if _is_program_directory(directory):
                return dict(self._installation(directory))
            apart = not is_below(real, _NO_INSTALLATIONS) and real.count("/") > 1
            return {directory: real, real: real} if apart else {}
        if real == home:
            return {}
        found: dict[str, str] = {}
        if _is_program_directory(real):
            found |= dict(self._installation(directory))
            found |= self._linked_programs(real)
        else:
            found |= {path: path for path in self._programs_in(real)}
        for companion in _COMPANIONS.get(os.path.relpath(real, home), ()):
            path = self._real(f"{home}/{companion}")
            if self._home(path) == home and self._files.exists(path):
                found[path] = path
        return found

    def certificates(self, path: str) -> dict[str, str]:
        """Return a file or directory of certificates; in a home, only a file with nothing else."""
        real = self._real(path) if path.startswith("/") else ""
        files = self._files
        if not real or not files.exists(real) or files.passes_through(path, self._writable):
            return {}
        shown = not self._home(real) or self._holds_certificates(real)
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
        if is_below(real, _SHOWN_ANYWAY):
            return
        prefix, home = os.path.dirname(real), self._home(real)  # noqa: PTH120
        parts = self._parts(prefix, home)
        if os.path.basename(prefix) == "node_modules" or (parts and not home):  # noqa: PTH119
            yield prefix, prefix
        elif parts:
            for part in dict.fromkeys((*parts, os.path.basename(real))):  # noqa: PTH119
                path = self._real(f"{prefix}/{part}")
                inside = is_below(path, (prefix,)) or not self._home(path)
                if inside and self._files.exists(path):
                    yield f"{prefix}/{part}", path
        elif home and alone:
            file = self._real(alone)
            if self._files.is_executable(file):
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
            self._known_parts[prefix] = self._marked_parts(prefix, markers)
        return self._known_parts[prefix]

    def _base_python(self, directory: str) -> Iterator[tuple[str, str]]:
        """Yield the Python that a virtual environment was made with."""
        for link in self._links(f"{directory}/python"):
            base = os.path.dirname(self._real(link))  # noqa: PTH120
            if base != directory and _is_program_directory(base):
                yield from self._installation(base, alone=link)

    def _linked_programs(self, directory: str) -> dict[str, str]:
        """Return what the programs need to which links in a directory lead."""
        links = [each.path for each in self._files.entries(directory) if each.is_link]
        return {path: real for link in links[:_MAX_ENTRIES] for path, real in self.program(link)}

    def _programs_in(self, directory: str) -> list[str]:
        """Return the programs in a directory that are not links."""
        paths = [each.path for each in self._files.entries(directory) if each.is_file]
        return [path for path in paths[:_MAX_ENTRIES] if self._files.is_executable(path)]

    def _marked_parts(self, prefix: str, markers: Collection[str]) -> tuple[str, ...]:
        found = (_INSTALLATIONS[each] for each in markers if self._has_marker(prefix, each))
        return tuple(dict.fromkeys(part for parts in found for part in parts))

    def _has_marker(self, prefix: str, marker: str) -> bool:
        if "*" not in marker:
            return self._files.exists(f"{prefix}/{marker}")
        directory, pattern = os.path.split(f"{prefix}/{marker}")
        names = (os.path.basename(each.path) for each in self._files.entries(directory))  # noqa: PTH119
        return any(fnmatch.fnmatch(name, pattern) for name in names)

    def _links(self, path: str) -> Iterator[str]:
        """Yield a path and every link target, up to the file itself."""
        for _ in range(_MAX_LINKS):
            yield path
            target = self._files.link_target(path)
            if not target:
                break
            above = self._real(os.path.dirname(path))  # noqa: PTH120
            path = os.path.normpath(os.path.join(above, target))  # noqa: PTH118
        yield self._real(path)

    def _node_modules(self, path: str) -> str:
        """Return the outermost `node_modules` above the path, where packages find each other."""
        before, mark, _ = self._real(path).partition("/node_modules/")
        return f"{before}/node_modules" if mark else ""

    def _interpreter(self, program: str) -> str:
        """Return the program in the first line of a script."""
        line = self._files.first_line(program, _MAX_FIRST_LINE)
        words = os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []
        if not words:
            return ""
        if os.path.basename(words[0]) != "env":  # noqa: PTH119
            return words[0]
        named = (word for word in words[1:] if not word.startswith("-") and "=" not in word)
        name = next(named, "")
        candidates = (f"{directory}/{name}" for directory in self._search)
        return next((each for each in candidates if self._files.can_be_run(each)), "")

    def _holds_certificates(self, path: str) -> bool:
        """Whether a file holds certificates and no private key."""
        text = self._files.content(path, _MAX_CERTIFICATE_BYTES + 1)
        fits = len(text) <= _MAX_CERTIFICATE_BYTES
        return fits and b"BEGIN CERTIFICATE" in text and b"PRIVATE KEY" not in text

    def _home(self, path: str) -> str:
        """Return the home that a real path is in; empty if it is in none."""
        for home in (*self._homes, *_HOMES):
            if is_below(path, (home,)):
                return home
        for parent in _PARENTS_OF_HOMES:
            if path.startswith(f"{parent}/"):
                return f"{parent}/{path[len(parent) + 1 :].partition('/')[0]}"
        return ""


def _is_program_directory(directory: str) -> bool:
    return os.path.basename(directory) in _PROGRAM_DIRECTORIES  # noqa: PTH119


def _contains_any(real: str, homes: Collection[str]) -> bool:
    return any(home == real or home.startswith(real.rstrip("/") + "/") for home in homes)
