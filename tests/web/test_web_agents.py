"""The agents of a program, as files define them: bounded, and never by way of a link."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from infloop.catalog.agents import MAX_BYTES, MAX_FILES, agents
from support.server import here

HEAD = "---\nname: {}\ndescription: x\nmodel: {}\n---\nYou are an agent.\n"


def put(base: Path, file: str, text: str) -> Path:
    folder = base / ".claude/agents"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(text)
    return folder / file


async def test_the_users_agents_and_the_projects_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    monkeypatch.setenv("HOME", str(home))
    put(home, "r.md", HEAD.format("reviewer", "opus"))
    put(home, "a.md", "---\nname: 'asker'\n---\n")
    put(project, "f.md", HEAD.format("fixer", '"sonnet"'))
    mine = [{"name": "asker", "group": "user"}]
    mine += [{"name": "reviewer", "model": "opus", "group": "user"}]
    theirs = [{"name": "fixer", "model": "sonnet", "group": "project"}]
    path = "/api/providers/claude/agents"
    async with here(tmp_path) as served:

        async def listed(query: str = "") -> Any:
            answer = await served.ask("GET", f"{path}{query}")
            assert answer.status == 200
            return answer.json()

        assert await listed() == {"agents": mine}
        assert await listed("?cwd=project") == {"agents": mine}
        both = {"agents": mine + theirs, "cwd": str(project)}
        assert await listed(f"?cwd={project}") == both
        assert await listed(f"?cwd={tmp_path}") == {"agents": mine, "cwd": str(tmp_path)}
        unavailable = {"agents": [], "error": "agent listing unavailable"}
        assert await listed(f"?cwd={tmp_path}/no") == {**unavailable, "cwd": f"{tmp_path}/no"}
        assert await listed("?cwd=/a%00b") == {**unavailable, "cwd": "/a\0b"}
        codex = await served.ask("GET", "/api/providers/codex/agents")
        assert (codex.status, codex.json()) == (200, unavailable)
        assert (await served.ask("GET", "/api/providers/nobody/agents")).status == 404
        assert (await served.ask("GET", "/api/providers/openai-api/agents")).status == 400


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name: x",
        "---\nname: x\n",
        "---\nname:\n---\n",
        "---\nmodel: x\n---\n",
        "---\n  name: x\n---\n",
        "---\nname: a\x1b[2Jb\n---\n",
        f"---\nname: {'x' * 101}\n---\n",
        f"---\n{'#' * MAX_BYTES}\nname: x\n---\n",
    ],
)
def test_a_file_without_a_usable_name_is_no_agent(tmp_path: Path, text: str) -> None:
    put(tmp_path, "a.md", text)
    assert agents(tmp_path, None) == []


@pytest.mark.parametrize("linked", ["file", "agents", ".claude"])
def test_no_link_is_followed(tmp_path: Path, linked: str) -> None:
    elsewhere, project = tmp_path / "elsewhere", tmp_path / "project"
    secret = put(elsewhere, "a.md", HEAD.format("secret", "x"))
    project.mkdir()
    if linked == "file":
        (project / ".claude/agents").mkdir(parents=True)
        (project / ".claude/agents/a.md").symlink_to(secret)
    elif linked == "agents":
        (project / ".claude").mkdir()
        (project / ".claude/agents").symlink_to(secret.parent)
    else:
        (project / ".claude").symlink_to(elsewhere / ".claude")
    assert agents(tmp_path / "no-home", project) == []


def test_what_is_read_is_bounded_and_nothing_keeps_it_waiting(tmp_path: Path) -> None:
    for number in range(MAX_FILES + 20):
        put(tmp_path, f"{number:04}.md", HEAD.format(f"a{number:04}", "m"))
    folder = tmp_path / ".claude/agents"
    os.mkfifo(folder / "0000-pipe.md")
    (folder / "0000-folder.md").mkdir()
    (folder / "notes.txt").write_text(HEAD.format("no", "m"))
    found = agents(tmp_path, None)
    assert len(found) == MAX_FILES - 2
    assert found[0].name == "a0000"
