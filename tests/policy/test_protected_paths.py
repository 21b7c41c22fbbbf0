"""Files that other programs act on are applied only if a person allows it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from infloop.policy.protected_paths import (
    RULES,
    changes_scripts,
    is_package_manifest,
    protection_reason,
)
from support.repositories import git
from support.user_machine import agent, machine

if TYPE_CHECKING:
    from pathlib import Path

PROTECTED = [
    *(".git", ".git/config", ".git/hooks/pre-commit", "vendor/.git/config", "lib/.git"),
    *(".GIT/hooks/x", ".Git/config", ".git./config", ".git /config", "GIT~1/config", "git~2"),
    *(".git::$INDEX_ALLOCATION/config", ".gi\u200dt/config", ".g\u0131t/config"),
    *(".G\u0130T/config", "\ufeff.git/config", ".gitmodules", ".GITMODULES"),
    *("sub/.gitattributes", ".gitconfig", ".config/git/config"),
    *(".husky/pre-commit", ".githooks/x", ".pre-commit-config.yaml", "lefthook.yml"),
    *(".vscode/tasks.json", "app/.vscode/settings.json", ".idea/workspace.xml", "x.code-workspace"),
    *(".devcontainer/devcontainer.json", ".exrc", ".dir-locals.el"),
    *(".claude/settings.json", ".Claude/settings.local.json", ".mcp.json", ".cursor/mcp.json"),
    *(".codex/config.toml", ".gemini/settings.json", "AGENTS.md", "docs/CLAUDE.md"),
    *("opencode.json", "loop.workflow.json", ".aider.conf.yml"),
    *(".github/workflows/ci.yml", ".GitHub/Workflows/ci.yml", ".github/actions/a/action.yml"),
    *(".gitlab-ci.yml", ".circleci/config.yml", "Jenkinsfile", "azure-pipelines.yaml"),
    *(".envrc", ".env", "home/.bashrc", ".bash_profile", ".profile", ".zshenv"),
    *(".ssh/authorized_keys", ".npmrc", ".yarn/releases/yarn.cjs", ".cargo/config.toml"),
    *(".mvn/extensions.xml", "gradle/wrapper/gradle-wrapper.jar", "site/evil.pth"),
]  # fmt: skip

PLAIN = [
    *("a.txt", "src/git/config.py", "Makefile", "tests/conftest.py", "setup.py", "pyproject.toml"),
    *(".gitignore", ".gitkeep", "git", "gitlab.md", ".github/ISSUE_TEMPLATE.md", "workflows/x.yml"),
    *("src/hooks/useThing.ts", "environment", ".env.example", "vscode/tasks.json", "package.json"),
    *("docs/agents.txt", "wrapper/gradle.jar", "config/git/x", "githooks/x", "git~x"),
]


@pytest.mark.parametrize("path", PROTECTED)
def test_a_path_is_protected(path: str) -> None:
    assert protection_reason(path) in RULES


@pytest.mark.parametrize("path", PLAIN)
def test_a_path_is_not_protected(path: str) -> None:
    assert protection_reason(path) == ""


def manifest(**fields: object) -> bytes:
    return json.dumps(fields).encode()


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        (manifest(scripts={"test": "x"}), manifest(scripts={"test": "x"}, version="2"), False),
        (None, manifest(name="x"), False),
        (manifest(name="x"), None, False),
        (None, manifest(scripts={"postinstall": "x"}), True),
        (manifest(scripts={"test": "x"}), manifest(scripts={"test": "y"}), True),
        (manifest(scripts={"test": "x"}), manifest(scripts={"test": "x", "prepare": "y"}), True),
        (manifest(), b"{", True),
        (b"{", b"{ ", True),
        (manifest(), b"[" * 100_000, True),
        (manifest(), b"[]", False),
        (b"\xff", b"\xff", True),
    ],
)
def test_a_manifest_is_protected_if_its_scripts_change(
    old: bytes | None, new: bytes | None, changes: bool
) -> None:
    assert changes_scripts(old, new) is changes


@pytest.mark.parametrize(
    ("path", "so"), [("package.json", True), ("a/Package.JSON", True), ("package.json.x", False)]
)
def test_manifests_are_known_by_their_name(path: str, so: bool) -> None:
    assert is_package_manifest(path) is so


@pytest.mark.parametrize("to", [[], ["--to", "result"]])
def test_protected_changes_are_listed_and_applied_only_if_they_are_allowed(
    tmp_path: Path, to: list[str]
) -> None:
    here = machine(tmp_path, {"a.txt": "a\n", ".envrc": "echo\n", "package.json": "{}\n"})
    here.bot(
        [
            {"write": "a.txt", "content": "b\n"},
            {"write": ".envrc", "content": "evil\n"},
            {"write": ".github/workflows/ci.yml", "content": "evil\n"},
            {"write": "package.json", "content": '{"scripts": {"postinstall": "evil"}}\n'},
        ]
    )
    here.infloop("run", here.file("w", [agent(useWorktree=True)], "start next work"))
    diff = here.infloop("diff", "last", "--stat").stderr
    assert diff.splitlines() == [
        "protected: .envrc (shell start-up)",
        "protected: .github/workflows/ci.yml (continuous integration)",
        "protected: package.json (package scripts)",
    ]
    refused = here.infloop("apply", "last", *to, code=1)
    assert refused.stdout == ""
    for path in (".envrc", ".github/workflows/ci.yml", "package.json"):
        assert f"  {path}  (" in refused.stderr
    assert "a.txt" not in refused.stderr
    assert git("status", "--porcelain", cwd=here.repo) == ""
    some = here.infloop("apply", "last", *to, "--protected", ".github", code=1)
    assert ".github" not in some.stderr
    allowed = ["--protected", ".github", "--protected", ".envrc", "--protected", "package.json"]
    said = here.infloop("apply", "last", *to, *allowed).stdout
    assert "4 files changed" in said


def test_all_protected_changes_can_be_allowed_at_once(tmp_path: Path) -> None:
    here = machine(tmp_path)
    here.bot([{"write": ".vscode/tasks.json", "content": "{}\n"}, {"delete": "a.txt"}])
    here.infloop("run", here.file("w", [agent(useWorktree=True)], "start next work"))
    here.infloop("apply", "last", "--allow-protected")
    assert (here.repo / ".vscode/tasks.json").read_text() == "{}\n"
    assert not (here.repo / "a.txt").exists()
