"""Runs git so that it executes nothing a tree or a repository configures.

Three defences, each of which stops most attacks:

- Calls that read files of a work tree use our own repository (`GIT_DIR`) with configuration and
  attributes that we wrote. They take only objects from the user's repository. Objects are data,
  so no clean, smudge, diff or merge driver is configured.
- Calls in the user's repository only resolve names, register worktrees, set refs and store
  objects. Hooks, the file system monitor, helpers, pagers and editors are disabled on the command
  line, which overrides every configuration file.
- No protocol is allowed, so git starts no transport helper, ssh command, proxy or credential
  helper. A call that fetches opens one protocol for itself (see `remote`).

A deadline ends calls that hang, for example when a configuration file includes a pipe.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from infloop.errors import MissingPart, StepError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from infloop.workspace.git.program import ProgramResult, RunProgram
    from infloop.workspace.git.remote import Remote

OLDEST = (2, 38)
SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin"
DEADLINE_S = 300.0
SETTINGS_DEADLINE_S = 10.0
_MAX_STDERR = 600
_ROOT = Path("/")

_ENVIRONMENT = {
    "LC_ALL": "C",
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    # A list of allowed protocols in the environment overrides protocol.*.allow in any file.
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS": "false",
    "GIT_SSH_COMMAND": "false",
    "GIT_EDITOR": "false",
    "GIT_PAGER": "cat",
    "GIT_AUTHOR_NAME": "infloop",
    "GIT_AUTHOR_EMAIL": "infloop@localhost",
    "GIT_COMMITTER_NAME": "infloop",
    "GIT_COMMITTER_EMAIL": "infloop@localhost",
}

_CONFIGURATION = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.alternateRefsCommand=false",
    "core.gitProxy=false",
    "core.pager=cat",
    "credential.helper=",
    # 50,000 files take 4.3 instead of 6.5 s with two processors; for less than 100 it is not used.
    "checkout.workers=4",
    "gc.auto=0",
    "maintenance.auto=false",
    "log.showSignature=false",
    "commit.gpgSign=false",
    "submodule.recurse=false",
    "worktree.useRelativePaths=false",
    "safe.bareRepository=explicit",
)


class GitContext(msgspec.Struct, frozen=True):
    """The directory of a git call, and the paths that replace those git would discover.

    `objects` are object directories of other repositories, read in addition to its own.
    """

    cwd: Path
    git_dir: Path | None = None
    work_tree: Path | None = None
    index: Path | None = None
    objects: tuple[Path, ...] = ()

    def environment(self) -> dict[str, str]:
        """Return the environment variables that pass these paths to git."""
        named = {
            "GIT_DIR": self.git_dir,
            "GIT_WORK_TREE": self.work_tree,
            "GIT_INDEX_FILE": self.index,
        }
        found = {name: str(path) for name, path in named.items() if path is not None}
        if self.objects:
            quoted = os.pathsep.join(_quoted(path) for path in self.objects)
            found["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = quoted
        return found


class Git:
    """The git program; it executes no other program."""

    def __init__(self, run: RunProgram, *, path: str = SEARCH_PATH) -> None:
        self._run = run
        self._path = path
        self._checked = False

    def run_by(self, run: RunProgram) -> Git:
        """Return the same program, run in another way; its version is not asked for again."""
        made = Git(run, path=self._path)
        made._checked = self._checked
        return made

    async def call(
        self,
        context: GitContext,
        *args: str,
        stdin: bytes | None = None,
        accept: Collection[int] = (0,),
        deadline_s: float = DEADLINE_S,
        remote: Remote | None = None,
    ) -> ProgramResult:
        """Run a git command; raise StepError if its exit code is not in `accept`.

        Only with `remote` can it reach another repository.
        """
        await self.check()
        finished = await self._start(context, args, stdin, deadline_s, remote=remote)
        if finished.exit_code not in accept:
            raise StepError(f"git {args[0]} failed in {str(context.cwd)!r}: {reason(finished)}")
        return finished

    async def text(self, context: GitContext, *args: str, accept: Collection[int] = (0,)) -> str:
        """Return the output of a command without its final newline."""
        finished = await self.call(context, *args, accept=accept)
        return os.fsdecode(finished.stdout.removesuffix(b"\n"))

    async def settings(
        self,
        cwd: Path,
        environment: Mapping[str, str],
        *options: str,
        git_dir: Path | None = None,
    ) -> bytes:
        """Return the settings of the user with this environment, as `git config --list` prints.

        Reading settings executes nothing. Each has its origin, its name and its value.
        """
        await self.check()
        context = GitContext(cwd, git_dir=git_dir)
        args = ("config", "--list", "--null", "--show-origin", *options)
        finished = await self._start(context, args, None, SETTINGS_DEADLINE_S, environment)
        if finished.exit_code != 0:
            raise StepError(f"git config failed in {str(cwd)!r}: {reason(finished)}")
        return finished.stdout

    async def check(self) -> None:
        """Raise MissingPart if git is missing or too old; the result is remembered."""
        if self._checked:
            return
        finished = await self._start(GitContext(_ROOT), ("version",), None, DEADLINE_S)
        if finished.exit_code != 0:
            raise MissingPart(f"git is needed and does not run here: {reason(finished)}")
        found = finished.stdout.decode("utf-8", "replace").strip()
        if version_of(found) < OLDEST:
            wanted = ".".join(map(str, OLDEST))
            raise MissingPart(f"{found!r} is too old: install git {wanted} or newer")
        self._checked = True

    async def _start(
        self,
        context: GitContext,
        args: tuple[str, ...],
        stdin: bytes | None,
        deadline_s: float,
        users: Mapping[str, str] | None = None,
        remote: Remote | None = None,
    ) -> ProgramResult:
        """Run git with our configuration, or with that of the environment `users`."""
        settings = (*_CONFIGURATION, *(remote.configuration() if remote else ()))
        options = [word for setting in settings for word in ("-c", setting)]
        argv = ["git", "--no-pager", *(options if users is None else ()), *args]
        own = _ENVIRONMENT if users is None else {**users, "LC_ALL": "C"}
        env = {**own, "PATH": self._path, **context.environment()}
        env |= remote.environment() if remote else {}
        try:
            async with asyncio.timeout(deadline_s):
                return await self._run(argv, str(context.cwd), env, stdin)
        except TimeoutError:
            raise StepError(
                f"git {args[0]} did not answer within {deadline_s:g} s in {str(context.cwd)!r}"
            ) from None


def is_id(text: str) -> bool:
    """Tell whether `text` is a full SHA-1 object id."""
    return len(text) == 40 and not set(text) - set("0123456789abcdef")


def reason(finished: ProgramResult) -> str:
    """Return why a program failed: the end of its error output, if it printed any."""
    stderr = finished.stderr.strip()[-_MAX_STDERR:]
    return stderr or finished.error or f"it exited with code {finished.exit_code}"


def version_of(text: str) -> tuple[int, ...]:
    """Parse the first two numbers of the output of `git version`; others count as 0."""
    number = text.removeprefix("git version ").split()
    parts = number[0].split(".") if number else []
    return tuple(int(part) if part.isdecimal() else 0 for part in parts[:2])


def _quoted(path: Path) -> str:
    """Quote a path for a list of paths in a git environment variable."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
