"""Reports everything that is wrong with a workflow, all at once.

A rule checks the whole workflow and reports what it finds; `RULES` lists the rules. An error means
that the workflow cannot run as it is written. A warning means that it may not do what its author
thinks. The time is linear in the size of the file.

    context      what a rule is given: the workflow, the report, known workflows and providers
    graph        a workflow's nodes by id, and its edges
    flow         which step can run before which
    available    the references that a node may use

    header       rules for the workflow itself: id, name, globals, limits, inputs
    ids          … ids of nodes, and the start node
    edges        … edges
    nodes        … the configuration of each node
    scripts      … the syntax of scripts
    machine      … programs, directories and runtimes that this machine lacks
    reach        … nodes that can never run
    outcomes     … failures that a run would not show
    references   … references that can never resolve
    calls        … calls of other workflows

The rules for the configuration of one node type are in `infloop.model.nodes`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from infloop.model.check.calls import check_calls
from infloop.model.check.context import CheckContext, KnownWorkflows
from infloop.model.check.edges import check_edges
from infloop.model.check.graph import Graph
from infloop.model.check.header import check_header, check_inputs
from infloop.model.check.ids import check_ids, check_start
from infloop.model.check.machine import check_machine
from infloop.model.check.nodes import check_nodes
from infloop.model.check.outcomes import check_outcomes
from infloop.model.check.reach import check_reach
from infloop.model.check.references import check_references
from infloop.model.check.scripts import check_scripts
from infloop.model.parsing import Parsed
from infloop.model.problem_subjects import with_subjects
from infloop.model.problems import Report

if TYPE_CHECKING:
    from collections.abc import Collection

    from infloop.errors import Problem
    from infloop.model.check.context import Lookup, Machine
    from infloop.model.workflow import Workflow

Rule: TypeAlias = Callable[[CheckContext], None]

RULES: tuple[Rule, ...] = (
    check_header,
    check_inputs,
    check_ids,
    check_start,
    check_edges,
    check_nodes,
    check_scripts,
    check_machine,
    check_reach,
    check_outcomes,
    check_references,
    check_calls,
)


def check_workflow(
    workflow: Workflow | Parsed,
    *,
    known_workflows: Lookup | None = None,
    known_providers: Collection[str] | None = None,
    machine: Machine | None = None,
) -> list[Problem]:
    """Return every problem of a workflow, including those that were found while reading it.

    Calls are followed through `known_workflows`, and providers are looked up in `known_providers`.
    Programs and directories are looked up on `machine`. Without an argument these are not checked.
    """
    report = Report()
    unknown: frozenset[str] = frozenset()
    parsed = workflow if isinstance(workflow, Parsed) else None
    if isinstance(workflow, Parsed):
        for problem in workflow.problems:
            report.add(problem)
        if workflow.workflow is None:
            return report.problems
        unknown, workflow = workflow.unknown, workflow.workflow
    check = CheckContext(
        Graph(workflow, unknown),
        report,
        KnownWorkflows(workflow, known_workflows),
        known_providers,
        machine,
    )
    for rule in RULES:
        rule(check)
    if parsed is None or parsed.source is None:
        return report.problems
    return parsed.source.located(with_subjects(report.problems, parsed.content))
