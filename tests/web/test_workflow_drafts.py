"""Workflows that are not saved yet: a first one, one from a file, and one as a loop file."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from support.server import Client, process, workflow

LOOP_FILE = """
name: Until done
steps:
  - loop: rounds
    max: 3
    until: test -e done.txt
    steps:
      - command: touch done.txt
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with process(tmp_path_factory.mktemp("drafts")) as made:
        yield made.client


def test_a_first_workflow_can_be_saved_and_has_no_problem(client: Client) -> None:
    made = client.post("/api/workflows/starter", {"id": "first", "agent": "codex"}).json()
    assert (made["agent"], made["workflow"]["id"]) == ("codex", "first")
    saved = client.post("/api/workflows", made["workflow"])
    assert saved.status == 201
    assert [one for one in saved.json()["problems"] if one["severity"] == "error"] == []


@pytest.mark.parametrize("name", ["", "../x", "a/b", "con", "x" * 500, "a\u202eb"])
def test_a_first_workflow_needs_a_usable_id(client: Client, name: str) -> None:
    answer = client.post("/api/workflows/starter", {"id": name})
    assert answer.status in (400, 422)
    assert client.post("/api/workflows/starter", {"id": "a", "agent": "nobody"}).status in (
        400,
        422,
    )


def test_a_loop_file_is_read_and_written(client: Client) -> None:
    body = {"name": "until-done.loop.yaml", "text": LOOP_FILE}
    read = client.post("/api/workflows/read", body).json()
    assert read["workflow"]["id"] == "until-done"
    assert [node["type"] for node in read["workflow"]["nodes"]].count("loop") == 1
    text = client.post("/api/workflows/loop-file", read["workflow"]).json()["text"]
    assert "until: test -e done.txt" in text
    again = client.post("/api/workflows/read", {**body, "text": text}).json()
    assert again["workflow"] == read["workflow"]


def test_a_json_file_is_read_as_it_is(client: Client) -> None:
    content = workflow("mine", "true")
    read = client.post("/api/workflows/read", {"name": "x.json", "text": json.dumps(content)})
    assert read.json()["workflow"]["nodes"] == content["nodes"]
    assert client.get("/api/workflows/mine").status == 404


BROKEN = {
    "no json": ("a.json", "{"),
    "a list": ("a.json", "[]"),
    "empty": ("a.json", ""),
    "twice the same key": ("a.json", '{"id": "a", "id": "b", "name": "n", "nodes": []}'),
    "no yaml": ("a.yaml", "steps: ["),
    "no loop file": ("a.yaml", "hello"),
    "an anchor bomb": ("a.yaml", "a: &a [x]\nb: &b [*a, *a]\nsteps: [*b, *b]"),
    "a file of this machine": (
        "a.loop.yaml",
        "name: n\nsteps:\n  - agent: claude\n    promptFile: ../../etc/passwd\n",
    ),
    "a lone surrogate": ("a.json", "\ud800"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_refused_with_reasons(client: Client, case: str) -> None:
    name, text = BROKEN[case]
    answer = client.post("/api/workflows/read", {"name": name, "text": text})
    assert answer.status in (400, 422), answer.body
    told = answer.json()
    assert told["message"]
    assert answer.status == 400 or told["problems"]
    assert "root:" not in answer.body.decode()
