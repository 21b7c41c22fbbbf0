"""What is found out about a definition once, however many runs it has.

A server starts many runs of what it read from a file once: it is encoded, compiled and looked
through for each definition, not for each run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from infloop.engine.graph import compile_program
from infloop.policy.taint import find_violations
from infloop.store.interfaces.run_log import definition_hash

if TYPE_CHECKING:
    from infloop.engine.graph import Definition, Program
    from infloop.policy.taint import TaintViolation

MOST_KNOWN = 64


@dataclass(frozen=True, slots=True)
class Known:
    """A definition, its bytes and their name, and how it is walked."""

    definition: Definition
    data: bytes
    name: str
    program: Program
    _violations: dict[tuple[tuple[str, ...], bool], tuple[TaintViolation, ...]] = field(
        default_factory=dict
    )

    def violations(
        self, untrusted: tuple[str, ...], *, confined: bool
    ) -> tuple[TaintViolation, ...]:
        """Return where an untrusted input would arrive and must not: see `policy.taint`."""
        asked = untrusted, confined
        if asked not in self._violations:
            found = self.definition
            self._violations[asked] = find_violations(
                found.workflows, found.root, untrusted, confined=confined
            )
        return self._violations[asked]


class Definitions:
    """The definitions of which runs were started lately."""

    def __init__(self) -> None:
        self._known: dict[int, Known] = {}

    def known(self, definition: Definition) -> Known:
        """Return what is known of a definition; it must not be changed any more."""
        # It is kept with what is known of it, so its id stays its own.
        found = self._known.pop(id(definition), None) or _look_at(definition)
        self._known[id(definition)] = found
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
        return found


def _look_at(definition: Definition) -> Known:
    data = definition.encode()
    return Known(definition, data, definition_hash(data), compile_program(definition))
