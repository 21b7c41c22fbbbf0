"""Every step's files kept, shown and brought back, through the command line and the service."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infloop.model.events import Notice, StepFinished, TreeSaved
from support.eventually import eventually
from support.repositories import contents, git, write
from support.runs import scripted, world
from support.thorough import amount
from support.user_machine import Machine, agent, command, machine, script, users_git
from support.workflows import edges, node, workflow

COMMIT = "git add -A && git -c user.name=Bot -c user.email=bot@example.com commit -q -m"
WAIT = "while [ ! -e {}/go ]; do sleep 0.02; done"

CHANGES = """
import os, pathlib, shutil
pathlib.Path('a.txt').write_text('changed\\n')
os.chmod('a.txt', 0o600)
shutil.rmtree('src')
pathlib.Path('new/deep').mkdir(parents=True)
pathlib.Path('new/deep/file').write_bytes(bytes(range(256)))
os.symlink('../a.txt', 'new/link')
os.unlink('link')
os.mkdir('hollow')
pathlib.Path('run.sh').chmod(0o644)
pathlib.Path('ignored.log').write_text('ignored\\n')
"""


def rich(folder: Path) -> Machine:
    """A machine whose repository has everything in it, committed, staged, stashed and not."""
    here = machine(folder, {"a.txt": "one\n", "src/b.txt": "b\n", ".gitignore": "*.log\n"})
    write(here.repo / "stashed", "s\n")
    git("stash", "push", "-q", "-u", cwd=here.repo)
    git("branch", "other", cwd=here.repo)
    write(here.repo / "staged", "s\n")
    git("add", "staged", cwd=here.repo)
    write(here.repo / "a.txt", "being edited\n").chmod(0o640)
    write(here.repo / "run.sh", "#!/bin/sh\n").chmod(0o755)
    write(here.repo / "ignored.log", "as it was\n")
    (here.repo / "link").symlink_to("nowhere")
    (here.repo / "empty").mkdir()
    return here


def steps(*ids: str) -> str:
    return "start next " + " next ".join(ids)


# -- going back ------------------------------------------------------------------------------


def test_rewinding_says_what_will_change_and_changes_nothing_unasked(tmp_path: Path) -> None:
    here = rich(tmp_path)
    nodes = [script("change", CHANGES), command("check", "test -d empty")]
    here.infloop("run", here.file("w", nodes, steps("change", "check")))
    changed = users_git(here.repo)
    err = here.infloop("rewind", "last", "--to", "change", code=2).stderr
    assert f"in {here.repo}: 8 files changed" in err
    said = {tuple(line.split()) for line in err.splitlines() if line.startswith("  ")}
    assert said == {
        ("a.txt", "+1", "-1"),
        ("hollow/", "deleted"),
        ("ignored.log", "+1", "-1"),
        ("link", "added", "+1", "-0"),
        ("new/deep/file", "deleted", "binary"),
        ("new/link", "deleted", "+0", "-1"),
        ("run.sh", "permissions"),
        ("src/b.txt", "added", "+1", "-0"),
    }
    assert "add --yes" in err
    assert users_git(here.repo) == changed
    assert len(here.run_ids()) == 1


def test_a_rewound_run_finds_every_file_as_it_was_and_git_untouched(tmp_path: Path) -> None:
    here = rich(tmp_path)
    before = users_git(here.repo)
    copy = f"import shutil\nshutil.copytree('.', {str(tmp_path / 'seen')!r}, symlinks=True)"
    nodes = [script("look", copy), script("change", CHANGES)]
    here.infloop("run", here.file("w", nodes, steps("look", "change")))
    assert contents(tmp_path / "seen") == before["files"]
    shutil.rmtree(tmp_path / "seen")
    git("commit", "-q", "-a", "-m", "since", cwd=here.repo)
    changed = users_git(here.repo)
    said = here.infloop("rewind", "last", "--to", "look", "--yes").stderr
    assert contents(tmp_path / "seen") == before["files"]
    assert users_git(here.repo) == changed, "the run went on, and changed the files again"
    kept = said.split("`infloop worktrees restore ")[1].split()[0]
    here.infloop("worktrees", "restore", kept, str(tmp_path / "kept"))
    assert contents(tmp_path / "kept") == changed["files"]


@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("", 1), ("y", 0)])
def test_a_person_is_asked_before_files_change(tmp_path: Path, answer: str, code: int) -> None:
    here = machine(tmp_path)
    nodes = [
        script("one", "open('log', 'a').write('1')"),
        script("two", "open('x', 'w').write('')"),
    ]
    here.infloop("run", here.file("w", nodes, steps("one", "two")))
    write(here.repo / "mine", "written since\n")
    shown = here.on_a_terminal("rewind", "last", "--to", "one", answer=answer, code=code)
    assert "mine  deleted" in shown
    assert (here.repo / "mine").exists() == (answer != "y")
    assert (here.repo / "log").read_text() == "1"
    assert len(here.run_ids()) == (2 if answer == "y" else 1)


def test_where_no_file_would_change_nobody_is_asked(tmp_path: Path) -> None:
    here = machine(tmp_path)
    nodes = [script("one", "open('log', 'a').write('1')"), command("two", "cat log")]
    here.infloop("run", here.file("w", nodes, steps("one", "two")))
    assert "two | 1" in here.infloop("rewind", "last", "--to", "two").stdout


def test_a_plain_directory_has_a_time_machine_too(tmp_path: Path) -> None:
    here = machine(tmp_path)
    plain = tmp_path / "plain"
    write(plain / "sub" / "file", "before\n").chmod(0o604)
    before = contents(plain)
    nodes = [
        script("change", "import shutil; shutil.rmtree('sub'); open('new', 'w').write('n')"),
        command("check", "test -f new"),
    ]
    here.infloop("run", here.file("w", nodes, steps("change", "check")), cwd=plain)
    assert "-before" in here.infloop("diff", "last").stdout
    after = contents(plain)
    shutil.rmtree(plain)
    here.infloop("rewind", "last", "--to", "check")
    assert contents(plain) == after, "the directory was made again as it was"
    here.infloop("worktrees", "restore", here.snapshot_of("change", "before"), str(tmp_path / "x"))
    assert contents(tmp_path / "x") == before


def test_a_worktree_is_made_again_where_it_was(tmp_path: Path) -> None:
    here = machine(tmp_path)
    here.bot(
        [{"write": "a.txt", "content": "1\n"}, {"shell": f"{COMMIT} one"}],
        [{"write": "a.txt", "content": "2\n"}, {"shell": f"{COMMIT} two"}],
        [{"write": "a.txt", "content": "3\n"}, {"shell": "git log --format=%s > log"}],
    )
    check = command("check", "pwd; cat a.txt; grep -q 3 a.txt", cwd="{{work.worktreePath}}")
    loop = node("l", "loop", [agent(useWorktree=True), check], maxIterations=3)
    first = here.infloop("run", here.file("w", [loop], "start next l", "work next check")).stdout
    run = here.run_ids()[0]
    before = users_git(here.repo)
    said = here.infloop("rewind", run, "--to", "l[2]")
    assert "is created again as it was" in said.stderr
    place = next(line for line in first.splitlines() if "[worktree]" in line).split()[-1]
    assert f"[worktree] {place}" in said.stdout
    assert f"l[2]/check | {place}" in said.stdout
    assert here.worktrees() == []
    assert users_git(here.repo) == before
    here.infloop("apply", "last")
    assert (here.repo / "a.txt").read_text() == "3\n"
    assert (here.repo / "log").read_text().split() == ["two", "one", "first"]
    assert "l[1]/check" not in said.stdout
    here.infloop("diff", run)


def test_gone_back_to_before_it_was_made_a_worktree_is_made_anew(tmp_path: Path) -> None:
    here = machine(tmp_path)
    here.bot([{"shell": "cat a.txt; pwd"}])
    here.infloop("run", here.file("w", [agent(useWorktree=True)], "start next work"))
    write(here.repo / "a.txt", "committed since\n")
    git("commit", "-q", "-a", "-m", "since", cwd=here.repo)
    out = here.infloop("rewind", "last", "--to", "work").stdout
    assert "committed since" in out
    assert len(here.infloop("worktrees").stdout.splitlines()) == 3


def test_a_place_in_use_by_another_run_is_not_taken_from_it(tmp_path: Path) -> None:
    here = machine(tmp_path)
    waits = WAIT.format(here.folder)
    here.bot([{"text": "x"}], [{"shell": f"touch {here.folder}/begun; {waits}"}])
    loop = node("l", "loop", [agent(useWorktree=True)], maxIterations=2)
    (tmp_path / "go").touch()
    here.infloop("run", here.file("w", [loop], "start next l"))
    run = here.run_ids()[0]
    for name in ("go", "begun"):
        (tmp_path / name).unlink()
    process = here.begin("rewind", run, "--to", "l[2]")
    eventually((tmp_path / "begun").exists, "the rewound run is at work")
    busy = here.run_ids()[0]
    err = here.infloop("rewind", run, "--to", "l[2]", code=2).stderr
    assert f"is in use by run '{busy}'" in err
    (tmp_path / "go").touch()
    process.communicate(timeout=60)
    assert process.returncode == 0
    third = here.run_ids()[0]
    assert "run succeeded" in here.infloop("resume", third).stdout


def test_a_run_that_is_under_way_is_not_rewound(tmp_path: Path) -> None:
    here = machine(tmp_path)
    waits = WAIT.format(here.folder)
    nodes = [script("one", "pass"), command("wait", f"touch {here.folder}/begun; {waits}")]
    process = here.begin("run", here.file("w", nodes, steps("one", "wait")))
    eventually((tmp_path / "begun").exists, "it waits")
    err = here.infloop("rewind", "last", "--to", "one", "--yes", code=2).stderr
    assert "is running in another process" in err
    (tmp_path / "go").touch()
    process.communicate(timeout=60)


def test_a_rewind_that_cannot_be_done_changes_nothing(tmp_path: Path) -> None:
    here = machine(tmp_path)
    nodes = [script("one", "open('x', 'w').write('1')"), command("two", "cat x")]
    here.infloop("run", here.file("w", nodes, steps("one", "two")))
    (here.repo / "x").unlink()
    git("init", "-q", "x", cwd=here.repo)  # a repository, which nobody takes out of the way
    before = contents(here.repo, leave_out=())
    err = here.infloop("rewind", "last", "--to", "two", "--yes", code=2).stderr
    assert "is in the way" in err
    assert contents(here.repo, leave_out=()) == before
    assert len(here.run_ids()) == 1


@pytest.mark.thorough
def test_a_rewind_that_is_killed_is_finished_by_resuming(tmp_path: Path) -> None:
    here = machine(tmp_path)
    many = amount(500, thorough=1_500)
    make = "import os\nos.mkdir('many')\n"
    make += f"for n in range({many}): open(f'many/{{n}}', 'w').write(str(n))"
    remove = "import shutil\nshutil.rmtree('many')\nopen('x', 'w').write('x')"
    copy = f"ls many | wc -l; ls; cp -a . {tmp_path}/seen"
    nodes = [script("make", make), command("look", copy), script("remove", remove)]
    here.infloop("run", here.file("w", nodes, "start next make next look met remove"))
    made = contents(tmp_path / "seen")
    shutil.rmtree(tmp_path / "seen")
    process = here.begin("rewind", "last", "--to", "look", "--yes")
    eventually(lambda: any(here.repo.glob(".infloop-stage-*/*")), "files are being restored")
    process.kill()
    process.communicate(timeout=60)
    assert not (tmp_path / "seen").exists()
    here.infloop("resume", here.run_ids()[0])
    assert contents(tmp_path / "seen") == made
    assert contents(here.repo).keys() == {b"", b"a.txt", b"src", b"src/b.txt", b"x"}


# -- what each step changed --------------------------------------------------------------------


def test_each_round_has_its_own_diff_though_the_agent_commits(tmp_path: Path) -> None:
    here = machine(tmp_path)
    here.bot(
        [{"shell": f"echo 1 > a.txt; {COMMIT} one"}],
        [{"shell": f"echo 2 > a.txt; {COMMIT} two; git reset -q --hard HEAD~1; echo 2 > b.txt"}],
        [{"shell": "git checkout -q -b side; echo 3 > c.txt"}, {"shell": f"{COMMIT} three"}],
    )
    loop = node("l", "loop", [agent()], maxIterations=3)
    here.infloop("run", here.file("w", [loop], "start next l"))
    stats = [here.infloop("diff", "last", f"l[{n}]", "--stat").stdout for n in (1, 2, 3)]
    assert [stat.splitlines() for stat in stats] == [
        ["  a.txt  +1 -3", "1 file changed, +1 -3"],
        ["  b.txt  added  +1 -0", "1 file changed, +1 -0"],
        ["  c.txt  added  +1 -0", "1 file changed, +1 -0"],
    ]
    whole = here.infloop("diff", "last").stdout
    assert whole.count("diff --git") == 3
    lines = here.infloop("show", "last").stdout.splitlines()
    assert sum("✓ work  agent" in line and "1 file changed" in line for line in lines) == 3
    restored = tmp_path / "applied"
    git("clone", "-q", here.repo, restored, cwd=tmp_path)
    git("reset", "-q", "--hard", "HEAD~2", cwd=restored)
    git("apply", "-", cwd=restored, input=whole.encode())
    assert (restored / "c.txt").read_text() == "3\n"


def test_a_diff_of_several_directories_says_which_is_which(tmp_path: Path) -> None:
    here = machine(tmp_path)
    here.bot([{"write": "x", "content": "x\n"}])
    nodes = [agent(useWorktree=True), script("s", "open('y', 'w').write('y')")]
    here.infloop("run", here.file("w", nodes, steps("work", "s")))
    out = here.infloop("diff", "last").stdout
    heads = [line for line in out.splitlines() if line.startswith("# in ")]
    assert len(heads) == 2
    assert heads[1] == f"# in {here.repo}"
    assert "no file was changed" not in out


@pytest.mark.parametrize("step", ["nowhere", "c"])
def test_a_step_that_kept_no_files_is_named(tmp_path: Path, step: str) -> None:
    here = machine(tmp_path)
    here.infloop("run", here.file("w", [command("c", "true")], steps("c")))
    err = here.infloop("diff", "last", step, code=2).stderr
    assert f"there are no snapshots of step '{step}'" in err
    assert here.infloop("diff", "last", code=2).stderr.startswith(
        "infloop: there are no snapshots of run"
    )


def test_control_characters_in_a_diff_do_not_reach_the_terminal(tmp_path: Path) -> None:
    here = machine(tmp_path)
    code = "open('x', 'w').write('\\x1b]52;c;ZXZpbA==\\x07\\n')"
    here.infloop("run", here.file("w", [script("s", code)], steps("s")))
    assert "\x1b]52" in here.infloop("diff", "last").stdout
    shown = here.on_a_terminal("rewind", "last", "--to", "s", answer="n", code=1)
    assert "\x1b]52" not in shown


def test_a_step_that_is_cancelled_leaves_what_it_did_in_the_record(tmp_path: Path) -> None:
    here = machine(tmp_path)
    waits = WAIT.format(here.folder)
    here.bot(
        [{"write": "half", "content": "h\n"}, {"shell": f"touch {here.folder}/begun; {waits}"}]
    )
    process = here.begin("run", here.file("w", [agent()], steps("work")))
    eventually((tmp_path / "begun").exists, "the agent is at work")
    here.infloop("cancel", "last")
    process.communicate(timeout=60)
    assert "+h" in here.infloop("diff", "last", "work").stdout


# -- snapshots ---------------------------------------------------------------------------------


async def test_what_did_not_change_between_two_steps_is_the_same_snapshot(tmp_path: Path) -> None:
    nodes = [
        node("s", "start"),
        script("one", "open('x', 'w').write('1')"),
        script("two", "pass"),
        command("meddle", "echo 2 > x"),
        script("three", "pass"),
    ]
    tree = workflow(nodes, edges("s next one next two next meddle met three"))
    async with world(tmp_path) as here:
        done = await here.run(tree)
    saved = [event for event in done.events if isinstance(event, TreeSaved)]
    assert [(each.path, each.when, each.files) for each in saved] == [
        ("one", "before", 0), ("one", "after", 1), ("two", "before", 0), ("two", "after", 0),
        ("three", "before", 0), ("three", "after", 0),
    ]  # fmt: skip
    one, two, three = saved[1], saved[2:4], saved[4:]
    assert {one.snapshot} == {each.snapshot for each in two}
    assert {one.snapshot} != {each.snapshot for each in three}
    assert len({each.snapshot for each in three}) == 1
    ends = {e.path: e.tree for e in done.events if isinstance(e, StepFinished)}
    assert ends["one"] == ends["two"] == one.tree != ends["three"]
    assert ends["meddle"] == ""


async def test_a_step_in_a_part_of_a_repository_keeps_the_whole_of_it(tmp_path: Path) -> None:
    here = machine(tmp_path / "m")
    (tmp_path / "work").symlink_to(here.repo / "src")
    step = script("s", "open('../a.txt', 'w').write('changed above')")
    async with world(tmp_path) as there:
        done = await there.run(workflow([node("start", "start"), step], edges("start next s")))
    after = [event for event in done.events if isinstance(event, TreeSaved)][-1]
    assert (after.directory, after.files) == (str(here.repo), 1)


def test_a_home_directory_is_not_kept_and_that_is_said_once(tmp_path: Path) -> None:
    here = machine(tmp_path)
    nodes = [script("one", "pass"), script("two", "pass")]
    file = here.file("w", nodes, steps("one", "two"))
    for place, why in ((here.home, "it is a home directory"), (tmp_path, "above a home")):
        here.infloop("run", file, cwd=place)
        notices = [m for m in here.messages() if m["type"] == "notice"]
        assert [why in m["message"] for m in notices] == [True]
        assert "`infloop diff` and `infloop rewind` know nothing" in notices[0]["message"]
        assert not any(m["type"] == "tree_saved" for m in here.messages())
        here.infloop("rewind", "last", "--to", "two")


def test_a_directory_that_is_too_large_is_not_kept(tmp_path: Path) -> None:
    here = machine(tmp_path)
    for number in range(25):
        large = here.repo / f"large{number}"
        large.touch()
        os.truncate(large, 99 << 20)
    (tmp_path / "small").mkdir()
    nodes = [script("one", "open('x', 'w').write('')"), script("two", "pass", cwd="src")]
    file = here.file("w", nodes, steps("one", "two"))
    here.infloop("run", file)
    (notice,) = [m for m in here.messages() if m["type"] == "notice"]
    assert (
        f"no snapshots are taken of '{here.repo}': the directory holds more than 2048 MiB"
        in (notice["message"])
    )
    saved = [m for m in here.messages() if m["type"] == "tree_saved"]
    assert {(m["stepPath"], m["directory"]) for m in saved} == {("two", str(here.repo / "src"))}
    assert (here.repo / "x").exists()


def test_snapshots_can_be_turned_off_and_worktrees_still_lose_nothing(tmp_path: Path) -> None:
    here = machine(tmp_path)
    here.variables["INFLOOP_SNAPSHOTS"] = "off"
    here.bot([{"write": "new", "content": "n\n"}])
    nodes = [agent(useWorktree=True), script("s", "open('x', 'w').write('')")]
    here.infloop("run", here.file("w", nodes, steps("work", "s")))
    assert not [m for m in here.messages() if m["type"] in ("tree_saved", "notice")]
    assert "there are no snapshots of step" in here.infloop("diff", "last", "s", code=2).stderr
    assert here.infloop("diff", "last").stdout.splitlines()[-1] == "+n", "what apply takes"
    here.infloop("rewind", "last", "--to", "s")
    run = here.run_ids()[-1]
    here.infloop("apply", run)
    assert (here.repo / "new").read_text() == "n\n"


def test_the_snapshots_of_a_forgotten_run_go_with_it(tmp_path: Path) -> None:
    here = machine(tmp_path)
    here.variables["INFLOOP_RUN_HISTORY_LIMIT"] = "1"
    file = here.file(
        "w", [script("s", "import os; open('x', 'w').write(str(os.getpid()))")], "start next s"
    )
    here.infloop("run", file)
    old = here.snapshot_of("s", "before")
    here.infloop("run", file)
    assert len(here.run_ids()) == 1
    err = here.infloop("worktrees", "restore", old, str(tmp_path / "old"), code=2).stderr
    assert "may have been pruned" in err
    new = here.snapshot_of("s", "after")
    here.infloop("worktrees", "restore", new, str(tmp_path / "new"))
    assert (tmp_path / "new" / "x").read_text() == (here.repo / "x").read_text()


def test_a_rewound_run_keeps_what_it_has_in_common_with_one_that_is_forgotten(
    tmp_path: Path,
) -> None:
    here = machine(tmp_path)
    here.variables["INFLOOP_RUN_HISTORY_LIMIT"] = "1"
    nodes = [script("one", "open('x', 'w').write('1')"), script("two", "open('x', 'w').write('2')")]
    here.infloop("run", here.file("w", nodes, steps("one", "two")))
    here.infloop("rewind", "last", "--to", "two", "--yes")
    assert len(here.run_ids()) == 1
    assert "+1" in here.infloop("diff", "last", "one").stdout
    here.infloop("rewind", "last", "--to", "one", "--yes")


async def test_a_directory_that_a_step_removes_is_said_and_the_run_goes_on(tmp_path: Path) -> None:
    nodes = [
        node("s", "start"),
        script("make", "import os; os.mkdir('sub')"),
        script("gone", "import os; os.rmdir(os.getcwd())", cwd="sub"),
        script("after", "open('x', 'w').write('')"),
    ]
    async with world(tmp_path) as here:
        done = await here.run(workflow(nodes, edges("s next make next gone next after")))
    assert done.status == "succeeded"
    (notice,) = [event for event in done.events if isinstance(event, Notice)]
    assert "cannot be opened" in notice.message


# -- any edits ---------------------------------------------------------------------------------

NAMES = ["a.txt", "src/b.txt", "new", "new/deep", "with space", "src"]
EDITS = [
    "printf '%s' {n} > {a}", "printf x >> {a}", "rm -rf {a}", "mv -f {a} {b}", "mkdir -p {a}",
    "ln -sfn {b} {a}", "chmod 700 {a}", "chmod 644 {a}", "chmod 600 {a}", "git add -A",
    f"{COMMIT} c{{n}}", "git reset -q --hard HEAD", "git stash -q -u", "git checkout -q -f -b b{n}",
    "git clean -fdxq",
]  # fmt: skip
edit = st.tuples(st.sampled_from(EDITS), st.sampled_from(NAMES), st.sampled_from(NAMES))


def as_shell(edits: list[tuple[str, str, str]], number: int) -> str:
    lines = [
        line.format(n=f"{number}{at}", a=f"'{one}'", b=f"'{two}'")
        for at, (line, one, two) in enumerate(edits)
    ]
    return "; ".join(f"{{ {line}; }} 2>/dev/null" for line in lines) or "true"


@pytest.mark.thorough
def test_any_round_comes_back_byte_for_byte_whatever_agents_did(tmp_path: Path) -> None:
    numbers = iter(range(1_000))

    @settings(max_examples=amount(2, thorough=8), database=None)
    @given(st.lists(st.lists(edit, max_size=6), min_size=3, max_size=3), st.integers(1, 3))
    def comes_back(rounds: list[list[tuple[str, str, str]]], chosen: int) -> None:
        check_round_comes_back(tmp_path / str(next(numbers)), rounds, chosen)

    comes_back()


def check_round_comes_back(folder: Path, rounds: list[list[Any]], chosen: int) -> None:
    folder.mkdir()
    here = machine(folder / "m")
    (folder / "work").symlink_to(here.repo)
    turns = [{"do": [{"shell": as_shell(each, n)}]} for n, each in enumerate(rounds)]
    scripted(folder / "data/providers", "bot", *turns)
    copies = folder / "copies"
    copies.mkdir()
    copy = f"cp -a . $(mktemp -d -p {copies})/tree; ls {copies} | wc -l; false"
    loop = node("l", "loop", [agent(), command("copy", copy)], maxIterations=len(rounds))
    tree = workflow([node("s", "start"), loop], edges("s next l", "work next copy"))

    def made() -> dict[str, Path]:
        return {each.name: each / "tree" for each in copies.iterdir()}

    async def check() -> None:
        async with world(folder) as there:
            done = await there.run(tree)
            first = made()
            ordered = sorted(first.values(), key=lambda each: each.parent.stat().st_mtime_ns)
            state = contents(here.repo / ".git", leave_out=())
            again = await there.finish(await there.service.rewind(done.run_id, f"l[{chosen}]/copy"))
            assert again.status == "succeeded"
            later = [made()[name] for name in made().keys() - first.keys()]
            found = min(later, key=lambda each: each.parent.stat().st_mtime_ns)
            assert contents(found) == contents(ordered[chosen - 1])
            assert contents(found / ".git", leave_out=()) == state

    asyncio.run(check())
