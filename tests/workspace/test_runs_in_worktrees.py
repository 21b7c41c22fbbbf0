"""Agents in worktrees of their own, through the command line: nothing lost, nothing in the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from support.eventually import eventually
from support.repositories import contents, git, write
from support.user_machine import Machine, agent, command, machine, script, users_git
from support.workflows import node

WAIT = "while [ ! -e {}/go ]; do sleep 0.02; done"
COMMIT = "git add -A && git -c user.name=Bot -c user.email=bot@example.com commit -q -m"


def edits(machine: Machine) -> str:
    """A workflow whose agent does everything to a worktree that can be done to one."""
    machine.bot(
        [
            {"write": "a.txt", "content": "one\ntwo\nthree\nfour\n"},
            {"write": "new/file.txt", "content": "new\n"},
            {"delete": "src/b.txt"},
            {"shell": "chmod 755 a.txt; ln -s a.txt link; mkdir hollow"},
            {"shell": f"{COMMIT} 'by the agent'"},
            {"write": "later.txt", "content": "not committed\n"},
        ]
    )
    return machine.file("edit", [agent(useWorktree=True)], "start next work")


# -- where they work -------------------------------------------------------------------------


@pytest.mark.claim("I45")
def test_an_agent_works_in_a_worktree_and_the_users_tree_stays_as_it_is(tmp_path: Path) -> None:
    here = machine(tmp_path)
    write(here.repo / "a.txt", "being edited\n")
    write(here.repo / "untracked", "u\n")
    git("add", "a.txt", cwd=here.repo)
    before = users_git(here.repo)
    here.infloop("run", edits(here))
    assert users_git(here.repo) == before
    shown = here.infloop("show", "last").stdout
    assert "5 files changed, +4 -1" in shown
    assert "worktreePath: " in shown
    (ended,) = [m for m in here.messages() if m.get("nodeType") == "agent" and "outputs" in m]
    assert Path(ended["outputs"]["worktreePath"]).parent == here.data / "worktrees"
    assert here.worktrees() == []
    (saved,) = here.infloop("worktrees").stdout.splitlines()[1:]
    assert saved.split()[1:3] == ["saved", here.run_ids()[0][:8]]
    kept = [ref for ref in git("for-each-ref", cwd=here.repo).splitlines() if "infloop" in ref]
    assert len(kept) == 1
    assert git("log", "-1", "--format=%s", kept[0].split()[2], cwd=here.repo) == "by the agent"


@pytest.mark.claim("I45")
@pytest.mark.parametrize("config", [{}, {"useWorktree": False}])
def test_an_agent_that_does_not_ask_for_a_worktree_works_in_cwd_itself(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    here = machine(tmp_path)
    here.bot([{"write": "a.txt", "content": "changed\n"}])
    here.infloop("run", here.file("w", [agent(**config)], "start next work"))
    assert (here.repo / "a.txt").read_text() == "changed\n"
    assert here.infloop("worktrees").stderr == "there are no worktrees\n"
    assert "has no worktree" in here.infloop("apply", "last", code=2).stderr


@pytest.mark.claim("I45")
def test_a_new_workflow_has_an_agent_in_a_worktree_and_runs(tmp_path: Path) -> None:
    here = machine(tmp_path)
    here.bot(
        [{"write": "a.txt", "content": "half\n"}],
        [{"write": "a.txt", "content": "done\n"}],
        name="claude",
    )
    (here.repo / "Makefile").write_text("test:\n\tgrep done a.txt\n")
    assert "infloop run ./until-green.loop.yaml" in here.infloop("new").stdout
    file = here.repo / "until-green.loop.yaml"
    assert "useWorktree: true" in file.read_text()
    assert here.infloop("check", str(file)).stdout == f"{file}: ok\n"
    here.infloop("run", str(file))
    assert (here.repo / "a.txt").read_text() == "one\ntwo\nthree\n"
    here.infloop("apply", "last")
    assert (here.repo / "a.txt").read_text() == "done\n"


@pytest.mark.parametrize(
    ("name", "said"),
    [("until-green.loop.yaml", "exists already"), ("..json", "cannot be a workflow's id"),
     ("no/where.json", "cannot be written"), ("con.json", "cannot be a workflow's id")],
)  # fmt: skip
def test_new_overwrites_nothing_and_writes_no_odd_name(
    tmp_path: Path, name: str, said: str
) -> None:
    here = machine(tmp_path)
    here.infloop("new")
    before = contents(here.repo)
    assert said in here.infloop("new", name, code=2).stderr
    assert contents(here.repo) == before


def test_the_worktree_keeps_the_directory_and_conditions_and_scripts_work_there(
    tmp_path: Path,
) -> None:
    here = machine(tmp_path)
    here.bot([{"write": "here.txt", "content": "h\n"}])
    place = "{{work.worktreePath}}"
    nodes = [
        agent(cwd="src", useWorktree=True),
        script("look", "open('there.txt', 'w').write(open('here.txt').read())", cwd=place),
        command("check", "test -f b.txt && cat here.txt there.txt", cwd=place),
    ]
    out = here.infloop("run", here.file("w", nodes, "start next work next look next check")).stdout
    assert "check  met: exit 0" in out
    assert contents(here.repo).keys() == {b"", b"a.txt", b"src", b"src/b.txt"}
    stat = here.infloop("diff", "last", "--stat").stdout
    assert [line.split()[0] for line in stat.splitlines()[:-1]] == [
        "src/here.txt",
        "src/there.txt",
    ]


def test_what_a_worktree_begins_with_can_be_chosen(tmp_path: Path) -> None:
    here = machine(tmp_path, {"a.txt": "old\n", ".gitignore": ".env\n"})
    git("tag", "before", cwd=here.repo)
    write(here.repo / "a.txt", "new\n")
    git("commit", "-q", "-a", "-m", "second", cwd=here.repo)
    write(here.repo / "a.txt", "uncommitted\n")
    write(here.repo / ".env", "KEY=1\n")
    here.bot([{"shell": "echo $(cat a.txt .env 2>&1)"}])
    nodes = [
        agent("tagged", useWorktree=True, worktreeRef="{{inputs.ref}}"),
        agent("whole", useWorktree=True, includeUncommitted=True, worktreeInclude=[".env"]),
    ]
    file = here.file("w", nodes, "start next tagged next whole")
    out = here.infloop("run", file, "--input", "ref=before").stdout
    said = [line.split("] ", 1)[1] for line in out.splitlines() if "[tool result]" in line]
    assert said[0].startswith("old")
    assert "No such file" in said[0]
    assert said[1] == "uncommitted KEY=1"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"cwd": "{{inputs.plain}}"}, "is not in a git repository: run `git init` there"),
        ({"worktreeRef": "nowhere"}, "there is no 'nowhere' in the repository"),
        ({"worktreeInclude": ["../x"]}, "'../x' cannot be included"),
    ],
)
def test_a_worktree_that_cannot_be_made_fails_the_step_and_says_what_to_do(
    tmp_path: Path, config: dict[str, Any], said: str
) -> None:
    here = machine(tmp_path)
    here.bot([{"text": "x"}])
    inputs = [{"name": "plain", "type": "string", "default": str(here.home)}]
    nodes = [agent(useWorktree=True, **config)]
    assert (
        said
        in here.infloop(
            "run", here.file("w", nodes, "start next work", inputs=inputs), code=1
        ).stdout
    )
    assert here.worktrees() == []


@pytest.mark.parametrize(
    ("field", "values", "said"),
    [
        ("worktreeRef", ("v1", "v2"), "was created at 'v1' and cannot be created again at 'v2'"),
        ("cwd", ("repo", "other/repo"), "other/repo' is not in it: a node has one worktree"),
        ("cwd", ("repo", "repo/made"), "has no '"),
    ],
)
def test_a_node_has_one_worktree_in_a_run(
    tmp_path: Path, field: str, values: tuple[str, str], said: str
) -> None:
    here = machine(tmp_path)
    (tmp_path / "other").mkdir()
    machine(tmp_path / "other")
    (here.repo / "made").mkdir()
    for tag in ("v1", "v2"):
        git("tag", tag, cwd=here.repo)
    here.bot([{"text": "x"}])
    first, second = (f"{tmp_path}/{each}" if field == "cwd" else each for each in values)
    choose = (
        f"import pathlib\nseen = pathlib.Path({str(tmp_path / 'seen')!r})\nagain = seen.exists()\n"
        f"seen.touch()\nreturn {{'value': {second!r} if again else {first!r}}}"
    )
    nodes = [
        script("choose", choose, outputs=["value"]),
        agent(useWorktree=True, **{field: "{{choose.value}}"}),
    ]
    loop = node("l", "loop", nodes, maxIterations=2)
    out = here.infloop("run", here.file("w", [loop], "start next l", "choose next work"), code=1)
    assert said in out.stdout
    assert here.worktrees() == []


def test_runs_of_one_repository_at_the_same_time_do_not_meet(tmp_path: Path) -> None:
    here = machine(tmp_path)
    here.bot(
        [
            {"shell": "touch ../../../begun-$(basename $PWD)"},
            {"shell": WAIT.format(here.folder)},
            {"shell": "echo $PWD > a.txt"},
            {"shell": f"{COMMIT} mine"},
        ]
    )
    nodes = [agent("one", useWorktree=True), agent("two", useWorktree=True)]
    both = node("both", "parallel", nodes)
    file = here.file("w", [both], "start next both")
    before = users_git(here.repo)
    processes = [here.begin("run", file) for _ in range(3)]
    eventually(lambda: len(list(tmp_path.glob("begun-*"))) == 6, "all six agents are at work")
    (here.folder / "go").touch()
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, out + err
    assert users_git(here.repo) == before
    for run in here.run_ids():
        patches = [here.infloop("diff", run, f"both{{{name}}}").stdout for name in ("one", "two")]
        for name, patch in zip(("one", "two"), patches, strict=True):
            assert patch.count("diff --git") == 1
            assert f"{run[:8]}-{name}-" in patch
    assert len(here.infloop("worktrees").stdout.splitlines()) == 7


# -- a crash -----------------------------------------------------------------------------------


def killed_at_work(here: Machine, **more: Any) -> str:
    """Kill a run while its agent is at work in the second round; return the worktree's path."""
    waits = WAIT.format(here.folder)
    here.bot(
        [{"write": "one.txt", "content": "1\n"}],
        [{"write": "two.txt", "content": "2\n"}, {"shell": f"{COMMIT} two"},
         {"write": "half.txt", "content": "h\n"}, {"shell": f"touch {here.folder}/begun; {waits}"},
         {"shell": "ls > seen.txt"}],
    )  # fmt: skip
    check = command("check", "test -f seen.txt", cwd="{{work.worktreePath}}")
    loop = node("l", "loop", [agent(useWorktree=True), check], maxIterations=3)
    file = here.file("w", [loop], "start next l", "work next check", **more)
    process = here.begin("run", file)
    eventually((here.folder / "begun").exists, "the agent is at work")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    (path,) = here.worktrees()
    return str(path)


