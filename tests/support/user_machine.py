"""A user's machine for tests of the command line: a home, a repository to work in, other places."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support import forkserver
from support.repositories import contents, git, repository
from support.terminal import on_terminal
from support.workflows import edges, node, workflow

PATIENCE = 60.0


@dataclass
class Machine:
    """Everything under one folder; commands work in `repo` unless told otherwise."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def repo(self) -> Path:
        return self.folder / "repo"

    @property
    def env(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "INFLOOP_DATA_DIR": str(self.data),
            "INFLOOP_ISOLATION": "host",
            **self.variables,
        }

    def infloop(
        self, *arguments: str, code: int = 0, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; it must end as expected."""
        done = forkserver.run(arguments, cwd or self.repo, self.env, PATIENCE * 2)
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done

    def begin(self, *arguments: str, cwd: Path | None = None) -> forkserver.Command:
        """Start a command and let it go on; the caller sees it through."""
        return forkserver.Command(arguments, cwd or self.repo, self.env)

    def on_a_terminal(self, *arguments: str, answer: str, code: int = 0) -> str:
        """Run a command that asks something; answer, and return what the terminal showed."""
        with on_terminal(arguments, self.repo, {**self.env, "TERM": "dumb"}) as terminal:
            terminal.read_until("[y/N]")
            terminal.type(f"{answer}\n")
            assert terminal.end() == code, terminal.shown
        return terminal.shown

    def file(self, id: str, nodes: list[Any], *chains: str, **more: Any) -> str:
        """Write a workflow beside the repository; return its path."""
        made = workflow([node("start", "start"), *nodes], edges(*chains), id, **more)
        path = self.folder / f"{id}.workflow.json"
        path.write_text(json.dumps(made))
        return str(path)

    def bot(self, *turns: list[dict[str, Any]], name: str = "bot") -> None:
        """Put a scripted agent into the providers folder; a loop's round chooses its turn."""
        folder = self.data / "providers"
        folder.mkdir(parents=True, exist_ok=True)
        manifest = {"id": name, "label": name, "description": "scripted"}
        manifest |= {"transport": "scripted", "script": f"{name}.turns"}
        (folder / f"{name}.json").write_text(json.dumps(manifest))
        (folder / f"{name}.turns").write_text(json.dumps({"turns": [{"do": do} for do in turns]}))

    def messages(self, run: str = "last") -> list[dict[str, Any]]:
        """Return a run's events as other programs see them."""
        out = self.infloop("logs", run, "--json").stdout
        return [json.loads(line) for line in out.splitlines()]

    def run_ids(self) -> list[str]:
        """Return all runs, the newest first."""
        out = self.infloop("runs", "--json", "--limit", "1000").stdout
        return [json.loads(line)["runId"] for line in out.splitlines()]

    def worktrees(self) -> list[Path]:
        """Return the worktrees that are there."""
        found = (self.data / "worktrees").glob("*/")
        return [path for path in found if path.name != "owners" and path.suffix != ".kept"]

    def snapshot_of(self, path: str, when: str, run: str = "last") -> str:
        """Return the snapshot taken before or after a step."""
        found = [m for m in self.messages(run) if m["type"] == "tree_saved"]
        (last,) = [m["snapshot"] for m in found if (m["stepPath"], m["when"]) == (path, when)][-1:]
        return str(last)


def machine(folder: Path, files: dict[str, str] | None = None) -> Machine:
    """Make a machine with a repository."""
    made = Machine(folder)
    made.home.mkdir(parents=True)
    repository(made.repo, files)
    return made


def agent(id: str = "work", **config: Any) -> dict[str, Any]:
    return node(id, "agent", **{"providerId": "bot", "prompt": "go", **config})


def script(id: str, code: str, **config: Any) -> dict[str, Any]:
    body = "".join(f"    {line}\n" for line in code.splitlines())
    return node(id, "script", language="py", code=f"def run():\n{body}", **config)


def command(id: str, cmd: str, **config: Any) -> dict[str, Any]:
    return node(id, "condition", kind="command", command={"cmd": cmd, "timeoutMs": 0}, **config)


def users_git(repo: Path) -> dict[str, object]:
    """Return what a user sees of a repository: HEAD, index, refs, stash, configuration, status."""
    refs = git("for-each-ref", cwd=repo).splitlines()
    return {
        "HEAD": (repo / ".git/HEAD").read_text(),
        "index": (repo / ".git/index").read_bytes(),
        "refs": [ref for ref in refs if "refs/infloop/" not in ref],
        "stash": git("stash", "list", cwd=repo),
        "config": (repo / ".git/config").read_text(),
        "worktrees": git("worktree", "list", cwd=repo),
        "files": contents(repo),
    }
