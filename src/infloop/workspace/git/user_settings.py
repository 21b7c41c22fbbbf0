"""Finds the files that the user's own git settings name: hooks, filters, included files, programs.

Git executes or obeys these files whenever the user runs it, so a child must not write them, and
`apply` asks before it changes them.

- The settings are read by git itself (`git config --list`), which executes nothing. What it read is
  kept until one of the files changes.
- An included file counts whether or not its condition holds now: a child can check out the branch
  that a condition waits for.
- A value of a setting that is not known here is read as a command line too.
- Every link on the way to a file counts, and so does the file that it leads to.
"""

from __future__ import annotations

import os
import re
import shlex
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from infloop.errors import MissingPart
from infloop.workspace.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from infloop.workspace.git.commands import Git

Key = tuple[str, str]
"""The section and the name of a setting, in lower case: `filter` and `clean`."""

_INCLUDES: frozenset[Key] = frozenset({("include", "path"), ("includeif", "path")})
_DIRECTORIES: frozenset[Key] = frozenset({("core", "hookspath"), ("init", "templatedir")})
_FILES: frozenset[Key] = frozenset(
    {
        *(("core", name) for name in ("attributesfile", "excludesfile")),
        *(("http", name) for name in ("cookiefile", "sslcainfo", "sslcert", "sslkey")),
        *(("gpg", name) for name in ("allowedsignersfile", "revocationfile")),
        *(("blame", "ignorerevsfile"), ("commit", "template"), ("diff", "orderfile")),
        *(("fsck", "skiplist"), ("mailmap", "file"), ("sendemail", "aliasesfile")),
    }
)
_COMMANDS: frozenset[Key] = frozenset(
    {
        *(("core", name) for name in ("alternaterefscommand", "askpass", "editor", "fsmonitor")),
        *(("core", name) for name in ("gitproxy", "pager", "sshcommand")),
        *(("diff", name) for name in ("command", "external", "textconv")),
        *(("filter", name) for name in ("clean", "process", "smudge")),
        *(("gpg", name) for name in ("defaultkeycommand", "program")),
        *(("difftool", name) for name in ("cmd", "path")),
        *(("mergetool", name) for name in ("cmd", "path")),
        *(("browser", name) for name in ("cmd", "path")),
        *(("man", name) for name in ("cmd", "path")),
        *(("remote", name) for name in ("receivepack", "uploadpack", "vcs")),
        *(("sendemail", name) for name in ("cccmd", "headercmd", "sendmailcmd", "smtpserver")),
        *(("sendemail", "tocmd"), ("trailer", "cmd"), ("trailer", "command")),
        *(("credential", "helper"), ("gui", "editor"), ("guitool", "cmd"), ("hook", "command")),
        *(("imap", "tunnel"), ("interactive", "difffilter"), ("lfs", "path"), ("merge", "driver")),
        *(("sequence", "editor"), ("submodule", "update"), ("tar", "command")),
        ("uploadpack", "packobjectshook"),
    }
)
_COMMAND_SECTIONS = frozenset({"alias", "pager"})

_HOOKS = (
    *("applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit"),
    *("prepare-commit-msg", "commit-msg", "post-commit", "pre-rebase", "post-checkout"),
    *("post-merge", "pre-push", "pre-receive", "update", "proc-receive", "post-receive"),
    *("post-update", "reference-transaction", "push-to-checkout", "pre-auto-gc", "post-rewrite"),
    *("sendemail-validate", "fsmonitor-watchman", "p4-changelist", "p4-prepare-changelist"),
    *("p4-post-changelist", "p4-pre-submit", "post-index-change"),
)
_MAX_LINKS = 40
_MAX_INCLUDED = 100
_GIT_DIRECTORY_FILES = ("commondir", "config", "config.worktree")
# Our own fixed pattern: no nested repeats.
_WORD = re.compile(r"[^\s\"'`$(){}<>;|&=,:!\\]+")  # noqa: TID251


class Setting(NamedTuple):
    """A setting, and the file that it was read from; empty if it is from no file."""

    name: str
    value: str
    origin: str

    @property
    def key(self) -> Key:
        """Its section and its own name, without the part between them."""
        section, _, rest = self.name.lower().partition(".")
        return section, rest.rpartition(".")[2]


class _Listing(NamedTuple):
    """The settings of a work tree, and the files on which they depend, as they were then."""

    settings: tuple[Setting, ...]
    files: tuple[str, ...]
    signature: tuple[object, ...]


