"""Which workflow wrote a file, and what that may start. Pure.

Rules
  * What a running workflow writes does not start it again.
  * It may start another workflow. The chain of causes is remembered.
  * A workflow that is in the chain already is not started: that would go on for ever.
  * A person's change begins a new chain.
  * A change of which nobody knows whether the workflow or a person made it starts the workflow
    again, once: the chain says that it was the workflow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


class Link(NamedTuple):
    """A workflow wrote a file."""

    workflow: str
    file: str


Chain: TypeAlias = tuple[Link, ...]


class Writer(msgspec.Struct, frozen=True):
    """A running workflow, everything that runs with it, and what caused it.

    With `unclear` it may have been a person.
    """

    workflow: str
    tree: frozenset[str]
    chain: Chain = ()
    unclear: bool = False


class Started(msgspec.Struct, frozen=True):
    """A workflow that starts because of these files."""

    workflow: str
    files: tuple[str, ...]
    chain: Chain = ()


class Decision(msgspec.Struct, frozen=True):
    """What changes start, and the cycles that are stopped, each as a sentence."""

    starts: tuple[Started, ...]
    cycles: tuple[str, ...] = ()


def decide(
    changed: Mapping[str, Writer | None], workflows_of: Mapping[str, Collection[str]]
) -> Decision:
    """Return what starts, in the order of the workflows' names.

    `changed` says for each file which workflow wrote it, None for a person. `workflows_of` says
    which workflows a file belongs to.
    """
    files: dict[str, list[str]] = {}
    chains: dict[str, Chain] = {}
    cycles: dict[str, None] = {}
    for file in sorted(changed):
        writer = changed[file]
        for workflow in workflows_of.get(file, ()):
            if writer is not None:
                if workflow in writer.tree and not writer.unclear:
                    continue
                if workflow in (link.workflow for link in writer.chain):
                    cycles[_cycle(writer, file, workflow)] = None
                    continue
                chain = (*writer.chain, Link(writer.workflow, file))
                chains[workflow] = max(chains.get(workflow, ()), chain, key=len)
            files.setdefault(workflow, []).append(file)
    starts = tuple(
        Started(name, tuple(files[name]), chains.get(name, ()))
        for name in sorted(files, key=str.encode)
    )
    return Decision(starts, tuple(cycles))


def _cycle(writer: Writer, file: str, workflow: str) -> str:
    links = [*writer.chain, Link(writer.workflow, file)]
    begin = next(index for index, link in enumerate(links) if link.workflow == workflow)
    return _sentence(links[begin:])


def _sentence(links: Iterable[Link]) -> str:
    (first, *others) = links
    text = f"`{first.workflow}` wrote `{first.file}`"
    written = {first.file}
    for link in others:
        again = "rewrites" if link.file in written else "writes"
        text += f", which triggers `{link.workflow}`, which {again} `{link.file}`"
        written.add(link.file)
    return text
