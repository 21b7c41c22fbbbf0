"""What must be watched for patterns to be matched. Pure.

A pattern is watched from its leading directories on, those without a magic character. Directories
of version control and caches are left out unless a pattern names them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from infloop.watch.globs import normalised

if TYPE_CHECKING:
    from collections.abc import Iterable

DEFAULT_EXCLUDES = frozenset(
    (
        *(".git", ".hg", ".svn", ".jj", ".devloop", ".infloop-worktrees"),
        *("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".cache", "node_modules"),
    )
)
_MAGIC = frozenset("*?[{")


class Target(msgspec.Struct, frozen=True):
    """A path relative to the root ("" is the root itself), with or without what is below it."""

    path: str
    recursive: bool


def target_of(pattern: str) -> Target:
    """Return what must be watched for a pattern."""
    segments = [each for each in pattern.split("/") if each not in ("", ".")]
    prefix: list[str] = []
    for segment in segments:
        if not _MAGIC.isdisjoint(segment):
            return Target("/".join(prefix), recursive=True)
        prefix.append(segment)
    if not prefix:
        return Target("", recursive=True)
    return Target("/".join(prefix), recursive=pattern.endswith("/"))


def merged(patterns: Iterable[str]) -> list[Target]:
    """Return the targets of all patterns, each path once, sorted."""
    found: dict[str, bool] = {}
    for pattern in patterns:
        target = target_of(pattern)
        found[target.path] = found.get(target.path, False) or target.recursive
    return [Target(path, recursive) for path, recursive in sorted(found.items())]


class Scope:
    """Decides which directories are watched."""

    def __init__(
        self, patterns: Iterable[str], *, exclude: frozenset[str] = DEFAULT_EXCLUDES
    ) -> None:
        """Directories with a name in `exclude` are left out unless a pattern has that name."""
        patterns = [normalised(pattern) for pattern in patterns]
        self.targets = merged(patterns)
        self._excluded = exclude.difference(*(pattern.split("/") for pattern in patterns))

    def excludes(self, path: str) -> bool:
        """Tell whether a path relative to the root is in an excluded directory, or is one."""
        return not self._excluded.isdisjoint(path.split("/"))

    def wants_directory(self, path: str) -> bool:
        """Tell whether a directory has to be watched: it may hold files that count."""
        if self.excludes(path):
            return False
        return any(
            path in ("", target.path)
            or target.path.startswith(f"{path}/")
            or (target.recursive and (not target.path or path.startswith(f"{target.path}/")))
            # A name without a slash may be a file or a directory: then all below it counts.
            or path.startswith(f"{target.path}/")
            for target in self.targets
        )
