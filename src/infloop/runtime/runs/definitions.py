"""Facts about a definition that are worked out once and used by every run of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from infloop.engine.graph import compile_program
from infloop.policy.taint import find_violations
from infloop.store.interfaces.run_log import definition_hash

if TYPE_CHECKING:
    from infloop.engine.graph import Definition, Program
    from infloop.model.values import JsonObject
    from infloop.policy.taint import TaintViolation


class PreparedDefinition(msgspec.Struct, frozen=True):
    """A definition, its stored bytes and their hash, and the compiled program.

    The definition must not change any more.
    """

    definition: Definition
    data: bytes
    hash: str
    program: Program
    _violations: dict[tuple[tuple[str, ...], bool], tuple[TaintViolation, ...]] = msgspec.field(
        default_factory=dict
    )

    @property
    def root(self) -> str:
        """The id of the workflow that a run begins with."""
        return self.definition.root

    @property
    def workflow(self) -> JsonObject:
        """The workflow that a run begins with."""
        return self.definition.workflows[self.root]

    def violations(
        self, untrusted: tuple[str, ...], *, confined: bool
    ) -> tuple[TaintViolation, ...]:
        """Return where an untrusted input would arrive and must not: see `policy.taint`."""
        key = untrusted, confined
        if key not in self._violations:
            self._violations[key] = find_violations(
                self.definition.workflows, self.root, untrusted, confined=confined
            )
        return self._violations[key]


def prepare(definition: Definition) -> PreparedDefinition:
    """Encode, hash and compile a definition."""
    data = definition.encode()
    return PreparedDefinition(definition, data, definition_hash(data), compile_program(definition))
