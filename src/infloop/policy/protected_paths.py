"""Paths on which other programs act, so an agent may change them only with permission.

- A rule is one name, or several in sequence, at any position in a path. `*` matches any characters
  of one name.
- Everything below a protected path is protected.
- Files that run only when a person runs them are not protected (a Makefile, tests).
- Names are compared as the most lenient file system does: without case, in composed form, without
  invisible characters, trailing dots and spaces, alternate streams and short names.
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
"""The protected paths, by the reason for their protection."""

SCRIPTS = "package scripts"
"""The reason for protecting a package manifest whose scripts change."""

_RULES = [(why, rule.split("/")) for why, rules in RULES.items() for rule in rules]
_DOT_ABOVE = "\u0307"
_DOTLESS = str.maketrans("\u0131", "i")


def protection_reason(path: str) -> str:
    """Return why a path is protected, or an empty string."""
    names = [normalized_name(name) for name in path.split("/") if name]
    for why, rule in _RULES:
        for start in range(len(names) - len(rule) + 1):
            if all(map(fnmatchcase, names[start:], rule)):
                return why
    return ""


def is_package_manifest(path: str) -> bool:
    """Tell whether a path is a manifest whose scripts a package manager runs."""
    return normalized_name(path.rpartition("/")[2]) == "package.json"


def changes_scripts(old: bytes | None, new: bytes | None) -> bool:
    """Tell whether the scripts of a manifest changed; an unreadable manifest counts as changed."""
    return _scripts(old) != _scripts(new)


def normalized_name(name: str) -> str:
    """Return a name as the most lenient file system compares it."""
    name = "".join(c for c in unicodedata.normalize("NFC", name) if unicodedata.category(c) != "Cf")
    name = name.translate(_DOTLESS).casefold().replace(_DOT_ABOVE, "")
    name = unicodedata.normalize("NFC", name).partition(":")[0].rstrip(". ")
    return ".git" if fnmatchcase(name, "git~[0-9]") else name


def _scripts(manifest: bytes | None) -> object:
    """Return the scripts of a manifest; for an unreadable one, a unique object."""
    if manifest is None:
        return {}
    try:
        read = json.loads(manifest)
    except (ValueError, RecursionError):
        return object()
    return read.get("scripts", {}) if isinstance(read, dict) else {}
