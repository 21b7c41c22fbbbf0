"""Writes the functions of `infloop.builder`, with which a workflow is written in Python.

    gen_builder.py [--check]

They are made from the same words as the loop file (`infloop.model.loop_file.keys`), so a new node
type or field is one for Python too. With `--check` nothing is written: it fails on a difference.
"""

from __future__ import annotations

import argparse
import keyword
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import wrap
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from infloop.model.loop_file.compiling import HEADER
from infloop.model.loop_file.forms import CHECKS, OPERATORS
from infloop.model.loop_file.keys import (
    Key,
    StepWords,
    config_model,
    kinds,
    model_keys,
    step_words,
)
from infloop.model.nodes import CheckCommand, Rubric
from infloop.model.schema import FileModel, part_model
from infloop.model.workflow import InputSpec

ROOT = Path(__file__).resolve().parent.parent
MODULE = ROOT / "src/infloop/builder.py"
PACKAGE = ROOT / "src/infloop/__init__.py"
PLACE = re.compile(r"^( *)# -- made: (\w+) --\n.*?^ *# -- end --\n", re.DOTALL | re.MULTILINE)
WIDTH = 100
# What a server writes; a file in Python is never saved by one.
LEFT_OUT = ("version", "createdAt", "updatedAt")
# The value of a kind whose forms say more than one field.
MAIN = {"condition": ("what", "str | Check"), "branch": ("comparison", "str | Comparison")}
PLAIN = {str: "str", int: "int", float: "float", bool: "bool"}


class Parameter(NamedTuple):
    """A parameter of a function."""

    name: str
    type: str
    default: str
    text: str = ""


def functions() -> str:
    """Return a function for each kind of step, and `workflow`."""
    made = [workflow_function(), *map(step_function, map(step_words, kinds()))]
    return "\n\n".join(f"\n\n{one}".strip("\n") + "\n" for one in made)


def step_function(words: StepWords) -> str:
    model = words.model
    parameters = [main_parameter(words)]
    if not words.main_is_id:
        parameters.append(Parameter("id", "str | None", "None", "Its name; references use it."))
    label = "What the console shows instead of the id."
    parameters.append(Parameter("label", "str | None", "None", label))
    if model.holds_nodes and model.opens == "round":
        text = "Ends the loop when it holds: a shell line, or a dictionary."
        parameters.append(Parameter("until", "str | Check | None", "None", text))
        parameters.append(Parameter("steps", "Iterable[Step] | None", "None", "Its body."))
    elif model.holds_nodes:
        text = "Steps that run at the same time, by the name of their branch."
        branches = "Mapping[str, Iterable[Step]] | None"
        parameters.append(Parameter("branches", branches, "None", text))
    if words.node_type not in MAIN:
        parameters += optional(words.keys)
    handles = dict.fromkeys(words.handle_key(name) for name in model.handles)
    if len(model.flow_handles({})) == 1:
        handles["next"] = None
    jumps = [Parameter(python_name(key), "Jump", "...") for key in handles]
    names = [f'"{one.name}"' for one in jumps]
    listed = f", ({', '.join(names)}{',' if len(names) == 1 else ''})" if names else ""
    body = f'return _step("{words.kind}", locals(){listed})'
    return function(words.kind, [*parameters, *jumps], "Step", str(model.__doc__), body)


def main_parameter(words: StepWords) -> Parameter:
    if words.node_type in MAIN:
        return Parameter(*MAIN[words.node_type], "")
    if words.main_is_id:
        return Parameter("id", "str | None", "None", "Its name; references use it.")
    keys = model_keys(config_model(words.model))
    main = next(one for one in preferred(keys) if one.name == words.model.main_field)
    kind, is_needed = key_type(main), main.info.default == ""
    return Parameter(
        python_name(main.key),
        kind if is_needed else f"{kind} | None",
        "" if is_needed else "None",
        described(main),
    )


def workflow_function() -> str:
    keys = {key: one for key, one in HEADER.items() if one.name not in (*LEFT_OUT, "name")}
    text = "The inputs of a run: a default, or type, default and description."
    parameters = [
        Parameter("name", "str | None", "None", "Its name for people."),
        Parameter("steps", "Iterable[Step]", "", "What it does, in this order."),
        Parameter("inputs", "Mapping[str, Text | Input | None] | None", "None", text),
        *optional(keys),
    ]
    body = "return _workflow(locals())"
    return function("workflow", parameters, "Workflow", "A whole workflow.", body)


def function(name: str, parameters: list[Parameter], result: str, said: str, body: str) -> str:
    first, *others = parameters
    lines = [f"def {python_name(name)}("]
    for number, one in enumerate((first, *others)):
        lines += ["    *,"] if number == 1 else []
        default = f" = {one.default}" if one.default else ""
        lines.append(f"    {one.name}: {one.type}{default},")
    lines.append(f") -> {result}:")
    lines.append(f'    """{said}')
    texts = [(one.name, one.text) for one in parameters if one.text]
    if texts:
        column = max(len(name) for name, _ in texts) + 3
        lines.append("")
        for named, text in texts:
            first_line, *rest = wrap(text, WIDTH - 4 - column)
            lines.append(f"    {named.ljust(column)}{first_line}")
            lines += [f"    {' ' * column}{line}" for line in rest]
        lines.append('    """')
    else:
        lines[-1] += '"""'
    return "\n".join([*lines, f"    {body}"])


