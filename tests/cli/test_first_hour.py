"""The commands of the first hour: `new`, `workflows`, `providers`, `docs`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support import forkserver
from support.repositories import git
from support.server import environment, process
from support.terminal import on_terminal

# Prints what it is asked for, and does the work that the check wants.
AGENT = """#!/bin/sh
test "$1" = --version && {{ echo "$HOME" >> {folder}/homes; echo "{name} 1.2.3"; exit; }}
cat > {folder}/prompt
touch fixed
"""
KEY = "sk-a-key-that-nobody-sees"


def put_agent(folder: Path, name: str) -> None:
    program = folder / "programs" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(AGENT.format(name=name, folder=folder))
    program.chmod(0o755)


def infloop(
    folder: Path, *arguments: str, code: int = 0, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command where no agent is installed but those of this test."""
    (folder / "home").mkdir(exist_ok=True)
    env = {**environment(folder), "PATH": f"{folder}/programs:/usr/bin:/bin", **variables}
    done = forkserver.run(arguments, cwd or folder, env, 60)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def make_project(folder: Path) -> Path:
    project = folder / "project"
    project.mkdir()
    git("init", cwd=project)
    (project / "Makefile").write_text("test:\n\ttest -e fixed\n")
    git("add", ".", cwd=project)
    git("commit", "-m", "a check that fails", cwd=project)
    return project


@pytest.mark.parametrize("arguments", [("new",), ("new", "--json")])
def test_a_new_file_runs_with_the_agent_that_is_installed(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    put_agent(tmp_path, "codex")
    project = make_project(tmp_path)
    said = infloop(tmp_path, *arguments, cwd=project).stdout
    assert "codex works until `make test` succeeds" in said
    (file,) = [one.name for one in project.iterdir() if one.name.startswith("until-green")]
    assert file == (
        "until-green.workflow.json" if "--json" in arguments else "until-green.loop.yaml"
    )
    checked = infloop(tmp_path, "check", file, cwd=project)
    assert (checked.stdout, checked.stderr) == (f"{file}: ok\n", "")
    command = said.splitlines()[-1].split()
    assert command[:2] == ["infloop", "run"]
    infloop(tmp_path, *command[1:], cwd=project)
    assert "make: *** [Makefile:2: test] Error 1" in (tmp_path / "prompt").read_text()
    assert not (project / "fixed").exists(), "the agent works in a worktree"
    infloop(tmp_path, "apply", "last", cwd=project)
    assert (project / "fixed").exists()
    before = (project / file).read_text()
    assert "exists already" in infloop(tmp_path, *arguments, code=2, cwd=project).stderr
    assert (project / file).read_text() == before


@pytest.mark.parametrize(
    ("arguments", "file", "said"),
    [
        (("fix",), "fix.loop.yaml", "Install one: `npm install -g @anthropic-ai/claude-code`"),
        (("fix.loop.yml",), "fix.loop.yml", "claude works until"),
        (("fix.workflow.json",), "fix.workflow.json", "claude works until"),
        (("fix", "--json"), "fix.workflow.json", "claude works until"),
        (("fix", "--agent", "codex"), "fix.loop.yaml", "codex works until"),
    ],
)
def test_where_no_agent_is_installed_a_file_is_written_that_runs_once_one_is(
    tmp_path: Path, arguments: tuple[str, ...], file: str, said: str
) -> None:
    assert said in infloop(tmp_path, "new", *arguments).stdout
    assert infloop(tmp_path, "check", file).stdout == f"{file}: ok\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("fix.yaml",), "use 'fix.loop.yaml'"),
        (("fix.loop.yaml", "--json"), "named like a loop file"),
        (("no/such/folder",), "cannot be written"),
        (("a b",), "cannot be a workflow's id"),
        (("fix", "--agent", "cluade"), "did you mean 'claude'?"),
        (("fix", "--agent", "openai-api"), "a model without tools"),
    ],
)
def test_what_cannot_be_a_new_file_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    assert said in infloop(tmp_path, "new", *arguments, code=2).stderr
    assert not list(tmp_path.glob("*fix*"))


@pytest.mark.parametrize(
    ("has", "check"),
    [("package.json", "npm test"), ("go.mod", "go test ./..."), ("README", "make test")],
)
def test_the_check_is_the_one_of_the_project(tmp_path: Path, has: str, check: str) -> None:
    (tmp_path / "Makefile").write_text("build: test.c\n\techo test: no target\n")
    (tmp_path / has).touch()
    said = infloop(tmp_path, "new", "fix").stdout
    assert f"until `{check}` succeeds" in said
    assert ("write yours in place of `make test`" in said) == (has == "README")
    assert f"until: {check} #" in (tmp_path / "fix.loop.yaml").read_text()


