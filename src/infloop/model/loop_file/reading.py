"""Reads a loop file: bytes, tree, workflow."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from infloop.model.loop_file.compiling import compile_tree
from infloop.model.loop_file.source import LoopSource
from infloop.model.loop_file.tree import read_tree
from infloop.model.parsing import Parsed, parse_content
from infloop.model.positions import at_the_top
from infloop.model.problems import Report
from infloop.model.references import template_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from infloop.model.loop_file.compiling import Compiled
    from infloop.model.loop_file.tree import Fields
    from infloop.model.positions import Source
    from infloop.model.values import JsonObject, JsonValue

# Our own fixed pattern: linear, no nested repeats.
_CHECK_REFERENCE = re.compile(  # noqa: TID251
    r"(\{\{\s*)([A-Za-z0-9_-]+)\.check(?=[\s.}])", re.ASCII
)


def parse_loop_file(
    data: bytes,
    workflow_id: str,
    read_file: Callable[[str], str],
    *,
    expected_id: str | None = None,
) -> Parsed:
    """Read a loop file whose name says that its id is `workflow_id`.

    `read_file` returns the text of a file that it names, or raises `UnusableFile`.
    """
    report = Report()
    text, tree = read_tree(data, report)
    if tree is None:
        return Parsed(None, tuple(at_the_top(report.problems)))
    return parse_tree(
        tree, report, workflow_id, read_file, partial(LoopSource, text), expected_id=expected_id
    )


def parse_tree(
    tree: Fields,
    report: Report,
    workflow_id: str,
    read_file: Callable[[str], str],
    source_of: Callable[[Compiled], Source],
    *,
    expected_id: str | None = None,
) -> Parsed:
    """Read the tree of a loop file, in whichever language it was written."""
    compiled = compile_tree(tree, workflow_id, report, read_file)
    _resolve_checks(compiled.content["nodes"], compiled.checks)
    source = source_of(compiled)
    parsed = parse_content(
        compiled.content, report, source, expected_id=expected_id, files=compiled.files
    )
    content = {**compiled.with_unknown_keys} if parsed.content else {}
    return replace(parsed, unknown=parsed.unknown | compiled.unknown, content=content)


def _resolve_checks(nodes: JsonValue, checks: Mapping[str, str]) -> None:
    """Let `{{rounds.check.stdout}}` mean the condition of that loop's `until`."""
    for node in nodes if isinstance(nodes, list) else ():
        assert isinstance(node, dict)
        config = node.get("config")
        if checks and isinstance(config, dict):
            _resolve_in(str(node["type"]), config, checks)
        _resolve_checks(node.get("children"), checks)


def _resolve_in(node_type: str, config: JsonObject, checks: Mapping[str, str]) -> None:
    for path, text, _ in list(template_texts(node_type, config)):
        if ".check" not in text:
            continue
        meant = _CHECK_REFERENCE.sub(
            lambda found: found[1] + checks[found[2]] if found[2] in checks else found[0], text
        )
        holder: JsonValue = config
        for key in path[:-1]:
            holder = holder[int(key) if isinstance(holder, list) else key]  # type: ignore[index]
        if isinstance(holder, list):
            holder[int(path[-1])] = meant
        elif isinstance(holder, dict):
            holder[path[-1]] = meant
