"""What every rule is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from infloop.model.check.flow import Flow
from infloop.model.check.graph import Graph
from infloop.model.names import is_file_name
from infloop.model.workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Collection

    from infloop.model.problems import Report

Lookup: TypeAlias = Mapping[str, Workflow] | Callable[[str], Workflow | None]


class KnownWorkflows:
    """The workflows that can be called, including the one that is checked."""

    def __init__(self, root: Workflow, known: Lookup | None) -> None:
        self._root = root
        self._known = known
        self._graphs: dict[str, Graph] = {}

    @property
    def open(self) -> bool:
        """Whether the existing workflows are known."""
        return self._known is not None

    def find(self, name: str) -> Workflow | None:
        """Return the workflow with the id `name`."""
        if name == self._root.id:
            return self._root
        if self._known is None or not is_file_name(name):
            return None
        return self._known.get(name) if isinstance(self._known, Mapping) else self._known(name)

    def names(self) -> list[str]:
        """Return the ids of the known workflows; empty if they cannot be listed."""
        return list(self._known) if isinstance(self._known, Mapping) else []

    def graph(self, workflow: Workflow) -> Graph:
        """Return the graph of a called workflow, from a cache."""
        if workflow.id not in self._graphs:
            self._graphs[workflow.id] = Graph(workflow, frozenset())
        return self._graphs[workflow.id]


class Machine(Protocol):
    """What a check may know about the machine that it runs on."""

    @property
    def typescript_missing(self) -> str:
        """Why no TypeScript can run here; empty if it can."""

    def has_program(self, name: str) -> bool:
        """Say whether a program is on PATH."""

    def has_directory(self, path: str) -> bool:
        """Say whether there is a directory; a relative path begins where the check runs."""


class CheckContext(msgspec.Struct, frozen=True, dict=True):
    """The workflow that is checked, the report, and what is known besides."""

    graph: Graph
    report: Report
    library: KnownWorkflows
    providers: Collection[str] | None
    machine: Machine | None = None

    def mistake(self, place: str, message: str, hint: str = "") -> None:
        """Report what can run and is hardly meant: an error in a strict workflow, else a warning.

        Workflows of other tools contain such things and run all the same.
        """
        report = self.report.error if self.graph.workflow.strict else self.report.warning
        report(place, message, hint)

    @cached_property
    def flow(self) -> Flow:
        """The flow graph of the workflow."""
        return Flow(self.graph)
