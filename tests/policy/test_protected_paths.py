"""Files that other programs act on are applied only if a person allows it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from infloop.policy.protected_paths import (
    RULES,
    TOOL_FILES,
    changes_scripts,
    is_package_manifest,
    protection_reason,
    tool_reason,
)
from support.paths import ROOT
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
    *(".gdbinit", "sub/.lldbinit", ".vim/plugin/x.vim", ".env.local", "pkg/__pycache__/a.pyc"),
    *(".lfsconfig", ".tool-versions", ".mise.toml", ".idea/x.xml", ".pnpmfile.cjs"),
    *("Directory.Build.props", ".Rprofile", ".ipython/startup/x.py", ".bundle/config", ".HTACCESS"),
]  # fmt: skip

EXECUTED = [
    *("Makefile", "GNUmakefile", "sub/makefile", "rules.mk", "MAKEFILE", "Makefile.", "justfile"),
    *("Make\u200dfile", "Makefile::$DATA", "Rakefile", "Taskfile.yml", "gulpfile.js", "tasks.py"),
    *("conftest.py", "tests/conftest.py", "pyproject.toml", "setup.py", "setup.cfg", "tox.ini"),
    *("noxfile.py", "pytest.ini", ".coveragerc", "build.rs", "Cargo.toml", "CMakeLists.txt"),
    *("BUILD", "lib/BUILD.bazel", "WORKSPACE", "tools/x.bzl", "Gemfile", "x.gemspec", "gradlew"),
    *("build.gradle.kts", "settings.gradle", "mvnw", "pom.xml", "app.csproj", "composer.json"),
    *("vite.config.ts", "web/jest.config.cjs", "next.config.mjs", "karma.conf.js"),
    *(".eslintrc.js", ".eslintrc.json", ".prettierrc.js", ".babelrc", ".mocharc.yml"),
    *(".pylintrc", "mypy.ini", ".rubocop.yml", "Dockerfile", "docker-compose.yml", "Vagrantfile"),
    *("flake.nix", "shell.nix", "mix.exs", "Package.swift", "deno.json", "configure"),
]  # fmt: skip

PLAIN = [
    *("a.txt", "src/git/config.py", "build/index.html", "workspace/a", "tests/test_a.py", "run.sh"),
    *("src/makefile_parser.py", "docs/Dockerfiles.md", "config.js", "src/config.ts", "setup/x.py"),
    *(".gitignore", ".gitkeep", "git", "gitlab.md", ".github/ISSUE_TEMPLATE.md", "workflows/x.yml"),
    *("src/hooks/useThing.ts", "environment", ".env.example", "vscode/tasks.json", "package.json"),
    *("docs/agents.txt", "wrapper/gradle.jar", "config/git/x", "githooks/x", "git~x"),
]


@pytest.mark.parametrize("path", PROTECTED)
def test_a_path_is_protected(path: str) -> None:
    assert protection_reason(path) in RULES


@pytest.mark.parametrize("path", EXECUTED)
def test_a_file_that_a_usual_command_executes_is_known(path: str) -> None:
    assert tool_reason(path) in TOOL_FILES


@pytest.mark.parametrize("path", PLAIN)
def test_a_path_is_not_protected(path: str) -> None:
    assert protection_reason(path) == ""
    assert tool_reason(path) == ""


@pytest.mark.parametrize(
    ("path", "protected"),
    [
        ("tools/hooks/pre-commit", True),
        ("tools/hooks", True),
        ("tools", True),  # a link in place of the directory
        ("Tools/Hooks/x", True),
        ("tools/other", False),
        ("tools/hooks2/x", False),
        ("src/tools/hooks/x", False),
    ],
)
def test_what_the_users_settings_name_is_protected(path: str, protected: bool) -> None:
    assert bool(protection_reason(path, {"tools/hooks": "settings"})) is protected


def test_the_documents_have_the_whole_table() -> None:
    text = (ROOT / "docs/security.md").read_text()
    for rules in (RULES, TOOL_FILES):
        for reason, names in rules.items():
            files = ", ".join(f"`{name}`" for name in names)
            assert f"| {reason} | {files} |\n" in text, f"| {reason} | {files} |"


def manifest(**fields: object) -> bytes:
    return json.dumps(fields).encode()


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        (manifest(scripts={"test": "x"}), manifest(scripts={"test": "x"}, version="2"), False),
        (None, manifest(name="x"), False),
        (manifest(name="x"), None, False),
        (manifest(dependencies={"a": "1"}), manifest(dependencies={"a": "2"}), False),
        (manifest(), manifest(jest={"globalSetup": "./x.js"}), True),
        (manifest(), manifest(packageManager="yarn@file:./x"), True),
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


def test_files_that_usual_commands_execute_are_asked_about_when_they_are_added_or_changed(
    tmp_path: Path,
) -> None:
    here = machine(tmp_path, {"Makefile": "all:\n", "setup.py": "\n", "a.py": "a = 1\n"})
    here.bot(
        [
            {"write": "Makefile", "content": "all:\n\tevil\n"},
            {"write": "tests/conftest.py", "content": "evil\n"},
            {"write": "a.py", "content": "a = 2\n"},
            {"delete": "setup.py"},
        ]
    )
    here.infloop("run", here.file("w", [agent(useWorktree=True)], "start next work"))
    refused = here.infloop("apply", "last", code=1).stderr
    assert "  Makefile  (make and other task runners execute it)" in refused
    assert "  tests/conftest.py  (a test run executes it)" in refused
    assert "setup.py" not in refused
    assert "a.py" not in refused
    assert git("status", "--porcelain", cwd=here.repo) == ""
    here.infloop("apply", "last", "--protected", "Makefile", "--protected", "tests/conftest.py")
    assert git("status", "--porcelain", "-uall", cwd=here.repo).splitlines() == [
        *("M Makefile", " M a.py", " D setup.py", "?? tests/conftest.py")
    ]


@pytest.mark.parametrize("allowed", [".env", ".env/", "sub/.env", "pack", "packag", "Makefil"])
def test_an_allowed_path_allows_no_other_path_that_begins_like_it(
    tmp_path: Path, allowed: str
) -> None:
    here = machine(tmp_path)
    names = (".envrc", "sub/.envrc", "package.json", "Makefile")
    files = [{"write": each, "content": '{"scripts": {"a": "evil"}}\n'} for each in names]
    here.bot([{"write": ".env", "content": "A=1\n"}, *files])
    here.infloop("run", here.file("w", [agent(useWorktree=True)], "start next work"))
    refused = here.infloop("apply", "last", "--protected", allowed, code=1).stderr
    for each in names:
        assert f"  {each}  (" in refused
    assert not (here.repo / ".env").exists()


def test_what_the_users_git_settings_name_is_asked_about(tmp_path: Path) -> None:
    here = machine(tmp_path, {"tools/check": "#!/bin/sh\n", "hooks/pre-commit": "#!/bin/sh\n"})
    (here.home / ".gitconfig").write_text("[core]\n\thooksPath = hooks\n")
    git("config", "filter.own.clean", "./tools/check %f", cwd=here.repo)
    here.bot(
        [
            {"write": "tools/check", "content": "evil\n"},
            {"write": "hooks/post-commit", "content": "evil\n"},
            {"write": "tools/other", "content": "work\n"},
        ]
    )
    here.infloop("run", here.file("w", [agent(useWorktree=True)], "start next work"))
    shown = here.infloop("diff", "last", "--stat").stderr
    refused = here.infloop("apply", "last", code=1).stderr
    for text in (shown, refused):
        assert "hooks/post-commit" in text
        assert "(your git setting core.hookspath names it)" in text
        assert "tools/check" in text
        assert "(your git setting filter.own.clean names it)" in text
        assert "tools/other" not in text
    here.infloop("apply", "last", "--protected", "hooks", "--protected", "tools/check")
    assert (here.repo / "hooks/post-commit").read_text() == "evil\n"
