"""Writes the parts of the documents that the program itself knows.

    gen_docs.py [--check]

A document has places for them:

    <!-- made: node agent -->
    …
    <!-- end -->

What stands between the two lines is replaced by what `PARTS` makes of the words after "made:".

A link to a test, `[test_name](…)`, gets the path of the file that holds the test; a test that does
not exist is an error.

The diffs of `extending.md` get the line numbers and the context that the source has now.

With `--check` nothing is written: it fails when a document differs from what would be written.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from prometheus_client import Counter, Gauge, Histogram

from infloop import cli
from infloop.application.checks import CHECKS
from infloop.mcp_server.toolbox import UTILITIES
from infloop.model import nodes, plugin, trigger, workflow
from infloop.model.audit import ACTORS, EVENTS
from infloop.model.loop_file import keys as loop_keys
from infloop.model.records import FieldInfo
from infloop.model.schema import FileModel, part_model
from infloop.model.values import compact_json
from infloop.settings import Settings, variable
from infloop.tools import shell, workspace
from infloop.tools.browser import family as browser
from infloop.tools.web import family as web
from infloop.web.metrics import Metrics

EXTENDING = "extending.md"
DOCS = Path(__file__).resolve().parent.parent / "docs"
TESTS = DOCS.parent / "tests"
PLACE = re.compile(
    r"^(<!-- made: (\w+)(?: (\w+))? -->\n).*?(<!-- end -->)", re.DOTALL | re.MULTILINE
)
TEST_LINK = re.compile(r"\[(test_\w+)\]\(([^)]*)\)")
DIFF = re.compile(r"(?<=^```diff\n).*?(?=^```$)", re.DOTALL | re.MULTILINE)
PATCHED_FILE = re.compile(r"^\+\+\+ b/(.+)$", re.MULTILINE)
TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)


def node(kind: str) -> str:
    """Return everything about a node type: what it does, its fields, its outputs, its handles."""
    model = nodes.NODE_MODELS[kind]
    exits = ", ".join(f"`{handle}`" for handle in model.handles) or "none; nothing follows it"
    parts = [str(model.__doc__), f"Handles: {exits}."]
    config = part_model(model.model_fields["config"].annotation)
    rows = list(field_rows(config)) if config else []
    if rows:
        parts.append(field_table(rows))
    if model.outputs:
        listed = [(f"`{name}`", text) for name, text in model.outputs.items()]
        parts.append(table(("output", "meaning"), listed))
    return "\n\n".join(parts)


def steps(_: str) -> str:
    """Return the kinds of steps of a loop file, with their keys."""
    rows = []
    for kind in loop_keys.kinds():
        words = loop_keys.step_words(kind)
        value = {"condition": "what to check", "branch": "a comparison"}.get(words.node_type, "")
        value = value or ("its id" if words.main_is_id else f"`{words.model.main_field}`")
        preferred: dict[tuple[str, bool], str] = {}
        for key in words.keys.values() if words.node_type not in ("condition", "branch") else ():
            preferred.setdefault((key.name, key.form == "file"), f"`{key.key}`")
        inside = {"round": ["`steps`", "`until`"], "branch": ["`branches`"]}
        nested = inside[words.model.opens or ""] if words.model.holds_nodes else []
        handles = dict.fromkeys(words.handles.values())
        ways = [f"`{words.handle_key(handle)}`" for handle in handles]
        rows.append(
            (f"`{kind}`", value, f"[{words.node_type}](workflow-format.md#{words.node_type})",
             ", ".join([*nested, *preferred.values()]), ", ".join(ways))
        )  # fmt: skip
    return table(("kind", "value", "node type", "other keys", "ways out"), rows)


def fields(name: str) -> str:
    """Return the fields of one of the other parts of a workflow file, a trigger or a plugin."""
    model: type[FileModel] = next(
        getattr(module, name)
        for module in (workflow, nodes, trigger, plugin)
        if hasattr(module, name)
    )
    return field_table(list(field_rows(model, flat=True)))


def settings(_: str) -> str:
    """Return all settings."""
    rows = []
    for name, info in Settings.model_fields.items():
        default = "" if info.factory or info.default in (None, "") else f"`{info.default}`"
        rows.append((f"`{variable(name)}`", f"`{name}`", type_name(info), default, said(info)))
    return table(("variable", "in the file", "type", "default", "meaning"), rows)


def help_text(command: str) -> str:
    """Return what `infloop COMMAND --help` prints at 80 columns."""
    parser = cli.command_parser(command) if command else cli.parser()
    return f"```text\n{parser.format_help().rstrip()}\n```"


def audit(what: str) -> str:
    """Return what the audit log knows: its events, or who can have acted."""
    if what == "actors":
        return table(("kind", "who"), [(f"`{kind}`", who) for kind, who in ACTORS.items()])
    rows = [
        (f"`{name}`", kind.meaning, "routine" if kind.routine else "")
        for name, kind in EVENTS.items()
    ]
    return table(("event", "meaning", ""), rows)


def tools(_: str) -> str:
    """Return the tools that MCP clients have beside those of workflows."""
    rows = []
    for tool in UTILITIES:
        takes: Any = tool.schema["properties"]
        needed: Any = tool.schema.get("required", [])
        named = [f"`{name}`" if name in needed else f"`{name}`?" for name in takes]
        rows.append((f"`{tool.name}`", ", ".join(named), tool.description))
    return table(("tool", "takes", "what it does"), rows)


def tool(name: str) -> str:
    """Return what a tool of the built-in agent does, and its arguments."""
    known = (*workspace.TOOLS, *shell.TOOLS, *web.TOOLS, *browser.TOOLS)
    (chosen,) = (each for each in known if each.name == name)
    (about,) = msgspec.json.schema(chosen.arguments)["$defs"].values()
    needed = about.get("required", [])
    rows = [
        (
            f"`{argument}`",
            argument_type(info),
            "" if argument in needed else f"`{compact_json(info['default'])}`",
            info["description"],
        )
        for argument, info in about["properties"].items()
    ]
    alias = f" Also called `{'`, `'.join(chosen.aliases)}`." if chosen.aliases else ""
    parts = [chosen.description + alias]
    if rows:
        parts.append(table(("argument", "type", "default", "meaning"), rows))
    return "\n\n".join(parts)


def argument_type(info: Mapping[str, Any]) -> str:
    """Return the type of a tool's argument, in words."""
    if "enum" in info:
        return " or ".join(f"`{each}`" for each in info["enum"])
    kinds = {"string": "text", "integer": "whole number", "boolean": "true or false"}
    return kinds[info["type"]]


