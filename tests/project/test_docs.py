"""The documents are executed: examples run, tables are complete, links lead somewhere."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from infloop import cli
from infloop.model.agent_config import AgentConfig
from infloop.model.check import check_workflow
from infloop.model.loop_file.reading import parse_loop_file
from infloop.model.nodes import NODE_MODELS
from infloop.model.parsing import parse_workflow
from infloop.model.schema import FileModel, part_model
from infloop.settings import Settings, load_settings, variable
from infloop.tools import shell, workspace
from infloop.tools.base import Tool
from infloop.tools.browser import family as browser
from infloop.tools.web import family as web
from support import forkserver
from support.paths import ROOT

DOCS = ROOT / "docs"
PAGES = [
    *sorted(DOCS.glob("*.md")),
    ROOT / "README.md",
    ROOT / "SECURITY.md",
    ROOT / "CHANGELOG.md",
]

FENCE = re.compile(r"^```(\S*) ?(.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
FOR_THE_SHELL = {*"$`|&;<>*?#~(\\"}
PATIENCE_S = 120.0
ONE_DIRECTORY = "<!-- The examples of this page share one directory. -->"


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the words behind it, its text."""

    language: str
    words: str
    text: str


@dataclass(frozen=True)
class Section:
    """What stands under one heading; its blocks share a directory."""

    page: Path
    heading: str
    blocks: tuple[Block, ...]

    def __str__(self) -> str:
        return f"{self.page.name}: {self.heading}"


def sections(page: Path) -> Iterator[Section]:
    text = page.read_text(encoding="utf-8")
    outside = FENCE.sub(lambda fence: "\0" * len(fence[0]), text)  # a comment in code is no heading
    starts = [0, *(match.start() for match in HEADING.finditer(outside)), len(text)]
    for begin, end in pairwise(starts):
        heading = HEADING.match(outside, begin)
        blocks = tuple(Block(*fence.groups()) for fence in FENCE.finditer(text, begin, end))
        yield Section(page, heading[2] if heading else "", blocks)


SECTIONS = [section for page in PAGES for section in sections(page)]


def having(language: str, words: str) -> list[Section]:
    return [
        section
        for section in SECTIONS
        if any(b.language == language and b.words.startswith(words) for b in section.blocks)
    ]


def transcripts() -> list[Section]:
    """Sections with commands; a page whose examples share one directory is one section."""
    found: list[Section] = []
    for page in PAGES:
        parts = [section for section in SECTIONS if section.page == page]
        if ONE_DIRECTORY in page.read_text(encoding="utf-8"):
            parts = [Section(page, "", tuple(block for part in parts for block in part.blocks))]
        found += [part for part in parts if any(b.language == "console" for b in part.blocks)]
    return found


# -- examples --------------------------------------------------------------------------------------


@pytest.mark.parametrize("section", having("json", "workflow"), ids=str)
def test_a_workflow_in_the_documents_is_what_it_says(section: Section) -> None:
    for block in section.blocks:
        if block.language == "json" and block.words.startswith("workflow"):
            found = check_workflow(parse_workflow(block.text.encode()))
            assert bool(found) == ("problems" in block.words), found


@pytest.mark.parametrize("section", having("yaml", "workflow"), ids=str)
def test_a_loop_file_in_the_documents_is_right(section: Section) -> None:
    for block in section.blocks:
        if block.language == "yaml" and block.words.startswith("workflow"):
            name = block.words.removeprefix("workflow ")
            parsed = parse_loop_file(block.text.encode(), name, lambda file: f"no {file}")
            assert check_workflow(parsed) == []


@pytest.mark.parametrize("section", transcripts(), ids=str)
def test_what_the_documents_show_is_what_happens(section: Section, tmp_path: Path) -> None:
    write_files(section, tmp_path)
    for block in section.blocks:
        if block.language == "console":
            for command, expected in transcript(block.text):
                run_and_compare(command, expected, tmp_path)


@pytest.mark.parametrize("section", having("python", ""), ids=str)
def test_python_in_the_documents_runs(section: Section, tmp_path: Path) -> None:
    for block in section.blocks:
        if block.language == "python":
            program = [sys.executable, "-W", "error", "-c", block.text]
            subprocess.run(program, cwd=tmp_path, timeout=60, check=True)


@pytest.mark.parametrize("section", having("toml", "settings"), ids=str)
def test_settings_in_the_documents_load(section: Section, tmp_path: Path) -> None:
    for block in section.blocks:
        if block.language == "toml":
            file = tmp_path / "infloop.toml"
            file.write_text(block.text)
            load_settings({"INFLOOP_CONFIG": str(file)})


@pytest.mark.parametrize("section", having("toml", "agent"), ids=str)
def test_tables_of_the_agent_in_the_documents_are_right(section: Section) -> None:
    for block in section.blocks:
        if block.language == "toml":
            msgspec.convert(tomllib.loads(block.text), AgentConfig)


