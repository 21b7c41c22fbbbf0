"""The forms of `check`, `until` and `if`, which say more than one field in one value.

until: pytest -q                                      a shell line
until: {command: pytest -q, cwd: …, timeout: 10m}     … with its options
until: {contains: DONE, in: "{{fix.result}}"}         a text to look for; `matches` is RE2
until: {judge: It reads well., provider: claude}      a question to a model
until: {kind: command, command: {cmd: …}}             the configuration of the JSON file

if: "{{rounds.broke}} == true"
if: {left: "{{rounds.broke}}", is: "true"}            or isNot, contains, matches
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from infloop.model.loop_file.keys import Key, config_model, model_keys
from infloop.model.loop_file.rendering import render_fields
from infloop.model.loop_file.tree import Fields, Scalar, plain
from infloop.model.nodes import NODE_MODELS, CheckCommand, Rubric
from infloop.model.problems import short_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from infloop.model.loop_file.steps import Spot
    from infloop.model.loop_file.tree import Tree
    from infloop.model.loop_file.values import Values
    from infloop.model.positions import Path
    from infloop.model.values import JsonObject, JsonValue

OPERATORS = {"is": "==", "isNot": "!=", "contains": "contains", "matches": "matches"}
# The part that a key of `check` belongs to, and the field that the key sets.
CHECKS = {
    "command": ("command", "cmd"),
    "contains": ("sentinel", "pattern"),
    "matches": ("sentinel", "pattern"),
    "judge": ("judge", "rubric"),
}

# Our own fixed pattern: no nested repeats.
_OPERATOR = re.compile(r"\s(==|!=|contains|matches)(?=\s|$)")  # noqa: TID251


# -- check and until -------------------------------------------------------------------------


def read_check(
    tree: Tree,
    values: Values,
    spot: Spot,
    spots: dict[Path, Spot],
    other: tuple[str, ...] = (),
) -> JsonObject | None:
    """Return the configuration of a condition; the keys in `other` are read elsewhere."""
    if isinstance(tree, Scalar):
        if tree.value is None:
            values.error(spot, "is empty", "write a shell line, or {contains: …, in: …}")
            return None
        spots["config", "command", "cmd"] = spot
        return {"kind": "command", "command": {**CheckCommand.loop_defaults, "cmd": tree.text}}
    if not isinstance(tree, Fields):
        values.error(spot, f"expected a shell line or keys, got {short_repr(plain(tree))}")
        return None
    if "kind" in tree.members:
        keys = model_keys(config_model(NODE_MODELS["condition"]))
        return values.fields(tree, keys, spot, spots, ("config",), other)
    chosen = [key for key in CHECKS if key in tree.members]
    if len(chosen) != 1:
        values.error(
            spot,
            f"has {' and '.join(map(repr, chosen))}" if chosen else "says nothing to check",
            f"write one of {', '.join(CHECKS)}",
        )
        return None
    kind, main = CHECKS[chosen[0]]
    made: JsonObject = {"kind": kind}
    keys = {"in": _key("in", "against")}
    if kind == "sentinel":
        keys[chosen[0]] = _key(chosen[0], main)
    else:
        part = CheckCommand if kind == "command" else Rubric
        keys |= model_keys(part, (main,))
        keys[chosen[0]] = Key(chosen[0], main, "plain", part.model_fields[main])
    found: dict[Path, Spot] = {}
    inner = values.fields(tree, keys, spot, found, (), other)
    spots |= {
        ("config", "against") if path == ("against",) else ("config", kind, *path): where
        for path, where in found.items()
    }
    if "against" in inner:
        made["against"] = inner.pop("against")
    if kind == "sentinel":
        inner["isRegex"] = chosen[0] == "matches"
    made[kind] = {**(CheckCommand.loop_defaults if kind == "command" else {}), **inner}
    return made


def _key(key: str, name: str) -> Key:
    fields = config_model(NODE_MODELS["condition"]).model_fields
    return Key(key, name, "plain", fields["against"])


def write_check(config: JsonObject) -> JsonValue:
    """Return the shortest form that means this configuration."""
    kind = str(config.get("kind"))
    part = config.get(kind)
    others = {key for key in config if key not in ("kind", kind, "against")}
    if others or not isinstance(part, dict) or kind not in (each for each, _ in CHECKS.values()):
        return config
    made: JsonObject = {}
    if kind == "sentinel":
        made["matches" if part.get("isRegex") else "contains"] = part.get("pattern", "")
    else:
        model, main = (CheckCommand, "cmd") if kind == "command" else (Rubric, "rubric")
        made = {kind: part.get(main, ""), **render_fields(model, part, (main,))}
    if "against" in config:
        made["in"] = config["against"]
    return made


# -- if --------------------------------------------------------------------------------------


def read_if(tree: Tree, values: Values, spot: Spot, spots: dict[Path, Spot]) -> JsonObject | None:
    """Return the configuration of a branch."""
    if isinstance(tree, Scalar) and tree.value is not None:
        for name in ("lhs", "op", "rhs"):
            spots["config", name] = spot
        made = comparison(tree.text)
        if made is None:
            values.error(
                spot,
                f"{short_repr(tree.text)} is not one comparison",
                'write "{{step.output}} == text" (or !=, contains, matches), or {left: …, is: …}',
            )
            return None
        return made
    if not isinstance(tree, Fields):
        values.error(spot, "says nothing to compare", 'write "{{step.output}} == text"')
        return None
    operator = [key for key in OPERATORS if key in tree.members]
    if len(operator) != 1:
        values.error(spot, "needs one comparison", f"write left and one of {', '.join(OPERATORS)}")
        return None
    names = {"left": "lhs", operator[0]: "rhs"}
    fields = config_model(NODE_MODELS["branch"]).model_fields
    keys = {key: Key(key, name, "plain", fields[name]) for key, name in names.items()}
    made = values.fields(tree, keys, spot, spots, ("config",))
    return {**made, "op": OPERATORS[operator[0]]}


def comparison(text: str) -> JsonObject | None:
    """Return what a comparison on one line means; None if it can be read in two ways."""
    found = list(_OPERATOR.finditer(text))
    if len(found) != 1:
        return None
    left, right = text[: found[0].start()].strip(), text[found[0].end() :].strip()
    if not left or right[:1] in ("'", '"'):
        return None
    return {"lhs": left, "op": found[0][1], "rhs": right}


def write_if(config: JsonObject) -> JsonValue:
    """Return the shortest form that means this configuration."""
    left, operator, right = config.get("lhs", ""), config.get("op", "=="), config.get("rhs", "")
    text = f"{left} {operator} {right}".rstrip()
    if comparison(text) == {"lhs": left, "op": operator, "rhs": right} and "\n" not in text:
        return text
    key = next(key for key, meant in OPERATORS.items() if meant == operator)
    return {"left": left, key: right}


Reader: TypeAlias = "Callable[[Tree, Values, Spot, dict[Path, Spot]], JsonObject | None]"
Writer: TypeAlias = "Callable[[JsonObject], JsonValue]"

FORMS: Mapping[str, tuple[Reader, Writer]] = {
    "condition": (read_check, write_check),
    "branch": (read_if, write_if),
}