def metrics(_: str) -> str:
    """Return the metrics of a server, with their labels."""
    rows = []
    for one in vars(Metrics()).values():
        if isinstance(one, Counter | Gauge | Histogram):
            (about,) = one.describe()
            labels = ", ".join(f"`{label}`" for label in one._labelnames)  # noqa: SLF001
            name = about.name + ("_total" if about.type == "counter" else "")
            rows.append((f"`{name}`", about.type, labels, about.documentation))
    return table(("metric", "type", "labels", "meaning"), rows)


def checks(_: str) -> str:
    """Return the checks of `infloop doctor`."""
    return table(("id", "meaning"), [(f"`{name}`", meaning) for name, meaning in CHECKS.items()])


PARTS: Mapping[str, Callable[[str], str]] = {
    "node": node,
    "steps": steps,
    "fields": fields,
    "settings": settings,
    "help": help_text,
    "audit": audit,
    "tools": tools,
    "tool": tool,
    "metrics": metrics,
    "checks": checks,
}

Row = tuple[str, str, str, str, str]


def field_rows(model: type[FileModel], prefix: str = "", *, flat: bool = False) -> Iterator[Row]:
    """Yield a row for each field, with those of its parts behind it unless `flat`."""
    for info in model.model_fields.values():
        path = f"{prefix}{info.alias}"
        part = part_model(info.annotation)
        if part is not None and not flat:
            yield from field_rows(part, f"{path}.")
            continue
        templates = "yes" if info.template else ""
        yield f"`{path}`", type_name(info), default_of(info), templates, said(info)


def field_table(rows: Sequence[Row]) -> str:
    """Return the rows as a table; the column about templates only where a field has them."""
    if any(row[3] for row in rows):
        return table(("field", "type", "default", "references", "meaning"), rows)
    return table(("field", "type", "default", "meaning"), [(*row[:3], row[4]) for row in rows])


def said(info: FieldInfo) -> str:
    """Return what is written about a field, with the title that forms show."""
    text = str(info.description)
    return f"*{info.title}.* {text}" if info.title else text