def test_a_killed_run_goes_on_in_its_worktree(tmp_path: Path) -> None:
    here = machine(tmp_path)
    path = killed_at_work(here, onCrash="resume")
    assert here.infloop("worktrees").stdout.splitlines()[1].split()[1] == "orphaned"
    (tmp_path / "go").touch()
    here.infloop("run", here.file("other", [node("end", "end")], "start next end"))
    assert here.worktrees() == [Path(path)], "it waits for the run to be resumed"
    here.infloop("resume")
    assert here.worktrees() == []
    run = here.run_ids()[-1]
    patch = here.infloop("diff", run, "l[2]/work", "--stat").stdout
    assert {line.split()[0] for line in patch.splitlines()[:-1]} == {
        "half.txt", "seen.txt", "two.txt",
    }  # fmt: skip
    here.infloop("apply", run)
    assert (here.repo / "seen.txt").read_text().split() == [
        "a.txt", "half.txt", "one.txt", "seen.txt", "src", "two.txt",
    ]  # fmt: skip


def test_what_a_killed_run_left_is_saved_and_is_there_again_when_it_is_resumed(
    tmp_path: Path,
) -> None:
    here = machine(tmp_path)
    path = killed_at_work(here)
    left = contents(Path(path))
    said = here.infloop("run", here.file("x", [node("end", "end")], "start next end")).stderr
    assert f"saved the worktree {Path(path).name} of run" in said
    assert here.worktrees() == []
    here.infloop("worktrees", "restore", Path(path).name, str(tmp_path / "look"))
    assert contents(tmp_path / "look") == left
    assert git("log", "-1", "--format=%s", cwd=tmp_path / "look") == "two"
    (tmp_path / "go").touch()
    run = here.run_ids()[-1]
    out = here.infloop("resume", run).stdout
    assert f"[worktree] {path}" in out
    here.infloop("apply", run, "--to", "result")
    assert git("show", "result:half.txt", cwd=here.repo) == "h"
    assert "half.txt" in git("show", "result:seen.txt", cwd=here.repo)
    assert len(here.infloop("worktrees").stdout.splitlines()) == 2


