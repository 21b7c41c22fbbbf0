"""Writes a loop file as a workflow in Python, and builds one without a sandbox."""

from __future__ import annotations

import keyword
import re
from typing import Any

from infloop import builder
from infloop.model.loop_file.keys import kinds, step_words
from infloop.model.loop_file.tree import plain, read_tree
from infloop.model.problems import Report

LEFT_OUT = ("layout", "version", "createdAt", "updatedAt")
CAPITAL = re.compile("[A-Z]")


def python_text(loop_file: str) -> str:
    """Return the same workflow in Python; what a console or a server writes is left out."""
    tree = read_tree(loop_file.encode(), Report())[1]
    assert tree is not None
    content: Any = plain(tree)
    steps = _steps(content.pop("steps", None) or [])
    rest = {key: value for key, value in content.items() if key not in LEFT_OUT}
    arguments = [f"{_name(key)}={value!r}" for key, value in rest.items() if value is not None]
    return f"from infloop import *\nflow = workflow({', '.join([*arguments, f'steps={steps}'])})\n"


def _steps(steps: list[dict[str, Any]]) -> str:
    return f"[{', '.join(map(_step, steps))}]"


def _step(step: dict[str, Any]) -> str:
    kind = next(kind for kind in kinds() if kind in step)
    words = step_words(kind)
    arguments = [repr(step[kind])]
    for key, value in step.items():
        if key == kind:
            continue
        if key == "branches":
            branches = [f"{name!r}: {_steps(inner)}" for name, inner in value.items()]
            arguments.append(f"branches={{{', '.join(branches)}}}")
        elif key == "steps" or (key in (*words.handles, "next") and isinstance(value, list)):
            arguments.append(f"{_name(key)}={_steps(value)}")
        else:
            arguments.append(f"{_name(key)}={value!r}")
    return f"{_name(kind)}({', '.join(arguments)})"


def _name(key: str) -> str:
    name = CAPITAL.sub(lambda found: f"_{found[0].lower()}", key)
    return f"{name}_" if keyword.iskeyword(name) else name


def built(text: str) -> builder.Workflow:
    """Execute a workflow in Python here."""
    names: dict[str, Any] = {name: getattr(builder, name) for name in vars(builder)}
    exec(text.replace("from infloop import *\n", ""), names)
    flow = names["flow"]
    assert isinstance(flow, builder.Workflow)
    return flow


def sent(value: Any) -> list[object]:
    """Return what the sandbox would send of a value, without positions."""
    if isinstance(value, builder.Step):
        return ["m", {key: sent(one) for key, one in value.keys.items()}, None]
    if isinstance(value, dict):
        return ["m", {key: sent(one) for key, one in value.items()}, None]
    if isinstance(value, list):
        return ["l", [sent(one) for one in value], None]
    return ["s", value, None]
