"""Our own git calls. Nothing that a tree or a repository says is ever executed by them.

Three walls, each enough for most attacks:

- Wherever the user's repository is not needed, git is given a repository of our own (`GIT_DIR`),
  whose configuration and attributes we wrote. What is needed of the user's is its objects, and
  they are only data. All calls that look at files of a work tree are of this kind, so that
  no clean, smudge, diff or merge driver is ever configured.
- In the user's repository only names are resolved, worktrees registered, refs set and objects
  stored. Hooks, the file system monitor, helpers, pagers and editors are switched off for these
  on the command line, which outranks every configuration file.
- Whatever a repository asks for, git may speak no protocol at all: nothing is fetched, so no
  transport helper, ssh command, proxy or credential helper is ever started.

A call that does not answer (a configuration that includes a pipe, say) is ended at a deadline.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.errors import MissingPart, StepError

if TYPE_CHECKING:
    from collections.abc import Collection

    from infloop.workspace.git.program import Finished, RunProgram

OLDEST = (2, 38)
SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin"
DEADLINE_S = 300.0
_SHOWN_OF_STDERR = 600
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
    # A list of allowed protocols in the environment outranks protocol.*.allow in any file.
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
    "gc.auto=0",
    "maintenance.auto=false",
    "log.showSignature=false",
    "commit.gpgSign=false",
    "submodule.recurse=false",
    "worktree.useRelativePaths=false",
    "safe.bareRepository=explicit",
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a git call looks: a directory, and what takes the place of what git would find there.

    `objects` are object directories of other repositories, read beside the repository's own.
    """

    cwd: Path
    git_dir: Path | None = None
    work_tree: Path | None = None
    index: Path | None = None
    objects: tuple[Path, ...] = ()

    def environment(self) -> dict[str, str]:
        """Return the variables that tell git so."""
        named = {
            "GIT_DIR": self.git_dir,
            "GIT_WORK_TREE": self.work_tree,
            "GIT_INDEX_FILE": self.index,
        }
        found = {name: str(path) for name, path in named.items() if path is not None}
        if self.objects:
            listed = os.pathsep.join(_listed(path) for path in self.objects)
            found["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = listed
        return found


class Git:
    """The git program, called so that it executes nothing but itself."""

    def __init__(self, run: RunProgram, *, path: str = SEARCH_PATH) -> None:
        self._run = run
        self._path = path
        self._fits = False

    async def call(
        self,
        place: Place,
        *args: str,
        stdin: bytes | None = None,
        accept: Collection[int] = (0,),
        deadline_s: float = DEADLINE_S,
    ) -> Finished:
        """Run a git command; raise StepError unless it leaves with one of the exit codes."""
        await self.check()
        finished = await self._start(place, args, stdin, deadline_s)
        if finished.exit_code not in accept:
            raise StepError(f"git {args[0]} failed in {str(place.cwd)!r}: {reason(finished)}")
        return finished

    async def text(self, place: Place, *args: str, accept: Collection[int] = (0,)) -> str:
        """Return what a command prints, which is one line that may hold any character."""
        finished = await self.call(place, *args, accept=accept)
        return os.fsdecode(finished.stdout.removesuffix(b"\n"))

    async def check(self) -> None:
        """Raise MissingPart unless there is a git that is new enough; asked once."""
        if self._fits:
            return
        finished = await self._start(Place(_ROOT), ("version",), None, DEADLINE_S)
        if finished.exit_code != 0:
            raise MissingPart(f"git is needed and does not run here: {reason(finished)}")
        found = finished.stdout.decode("utf-8", "replace").strip()
        if version_of(found) < OLDEST:
            wanted = ".".join(map(str, OLDEST))
            raise MissingPart(f"{found!r} is too old: install git {wanted} or newer")
        self._fits = True

    async def _start(
        self, place: Place, args: tuple[str, ...], stdin: bytes | None, deadline_s: float
    ) -> Finished:
        options = [word for setting in _CONFIGURATION for word in ("-c", setting)]
        argv = ["git", "--no-pager", *options, *args]
        env = {"PATH": self._path, **_ENVIRONMENT, **place.environment()}
        try:
            async with asyncio.timeout(deadline_s):
                return await self._run(argv, str(place.cwd), env, stdin)
        except TimeoutError:
            raise StepError(
                f"git {args[0]} did not answer within {deadline_s:g} s in {str(place.cwd)!r}"
            ) from None


def is_id(text: str) -> bool:
    """Say whether a text can be the id of an object."""
    return len(text) == 40 and not set(text) - set("0123456789abcdef")


def reason(finished: Finished) -> str:
    """Return why a program failed, in its own words."""
    said = finished.stderr.strip()[-_SHOWN_OF_STDERR:]
    return said or finished.error or f"it left with exit code {finished.exit_code}"


def version_of(text: str) -> tuple[int, ...]:
    """Return the first two numbers of what `git version` prints; what is not one counts as 0."""
    number = text.removeprefix("git version ").split()
    parts = number[0].split(".") if number else []
    return tuple(int(part) if part.isdecimal() else 0 for part in parts[:2])


def _listed(path: Path) -> str:
    """Quote a path as git reads it in a list of paths."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
