"""Loop files in folders: found like JSON files, and the texts that they take from other files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from infloop.catalog import WorkflowCatalog
from infloop.catalog.lookup import CatalogLookup
from infloop.catalog.plugins import PluginFiles
from infloop.catalog.saving import Checked, save_workflow
from infloop.catalog.triggers import TriggerFiles
from infloop.errors import Conflict, UsageError
from infloop.model.nodes import AgentNode, SubworkflowNode
from infloop.model.reading import MAX_FILE_BYTES

LOOP = "steps:\n  - agent: claude\n    promptFile: prompts/fix.md\n"


@pytest.fixture
def catalog(tmp_path: Path) -> WorkflowCatalog:
    user, library = tmp_path / "workflows", tmp_path / "library"
    (user / "prompts").mkdir(parents=True)
    library.mkdir()
    return WorkflowCatalog(user, library)


def prompt_of(catalog: WorkflowCatalog, name: str) -> str:
    node = catalog.load_bundle(name).root.nodes[1]
    assert isinstance(node, AgentNode)
    return node.config.prompt


@pytest.mark.parametrize("suffix", [".loop.yaml", ".loop.yml"])
def test_a_loop_file_is_found_by_id_and_path_and_listed(
    catalog: WorkflowCatalog, suffix: str
) -> None:
    path = catalog.user_dir / f"fix{suffix}"
    path.write_text("name: Fix it\nsteps: []\n")
    assert catalog.load_bundle("fix").root.name == "Fix it"
    assert catalog.load_bundle(str(path)).root.id == "fix"
    assert [(one.id, one.name, one.problems) for one in catalog.entries()] == [
        ("fix", "Fix it", ())
    ]


def test_a_loop_file_calls_a_json_file_and_the_other_way(catalog: WorkflowCatalog) -> None:
    (catalog.user_dir / "outer.loop.yaml").write_text("steps:\n  - call: middle\n")
    middle = {
        "id": "middle",
        "name": "middle",
        "nodes": [
            {"id": "start", "type": "start"},
            {"id": "c", "type": "subworkflow", "config": {"workflowId": "inner"}},
        ],
        "edges": [{"source": "start", "target": "c"}],
    }
    (catalog.user_dir / "middle.json").write_text(json.dumps(middle))
    (catalog.user_dir / "inner.loop.yaml").write_text("steps:\n  - agent: claude\n    prompt: ''\n")
    bundle = catalog.check("outer")[1]
    assert [(Path(one.file).name, one.line) for one in bundle] == [("inner.loop.yaml", 3)]
    (catalog.user_dir / "inner.loop.yaml").write_text("steps: []\n")
    loaded = catalog.load_bundle("outer")
    assert isinstance(loaded.root.nodes[1], SubworkflowNode)
    assert set(loaded.children) == {"middle", "inner"}


@pytest.mark.parametrize("other", ["fix.json", "fix.workflow.json", "fix.loop.yml"])
def test_one_id_in_two_languages_is_a_clear_error(catalog: WorkflowCatalog, other: str) -> None:
    (catalog.user_dir / "fix.loop.yaml").write_text("steps: []\n")
    (catalog.user_dir / other).write_text("{}")
    with pytest.raises(UsageError, match=r"is in two files, .* and .*; remove or rename one"):
        catalog.load_bundle("fix")
    listed = catalog.entries()
    assert [one.id for one in listed] == ["fix"]
    assert "two files" in str(listed[0].problems[0])


def test_yaml_with_another_name_is_not_taken_for_a_loop_file(catalog: WorkflowCatalog) -> None:
    path = catalog.user_dir / "compose.yaml"
    path.write_text("steps: []\n")
    with pytest.raises(UsageError, match=r"NAME\.loop\.yaml"):
        catalog.read(str(path))
    assert catalog.entries() == []


def test_a_loop_file_is_never_overwritten_with_json(catalog: WorkflowCatalog) -> None:
    path = catalog.user_dir / "fix.loop.yaml"
    path.write_text("steps: []\n")
    with pytest.raises(Conflict, match="infloop convert"):
        save_workflow(catalog, Checked("fix", {"id": "fix", "version": 1}), now_ms=1)
    assert path.read_text() == "steps: []\n"


# -- texts from other files ------------------------------------------------------------------


def test_a_prompt_comes_from_a_file_beside_the_loop_file(catalog: WorkflowCatalog) -> None:
    (catalog.user_dir / "fix.loop.yaml").write_text(LOOP)
    (catalog.user_dir / "prompts/fix.md").write_text("Fix it.\n")
    assert prompt_of(catalog, "fix") == "Fix it.\n"


def link_out(folder: Path) -> None:
    (folder.parent / "secret").write_text("secret")
    (folder / "prompts/fix.md").symlink_to(folder.parent / "secret")


def linked_folder(folder: Path) -> None:
    (folder.parent / "elsewhere").mkdir()
    (folder.parent / "elsewhere/fix.md").write_text("secret")
    (folder / "prompts").rmdir()
    (folder / "prompts").symlink_to(folder.parent / "elsewhere")


def pipe(folder: Path) -> None:
    os.mkfifo(folder / "prompts/fix.md")


def directory(folder: Path) -> None:
    (folder / "prompts/fix.md").mkdir()


def large(folder: Path) -> None:
    (folder / "prompts/fix.md").write_text("x" * (MAX_FILE_BYTES + 1))


def binary(folder: Path) -> None:
    (folder / "prompts/fix.md").write_bytes(b"\xff\xfe")


def nul(folder: Path) -> None:
    (folder / "prompts/fix.md").write_bytes(b"a\0b")


@pytest.mark.parametrize(
    ("name", "make", "said"),
    [
        ("prompts/fix.md", link_out, "is a link"),
        ("prompts/fix.md", linked_folder, "is behind a link"),
        ("prompts/fix.md", pipe, "is not a regular file"),
        ("prompts/fix.md", directory, "is not a regular file"),
        ("prompts/fix.md", large, "is too large"),
        ("prompts/fix.md", binary, "is not UTF-8"),
        ("prompts/fix.md", nul, "NUL"),
        ("prompts/fix.md", lambda folder: None, "does not exist"),
        ("../secret", link_out, "not beneath"),
        ("/etc/passwd", lambda folder: None, "not beneath"),
        ("prompts/../../secret", link_out, "not beneath"),
        ("./prompts/fix.md", lambda folder: None, "not beneath"),
        ("", lambda folder: None, "not beneath"),
    ],
)
def test_a_file_from_elsewhere_never_becomes_a_prompt(
    catalog: WorkflowCatalog, name: str, make: Callable[[Path], None], said: str
) -> None:
    make(catalog.user_dir)
    text = LOOP.replace("prompts/fix.md", json.dumps(name))
    (catalog.user_dir / "fix.loop.yaml").write_text(text)
    _, problems = catalog.check("fix")
    found = [one for one in problems if said in one.message]
    assert [(one.line, one.column) for one in found] == [(3, 17)]
    assert "secret" not in str([one.message for one in problems if one.message != found[0].message])


def test_many_small_files_have_a_limit_together(catalog: WorkflowCatalog) -> None:
    (catalog.user_dir / "prompts/fix.md").write_text("x" * (1 << 20))
    step = "  - agent: claude\n    promptFile: prompts/fix.md\n"
    (catalog.user_dir / "fix.loop.yaml").write_text("steps:\n" + step * 8)
    _, problems = catalog.check("fix")
    assert sum("is too large" in one.message for one in problems) == 3


def test_a_webhook_sees_a_changed_prompt_file(catalog: WorkflowCatalog, tmp_path: Path) -> None:
    (catalog.user_dir / "fix.loop.yaml").write_text(LOOP)
    prompt = catalog.user_dir / "prompts/fix.md"
    prompt.write_text("one")
    folders = TriggerFiles(tmp_path / "triggers"), PluginFiles(tmp_path / "plugins")
    lookup = CatalogLookup(*folders, catalog)

    def seen() -> str:
        workflow = lookup.workflow("fix")
        assert workflow is not None
        node = workflow.nodes[1]
        assert isinstance(node, AgentNode)
        return node.config.prompt

    assert seen() == "one"
    assert lookup.workflow("fix") is lookup.workflow("fix")
    prompt.write_text("second")
    assert seen() == "second"
    (catalog.user_dir / "fix.json").write_text("{}")
    assert lookup.workflow("fix") is None
