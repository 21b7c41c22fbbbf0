"""The project itself: its layers, its words, its make targets, its first steps on a new machine."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.paths import ROOT

SOURCE = ROOT / "src/infloop"

# Written in pieces, so that this file does not hold what it forbids.
FORBIDDEN = (
    "pypi" + ".org",
    "python" + "hosted",
    "npmjs" + ".",
    "crates" + ".io",
    "docker" + ".io",
    "the " + "original",
    "contract " + "section",
    ".." + "/shared",
    "/work/" + "main",
    "/work/" + "shared",
)


def project_files() -> Iterator[Path]:
    """Every file that belongs to the project, whether or not it is in a git checkout."""
    ignored = {line.strip().rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines()}
    ignored |= {".git", ".venv-bench"}
    waiting = [ROOT]
    while waiting:
        for entry in waiting.pop().iterdir():
            if entry.name in ignored or str(entry.relative_to(ROOT)) in ignored:
                continue
            if entry.is_dir():
                waiting.append(entry)
            else:
                yield entry


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def packages() -> set[str]:
    """What stands directly below `infloop`: packages, and modules without one."""
    return {
        entry.stem
        for entry in SOURCE.iterdir()
        if (entry.suffix == ".py" and entry.stem != "__init__") or (entry / "__init__.py").exists()
    }


def contract(name: str) -> dict[str, Any]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    (found,) = [contract for contract in contracts if contract["id"] == name]
    return dict(found)


def test_the_layers_name_every_package_once() -> None:
    layers = contract("layers")
    assert layers["exhaustive"] is True
    named = [name.strip(" ()") for layer in layers["layers"] for name in layer.split("|")]
    assert packages() <= set(named)
    assert len(named) == len(set(named))


def test_a_layer_without_brackets_exists() -> None:
    layers = contract("layers")["layers"]
    certain = {name for layer in layers for name in re.split(r"\s*\|\s*", layer) if name[0] != "("}
    assert certain <= packages()


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [("spawner", {"sandbox"}), ("connector", {"sandbox", "egress"})],
)
def test_every_other_package_is_held_to_the(rule: str, allowed: set[str]) -> None:
    held = {module.removeprefix("infloop.") for module in contract(rule)["source_modules"]}
    assert packages() - held <= allowed | {"__main__", "errors"}


def test_no_file_says_what_is_forbidden() -> None:
    texts = (
        (str(file.relative_to(ROOT)), file.read_text(encoding="utf-8", errors="replace").lower())
        for file in project_files()
    )
    found = [f"{file}: {word}" for file, text in texts for word in FORBIDDEN if word in text]
    assert found == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [str(file) for file in modules() if not re.match(r'r?"""[\w`]', file.read_text())]
    assert silent == []


def test_help_loads_nothing_that_is_slow_to_load() -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "infloop", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded = {line.rpartition("|")[2].strip().split(".")[0] for line in ran.stderr.splitlines()}
    assert "argparse" in loaded
    assert not loaded & {"asyncio", "pydantic", "rich"}


@pytest.mark.parametrize(
    "target", ["demo", "test", "check", "bench", "console", "docs", "lock", "clean"]
)
def test_make_knows(target: str) -> None:
    dry = subprocess.run(
        ["make", "--dry-run", target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert dry.returncode == 0, dry.stderr


@pytest.mark.claim("D58")
def test_the_security_file_says_how_to_report_and_lists_advisories() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    assert "## Reporting a weakness" in text
    assert text.partition("## Advisories")[2].strip() == "None."


def test_the_check_that_decides_can_be_run() -> None:
    assert os.access(ROOT / ".ci/run", os.X_OK)
    commands = (ROOT / ".ci/run").read_text().splitlines()
    assert "export REQUIRE_TEST_PARTS=1" in commands
    assert commands.index("tools/test_parts.sh") < commands.index("tests test")
    assert {"make lint", "make console-check", "tests test"} < set(commands)


FIRST = ("lint", "console-check")
RUNS = ("test-agents", "test-container", "test-browser", "test-thorough", "test")
MAKE = """#!/bin/sh
echo "$*" >> log
case "$*" in $FAILS) exit 2 ;; esac
"""


@pytest.mark.parametrize(
    ("fails", "code", "runs"),
    [
        ("nothing", 0, [*FIRST, *RUNS]),
        ("lint", 2, ["lint"]),
        ("test", 0, [*FIRST, *RUNS, "test again"]),
        ("test*", 2, [*FIRST, "test-agents", "test-agents again"]),
    ],
)
def test_tests_that_fail_are_repeated_once(
    tmp_path: Path, fails: str, code: int, runs: list[str]
) -> None:
    (tmp_path / ".ci").mkdir()
    (tmp_path / "tools").mkdir()
    (tmp_path / ".ci/run").write_text((ROOT / ".ci/run").read_text())
    for name, text in (("make", MAKE), ("tools/test_parts.sh", "#!/bin/sh\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "FAILS": fails}
    done = subprocess.run(["bash", str(tmp_path / ".ci/run")], env=environment, check=False)
    assert done.returncode == code
    log = (tmp_path / "log").read_text().splitlines()
    assert [line.split()[0] + (" again" if "--last-failed" in line else "") for line in log] == runs


# -- the first steps on a new machine ------------------------------------------------------------

PYTHON = """#!/bin/sh
case "$*" in
    *ensurepip*) test -z "$NO_VENV" || test -e "$BIN/has-venv" ;;
    "-c "*) ;;
    *"-m venv"*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
    *) echo "python $*" >> "$LOG" ;;
esac
"""
APT = """#!/bin/sh
echo "apt-get $*" >> "$LOG"
case "$*" in
    *install*python3-venv*) cp "$BIN/../python" "$BIN/python3"; touch "$BIN/has-venv" ;;
    *install*-venv*) touch "$BIN/has-venv" ;;
esac
case "$*" in *install*git*) touch "$BIN/git" && chmod +x "$BIN/git" ;; esac
"""


class Machine:
    """A machine whose programs are the few that a test puts on it."""

    def __init__(self, folder: Path, **programs: str) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.log = folder / "log"
        self.bin.mkdir()
        (folder / "python").write_text(PYTHON)
        for name in ("sh", "cp", "mkdir", "rm", "touch", "chmod", "xargs", "echo", "test"):
            real = shutil.which(name)
            assert real is not None
            (self.bin / name).symlink_to(real)
        for name, text in {"uname": "#!/bin/sh\necho Linux\n", **programs}.items():
            (self.bin / name.replace("_", "-").replace("python3-", "python3.")).write_text(text)
        for file in (*self.bin.iterdir(), folder / "python"):
            if not file.is_symlink():
                file.chmod(0o755)

    def bootstrap(self, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", str(ROOT / "tools/bootstrap.sh"), ".venv", "some.lock"],
            cwd=self.folder,
            env={"PATH": str(self.bin), "BIN": str(self.bin), "LOG": str(self.log), **variables},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def logged(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


ROOT_USER = "#!/bin/sh\necho 0\n"
SOME_USER = "#!/bin/sh\necho 1000\n"


def test_a_complete_machine_gets_an_environment_from_the_lock_file(tmp_path: Path) -> None:
    machine = Machine(tmp_path, python3_12=PYTHON, git="", id=SOME_USER)
    made = machine.bootstrap()
    assert made.returncode == 0, made.stderr
    assert "python -m pip install --quiet --require-hashes -r some.lock" in machine.logged()
    assert "python -m pip install --quiet --no-deps -e ." in machine.logged()
    assert (tmp_path / ".venv/.ready").exists()


def test_a_user_is_told_what_is_missing_and_how_to_get_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path, python3_11=PYTHON, apt_get=APT, id=SOME_USER)
    made = machine.bootstrap(NO_VENV="1")
    assert made.returncode == 1
    assert "missing: python3.11-venv git\n" in made.stderr
    assert "sudo apt-get install python3.11-venv git\n" in made.stderr
    assert machine.logged() == []


def test_a_user_without_apt_is_told_what_to_install(tmp_path: Path) -> None:
    made = Machine(tmp_path, id=SOME_USER).bootstrap()
    assert made.returncode == 1
    assert "install Python 3.11 or newer with its venv module, and git" in made.stderr


def test_root_gets_what_is_missing_installed_after_one_update(tmp_path: Path) -> None:
    machine = Machine(tmp_path, apt_get=APT, id=ROOT_USER)
    made = machine.bootstrap(NO_VENV="1")
    assert made.returncode == 0, made.stderr
    assert machine.logged()[:2] == [
        "apt-get update -qq",
        "apt-get install -y -qq --no-install-recommends python3 python3-venv git",
    ]
    assert (tmp_path / ".venv/.ready").exists()


def test_a_system_whose_python_is_too_old_needs_another_one(tmp_path: Path) -> None:
    old = "#!/bin/sh\nexit 1\n"
    made = Machine(tmp_path, python3=old, git="", apt_get=APT, id=SOME_USER).bootstrap()
    assert made.returncode == 1
    assert "sudo apt-get install python3.11 python3.11-venv\n" in made.stderr


def test_another_system_than_linux_is_refused(tmp_path: Path) -> None:
    made = Machine(tmp_path, uname="#!/bin/sh\necho Darwin\n").bootstrap()
    assert made.returncode == 1
    assert "infloop runs on Linux" in made.stderr


def test_every_path_in_the_table_of_changes_exists() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    table = page.partition("## Where a change goes")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", table, re.MULTILINE)[1:]
    assert len(rows) == 22
    for change, files in rows:
        named = re.findall(r"`([^`]+)`", files)
        paths = [path for path in named if "NAME" not in path]
        missing = [path for path in paths if not (SOURCE / path).exists()]
        assert not missing, f"{change}: {missing}"
        assert len(named) <= 3, change


# What has an attribute `run` and is no tool: a sandbox, a browser, a conversation, a row of runs.
OTHER_RUNS = {
    "providers/builtin/subagent.py": {"conversation"},
    "runtime/runs/step_powers.py": {"run", "self"},
    "tools/browser/chromium.py": {"self._sandbox"},
    "tools/browser/session.py": {"self._link"},
    "tools/mcp/stdio.py": {"sandbox"},
    "tools/shell/command.py": {"self._commands.sandbox"},
    "tools/shell/processes.py": {"self._commands.sandbox"},
}


def test_only_the_gate_calls_a_tool() -> None:
    found: dict[str, set[str]] = {}
    for path in modules():
        text, name = path.read_text(encoding="utf-8"), str(path.relative_to(SOURCE))
        if "infloop.tools" not in text:
            continue  # it need not be parsed
        tree = ast.parse(text)
        imported = {each.module for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)}
        if not any(f"{each}.".startswith("infloop.tools.") for each in imported):
            continue  # it knows no tool
        for each in ast.walk(tree):
            if isinstance(each, ast.Attribute) and each.attr == "run":
                found.setdefault(name, set()).add(ast.unparse(each.value))
            by_name = isinstance(each, ast.Call) and ast.unparse(each.func).endswith(
                ("getattr", "methodcaller")
            )
            assert not by_name or "'run'" not in ast.unparse(each), name
    assert found.pop("tools/gate.py") == {"call.tool"}
    assert found == OTHER_RUNS
