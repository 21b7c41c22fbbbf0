"""The rule for scripts: code that is not Python. Nothing of it is run.

The script's interpreter may know a newer syntax than ours, so this is a warning. The amount of code
is bounded, because parsing takes longer than everything else.
"""

from __future__ import annotations

import ast
import sys
import warnings
from typing import TYPE_CHECKING

from infloop.model.nodes import ScriptNode

if TYPE_CHECKING:
    from infloop.model.check.context import CheckContext

MAX_CHARS = 100_000
"""How much code of one workflow is parsed."""


def check_scripts(check: CheckContext) -> None:
    """Report Python code with a mistake of syntax."""
    left = MAX_CHARS
    for placed in check.graph.nodes:
        node = placed.node
        if not isinstance(node, ScriptNode) or node.config.language != "py":
            continue
        left -= len(node.config.code)
        if left < 0:
            return
        problem = _syntax_problem(node.config.code)
        if problem:
            version = ".".join(map(str, sys.version_info[:2]))
            check.report.warning(
                f"{placed.place} config.code", problem, f"this is how Python {version} reads it"
            )


def _syntax_problem(code: str) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an odd escape in a text
            ast.parse(code)
    except SyntaxError as error:
        return f"line {error.lineno}: not Python: {error.msg}"
    except (ValueError, RecursionError, MemoryError):  # nested too deeply for us
        return ""
    return ""
