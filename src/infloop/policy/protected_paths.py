"""Paths on which other programs act, so an agent may change them only with permission.

- `RULES` are names that settings, hooks and start-up files have. A rule is one name, or several in
  sequence, at any position in a path. Everything below a protected path is protected.
- `TOOL_FILES` are names of files that a usual command executes without being told their name: a
  build, a test run, a linter, a debugger. Only the name of the file itself counts. Removing such a
  file executes nothing, so only adding and changing it needs permission.
- Files that run only when a person names them are not protected (a script, a test).
- `*` matches any characters of one name.
- Names are compared as the most lenient file system does: without case, in composed form, without
  invisible characters, trailing dots and spaces, alternate streams and short names.
"""

from __future__ import annotations

import json
import unicodedata
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

RULES: dict[str, tuple[str, ...]] = {
    "git acts on it": (
        ".git",
        ".gitmodules",
        ".gitattributes",
        ".gitconfig",
        ".config/git",
        ".lfsconfig",
    ),
    "git hooks": (
        *(".husky", ".githooks", ".pre-commit-config.yaml", ".pre-commit-hooks.yaml"),
        *("lefthook.*", ".lefthook.*", ".lefthook", ".overcommit.yml", ".simple-git-hooks.*"),
        *(".lintstagedrc*", ".huskyrc*", ".pre-commit-config.yml"),
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
        *(".vim", ".lvimrc", ".nvim", "*.xcodeproj", "*.xcworkspace", ".helix"),
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
        *(".infloop", "infloop.toml", "*.workflow.json", "*.loop.yaml", "*.loop.yml"),
    ),
    "continuous integration": (
        *(".github/workflows", ".github/actions", ".gitea/workflows", ".forgejo/workflows"),
        *(".gitlab-ci.yml", ".gitlab/ci", ".circleci", ".travis.yml", "azure-pipelines.y*ml"),
        *("jenkinsfile*", ".drone.y*ml", ".woodpecker*", "bitbucket-pipelines.yml", ".buildkite"),
        *(".appveyor.yml", "appveyor.yml", ".cirrus.y*ml", ".semaphore", ".tekton", ".build.yml"),
        *(".builds", ".gitlab-ci", "*.gitlab-ci.yml", "buildspec.y*ml", "cloudbuild.y*ml"),
        *("codemagic.yaml", "bitrise.yml", ".harness", ".teamcity"),
    ),
    "shell start-up": (
        *(".envrc", ".direnv", ".env", ".env.local", ".env.*.local", ".env.development"),
        *(
            ".env.production",
            ".env.test",
            ".autoenv*",
            ".bashrc",
            ".bash_*",
            ".profile",
            ".zshrc",
            ".zshenv",
        ),
        *(".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login", ".logout"),
        *(".inputrc", ".config/fish", ".mise.toml", "mise.toml", ".mise", ".tool-versions"),
        *(".xprofile", ".xinitrc", ".pam_environment", ".ssh", ".gnupg", ".netrc"),
        *(".config/autostart", ".config/systemd"),
    ),
    "package and build settings": (
        *(".npmrc", ".yarnrc", ".yarnrc.yml", ".yarn", ".pnp.*", ".pnpmfile.cjs", ".cargo"),
        *("pip.conf", ".pypirc", ".condarc", ".mvn", ".gradle", "gradle/wrapper", ".bazelrc"),
        *(".bundle", ".nuget", "nuget.config", "directory.build.*", ".sbtopts", ".jvmopts"),
        *("bunfig.toml", "uv.toml", "poetry.toml", ".pdm.toml", ".terraformrc", "ansible.cfg"),
    ),
    "interpreters and debuggers load it by themselves": (
        *("sitecustomize.py", "usercustomize.py", "*.pth", "*.pyc", ".ipython", ".jupyter"),
        *("ipython_config.py", "jupyter_*config.py", ".rprofile", ".renviron", ".irbrc", ".pryrc"),
        *(".iex.exs", ".ghci", ".gdbinit", ".gdbinit.*", ".lldbinit", ".pdbrc", ".pdbrc.py"),
        *(".perldb", ".octaverc", ".sqliterc", ".psqlrc", ".user.ini", ".htaccess"),
    ),
}
"""The protected paths, by the reason for their protection."""

