"""Rules about the configuration of each node, by its type."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from infloop.model.patterns import BadPattern, compile_pattern
from infloop.model.problems import shown
from infloop.model.template import Template
from infloop.model.workflow import (
    AgentNode,
    BranchNode,
    ConditionNode,
    JudgeNode,
    LoopNode,
    ParallelNode,
    ScriptNode,
)

if TYPE_CHECKING:
    from infloop.model.check.case import Case

# Our own fixed pattern: no nested repeats.
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)  # noqa: TID251


def check_nodes(case: Case) -> None:
    """Report a configuration with which a node could not do its work."""
    for seat in case.graph.seats:
        node, place = seat.node, seat.place
        if node.children and not node.holds_nodes and node.id not in case.graph.unknown:
            case.report.error(
                f"{place} children",
                f"a node of type {node.type!r} holds no other nodes",
                "only loop and parallel do; move them out",
            )
        match node:
            case AgentNode():
                _agent(case, place, node)
            case ScriptNode():
                _script(case, place, node)
            case ConditionNode():
                _condition(case, place, node)
            case LoopNode():
                _loop(case, place, node)
            case BranchNode():
                if node.config.op == "matches":
                    _pattern(case, f"{place} config.rhs", node.config.rhs)
            case ParallelNode():
                _parallel(case, place, node)
            case JudgeNode():
                _judge(case, place, node)
            case _:
                pass


def _agent(case: Case, place: str, node: AgentNode) -> None:
    if not node.config.prompt.strip():
        case.report.error(f"{place} config.prompt", "is empty", "say what the agent should do")
    _provider(case, f"{place} config.providerId", node.config.provider_id)
    case.not_negative(f"{place} config.timeoutMs", node.config.timeout_ms)


def _script(case: Case, place: str, node: ScriptNode) -> None:
    if not node.config.code.strip():
        case.report.error(f"{place} config.code", "is empty", "define a top-level function run")
    case.not_negative(f"{place} config.timeoutMs", node.config.timeout_ms)
    seen = set(node.outputs)
    for index, name in enumerate(node.config.outputs):
        if name in seen:
            case.report.error(
                f"{place} config.outputs[{index}]",
                f"{shown(name)} is already an output of this node",
                "choose another name",
            )
        seen.add(name)


def _condition(case: Case, place: str, node: ConditionNode) -> None:
    config, report = node.config, case.report
    match config.kind:
        case "sentinel":
            if config.sentinel is None or not config.sentinel.pattern:
                report.error(f"{place} config.sentinel.pattern", "is empty", "say what to look for")
            elif config.sentinel.is_regex:
                _pattern(case, f"{place} config.sentinel.pattern", config.sentinel.pattern)
        case "command":
            if config.command is None or not config.command.cmd.strip():
                report.error(f"{place} config.command.cmd", "is empty", "write a shell command")
            else:
                case.not_negative(f"{place} config.command.timeoutMs", config.command.timeout_ms)
                for name in config.command.env:
                    _variable(case, f"{place} config.command.env", name)
        case "judge":
            if config.judge is None or not config.judge.rubric.strip():
                report.error(f"{place} config.judge.rubric", "is empty", "say what must hold")
            else:
                provider = config.judge.provider_id or "claude"
                _provider(case, f"{place} config.judge.providerId", provider)


def _loop(case: Case, place: str, node: LoopNode) -> None:
    case.not_negative(f"{place} config.maxIterations", node.config.max_iterations)
    if not node.children:
        case.report.warning(place, "the loop is empty", "put nodes into its children")


def _parallel(case: Case, place: str, node: ParallelNode) -> None:
    branches = len(case.graph.roots(node))
    if not branches:
        reason = "its children lead to each other in a circle" if node.children else "it is empty"
        case.report.warning(place, f"the parallel has no branches: {reason}")
    quorum = node.config.quorum_n
    if node.config.mode == "quorum" and not 1 <= (quorum or 0) <= branches:
        case.report.error(
            f"{place} config.quorumN",
            "is missing" if quorum is None else f"{quorum} of {branches} branches is no quorum",
            f"use a number from 1 to {branches}" if branches else "add branches",
        )


def _judge(case: Case, place: str, node: JudgeNode) -> None:
    if len(node.config.candidates) < 2:
        case.report.error(
            f"{place} config.candidates",
            f"{len(node.config.candidates)} given; a judge compares at least two",
            "add another candidate",
        )
    if not node.config.criteria.strip():
        case.report.warning(f"{place} config.criteria", "is empty", "say what makes one better")
    _provider(case, f"{place} config.providerId", node.config.provider_id or "claude")


def _provider(case: Case, place: str, name: str) -> None:
    if not name.strip():
        case.report.error(place, "is empty", "name a provider, such as 'claude'")
    elif case.providers is not None and name not in case.providers:
        case.report.warning(
            place,
            f"there is no provider {shown(name)} here",
            case.report.guess(name, case.providers) or "add its manifest to the providers folder",
        )


def _variable(case: Case, place: str, name: str) -> None:
    if not _VARIABLE.fullmatch(name):
        case.report.error(
            place,
            f"{shown(name)} cannot be the name of a variable",
            "use letters, digits and underscores, not a digit first",
        )
    elif name.upper().startswith("INFLOOP_"):
        case.report.error(place, f"{name!r} never reaches a child", "use a name without INFLOOP_")


def _pattern(case: Case, place: str, pattern: str) -> None:
    if Template(pattern).references:
        return
    try:
        compile_pattern(pattern)
    except BadPattern as error:
        case.report.error(
            place,
            f"not a pattern that can run in linear time: {error}",
            "RE2 syntax has no look-around and no back-references",
        )
