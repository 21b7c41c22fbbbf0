"""Which directories are too much for a child to write to, unless somebody has named them (pure).

A run works in the directory in which it was started, and that may be a home by accident. Everything
a person has would then be writable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_PARENTS_OF_HOMES = ("/home", "/var/home", "/export/home", "/Users")
_SYSTEM = (
    *("/", "/root", "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32"),
    *("/media", "/mnt", "/nix", "/opt", "/proc", "/run", "/sbin", "/snap", "/srv", "/sys"),
    *("/tmp", "/usr", "/var", "/var/lib", "/var/tmp"),  # noqa: S108  (shared by all users)
    *_PARENTS_OF_HOMES,
)


def why_too_wide(path: str, homes: Collection[str]) -> str:
    """Return what a directory is if it is too much for a child, such as a home; else nothing.

    `homes` are those of the users that infloop and its children run as. All paths are real paths.
    """
    if path in homes:
        return "a home directory"
    if path in _SYSTEM:
        return "a directory of the system"
    if any(home.startswith(path.rstrip("/") + "/") for home in homes):
        return "above a home directory"
    if path.rpartition("/")[0] in _PARENTS_OF_HOMES:
        return "a home directory"
    return ""
