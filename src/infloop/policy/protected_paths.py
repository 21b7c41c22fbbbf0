"""Paths that other programs act upon as soon as they are there: bringing one home needs a person.

A rule is a name, or names in a row, wherever in a path they stand: what is opened, built or entered
may be any directory of a tree. `*` stands for any characters of one name. What lies below a
protected path is protected. Files that are run only when somebody runs them are not (a Makefile,
tests): that is what they are for.

Names are compared as the least careful file system would: without case, composed, without
characters that cannot be seen, trailing dots and spaces, streams and short names.
"""

from __future__ import annotations

import json
import unicodedata
from fnmatch import fnmatchcase

RULES: dict[str, tuple[str, ...]] = {
    "git acts on it": (".git", ".gitmodules", ".gitattributes", ".gitconfig", ".config/git"),
    "git hooks": (
        *(".husky", ".githooks", ".pre-commit-config.yaml", ".pre-commit-hooks.yaml"),
        *("lefthook.*", ".lefthook.*", ".lefthook", ".overcommit.yml"),
    ),
    "editor settings": (
        *(
            ".vscode",
            "*.code-workspace",
            ".idea",
            ".vs",
            ".fleet",
            ".zed",
            ".nova",
            ".devcontainer",
        ),
        *(".devcontainer.json", "*.sublime-project", ".vimrc", ".nvimrc", ".nvim.lua", ".exrc"),
        *(".emacs", ".emacs.d", ".dir-locals.el", ".dir-locals-2.el", ".config/nvim"),
    ),
    "agent settings": (
        *(".claude", ".claude.json", "claude.md", "claude.local.md", ".mcp.json", "mcp.json"),
        *("agents.md", "agent.md", ".agents", ".codex", ".gemini", "gemini.md", ".cursor"),
        *(".cursorrules", ".cursorignore", ".opencode", "opencode.json", "opencode.jsonc"),
        *(
            ".aider*",
            ".continue",
            ".windsurf",
            ".windsurfrules",
            ".clinerules",
            ".roo",
            ".roomodes",
        ),
        *(".kiro", ".junie", ".goosehints", ".amp", ".github/instructions"),
        ".github/copilot-instructions.md",
        *(".infloop", "infloop.toml", "*.workflow.json"),
    ),
    "continuous integration": (
        *(".github/workflows", ".github/actions", ".gitea/workflows", ".forgejo/workflows"),
        *(".gitlab-ci.yml", ".gitlab/ci", ".circleci", ".travis.yml", "azure-pipelines.y*ml"),
        *("jenkinsfile*", ".drone.y*ml", ".woodpecker*", "bitbucket-pipelines.yml", ".buildkite"),
        *(".appveyor.yml", "appveyor.yml", ".cirrus.y*ml", ".semaphore", ".tekton"),
    ),
    "shell start-up": (
        *(".envrc", ".direnv", ".env", ".bashrc", ".bash_*", ".profile", ".zshrc", ".zshenv"),
        *(".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login", ".logout"),
        *(".inputrc", ".config/fish", ".mise.toml", "mise.toml", ".mise", ".tool-versions"),
        *(".xprofile", ".xinitrc", ".pam_environment", ".ssh", ".gnupg", ".netrc"),
        *(".config/autostart", ".config/systemd"),
    ),
    "package and build settings": (
        *(".npmrc", ".yarnrc", ".yarnrc.yml", ".yarn", ".pnp.*", ".pnpmfile.cjs", ".cargo"),
        *("pip.conf", ".pypirc", ".mvn", "gradle/wrapper", ".bazelrc", "sitecustomize.py"),
        *("usercustomize.py", "*.pth"),
    ),
}
"""Why a path is protected, and the rules that say so."""

SCRIPTS = "package scripts"
"""Why a package's manifest is protected when its scripts change."""

_RULES = [(why, rule.split("/")) for why, rules in RULES.items() for rule in rules]
_DOT_ABOVE = "\u0307"
_DOTLESS = str.maketrans("\u0131", "i")


def protected(path: str) -> str:
    """Return why a path is protected, or nothing."""
    names = [plain(name) for name in path.split("/") if name]
    for why, rule in _RULES:
        for start in range(len(names) - len(rule) + 1):
            if all(map(fnmatchcase, names[start:], rule)):
                return why
    return ""


def is_package(path: str) -> bool:
    """Say whether a path is a manifest whose scripts a package manager runs."""
    return plain(path.rpartition("/")[2]) == "package.json"


def changes_scripts(old: bytes | None, new: bytes | None) -> bool:
    """Say whether a manifest runs anything else than before; one that cannot be read may."""
    return _scripts(old) != _scripts(new)


def plain(name: str) -> str:
    """Return a name as the least careful file system knows it."""
    name = "".join(c for c in unicodedata.normalize("NFC", name) if unicodedata.category(c) != "Cf")
    name = name.translate(_DOTLESS).casefold().replace(_DOT_ABOVE, "")
    name = unicodedata.normalize("NFC", name).partition(":")[0].rstrip(". ")
    return ".git" if fnmatchcase(name, "git~[0-9]") else name


def _scripts(manifest: bytes | None) -> object:
    """Return what a manifest lets run; something that equals nothing else if it cannot be read."""
    if manifest is None:
        return {}
    try:
        read = json.loads(manifest)
    except (ValueError, RecursionError):
        return object()
    return read.get("scripts", {}) if isinstance(read, dict) else {}