class UserSettings:
    """The git settings of the user whose environment this is: `HOME` and `GIT_CONFIG_*`."""

    def __init__(self, git: Git, environment: Mapping[str, str]) -> None:
        self._git = git
        self._environment = environment
        self._home = environment.get("HOME", "/nonexistent")
        self._known: dict[Path, _Listing] = {}

    async def named_files(self, top: Path) -> dict[Path, str]:
        """Return the files and directories that the settings name, each with the reason.

        `top` is the top directory of a work tree, or any directory outside one. The files need not
        exist. Raises StepError if the settings cannot be read. Without git there are none.
        """
        try:
            listing = await self._listing(top)
        except MissingPart:
            return {}
        return await in_thread(lambda _: self._named(listing, top))

    async def _listing(self, top: Path) -> _Listing:
        known = self._known.get(top)
        if known is None or _signature(known.files) != known.signature:
            known = self._known[top] = await self._read(top)
        return known

    async def _read(self, top: Path) -> _Listing:
        git_dir = await in_thread(lambda _: _git_directory(top))
        settings = await self._list(top if git_dir else Path("/"), "--includes", git_dir=git_dir)
        files = self._usual_files(top, git_dir) | {each.origin for each in settings}
        waiting = [path for each in settings for path in self._included(each)]
        for path in islice(waiting, _MAX_INCLUDED):  # the list grows during the loop
            if path not in files and _status(path):
                more = await self._list(Path("/"), "--file", path)
                settings += more
                waiting += [path for each in more for path in self._included(each)]
            files.add(path)
        names = tuple(sorted(files - {""}))
        return _Listing(tuple(settings), names, _signature(names))

    def _usual_files(self, top: Path, git_dir: Path | None) -> set[str]:
        """Return the files that would change the settings if they appeared."""
        config_home = self._environment.get("XDG_CONFIG_HOME") or f"{self._home}/.config"
        files = {"/etc/gitconfig", f"{self._home}/.gitconfig", f"{config_home}/git/config"}
        files |= {self._environment.get("GIT_CONFIG_GLOBAL", ""), str(top / ".git")}
        return files | {f"{git_dir}/{name}" for name in _GIT_DIRECTORY_FILES if git_dir}

    async def _list(self, cwd: Path, *options: str, git_dir: Path | None = None) -> list[Setting]:
        listed = await self._git.settings(cwd, self._environment, *options, git_dir=git_dir)
        fields = os.fsdecode(listed).split("\0")
        pairs = zip(fields[::2], fields[1::2], strict=False)
        return [
            Setting(*_name_and_value(text), _path_of_origin(origin, cwd)) for origin, text in pairs
        ]

    def _named(self, listing: _Listing, top: Path) -> dict[Path, str]:
        found: dict[Path, str] = {}
        for each in listing.settings:
            for path in self._paths(each, top):
                for step in _trail(path):
                    found.setdefault(step, f"your git setting {each.name} names it")
        for origin in {each.origin for each in listing.settings} - {""}:
            if ".git" not in Path(origin).parts:  # those are protected with their repository
                for step in _trail(Path(origin)):
                    found.setdefault(step, "your git settings are in it")
        return found

    def _paths(self, setting: Setting, top: Path) -> Iterator[Path]:
        key = setting.key
        if key in _INCLUDES:
            yield from map(Path, self._included(setting))
        elif key in _FILES:
            yield top / self._expanded(setting.value)
        elif key in _DIRECTORIES:
            yield from _with_hooks(top / self._expanded(setting.value), top)
        else:
            is_command = key in _COMMANDS or key[0] in _COMMAND_SECTIONS
            yield from self._in_command(setting.value, top, is_command=is_command)

    def _in_command(self, line: str, top: Path, *, is_command: bool) -> Iterator[Path]:
        """Yield the files that are named in a command line, or in a value that may be one."""
        for word in _words(line):
            path = top / self._expanded(word)
            if path.is_file():
                if is_command or "/" in word:
                    yield path
            elif is_command and "/" in word and not path.exists():
                yield path
            if (inside := top / word.lstrip("/")).is_file():  # "$(git rev-parse …)/file"
                yield inside

    def _included(self, setting: Setting) -> Iterator[str]:
        """Yield the file that a setting includes; git takes it from where the setting is."""
        if setting.key in _INCLUDES and setting.value:
            path = self._expanded(setting.value)
            yield str(Path(setting.origin).parent / path)
            yield str(Path(os.path.realpath(setting.origin)).parent / path)

    def _expanded(self, path: str) -> str:
        path = path.removeprefix(":(optional)")
        return f"{self._home}/{path[2:]}" if path.startswith("~/") else path


def _name_and_value(text: str) -> tuple[str, str]:
    name, _, value = text.partition("\n")
    return name, value


def _path_of_origin(origin: str, cwd: Path) -> str:
    path = origin.removeprefix("file:")
    return str(cwd / path) if path != origin else ""


def _git_directory(top: Path) -> Path | None:
    """Return the git directory of a work tree; None if there is none."""
    mark = top / ".git"
    if mark.is_dir():
        return mark
    try:
        line = mark.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return top / line.removeprefix("gitdir: ") if line.startswith("gitdir: ") else None


def _words(line: str) -> Iterator[str]:
    with suppress(ValueError):  # an open quote
        yield from shlex.split(line.removeprefix("!"))
    yield from _WORD.findall(line)


def _with_hooks(directory: Path, top: Path) -> Iterator[Path]:
    """Yield a directory of hooks and the files that links in it lead to.

    Of a directory that contains the whole tree, only the hooks count. Hooks in `.husky/_` run those
    one directory up.
    """
    real = Path(os.path.realpath(directory))
    if top.is_relative_to(real):
        yield from (directory / name for name in _HOOKS)
        return
    yield directory
    if real.name == "_" and not top.is_relative_to(real.parent):
        yield directory.parent
    with suppress(OSError):
        yield from (Path(entry.path) for entry in os.scandir(real) if entry.is_symlink())


def _trail(path: Path) -> Iterator[Path]:
    """Yield every link on the way to a path, and at last what it leads to."""
    here, links = Path(path.anchor), 0
    waiting = list(reversed(path.parts[1:]))
    while waiting:
        name = waiting.pop()
        if name == "..":
            here = here.parent
            continue
        step = here / name
        if step.is_symlink() and links < _MAX_LINKS:
            yield step
            links += 1
            target = step.readlink()
            here = Path(target.anchor) if target.is_absolute() else here
            waiting += reversed(target.parts[1:] if target.is_absolute() else target.parts)
        else:
            here = step
    yield here


def _signature(files: Iterable[str]) -> tuple[object, ...]:
    """Return what tells whether a file was changed, replaced or removed."""
    return tuple(map(_status, files))


def _status(file: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(file)  # noqa: PTH116
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