TOOL_FILES: dict[str, tuple[str, ...]] = {
    "make and other task runners execute it": (
        *("makefile", "gnumakefile", "makefile.*", "*.mk", "*.mak", "justfile", ".justfile"),
        *("*.just", "taskfile.y*ml", "taskfile.dist.y*ml", "rakefile", "rakefile.rb", "*.rake"),
        *(
            "gulpfile.*",
            "gruntfile.*",
            "jakefile",
            "jakefile.*",
            "magefile.go",
            "sconstruct",
            "sconscript",
        ),
        *(
            "wscript",
            "tasks.py",
            "dodo.py",
            "fabfile.py",
            "earthfile",
            "tiltfile",
            "procfile",
            "procfile.*",
        ),
        *("guardfile", "capfile", "thorfile", "*.thor", "dangerfile", "fastfile", ".air.toml"),
    ),
    "a build or an installation executes it": (
        *("pyproject.toml", "setup.py", "setup.cfg", "hatch_build.py", "hatch.toml", "pipfile"),
        *("meson.build", "cmakelists.txt", "*.cmake", "cmake*presets.json", "configure"),
        *("configure.ac", "configure.in", "*.m4", "build.rs", "cargo.toml", "build.zig"),
        *("package.swift", "setup.hs", "*.cabal", "dune", "dune-project", "*.nimble", "nim.cfg"),
        *("config.nims", "makefile.pl", "build.pl", "mix.exs", "rebar.config*", "build.xml"),
        *("pom.xml", "*.gradle", "*.gradle.kts", "gradle.properties", "gradlew", "gradlew.bat"),
        *("mvnw", "mvnw.cmd", "build.sbt", "*.sbt", "build", "build.bazel", "workspace"),
        *("workspace.bazel", "module.bazel", "*.bzl", "gemfile", "*.gemspec", "podfile"),
        *("brewfile", "composer.json", "binding.gyp", "*.csproj", "*.fsproj", "*.vbproj"),
        *("*.vcxproj", "*.targets", "deno.json", "deno.jsonc", "flake.nix", "shell.nix"),
        *("default.nix", "devenv.nix", ".goreleaser.y*ml", "dub.json", "dub.sdl"),
    ),
    "a test run executes it": (
        *("conftest.py", "pytest.ini", ".pytest.ini", "tox.ini", "noxfile.py", ".coveragerc"),
        *(".mocharc*", ".nycrc*", ".c8rc*", "*.conf.js", "*.conf.cjs", "*.conf.ts", ".rspec"),
        *("phpunit.xml*", "vitest.workspace.*", "jest.config.json"),
    ),
    "linters, formatters and bundlers execute it": (
        *("*.config.js", "*.config.cjs", "*.config.mjs", "*.config.ts", "*.config.cts"),
        *("*.config.mts", "*.config.jsx", "*.config.tsx", "webpack.*.js", "babel.config.json"),
        *(".eslintrc*", ".prettierrc*", ".babelrc*", ".postcssrc*", ".stylelintrc*", ".swcrc"),
        *(".commitlintrc*", ".releaserc*", ".pylintrc", "pylintrc", ".flake8", "mypy.ini"),
        *(".mypy.ini", ".rubocop*.yml", ".golangci.y*ml", "phpstan*.neon*", ".php-cs-fixer*.php"),
        *("rector.php", ".credo.exs", ".formatter.exs"),
    ),
    "containers and machines are made from it": (
        *(
            "dockerfile",
            "dockerfile.*",
            "*.dockerfile",
            "containerfile",
            "containerfile.*",
            "docker-compose*.y*ml",
        ),
        *("compose*.y*ml", "docker-bake.*", "vagrantfile", "berksfile"),
    ),
}
"""Names of files that a usual command executes, by the reason for their protection."""

SCRIPTS = "package scripts"
"""The reason for protecting a package manifest whose scripts change."""

_RULES = [(why, rule.split("/")) for why, rules in RULES.items() for rule in rules]
_TOOL_FILES = [(why, rule) for why, rules in TOOL_FILES.items() for rule in rules]
_DOT_ABOVE = "\u0307"
_DOTLESS = str.maketrans("\u0131", "i")
# Keys of a package manifest that no program executes.
_DATA_KEYS = frozenset(
    {
        *("author", "bugs", "bundledDependencies", "contributors", "cpu", "dependencies"),
        *("description", "devDependencies", "engines", "exports", "files", "funding", "homepage"),
        *("keywords", "license", "main", "module", "name", "optionalDependencies", "os"),
        *("peerDependencies", "private", "publishConfig", "repository", "sideEffects", "type"),
        *("types", "typings", "version"),
    }
)


_WILDCARDS = frozenset("*?[")


def protection_reason(path: str, named: Mapping[str, str] | None = None) -> str:
    """Return why a path is protected, or an empty string.

    `named` are further protected paths, each with the reason. What contains one of them is
    protected too, because a link could replace it.
    """
    names = _normalized(path)
    for why, rule in _RULES:
        for start in range(len(names) - len(rule) + 1):
            if all(map(_fits, names[start:], rule)):
                return why
    return named_reason(path, named or {})


def named_reason(path: str, named: Mapping[str, str]) -> str:
    """Return why a path is, contains or is in one of the `named` paths, or an empty string."""
    names = _normalized(path)
    for each, why in named.items():
        if all(mine == theirs for mine, theirs in zip(names, _normalized(each), strict=False)):
            return why
    return ""


def tool_reason(path: str) -> str:
    """Return which usual command executes a file by itself, or an empty string."""
    name = _normalized(path)[-1]
    return next((why for why, rule in _TOOL_FILES if _fits(name, rule)), "")


def is_package_manifest(path: str) -> bool:
    """Tell whether a path is a manifest whose scripts a package manager runs."""
    return normalized_name(path.rpartition("/")[2]) == "package.json"


def changes_scripts(old: bytes | None, new: bytes | None) -> bool:
    """Tell whether a manifest changed in what programs execute; an unreadable one counts."""
    return _scripts(old) != _scripts(new)


def _fits(name: str, rule: str) -> bool:
    """Match a name; `fnmatch` compiles a pattern even of the hundreds of rules that are plain."""
    return name == rule or (not _WILDCARDS.isdisjoint(rule) and fnmatchcase(name, rule))


def _normalized(path: str) -> list[str]:
    return [normalized_name(name) for name in path.split("/") if name]


def normalized_name(name: str) -> str:
    """Return a name as the most lenient file system compares it."""
    name = "".join(c for c in unicodedata.normalize("NFC", name) if unicodedata.category(c) != "Cf")
    name = name.translate(_DOTLESS).casefold().replace(_DOT_ABOVE, "")
    name = unicodedata.normalize("NFC", name).partition(":")[0].rstrip(". ")
    return ".git" if fnmatchcase(name, "git~[0-9]") else name


def _scripts(manifest: bytes | None) -> object:
    """Return what programs execute of a manifest; for an unreadable one, a unique object."""
    if manifest is None:
        return {}
    try:
        read = json.loads(manifest)
    except (ValueError, RecursionError):
        return object()
    if not isinstance(read, dict):
        return {}
    return {key: value for key, value in read.items() if value and key not in _DATA_KEYS}
