"""The rule for what this machine lacks: a program, a directory, a runtime for TypeScript.

These are warnings, because a workflow may be checked on another machine than it runs on.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from infloop.model.nodes import ScriptNode
from infloop.model.problems import short_repr
from infloop.model.references import template_texts
from infloop.model.template import Template

if TYPE_CHECKING:
    from infloop.model.check.context import CheckContext

# Our own fixed pattern: no nested repeats. A first word that is the plain name of a program.
_PROGRAM = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9_.+-]*)(?=\s|$)", re.ASCII)  # noqa: TID251
_OF_THE_SHELL = frozenset(
    (
        *("alias", "bg", "break", "builtin", "case", "cd", "command", "continue", "declare"),
        *("eval", "exec", "exit", "export", "fg", "for", "function", "getopts", "hash", "if"),
        *("jobs", "let", "local", "read", "readonly", "return", "select", "set", "shift"),
        *("shopt", "source", "time", "times", "trap", "type", "typeset", "ulimit", "umask"),
        *("unalias", "unset", "until", "wait", "while"),
    )
)


def check_machine(check: CheckContext) -> None:
    """Report what a step needs and this machine does not have."""
    machine = check.machine
    if machine is None:
        return
    for placed in check.graph.nodes:
        node = placed.node
        is_typescript = isinstance(node, ScriptNode) and node.config.language == "ts"
        if is_typescript and machine.typescript_missing:
            check.report.warning(f"{placed.place} config.language", machine.typescript_missing)
        config = node.config.to_json()
        for path, text, use in template_texts(node.type, config):
            place = f"{placed.place} config.{'.'.join(path)}"
            program = _PROGRAM.match(text) if use == "shell" else None
            if program and program[1] not in _OF_THE_SHELL and not machine.has_program(program[1]):
                check.report.warning(
                    place,
                    f"there is no program {short_repr(program[1])} here",
                    "install it, or check the workflow where it will run",
                )
            is_place = path[-1] == "cwd" and text.strip() and not Template(text).references
            if is_place and not machine.has_directory(text):
                check.report.warning(
                    place,
                    f"there is no directory {short_repr(text)} here",
                    "it begins at the directory of the run",
                )