def test_a_worktree_that_cannot_be_saved_stays_and_the_run_says_so(tmp_path: Path) -> None:
    here = machine(tmp_path)
    write(here.repo / ".git/refs/infloop", "in the way")
    out = here.infloop("run", edits(here)).stdout
    (path,) = here.worktrees()
    assert f"warning: the worktree '{path}' could not be saved and so it stays" in out
    (here.repo / ".git/refs/infloop").unlink()
    assert "saved the worktree" in here.infloop("worktrees", "prune").stdout
    assert here.worktrees() == []
    here.infloop("apply", "last")
    assert (here.repo / "later.txt").read_text() == "not committed\n"


def test_only_forgetting_throws_away_what_was_saved(tmp_path: Path) -> None:
    here = machine(tmp_path)
    here.infloop("run", edits(here))
    (name,) = [line.split()[0] for line in here.infloop("worktrees").stdout.splitlines()[1:]]
    assert here.infloop("worktrees", "prune").stdout == "there was nothing to do\n"
    here.infloop("worktrees", "forget", name)
    assert git("for-each-ref", cwd=here.repo).count("\n") == 0
    (entry,) = audit_entries(here, "worktree")
    assert entry["details"] == {"worktree": name, "repository": str(here.repo)}
    err = here.infloop("worktrees", "restore", name, str(tmp_path / "x"), code=2).stderr
    assert f"there is no worktree '{name}'" in err
    assert not (tmp_path / "x").exists()
    assert (
        "use `infloop worktrees restore NAME PATH`"
        in here.infloop("worktrees", "restore", name, code=2).stderr
    )