def test_workflows_are_listed_with_file_last_run_and_problems(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "workflows"
    folder.mkdir(parents=True)
    (folder / "good.loop.yaml").write_text("name: Good\nsteps:\n  - command: 'true'\n")
    (folder / "bad.json").write_text('{"id": "bad", "name": "Bad\\u001b[2J", "nodes": []}')
    infloop(tmp_path, "run", "good")
    lines = infloop(tmp_path, "workflows", "--json").stdout.splitlines()
    entries: dict[str, dict[str, Any]] = {one["id"]: one for one in map(json.loads, lines)}
    good, bad, preset = (entries[name] for name in ("good", "bad", "team"))
    assert (good["format"], good["source"], good["problems"]) == ("yaml", "user", 0)
    assert good["file"] == str(folder / "good.loop.yaml")
    assert good["lastRun"]["status"] == "succeeded"
    assert (bad["format"], bad["errors"] > 0, "lastRun" in bad) == ("json", True, False)
    assert preset["source"] == "library"
    text = infloop(tmp_path, "workflows").stdout
    assert "\x1b" not in text
    (line,) = [line for line in text.splitlines() if line.startswith("good")]
    assert "succeeded" in line
    assert "there is no start node" in infloop(tmp_path, "workflows", "bad").stdout
    assert "did you mean 'good'?" in infloop(tmp_path, "workflows", "god", code=2).stderr
    with process(tmp_path) as server:
        served = server.client.get("/api/workflows").json()["workflows"]
    assert sorted(served, key=lambda one: one["id"]) == [entries[name] for name in sorted(entries)]


def test_providers_say_what_is_installed_and_logged_in_and_show_no_secret(tmp_path: Path) -> None:
    put_agent(tmp_path, "claude")
    put_agent(tmp_path, "codex")
    login = tmp_path / "home" / ".codex" / "auth.json"
    login.parent.mkdir(parents=True)
    login.write_text(KEY)
    told = infloop(tmp_path, "providers", "--json", ANTHROPIC_API_KEY=KEY).stdout
    found = json.loads(told)
    assert found["level"] == "host"
    known = {one["id"]: one for one in found["providers"]}
    claude = {key: known["claude"][key] for key in ("installed", "version", "may")}
    assert claude == {
        "installed": True,
        "version": "claude 1.2.3",
        "may": "what --permission-mode acceptEdits allows",
    }
    # It may write to its home, so that is one of its own, and gone.
    homes = [Path(line) for line in (tmp_path / "homes").read_text().splitlines()]
    assert len(homes) == 2
    assert not any(home.exists() or home == Path("/nonexistent") for home in homes)
    logins = {name: known[name]["login"] for name in ("claude", "codex", "gemini")}
    assert logins["claude"]["place"] == "ANTHROPIC_API_KEY"
    assert logins["codex"]["place"] == str(login)
    assert (logins["gemini"]["status"], known["gemini"]["installed"]) == ("missing", False)
    text = infloop(tmp_path, "providers", ANTHROPIC_API_KEY=KEY).stdout
    assert "install it: npm install -g @google/gemini-cli" in text
    assert KEY not in told + text
    login.write_text("")
    only = infloop(tmp_path, "providers", "codex").stdout
    assert "login: none found; log in: codex login" in only
    assert "did you mean 'codex'?" in infloop(tmp_path, "providers", "codx", code=2).stderr


def test_a_page_of_the_documentation_is_rendered_for_a_pager(tmp_path: Path) -> None:
    settings = {**environment(tmp_path), "PAGER": "cat", "TERM": "xterm"}
    with on_terminal(("docs", "loop-files"), tmp_path, settings, columns=70) as terminal:
        assert terminal.end() == 0
    lines = terminal.shown.replace("\r\n", "\n").split("\n")
    assert "L\bLO\bOO\bOP\bP F\bFI\bIL\bLE\bES\bS" in lines
    shown = "\n".join(lines)
    assert "a\bag\bge\ben\bnt\bt" in shown, "code is bold"
    assert "```" not in shown
    assert "|---" not in shown
    assert "](" not in shown
    assert "    $ infloop check until-done.loop.yaml" in lines
    widths = [len(line) - 2 * line.count("\b") for line in lines if not line.startswith("    ")]
    assert max(widths) <= 70
