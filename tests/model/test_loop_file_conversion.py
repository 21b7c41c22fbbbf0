"""A workflow that is written as a loop file and read again means the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings

from infloop.engine.graph import compile_graph
from infloop.model.loop_file.comparing import meaning_of
from infloop.model.loop_file.reading import parse_loop_file
from infloop.model.loop_file.writing import write_loop_file
from infloop.model.parsing import parse_workflow
from infloop.model.workflow import Workflow
from support.drawn_workflows import drawn_workflows
from support.paths import FIXTURES, ROOT
from support.thorough import amount

WORKFLOWS = [
    *sorted((FIXTURES / "workflows").glob("*.json")),
    *sorted((ROOT / "src/infloop/library").glob("*.json")),
]


def read(text: str) -> Workflow:
    parsed = parse_loop_file(text.encode(), "drawn", lambda name: f"no file {name}")
    assert parsed.workflow is not None, (parsed.problems, text)
    assert parsed.usable, (parsed.problems, text)
    return parsed.workflow


@settings(max_examples=amount(60, thorough=400))
@given(drawn_workflows())
def test_any_workflow_can_be_written_as_a_loop_file_and_means_the_same(workflow: Workflow) -> None:
    text = write_loop_file(workflow, "drawn")
    again = read(text)
    assert meaning_of(again) == meaning_of(workflow), text
    first, second = compile_graph(workflow.to_json()), compile_graph(again.to_json())
    assert second.start == first.start
    for name, node in first.nodes.items():
        other = second.nodes[name]
        assert (other.config, other.edges) == (node.config, node.edges), text
        if node.model.opens == "round":
            assert (other.children[:1], other.check) == (node.children[:1], node.check), text
        if node.model.opens == "branch":
            assert other.roots == node.roots, text
    assert write_loop_file(again, "drawn") == text, "a second conversion changes nothing"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_the_workflows_of_the_library_convert_without_loss(path: Path) -> None:
    workflow = parse_workflow(path.read_bytes()).workflow
    assert workflow is not None
    text = write_loop_file(workflow, "drawn")
    assert meaning_of(read(text)) == meaning_of(workflow)