def audit_entries(here: Machine, event: str) -> list[dict[str, Any]]:
    out = here.infloop("audit", "--event", event, "--json").stdout
    return [json.loads(line) for line in out.splitlines()]


# -- applying it -------------------------------------------------------------------------------


def test_work_is_applied_to_the_users_tree_uncommitted(tmp_path: Path) -> None:
    here = machine(tmp_path)
    here.infloop("run", edits(here))
    write(here.repo / "mine.txt", "mine\n")
    before = users_git(here.repo)
    out = here.infloop("apply", "last").stdout
    assert out.startswith(f"applied to {here.repo}, uncommitted: 5 files changed, +4 -1\n")
    after = users_git(here.repo)
    assert {**after, "files": ()} == {**before, "files": ()}
    assert (here.repo / "a.txt").read_text() == "one\ntwo\nthree\nfour\n"
    assert os.access(here.repo / "a.txt", os.X_OK)
    assert (here.repo / "link").is_symlink()
    assert not (here.repo / "src").exists()
    assert (here.repo / "mine.txt").read_text() == "mine\n"
    assert "there is nothing to apply" in here.infloop("apply", "last").stdout


def test_work_is_applied_to_a_branch_as_a_commit(tmp_path: Path) -> None:
    here = machine(tmp_path)
    here.infloop("run", edits(here))
    write(here.repo / "a.txt", "in the middle of something\n")
    before = users_git(here.repo)
    out = here.infloop("apply", "last", "--to", "agents/edit").stdout
    assert out.startswith("applied to branch agents/edit, commit ")
    (entry,) = audit_entries(here, "run.applied")
    assert (entry["actor"]["kind"], entry["runId"]) == ("cli", here.run_ids()[0])
    assert entry["details"]["branch"] == "agents/edit"
    assert git("show", "agents/edit:later.txt", cwd=here.repo) == "not committed"
    assert git("log", "-1", "--format=%s", "agents/edit", cwd=here.repo) == "edit: work"
    after = users_git(here.repo)
    assert {**after, "refs": ()} == {**before, "refs": ()}
    err = here.infloop("apply", "last", "--to", "main", code=2).stderr
    assert "branch 'main' is checked out" in err


def test_a_conflict_names_the_files_and_changes_nothing(tmp_path: Path) -> None:
    here = machine(tmp_path)
    here.infloop("run", edits(here))
    write(here.repo / "a.txt", "one\ntwo\nthree\nmine\n")
    git("commit", "-q", "-a", "-m", "mine", cwd=here.repo)
    before = users_git(here.repo)
    err = here.infloop("apply", "last", code=1).stderr
    assert "  a.txt: both changed the same lines" in err
    assert users_git(here.repo) == before