def default_of(info: FieldInfo) -> str:
    """Return a field's default as it is written in the file; nothing for a field without one."""
    value = info.default
    if isinstance(value, FileModel) or value is None or value in ("", (), {}):
        return ""
    return f"`{compact_json(value)}`"


def type_name(info: FieldInfo) -> str:
    """Return a field's type in words."""
    return _type_name(info.annotation)


_PLAIN = {str: "text", int: "whole number", float: "number", bool: "true or false", Path: "path"}


def _type_name(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if origin is Annotated:
        return _type_name(inner[0])
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in inner)
    if origin in (Union, UnionType):
        return " or ".join(_type_name(one) for one in inner if one is not type(None))
    if origin is dict:
        return "object of texts" if inner[1] is str else "object"
    if origin is tuple:
        return "list of texts" if inner[0] is str else "list"
    if annotation is Any:
        return "any"
    return "object"


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines
    )


def filled(text: str) -> str:
    """Return a document with all its places filled."""

    def fill(place: re.Match[str]) -> str:
        begin, part, word, end = place.groups(default="")
        return f"{begin}\n{PARTS[part](word)}\n\n{end}"

    return PLACE.sub(fill, text)


def tests_by_name() -> dict[str, list[str]]:
    """Return the files that hold each test, as the documents link to them."""
    found: dict[str, list[str]] = {}
    for file in sorted(TESTS.rglob("*.py")):
        for name in TEST.findall(file.read_text(encoding="utf-8")):
            found.setdefault(name, []).append(f"../{file.relative_to(DOCS.parent)}")
    return found


def linked(text: str, tests: Mapping[str, Sequence[str]]) -> str:
    """Return a document whose links to tests lead to the files that hold them."""

    def link(match: re.Match[str]) -> str:
        name, target = match.groups()
        files = tests.get(name)
        if not files:
            raise SystemExit(f"a document names {name}, and there is no such test")
        return f"[{name}]({target if target in files else files[0]})"

    return TEST_LINK.sub(link, text)


def with_current_diffs(text: str) -> str:
    """Return a page whose diffs match the source, each applied on top of those before it."""
    with tempfile.TemporaryDirectory(prefix="infloop-docs-") as folder:
        copy = Path(folder)
        for name in ("src", "docs"):
            left_out = shutil.ignore_patterns("__pycache__")
            shutil.copytree(DOCS.parent / name, copy / name, ignore=left_out)
        git(copy, "init", "-q")
        git(copy, "add", "-A")
        git(copy, "commit", "-q", "-m", "as it is")

        def refresh(match: re.Match[str]) -> str:
            (copy / ".git/patch").write_text(match[0], encoding="utf-8")
            git(copy, "apply", "-C1", "--whitespace=nowarn", ".git/patch")
            git(copy, "add", "-A")
            changed = [
                git(copy, "diff", "--cached", "--", file) for file in PATCHED_FILE.findall(match[0])
            ]
            git(copy, "commit", "-q", "-m", "extended")
            kept = (each[each.index("--- ") :] for each in changed)
            return "".join(kept)

        return DIFF.sub(refresh, text)


def git(repository: Path, *arguments: str) -> str:
    """Run git in a repository of our own; return what it prints."""
    ours = ("-c", "user.name=docs", "-c", "user.email=docs@localhost", "-c", "commit.gpgsign=false")
    ran = subprocess.run(
        ["git", *ours, *arguments], cwd=repository, capture_output=True, text=True, check=False
    )
    if ran.returncode:
        sys.exit(f"git {' '.join(arguments)}: {ran.stderr}")
    return ran.stdout


def main() -> int:
    """Fill all documents, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    chosen = parser.parse_args()
    os.environ["COLUMNS"] = "80"
    stale = False
    tests = tests_by_name()
    # The diffs change other documents, so these are written first.
    for file in sorted(DOCS.glob("*.md"), key=lambda file: (file.name == EXTENDING, file.name)):
        before = file.read_text(encoding="utf-8")
        after = filled(before)
        if file.name != "claims.md":  # claims.py makes that one
            after = linked(after, tests)
        if file.name == EXTENDING:
            after = with_current_diffs(after)
        if before != after and chosen.check:
            print(f"docs/{file.name} is stale; `make docs` makes it anew", file=sys.stderr)
            stale = True
        elif before != after:
            file.write_text(after, encoding="utf-8")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
