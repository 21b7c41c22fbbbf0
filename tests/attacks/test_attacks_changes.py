"""What an agent's clone holds when its work is brought home, row by row of a table."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.attack_tables import Attack, AttackTable
from support.canaries import place
from support.paths import CHILDREN
from support.repositories import contents, git
from support.user_machine import PATIENCE, Machine, agent, machine

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE = AttackTable("changes")
PLANTER = (CHILDREN / "git_planter.py").read_text()
MOST_KIB = 1 << 20
"""More than any of our programs needs for what it lets in."""


def test_every_row_is_tried() -> None:
    TABLE.check()


@pytest.fixture
def top() -> Iterator[Path]:
    """A place that the user of confined children can enter."""
    with place() as folder:
        yield folder


def agent_file(here: Machine, line: str) -> str:
    """A workflow whose agent runs a shell line in a worktree of its own."""
    here.bot([{"shell": line}])
    return here.file("w", [agent(useWorktree=True)], "start next work")


def planted(here: Machine, attack: Attack) -> str:
    """Let an agent plant what it wants to; return what the run says. It needs little memory."""
    return in_bounded_memory(here, "run", agent_file(here, planting(attack)))


def in_bounded_memory(here: Machine, *arguments: str) -> str:
    with here.begin(*arguments) as command:
        said = "".join(command.communicate(4 * PATIENCE))
    assert command.returncode == 0, said
    assert command.peak_kib <= MOST_KIB
    return said


def users_line(here: Machine, line: str, outside: Path | None = None) -> None:
    line = line.replace("{O}", str(outside))
    named = {
        f"GIT_{who}_{what}": "u" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    subprocess.run(["/bin/sh", "-ec", line], cwd=here.repo, env={**os.environ, **named}, check=True)


@pytest.mark.parametrize("attack", TABLE.at("links"))
def test_a_link_out_of_the_tree_comes_home_only_if_somebody_allows_it(
    tmp_path: Path, attack: Attack
) -> None:
    here = machine(tmp_path)
    users_line(here, attack.get("before", "true"))
    git("add", "-A", cwd=here.repo)
    git("commit", "-q", "--allow-empty", "-m", "before", cwd=here.repo)
    here.infloop("run", agent_file(here, attack["make"]))
    before = contents(here.repo)
    told = here.infloop("diff", "last", "--stat").stderr.splitlines()
    assert told == [f"protected: {path} ({why})" for path, why in sorted(attack["held"].items())]
    if attack["held"]:
        for how in ([], ["--to", "result"]):
            refused = here.infloop("apply", "last", *how, code=1).stderr
            for path, why in attack["held"].items():
                assert f"  {path}  ({why})" in refused
        assert contents(here.repo) == before
        assert "result" not in git("branch", cwd=here.repo)
    here.infloop("apply", "last", *(f"--protected={path}" for path in attack["held"]))
    assert contents(here.repo) != before


@pytest.mark.parametrize("attack", TABLE.at("beneath"))
def test_no_file_is_written_by_way_of_a_link(tmp_path: Path, attack: Attack) -> None:
    here = machine(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("theirs")
    users_line(here, attack.get("before", "true"), outside)
    here.infloop("run", agent_file(here, attack["make"]))
    users_line(here, attack.get("meanwhile", "true"), outside)
    before = contents(here.repo)
    clashes = attack.get("clashes", False)
    here.infloop("apply", "last", code=1 if clashes else 0)
    assert (contents(here.repo) == before) is clashes
    assert (here.repo / "d").is_symlink() is clashes
    assert [(each.name, each.read_text()) for each in outside.iterdir()] == [("x", "theirs")]


def planting(attack: Attack) -> str:
    code = f"{PLANTER}\n{attack['plant']}\n"
    return f"/usr/bin/python3 - <<'END' && echo fine > fine.txt\n{code}\nEND\n"


def confined(top: Path) -> Machine:
    """A machine whose agents are confined, and work in clones of their own."""
    here = machine(top)
    here.variables["INFLOOP_ISOLATION"] = "guard"
    if os.geteuid() == 0:
        here.variables["INFLOOP_SERVICE_USER"] = "nobody"
    return here


@pytest.mark.parametrize("attack", TABLE.at("objects"))
def test_objects_that_would_do_harm_stay_out_and_the_files_come_home(
    top: Path, attack: Attack
) -> None:
    here = confined(top)
    before = contents(here.repo, leave_out=())
    said = planted(here, attack)
    assert "its commits were not imported" in said
    assert attack["says"] in said
    assert contents(here.repo, leave_out=()) == before
    assert "fine.txt" in in_bounded_memory(here, "diff", "last", "--stat")
    in_bounded_memory(here, "apply", "last")
    assert (here.repo / "fine.txt").read_text() == "fine\n"
    git("fsck", "--strict", cwd=here.repo)


@pytest.mark.parametrize("attack", TABLE.at("endless"))
def test_commits_without_end_are_not_checked_out_where_nothing_confines(
    tmp_path: Path, attack: Attack
) -> None:
    here = machine(tmp_path)
    said = planted(here, attack)
    assert attack["says"] in said
    in_bounded_memory(here, "apply", "last")
    assert (here.repo / "fine.txt").read_text() == "fine\n"
    assert here.worktrees() == []