def test_a_file_that_the_user_is_editing_is_not_touched(tmp_path: Path) -> None:
    here = machine(tmp_path)
    here.infloop("run", edits(here))
    write(here.repo / "a.txt", "zero\none\ntwo\nthree\n")
    write(here.repo / "later.txt", "mine, untracked\n")
    write(here.repo / "elsewhere.txt", "no trouble\n")
    before = users_git(here.repo)
    err = here.infloop("apply", "last", code=1).stderr
    assert "you have uncommitted changes" in err
    assert [line for line in err.splitlines() if line.startswith("  ")] == [
        "  a.txt",
        "  later.txt",
    ]
    assert users_git(here.repo) == before
    git("add", "-A", cwd=here.repo)
    git("commit", "-q", "-m", "mine", cwd=here.repo)
    git("rm", "-q", "later.txt", cwd=here.repo)
    git("commit", "-q", "-m", "not that", cwd=here.repo)
    here.infloop("apply", "last")
    assert (here.repo / "a.txt").read_text() == "zero\none\ntwo\nthree\nfour\n"


def test_uncommitted_changes_that_came_along_are_no_hindrance(tmp_path: Path) -> None:
    here = machine(tmp_path)
    write(here.repo / "a.txt", "mine\none\ntwo\nthree\n")
    here.bot([{"shell": "echo four >> a.txt"}])
    nodes = [agent(useWorktree=True, includeUncommitted=True)]
    here.infloop("run", here.file("w", nodes, "start next work"))
    here.infloop("apply", "last")
    assert (here.repo / "a.txt").read_text() == "mine\none\ntwo\nthree\nfour\n"


def test_of_several_agents_one_is_chosen(tmp_path: Path) -> None:
    here = machine(tmp_path)
    here.bot([{"shell": "basename $PWD > who"}])
    nodes = [agent("one", useWorktree=True), agent("two", useWorktree=True)]
    here.infloop("run", here.file("w", nodes, "start next one next two"))
    err = here.infloop("apply", "last", code=2).stderr
    assert "has worktrees of: one, two; choose one with --node" in err
    here.infloop("apply", "last", "--node", "two")
    assert "-two-" in (here.repo / "who").read_text()


def test_work_in_progress_is_not_applied(tmp_path: Path) -> None:
    here = machine(tmp_path)
    waits = WAIT.format(here.folder)
    here.bot([{"shell": f"touch {here.folder}/begun; {waits}"}])
    process = here.begin("run", here.file("w", [agent(useWorktree=True)], "start next work"))
    eventually((tmp_path / "begun").exists, "the agent is at work")
    assert "is still working in its worktree" in here.infloop("apply", "last", code=2).stderr
    assert here.infloop("worktrees").stdout.splitlines()[1].split()[1:3] == ["in", "use"]
    (tmp_path / "go").touch()
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_nothing_that_an_agent_plants_is_executed_by_our_own_git(tmp_path: Path) -> None:
    here = machine(tmp_path)
    trap = tmp_path / "trap"
    write(trap, f"#!/bin/sh\ntouch {tmp_path}/sprung\n").chmod(0o755)
    config = f'[core]\nfsmonitor = {trap}\nhooksPath = {tmp_path}/hooks\n[filter "x"]\n'
    config += f'clean = {trap}\nsmudge = {trap}\n[diff "x"]\nexternal = {trap}\ntextconv = {trap}\n'
    for hook in ("post-checkout", "reference-transaction", "post-index-change"):
        write(tmp_path / "hooks" / hook, trap.read_text()).chmod(0o755)
    write(tmp_path / "evil", config)
    here.bot(
        [
            {"shell": f"cat {tmp_path}/evil >> {here.repo}/.git/config"},
            {"shell": f"d={tmp_path}/own; mkdir $d; cp -r {here.repo}/.git/. $d"},
            {"write": ".gitattributes", "content": "* filter=x diff=x\n"},
            {"write": "a.txt", "content": "changed\n"},
            {"shell": f"rm .git; echo gitdir: {tmp_path}/own > .git; rm -f {tmp_path}/sprung"},
        ]
    )
    here.infloop("run", here.file("w", [agent(useWorktree=True)], "start next work"))
    here.infloop("diff", "last")
    here.infloop("apply", "last", "--protected", ".gitattributes")
    here.infloop("rewind", "last", "--to", "work", "--yes")
    here.infloop("worktrees", "prune")
    assert not (tmp_path / "sprung").exists()
    assert (here.repo / ".gitattributes").exists()


def test_a_worktree_that_somebody_deletes_under_an_agent_is_no_trouble(tmp_path: Path) -> None:
    here = machine(tmp_path)
    here.bot([{"shell": "rm -rf $PWD"}])
    file = here.file("w", [agent(useWorktree=True)], "start next work")
    out = here.infloop("run", file).stdout
    assert "no snapshots are taken of" in out
    assert here.worktrees() == []
    shutil.rmtree(here.repo)
    assert len(here.infloop("worktrees", cwd=tmp_path).stdout.splitlines()) == 2
