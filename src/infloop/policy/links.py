"""Where the links of a tree lead, by their words alone: one that leads out of it needs a person.

Whoever follows such a link reads or writes what is not part of the tree, at the next build or the
next edit. Links that stay inside are content like any other. A link can lead out by way of others,
so all links of a tree are looked at together; their names are compared as `protected` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.policy.protected_paths import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

OUT = "a link out of the tree"
INTO_GIT = "a link into git's own files"

_MOST_HOPS = 40
"""As many links as a kernel follows for one path; one that needs more leads nowhere."""


def links_out_of_tree(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """Return the links that lead out of a tree and did not before, each with the reason.

    Given are all links of the tree, by path, with the words of each: it may be the change of
    another link that leads an old one out.
    """
    knew, knows = _by_names(before), _by_names(after)
    found: dict[str, str] = {}
    for path, target in after.items():
        why = _why(path, target, knows)
        if why and not (before.get(path) == target and _why(path, target, knew)):
            found[path] = why
    return found


def _why(path: str, target: str, links: Mapping[tuple[str, ...], str]) -> str:
    """Return why the link at a path leads links_out_of_tree, or nothing."""
    here = [plain(name) for name in path.split("/")[:-1]]
    ahead = [target]
    for _ in range(_MOST_HOPS):
        if ahead[-1].startswith("/"):
            return OUT
        way = [name for words in reversed(ahead) for name in words.split("/")]
        turn = _walk(here, way, links)
        if isinstance(turn, str):
            return turn
        ahead = turn
    return ""


def _walk(here: list[str], way: list[str], links: Mapping[tuple[str, ...], str]) -> str | list[str]:
    """Go a way up to the next link; return what is ahead then, its words last, or the verdict."""
    for at, name in enumerate(way):
        if name in ("", "."):
            continue
        if name == "..":
            if not here:
                return OUT
            here.pop()
            continue
        if plain(name) == ".git":
            return INTO_GIT
        words = links.get((*here, plain(name)))
        if words is not None:
            return ["/".join(way[at + 1 :]), words]
        here.append(plain(name))
    return ""


def _by_names(links: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    return {tuple(map(plain, path.split("/"))): target for path, target in links.items()}
