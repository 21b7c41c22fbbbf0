"""Parts that tests need: what a skip means, and the script that installs them."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import parts
from support.paths import ROOT, TESTS

# -- what a skip means -----------------------------------------------------------------------------

SKIPPING = """
import pytest
from support import parts

def test_runs(): pass
def test_program(): parts.need_program("rg", "/nowhere")
def test_node(): parts.need_program("node", "/nowhere")
def test_kernel(): parts.missing("level 'guard' needs another kernel")
@parts.ruled_out_if(True, "only root can")
def test_user(): raise AssertionError
@pytest.fixture
def machine(): parts.ruled_out("no address")
@pytest.mark.parametrize("number", [1, 2])
def test_machine(machine, number): raise AssertionError
def test_plain(): pytest.skip("no reason of ours")
@pytest.mark.xfail
def test_expected(): raise AssertionError
"""


def run_skipping(
    folder: Path, *options: str, require: bool, tests: str = SKIPPING
) -> subprocess.CompletedProcess[str]:
    """Run tests that skip, with the project's own configuration and conftest."""
    (folder / "tests").mkdir()
    shutil.copy(TESTS / "conftest.py", folder / "tests")
    (folder / "tests/test_skipping.py").write_text(tests)
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    env["REQUIRE_TEST_PARTS"] = "1" if require else ""
    configuration = ("-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *configuration, *options],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["plain", "xdist"])
def test_a_skip_says_which_command_brings_the_part(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    done = run_skipping(tmp_path, *options, require=False)
    assert done.returncode == 0, done.stdout
    said = done.stdout.partition("not tested here")[2].splitlines()[1:11]
    assert said == [
        "   1 skipped: level 'guard' needs another kernel",
        "   1 skipped: no reason of ours",
        "   1 skipped: node is missing: install Node.js 20 or newer",
        "   1 skipped: rg is missing: run `make test-parts`",
        "   2 skipped: ruled out here: no address",
        "   1 skipped: ruled out here: only root can",
        "     not in this run: the real agents: `make test-agents`",
        f"     not in this run: {parts.RUNS_OF_THEIR_OWN['browser']}",
        "     not in this run: the container image: `make test-container`",
        "     not in this run: most repetitions and drawn examples: `make test-thorough`",
    ]
    assert "1 passed, 7 skipped, 1 xfailed" in done.stdout


def test_where_parts_are_required_only_a_test_that_is_ruled_out_may_skip(tmp_path: Path) -> None:
    done = run_skipping(tmp_path, require=True)
    assert done.returncode == 1, done.stdout
    assert "4 failed, 1 passed, 3 skipped, 1 xfailed" in done.stdout
    assert "rg is missing: run `make test-parts`" in done.stdout
    assert set(re.findall(r"^FAILED \S*::(\w+)", done.stdout, re.MULTILINE)) == {
        *("test_program", "test_node", "test_kernel", "test_plain")
    }


CLAIMING = """
import pytest
from support import parts

@pytest.mark.claim("I1", "I2")
@parts.ruled_out_if(True, "not here")
def test_ruled_out(): raise AssertionError
@pytest.mark.claim("I2")
def test_proves(): pass
@pytest.mark.claim("I3")
@pytest.mark.parametrize("number", [1, 2])
def test_in_part(number):
    if number == 1: parts.ruled_out("not this one")
@pytest.mark.claim("I4")
@pytest.mark.xfail
def test_expected(): raise AssertionError
"""


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["plain", "xdist"])
def test_where_parts_are_required_a_claim_needs_a_test_that_ran(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    done = run_skipping(tmp_path, *options, require=True, tests=CLAIMING)
    assert done.returncode == 1, done.stdout
    assert "claims without proof" in done.stdout
    assert "\nI1, I4\n" in done.stdout
    assert "2 passed, 2 skipped, 1 xfailed" in done.stdout


def test_elsewhere_a_claim_may_go_unproved(tmp_path: Path) -> None:
    done = run_skipping(tmp_path, require=False, tests=CLAIMING)
    assert done.returncode == 0, done.stdout
    assert "claims without proof" not in done.stdout


def test_every_skip_says_whether_a_part_is_missing_or_the_test_is_ruled_out() -> None:
    found = [
        f"{file.relative_to(TESTS)}:{node.lineno}"
        for file in TESTS.rglob("*.py")
        if file.relative_to(TESTS).as_posix() != "support/parts.py"
        if "skip" in (text := file.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and re.fullmatch(r"pytest\.(skip|importorskip|mark\.skip(if)?)", ast.unparse(node.func))
    ]
    assert found == [], "use missing(), need_program(), ruled_out() or ruled_out_if()"


def test_what_is_left_out_of_the_tests_has_a_command_and_runs_in_ci() -> None:
    configuration = (ROOT / "pyproject.toml").read_text()
    makefile, ci = (ROOT / "Makefile").read_text(), (ROOT / ".ci/run").read_text()
    left_out = re.findall(r"not (\w+)", re.findall(r"-m '(.*)'", configuration)[0])
    assert left_out == [*parts.RUNS_OF_THEIR_OWN, "heavy"]  # which `make test-thorough` runs
    for mark, said in (parts.RUNS_OF_THEIR_OWN | parts.LESS_OFTEN).items():
        assert f"`make test-{mark}`" in said
        assert re.search(rf"^test-{mark}:.*(\n\t.*)* -m {mark} ", makefile, re.MULTILINE)
        assert re.search(rf"^tests test-{mark}\b", ci, re.MULTILINE)


@pytest.mark.parametrize("mark", parts.RUNS_OF_THEIR_OWN)
def test_the_command_of_a_mark_looks_into_every_folder_that_has_such_tests(mark: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    (named,) = re.findall(rf"-m {mark} (.*) \$\(PYTEST\)", makefile)
    using = re.compile(rf"^(@|pytestmark = )pytest\.mark\.{mark}$", re.MULTILINE)
    marked = {file.parent for file in TESTS.rglob("test_*.py") if using.search(file.read_text())}
    assert {ROOT / folder for folder in named.split()} == marked


# -- the script that installs them -----------------------------------------------------------------

LOGGING = '#!/bin/sh\necho "${0##*/} $*" >> "$LOG"\n'
PROGRAMS = (
    *("chromium", "chromium-headless-shell", "podman", "runc", "catatonit"),
    *("bwrap", "rg", "gcc", "perl", "ip", "ssh", "linux.uml", "postgres"),
)


class Machine:
    """A machine that has the programs that a test gives it, and a copy of the project."""

    def __init__(self, folder: Path, user: int, *programs: str) -> None:
        self.folder = folder
        self.log = folder / "log"
        for name in ("tools/test_parts.sh", "tests/agents/package.json"):
            (folder / name).parent.mkdir(parents=True)
            shutil.copy(ROOT / name, folder / name)
        self.bin = folder / "bin"
        self.bin.mkdir()
        for name in ("sh", "cat", "cmp", "cp", "dirname", "echo", "mkdir", "rm", "sed", "xargs"):
            real = shutil.which(name)
            assert real is not None
            (self.bin / name).symlink_to(real)
        self.put("id", f"#!/bin/sh\necho {user}\n")
        for name in programs:
            self.put(name, LOGGING)

    def put(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def install(self, *groups: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", str(self.folder / "tools/test_parts.sh"), *groups],
            env={"PATH": str(self.bin), "LOG": str(self.log), **variables},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def logged(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


def test_every_program_that_a_skip_promises_is_installed() -> None:
    script = (ROOT / "tools/test_parts.sh").read_text()
    assert set(PROGRAMS) >= parts.INSTALLED_BY_US
    assert set(re.findall(r"^ .*\bneed ([\w.-]+)", script, re.MULTILINE)) == set(PROGRAMS)


def test_root_gets_what_is_missing_and_nothing_else(tmp_path: Path) -> None:
    there = [name for name in PROGRAMS if name not in ("rg", "podman", "linux.uml")]
    machine = Machine(tmp_path, 0, "apt-get", "npm", *there)
    done = machine.install()
    assert done.returncode == 0, done.stderr
    assert machine.logged() == [
        "apt-get update -qq",
        "apt-get install -y -qq --no-install-recommends podman ripgrep user-mode-linux",
        "npm install --prefix .agents --no-fund --no-audit --loglevel=error",
    ]
    assert "@anthropic-ai/claude-code" in (tmp_path / ".agents/package.json").read_text()


def test_what_is_there_is_not_installed_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 0, "apt-get", "npm", *PROGRAMS)
    machine.install()
    machine.log.unlink()
    assert machine.install().returncode == 0
    assert machine.logged() == []
    pinned = tmp_path / "tests/agents/package.json"
    pinned.write_text(pinned.read_text().replace("0.49.0", "0.50.0"))
    machine.install("agents")
    assert len(machine.logged()) == 1


def test_the_newest_agents_can_be_asked_for_and_do_not_stay(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1000, "npm")
    machine.install("agents", AGENTS="latest")
    machine.install("agents")
    newest, pinned = machine.logged()
    assert " @anthropic-ai/claude-code@latest @openai/codex@latest" in newest
    assert "latest" not in pinned


@pytest.mark.parametrize("programs", [("apt-get", "npm"), ("npm",)], ids=["apt", "no apt"])
def test_a_user_is_told_the_command_and_gets_the_agents(
    tmp_path: Path, programs: tuple[str, ...]
) -> None:
    machine = Machine(tmp_path, 1000 if "apt-get" in programs else 0, *programs, *PROGRAMS[2:])
    done = machine.install()
    assert done.returncode == 1
    command = "sudo apt-get install --no-install-recommends chromium chromium-headless-shell"
    assert f"install with: {command}\n" in done.stderr
    assert [line.split()[0] for line in machine.logged()] == ["npm"]


def test_without_npm_it_says_what_brings_npm(tmp_path: Path) -> None:
    done = Machine(tmp_path, 0, *PROGRAMS).install()
    assert done.returncode == 1
    assert "install Node.js 20 or newer, which brings npm" in done.stderr


@pytest.mark.parametrize("broken", ["apt-get", "npm"])
def test_what_cannot_be_installed_is_a_failure(tmp_path: Path, broken: str) -> None:
    machine = Machine(tmp_path, 0, "apt-get", "npm")
    machine.put(broken, '#!/bin/sh\ntest "$1" = update\n')
    done = machine.install()
    assert done.returncode == 1
    assert f"{broken} could not install" in done.stderr
    assert (tmp_path / ".agents/installed.json").exists() == (broken == "apt-get")


def test_an_unknown_group_is_refused(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 0, "apt-get", "npm")
    done = machine.install("browsers")
    assert done.returncode == 2
    assert "unknown group: browsers" in done.stderr
    assert machine.logged() == []


# -- temporary files in memory ---------------------------------------------------------------------

PASSING_ON = """#!/bin/sh
echo "${0##*/} $*" >> "$LOG"
shift
exec "$@"
"""


@pytest.mark.parametrize(
    ("user", "kib", "variables", "in_memory"),
    [
        (0, 16_000_000, {}, True),
        (0, 16_000_000, {"TEST_ON_DISK": "1"}, False),
        (0, 2_000_000, {}, False),
        (1000, 16_000_000, {}, False),
    ],
)
def test_temporary_files_are_in_memory_where_root_has_enough_of_it(
    tmp_path: Path, user: int, kib: int, variables: dict[str, str], in_memory: bool
) -> None:
    machine = Machine(tmp_path, user, "mount", "pytest")
    machine.put("unshare", PASSING_ON)
    machine.put("true", "#!/bin/sh\n")
    (tmp_path / "meminfo").write_text(f"MemFree: 1 kB\nMemAvailable:   {kib} kB\n")
    subprocess.run(
        ["sh", str(ROOT / "tools/test_in_memory.sh"), "pytest", "-k", "one two"],
        env={
            "PATH": str(machine.bin),
            "LOG": str(machine.log),
            "MEMINFO": str(tmp_path / "meminfo"),
            **variables,
        },
        cwd="/",
        timeout=60,
        check=True,
    )
    *before, ran = machine.logged()
    assert ran.startswith("pytest -k one two")
    assert ("--basetemp=/var/tmp/t" in ran) is in_memory
    assert any(line.startswith("mount -t tmpfs") for line in before) is in_memory
