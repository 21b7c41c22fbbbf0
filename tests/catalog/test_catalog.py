"""Finding workflows and manifests: by path, by id, and never out of their folders."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from infloop.catalog import LIBRARY_DIR, ProviderFiles, WorkflowCatalog
from infloop.errors import UsageError, WorkflowError
from infloop.model.nodes import AgentNode, ParallelNode
from infloop.model.reading import MAX_FILE_BYTES
from infloop.model.references import workflow_inputs
from infloop.model.walk import every_node

Raw = dict[str, Any]


def workflow(id: str, *calls: str, **more: Any) -> Raw:
    """A workflow that calls others one after the other."""
    names = [f"call-{name}" for name in calls]
    steps = [
        {"id": name, "type": "subworkflow", "config": {"workflowId": called}}
        for name, called in zip(names, calls, strict=True)
    ]
    chain = ["start", *names]
    edges = [{"source": a, "target": b} for a, b in pairwise(chain)]
    nodes = [{"id": "start", "type": "start"}, *steps]
    return {"id": id, "name": id.title(), "nodes": nodes, "edges": edges, **more}


def write(path: Path, raw: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(raw))
    return path


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    user, library = tmp_path / "workflows", tmp_path / "library"
    user.mkdir()
    library.mkdir()
    return user, library


# -- finding ---------------------------------------------------------------------------------


@pytest.mark.claim("I6")
def test_a_workflow_file_anywhere_is_found_by_its_path(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    path = write(tmp_path / "project" / "nightly.workflow.json", workflow("any-id"))
    bundle = WorkflowCatalog(*folders).load_bundle(str(path))
    assert bundle.root.id == "any-id"
    assert bundle.source == path


def test_an_id_is_found_in_the_users_folder_before_the_library(folders: tuple[Path, Path]) -> None:
    user, library = folders
    catalog = WorkflowCatalog(user, library)
    write(library / "a.json", workflow("a"))
    assert catalog.find("a") == library / "a.json"
    write(user / "a.workflow.json", workflow("a"))
    assert catalog.find("a") == user / "a.workflow.json"
    write(user / "a.json", workflow("a"))
    assert catalog.find("a") == user / "a.json"


def test_the_users_workflows_hide_those_of_the_library_in_the_list(
    folders: tuple[Path, Path],
) -> None:
    user, library = folders
    write(user / "b.json", workflow("b", name="mine"))
    write(user / "broken.json", [])
    write(library / "b.json", workflow("b", name="theirs"))
    write(library / "a.workflow.json", workflow("a"))
    (user / "notes.txt").write_text("not a workflow")
    entries = WorkflowCatalog(user, library).entries()
    assert [(entry.id, entry.name, entry.origin) for entry in entries] == [
        ("a", "A", "library"),
        ("b", "mine", "user"),
        ("broken", "broken", "user"),
    ]
    assert [bool(entry.problems) for entry in entries] == [False, False, True]


def test_folders_that_do_not_exist_hold_nothing(tmp_path: Path) -> None:
    catalog = WorkflowCatalog(tmp_path / "no", tmp_path / "where")
    assert catalog.entries() == []
    with pytest.raises(UsageError, match="there is no workflow 'a'"):
        catalog.find("a")


def test_a_workflow_that_is_not_there_is_answered_with_what_is(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    user, library = folders
    write(user / "nightly.json", workflow("nightly"))
    write(library / "team.json", workflow("team"))
    catalog = WorkflowCatalog(user, library)
    with pytest.raises(UsageError, match=r"no workflow 'nihgtly'; did you mean 'nightly'\?"):
        catalog.find("nihgtly")
    with pytest.raises(UsageError, match=r"no workflow 'x'; there are: nightly, team"):
        catalog.find("x")
    with pytest.raises(UsageError, match=r"no workflow file .*; did you mean '.*nightly\.json'\?"):
        catalog.find(str(user / "nihgtly.json"))


# -- staying inside --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ref", ["..", ".", "", " ", "a\0b", "-x", "con", "a..b", "x" * 129, "a\\b", "é"]
)
def test_an_id_that_is_no_plain_name_is_refused(folders: tuple[Path, Path], ref: str) -> None:
    with pytest.raises(UsageError, match="is not a workflow id"):
        WorkflowCatalog(*folders).find(ref)


@pytest.mark.parametrize(
    "ref", ["x" * 5000 + ".json", "a\0/b.json", "/nowhere/x.json", "/dev/null/x.json"]
)
def test_a_path_that_cannot_be_is_refused_like_one_that_is_not(
    folders: tuple[Path, Path], ref: str
) -> None:
    with pytest.raises(UsageError):
        WorkflowCatalog(*folders).find(ref)


@pytest.mark.parametrize("called", ["../outside", "/etc/passwd", "..", "a/../../outside"])
def test_a_call_cannot_leave_the_folder(
    folders: tuple[Path, Path], tmp_path: Path, called: str
) -> None:
    user, _ = folders
    write(tmp_path / "outside.json", workflow("outside"))
    write(
        user / "a.json",
        {
            **workflow("a", "x"),
            "nodes": [
                {"id": "start", "type": "start"},
                {"id": "call-x", "type": "subworkflow", "config": {"workflowId": called}},
            ],
        },
    )
    with pytest.raises(WorkflowError) as refused:
        WorkflowCatalog(*folders).load_bundle("a")
    (problem,) = refused.value.problems
    assert problem.place == "nodes[1] 'call-x' config.workflowId"
    assert "is not a plain file name" in problem.message


def test_a_link_out_of_the_folder_is_refused(folders: tuple[Path, Path], tmp_path: Path) -> None:
    user, library = folders
    outside = write(tmp_path / "outside.json", workflow("a"))
    (user / "a.json").symlink_to(outside)
    write(library / "a.json", workflow("a"))
    with pytest.raises(UsageError, match="leads out of its folder"):
        WorkflowCatalog(user, library).load_bundle("a")


def test_a_link_inside_the_folder_is_followed(folders: tuple[Path, Path]) -> None:
    user, library = folders
    write(user / "a.json", workflow("b"))
    (user / "b.json").symlink_to(user / "a.json")
    assert WorkflowCatalog(user, library).load_bundle("b").root.id == "b"


def test_links_in_a_circle_lead_nowhere(folders: tuple[Path, Path]) -> None:
    user, library = folders
    (user / "a.json").symlink_to(user / "a.json")
    with pytest.raises(UsageError, match="is a dangling link"):
        WorkflowCatalog(user, library).find("a")


def test_a_pipe_is_refused_before_it_can_keep_anyone_waiting(folders: tuple[Path, Path]) -> None:
    user, library = folders
    os.mkfifo(user / "a.json")
    catalog = WorkflowCatalog(user, library)
    with pytest.raises(UsageError, match="is not a regular file"):
        catalog.load_bundle("a")
    (entry,) = catalog.entries()
    assert "is not a regular file" in entry.problems[0].message


def test_a_directory_and_a_device_are_no_workflows(folders: tuple[Path, Path]) -> None:
    user, library = folders
    (user / "a.json").mkdir()
    catalog = WorkflowCatalog(user, library)
    for ref in ("a", str(user / "a.json"), "/dev/zero"):
        with pytest.raises(UsageError):
            catalog.load_bundle(ref)


def test_a_file_that_is_too_large_is_not_read_to_its_end(folders: tuple[Path, Path]) -> None:
    user, library = folders
    with (user / "a.json").open("wb") as file:
        file.truncate(100 * MAX_FILE_BYTES)
    with pytest.raises(WorkflowError) as refused:
        WorkflowCatalog(user, library).load_bundle("a")
    assert "larger than 5 MiB" in refused.value.problems[0].message


# -- bundles ---------------------------------------------------------------------------------


def test_a_bundle_holds_everything_that_is_called_directly_or_not(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    user, library = folders
    root = write(tmp_path / "project" / "root.json", workflow("root", "beside", "mine"))
    write(
        tmp_path / "project" / "beside.workflow.json", workflow("beside", "theirs", name="beside")
    )
    write(user / "beside.json", workflow("beside", name="hidden by the one beside the file"))
    write(user / "mine.json", workflow("mine", "theirs"))
    write(library / "theirs.json", workflow("theirs"))
    write(library / "unused.json", workflow("unused"))
    bundle = WorkflowCatalog(user, library).load_bundle(str(root))
    assert sorted(bundle.children) == ["beside", "mine", "theirs"]
    assert bundle.children["beside"].name == "beside"
    assert sorted(bundle.plain()) == ["beside", "mine", "root", "theirs"]
    assert bundle.plain()["mine"]["edges"] == [
        {"id": "", "source": "start", "sourceHandle": "next", "target": "call-theirs"}
    ]


def test_every_problem_of_a_bundle_is_reported_at_once(folders: tuple[Path, Path]) -> None:
    user, library = folders
    write(user / "a.json", workflow("a", "b", "broken", "nowhere"))
    write(user / "b.json", workflow("b", colour="red"))
    (user / "broken.json").write_text("{")
    with pytest.raises(WorkflowError) as refused:
        WorkflowCatalog(user, library).load_bundle("a")
    assert str(refused.value) == f"{str(user / 'a.json')!r} has 2 errors"
    assert [(p.place, p.message.split(":")[0]) for p in refused.value.problems] == [
        ("nodes[3] 'call-nowhere' config.workflowId", "there is no workflow 'nowhere'"),
        ("workflow 'b': file", "unknown field 'colour'"),
        ("workflow 'broken': file", "not JSON"),
    ]


def test_check_reports_what_load_would_refuse(folders: tuple[Path, Path]) -> None:
    user, library = folders
    path = write(user / "a.json", workflow("a", "a"))
    checked, problems = WorkflowCatalog(user, library).check("a")
    assert checked == path
    assert [problem.message for problem in problems] == [
        "workflows call each other in a circle: a → a"
    ]


def test_workflows_that_call_each_other_are_found_and_refused(folders: tuple[Path, Path]) -> None:
    user, library = folders
    write(user / "a.json", workflow("a", "b"))
    write(user / "b.json", workflow("b", "a"))
    with pytest.raises(WorkflowError) as refused:
        WorkflowCatalog(user, library).load_bundle("a")
    assert "a → b → a" in refused.value.problems[0].message


def test_an_id_must_be_its_files_name_in_the_folders_and_may_be_anything_elsewhere(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    user, library = folders
    catalog = WorkflowCatalog(user, library)
    write(user / "a.json", workflow("b"))
    for ref in ("a", str(user / "a.json")):
        with pytest.raises(WorkflowError) as refused:
            catalog.load_bundle(ref)
        assert "'b' is not the name of its file, 'a'" in refused.value.problems[0].message
    elsewhere = write(tmp_path / "elsewhere" / "a.json", workflow("b"))
    assert catalog.load_bundle(str(elsewhere)).root.id == "b"


def test_warnings_and_old_triggers_come_with_the_bundle(folders: tuple[Path, Path]) -> None:
    user, library = folders
    old = workflow("a", triggers=[{"id": "t"}])
    old["nodes"].append({"id": "again", "type": "start"})
    write(user / "a.json", old)
    bundle = WorkflowCatalog(user, library).load_bundle("a")
    assert [problem.severity for problem in bundle.warnings] == ["warning"]
    assert bundle.triggers == ({"id": "t"},)


# -- the library -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [path.stem for path in sorted(LIBRARY_DIR.glob("*.json"))])
def test_what_the_library_holds_has_no_problems(tmp_path: Path, name: str) -> None:
    catalog = WorkflowCatalog(tmp_path)
    _, problems = catalog.check(name, known_providers={"claude"})
    assert problems == []
    agents = [
        each.node
        for each in every_node(catalog.load_bundle(name).root)
        if isinstance(each.node, AgentNode)
    ]
    assert agents
    assert all(agent.config.use_worktree for agent in agents), "the user's files stay as they are"


def test_the_library_holds_the_presets() -> None:
    assert {path.name for path in LIBRARY_DIR.iterdir()} >= {"team.json", "fix-until-green.json"}


def test_the_team_needs_a_task_and_compares_three_answers(tmp_path: Path) -> None:
    team = WorkflowCatalog(tmp_path).load_bundle("team").root
    (parallel,) = (node for node in team.nodes if isinstance(node, ParallelNode))
    assert len(parallel.children) == 3
    assert workflow_inputs(team, {"task": "add"})["criteria"]


# -- providers -------------------------------------------------------------------------------


def manifest(id: str, label: str, **more: Any) -> Raw:
    return {"id": id, "label": label, "description": "x", "bin": "x", **more}


def test_manifests_are_sorted_by_label_and_a_broken_one_does_not_hurt_the_others(
    tmp_path: Path,
) -> None:
    write(tmp_path / "a.json", manifest("zed", "Zed"))
    write(tmp_path / "b.json", manifest("abe", "abe"))
    write(tmp_path / "c.json", manifest("", "No id"))
    write(tmp_path / "d.json", manifest("zed", "Another Zed"))
    (tmp_path / "e.json").write_bytes(b"\xff")
    os.mkfifo(tmp_path / "f.json")
    (tmp_path / "readme.txt").write_text("not a manifest")
    providers, problems = ProviderFiles(tmp_path).load()
    assert [(provider.id, provider.label) for provider in providers] == [
        ("abe", "abe"),
        ("zed", "Zed"),
    ]
    assert [(problem.place, problem.severity) for problem in problems] == [
        ("c.json: id", "error"),
        ("e.json: file", "error"),
        ("f.json: file", "error"),
        (str(tmp_path), "warning"),
    ]


def test_a_manifest_that_is_added_changed_or_removed_is_seen_at_the_next_load(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "providers"
    files = ProviderFiles(folder)
    assert files.load() == ([], [])
    write(folder / "x.json", manifest("x", "X"))
    assert [provider.id for provider in files.load()[0]] == ["x"]
    write(folder / "y.json", manifest("y", "Y"))
    assert [provider.id for provider in files.load()[0]] == ["x", "y"]
    write(folder / "x.json", manifest("x", "Another label"))
    assert [provider.label for provider in files.load()[0]] == ["Another label", "Y"]
    (folder / "x.json").unlink()
    assert [provider.id for provider in files.load()[0]] == ["y"]


def test_a_manifest_of_the_same_size_is_seen_by_its_time(tmp_path: Path) -> None:
    files = ProviderFiles(tmp_path)
    path = write(tmp_path / "x.json", manifest("x", "X"))
    assert [provider.id for provider in files.load()[0]] == ["x"]
    write(path, manifest("y", "Y"))
    os.utime(path, ns=(0, 0))
    assert [provider.id for provider in files.load()[0]] == ["y"]


def test_a_link_that_leads_nowhere_is_seen_to_lead_somewhere_later(tmp_path: Path) -> None:
    folder = tmp_path / "providers"
    folder.mkdir()
    (folder / "x.json").symlink_to(tmp_path / "later.json")
    files = ProviderFiles(folder)
    assert [problem.place for problem in files.load()[1]] == ["x.json: file"]
    write(tmp_path / "later.json", manifest("x", "X"))
    assert [provider.id for provider in files.load()[0]] == ["x"]


def test_manifests_are_not_read_again_while_nothing_changes(tmp_path: Path) -> None:
    files = ProviderFiles(tmp_path)
    write(tmp_path / "x.json", manifest("x", "X"))
    first, again = files.load(), files.load()
    assert first == again
    assert first[0][0] is again[0][0]
    first[0].clear()
    assert files.load() == again