def optional(keys: Mapping[str, Key]) -> list[Parameter]:
    """Return the parameters of keys; a field that has two is set by the one that is preferred."""
    return [
        Parameter(python_name(one.key), f"{key_type(one)} | None", "None", described(one))
        for one in preferred(keys)
    ]


def preferred(keys: Mapping[str, Key]) -> Iterator[Key]:
    seen: set[tuple[str, bool]] = set()
    for one in keys.values():
        if (one.name, one.form == "file") not in seen:
            seen.add((one.name, one.form == "file"))
            yield one


def types() -> str:
    """Return the dictionaries that arguments take."""
    check: dict[str, str] = dict.fromkeys(CHECKS, "str")
    for one in (*preferred(model_keys(CheckCommand, ("cmd",))),
                *preferred(model_keys(Rubric, ("rubric",)))):  # fmt: skip
        check[one.key] = key_type(one)
    check |= {"in": "str", "id": "str", "label": "str"}
    made = {
        "Check": check,
        "Comparison": dict.fromkeys(("left", *OPERATORS), "str"),
        "Input": {one.key: key_type(one) for one in preferred(model_keys(InputSpec, ("name",)))},
    }
    for key in HEADER.values():
        part = part_model(key.info.annotation)
        if part is not None:
            made[type_name(part)] = {one.key: key_type(one) for one in preferred(model_keys(part))}
    lines = []
    for name, fields in made.items():
        lines.append("")
        if any(map(keyword.iskeyword, fields)):
            lines += [f"{name} = TypedDict(", f'    "{name}",', "    {"]
            lines += [f'        "{key}": {_quoted(kind)},' for key, kind in fields.items()]
            lines += ["    },", "    total=False,", ")"]
        else:
            lines.append(f"class {name}(TypedDict, total=False):")
            lines += [f"    {key}: {kind}" for key, kind in fields.items()]
    return "\n".join(lines[1:]) + "\n"


def _quoted(kind: str) -> str:
    return kind if kind in PLAIN.values() else f"'{kind}'" if '"' in kind else f'"{kind}"'


def type_name(part: type[FileModel]) -> str:
    return part.__name__.removeprefix("Run")


def key_type(key: Key) -> str:
    match key.form:
        case "duration":
            return "Duration"
        case "money":
            return "Money"
        case "file":
            return "str"
        case "plain":
            return annotated(key.info.annotation)


def annotated(annotation: Any) -> str:
    """Return a type of the model as Python's annotation of an argument."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if annotation in PLAIN:
        return PLAIN[annotation]
    if origin is Annotated:
        return annotated(inner[0])
    if origin is Literal:
        choices = ", ".join(f'"{one}"' for one in inner)
        return f"Literal[{choices}]"
    if origin in (Union, UnionType):
        return " | ".join(annotated(one) for one in inner if one is not type(None))
    if origin is tuple:
        return f"list[{annotated(inner[0])}] | tuple[{annotated(inner[0])}, ...]"
    if origin is dict:
        return f"Mapping[str, {'Text' if inner[1] is str else 'Json'}]"
    part = part_model(annotation)
    return type_name(part) if part is not None else "Json"


def described(key: Key) -> str:
    if key.form == "file":
        return "A file that holds it."
    return str(key.info.description).replace("node", "step").replace("Nodes", "Steps")


def python_name(key: str) -> str:
    """Return a key as the name of an argument: `on_error`, `else_`."""
    name = re.sub(r"(?<=[a-z])([A-Z])", lambda found: f"_{found[1].lower()}", key)
    return f"{name}_" if keyword.iskeyword(name) else name


def names() -> list[str]:
    """Return what the package exports."""
    return sorted(["Step", "Workflow", "workflow", *map(python_name, kinds())])


def imports() -> str:
    return "\n".join(f"from infloop.builder import {one} as {one}" for one in names())


def exported() -> str:
    listed = [f'    "{one}",' for one in names()]
    return "\n".join(["_EXPORTED = {", *listed, "}"])


PARTS = {"functions": functions, "types": types, "imports": imports, "exported": exported}


def filled(text: str) -> str:
    def fill(place: re.Match[str]) -> str:
        indent, part = place.groups()
        made = "".join(f"{indent}{line}\n" if line else "\n" for line in PARTS[part]().splitlines())
        gap = "" if indent and part != "types" else "\n" if indent else "\n\n"
        return f"{indent}# -- made: {part} --\n{made}{gap}{indent}# -- end --\n"

    return PLACE.sub(fill, text)


def main() -> int:
    """Write the module, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    chosen = parser.parse_args()
    stale = False
    for file in (MODULE, PACKAGE):
        before = file.read_text(encoding="utf-8")
        after = filled(before)
        if before != after and chosen.check:
            print(f"{file.name} is stale; `make docs` makes it anew", file=sys.stderr)
            stale = True
        elif before != after:
            file.write_text(after, encoding="utf-8")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