def write_files(section: Section, folder: Path) -> None:
    """Put the section's workflows and files where its commands expect them."""
    for block in section.blocks:
        if block.language == "yaml" and block.words.startswith("workflow"):
            name = f"{block.words.removeprefix('workflow ')}.loop.yaml"
        elif block.words.startswith("workflow"):
            name = f"{json.loads(block.text)['id']}.workflow.json"
        elif block.words.startswith("file="):
            name = block.words.removeprefix("file=")
        else:
            continue
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(block.text)


def transcript(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command with the output that is shown below it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def run_and_compare(command: str, expected: str, folder: Path) -> None:
    """Run a line of a transcript; `…` stands for anything."""
    env = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder / "home"),
        "INFLOOP_DATA_DIR": str(folder / "data"),
        "INFLOOP_ISOLATION": "host",
        "COLUMNS": "80",
    }
    if command.startswith("infloop ") and not FOR_THE_SHELL & {*command}:
        code, printed = run_forked(shlex.split(command)[1:], folder, env)
    else:
        code, printed = run_in_shell(command, folder, forkserver.for_others(env))
    assert code == 0, f"$ {command}\n{printed}"
    pattern = ".*".join(map(re.escape, expected.rstrip().split("…")))
    assert re.fullmatch(pattern, printed.rstrip(), re.DOTALL), f"$ {command}\n{printed}"


def run_forked(arguments: list[str], folder: Path, env: dict[str, str]) -> tuple[int, str]:
    with forkserver.Command(arguments, folder, env, stderr=forkserver.STDOUT) as ran:
        printed, _ = ran.communicate(PATIENCE_S)
        return ran.wait(), printed


def run_in_shell(line: str, folder: Path, env: dict[str, str]) -> tuple[int, str]:
    ran = subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return ran.returncode, ran.stdout


# -- completeness ----------------------------------------------------------------------------------


def text_under(page: str, heading: str) -> str:
    """Return a page from a heading to the next of the same or a higher level."""
    text = (DOCS / page).read_text(encoding="utf-8")
    begin = re.search(rf"^(#+) {re.escape(heading)}$", text, re.MULTILINE)
    assert begin, f"docs/{page} has no heading {heading!r}"
    end = re.compile(rf"^#{{1,{len(begin[1])}}} ", re.MULTILINE).search(text, begin.end())
    return text[begin.end() : end.start() if end else None]


def field_paths(model: type[FileModel], prefix: str = "") -> Iterator[str]:
    for name, info in model.model_fields.items():
        part = part_model(info.annotation)
        if part is not None:
            yield from field_paths(part, f"{prefix}{info.alias or name}.")
        else:
            yield f"{prefix}{info.alias or name}"


@pytest.mark.parametrize("kind", NODE_MODELS)
def test_every_node_type_is_documented_with_fields_handles_and_outputs(kind: str) -> None:
    text = text_under("workflow-format.md", kind)
    model = NODE_MODELS[kind]
    config = part_model(model.model_fields["config"].annotation)
    assert config is not None
    for field in field_paths(config):
        assert f"\n| `{field}` |" in text
    for word in (*model.handles, *model.outputs):
        assert f"`{word}`" in text


def test_every_setting_is_documented() -> None:
    text = (DOCS / "settings.md").read_text(encoding="utf-8")
    for name in Settings.model_fields:
        assert f"| `{variable(name)}` | `{name}` |" in text


@pytest.mark.parametrize("command", [name for name, _ in cli.COMMANDS])
def test_every_command_is_documented(command: str) -> None:
    assert f"usage: infloop {command}" in text_under("cli.md", command)


@pytest.mark.parametrize(
    "tool", [*workspace.TOOLS, *shell.TOOLS, *web.TOOLS, *browser.TOOLS], ids=lambda tool: tool.name
)
def test_every_tool_is_documented(tool: type[Tool[Any]]) -> None:
    text = text_under("tools.md", tool.name)
    assert tool.description in text
    for argument in tool.arguments.__struct_fields__:
        assert f"\n| `{argument}` |" in text


def test_every_page_is_reached_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in DOCS.glob("*.md") if f"](docs/{page.name})" not in readme] == []


@pytest.mark.claim("D2")
def test_the_security_page_is_printed_where_nothing_is_configured(tmp_path: Path) -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "infloop", "docs", "security"],
        cwd=tmp_path,
        env={"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert printed.stdout == (DOCS / "security.md").read_text(encoding="utf-8")


@pytest.mark.claim("L43")
def test_the_pages_say_that_the_leak_guard_replaces_no_careful_credentials() -> None:
    for page, sentence in (
        ("security", "This is no substitute for credentials that can do little."),
        ("agent", "It does not replace keys with few rights"),
    ):
        assert sentence in (ROOT / f"docs/{page}.md").read_text()


# -- links -----------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """Return the names under which a page's headings can be linked to."""
    headings = [section.heading for section in SECTIONS if section.page == page]
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)]+)\)", text):
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), target
        if anchor:
            assert anchor in anchors(linked), target
