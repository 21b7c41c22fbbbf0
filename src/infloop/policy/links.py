"""Finds symbolic links that lead out of a tree, from their targets alone.

A program that follows such a link reads or writes files outside the tree. Links that stay inside
are ordinary content. A link can lead out through other links, so all links of a tree are considered
together. Names are compared as in `protected_paths`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.policy.protected_paths import normalized_name

if TYPE_CHECKING:
    from collections.abc import Mapping

OUT_OF_TREE = "a link out of the tree"
INTO_GIT = "a link into git's own files"

_MAX_HOPS = 40
"""The kernel's limit on links in one path; a path with more does not resolve."""


def links_out_of_tree(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """Return the links that lead out of a tree and did not before, each with the reason.

    The arguments hold all links of the tree with their targets, because a change to one link can
    redirect another.
    """
    old_links, new_links = _by_names(before), _by_names(after)
    found: dict[str, str] = {}
    for path, target in after.items():
        why = _reason(path, target, new_links)
        if why and not (before.get(path) == target and _reason(path, target, old_links)):
            found[path] = why
    return found


def _reason(path: str, target: str, links: Mapping[tuple[str, ...], str]) -> str:
    """Return why the link at a path leads out of the tree, or an empty string."""
    here = [normalized_name(name) for name in path.split("/")[:-1]]
    rest = [target]
    for _ in range(_MAX_HOPS):
        if rest[-1].startswith("/"):
            return OUT_OF_TREE
        names = [name for link in reversed(rest) for name in link.split("/")]
        result = _walk(here, names, links)
        if isinstance(result, str):
            return result
        rest = result
    return ""


def _walk(
    here: list[str], names: list[str], links: Mapping[tuple[str, ...], str]
) -> str | list[str]:
    """Follow names up to the next link; return the rest of the path and the target, or a result."""
    for at, name in enumerate(names):
        if name in ("", "."):
            continue
        if name == "..":
            if not here:
                return OUT_OF_TREE
            here.pop()
            continue
        if normalized_name(name) == ".git":
            return INTO_GIT
        link = links.get((*here, normalized_name(name)))
        if link is not None:
            return ["/".join(names[at + 1 :]), link]
        here.append(normalized_name(name))
    return ""


def _by_names(links: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    return {tuple(map(normalized_name, path.split("/"))): target for path, target in links.items()}
