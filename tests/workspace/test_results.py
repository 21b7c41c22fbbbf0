"""What a run changed: `infloop diff` shows exactly what `infloop apply` takes."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any

from support.eventually import eventually
from support.repositories import git, write
from support.user_machine import Machine, agent, machine
from support.workflows import node

if TYPE_CHECKING:
    from pathlib import Path

TRACKED = {
    "edited.txt": "one\ntwo\n",
    "deleted.txt": "gone soon\n",
    "old-name.txt": "the same\n",
    "mode.sh": "true\n",
    "was-a-file": "a link soon\n",
    "formatted.py": "x=0\n",
    "lock.txt": "1\n",
    "back.txt": "as it was\n",
    "checked-only.txt": "not the agent's\n",
    ".gitignore": "*.cache\nbuild/\n",
    "kept.cache": "tracked although ignored\n",
}
FIRST_ROUND = [
    {"write": "edited.txt", "content": "one\nTWO\n"},
    {"delete": "deleted.txt"},
    {"shell": "mv old-name.txt new-name.txt; chmod 755 mode.sh; ln -s edited.txt link"},
    {"shell": "rm was-a-file; ln -s edited.txt was-a-file; printf 'a\\0b' > binary"},
    {"write": "formatted.py", "content": "x=1\n"},
    {"write": "back.txt", "content": "for a moment\n"},
    {"write": "ignored.cache", "content": "c\n"},
    {"write": "build/out", "content": "o\n"},
    {"write": "kept.cache", "content": "changed\n"},
    {"write": "naïve\tname\n.txt", "content": "odd\n"},
    {"shell": "git init -q nested; echo n > nested/file; mkdir empty"},
]
SECOND_ROUND = [
    {"write": "back.txt", "content": "as it was\n"},
    {"shell": "echo edited >> seen.xml; rm -f cleaned.xml; echo 2 >> made-by-command.txt"},
]
CHECK = (
    "touch report.xml seen.xml cleaned.xml; echo more >> checked-only.txt; "
    "sed -i 's/x=/x = /' formatted.py; mkdir -p logs; echo l > logs/a.log; "
    "grep -q edited seen.xml"
)
RESULT = {
    "edited.txt", "deleted.txt", "old-name.txt", "new-name.txt", "mode.sh", "link", "was-a-file",
    "binary", "formatted.py", "kept.cache", "naïve\tname\n.txt", "seen.xml", "made-by-command.txt",
}  # fmt: skip
BY_CHECKS = {"report.xml", "cleaned.xml", "checked-only.txt", "logs/a.log", "generated.txt"}
IGNORED = {"ignored.cache", "build/out"}


def played(here: Machine) -> None:
    """Run an agent, a command and a check for two rounds in one worktree."""
    shared: dict[str, Any] = {"useWorktree": True, "worktree": "work"}
    here.bot(FIRST_ROUND, SECOND_ROUND)
    loop = node(
        "l",
        "loop",
        [
            agent(**shared),
            node("make", "command", cmd="touch generated.txt made-by-command.txt", **shared),
            node("check", "condition", kind="command", command={"cmd": CHECK, **shared}),
        ],
        maxIterations=3,
    )
    file = here.file("w", [loop], "start next l", "work next make next check")
    assert "2 rounds" in here.infloop("run", file).stdout


def changed(repo: Path) -> set[str]:
    """Return the paths that differ from the commit, ignored ones included."""
    git("add", "-A", "-f", cwd=repo)
    listed = git("diff", "--cached", "--no-renames", "--name-only", "-z", "HEAD", cwd=repo)
    return {path for path in listed.split("\0") if path}


def patch_of(repo: Path) -> str:
    git("add", "-A", "-f", cwd=repo)
    return git("diff", "--cached", "--no-renames", "HEAD", cwd=repo)


OPTIONS = (
    ((), RESULT),
    (("--all",), RESULT | BY_CHECKS | IGNORED),
    (("--include", "logs"), RESULT | {"logs/a.log"}),
    (
        ("--include", "./report.xml", "--include", "*.cache"),
        RESULT | {"report.xml", "ignored.cache"},
    ),
)


def test_a_diff_shows_exactly_what_apply_takes(tmp_path: Path) -> None:
    here = machine(tmp_path, TRACKED)
    git("add", "-f", "kept.cache", cwd=here.repo)
    git("commit", "-q", "-m", "tracked", cwd=here.repo)
    played(here)
    for options, expected in OPTIONS:
        shown = here.infloop("diff", "last", *options)
        stat = here.infloop("diff", "last", "--stat", *options).stdout
        applied = here.infloop("apply", "last", *options)
        assert changed(here.repo) == expected, options
        assert patch_of(here.repo) == shown.stdout.rstrip("\n")
        assert stat.splitlines()[:-1] == applied.stdout.splitlines()[1:]
        assert (here.repo / "formatted.py").read_text() == "x = 1\n", "as it is at the end"
        for said in (shown.stderr, applied.stderr):
            assert "nested/  (it is in a repository of its own)" in said
            by_check = "report.xml  (only a check or a command changed it)" in said
            assert by_check is ("report.xml" not in expected)
            assert ("build/  (git ignores it)" in said) is ("build/out" not in expected)
        git("reset", "-q", "--hard", cwd=here.repo)
        git("clean", "-q", "-fdx", cwd=here.repo)
    assert paths(here.infloop("diff", "last", "l[1]/make", "--stat")) == [
        "generated.txt", "made-by-command.txt",
    ]  # fmt: skip
    assert paths(here.infloop("diff", "last", "l[2]", "--stat")) == [
        "back.txt", "cleaned.xml", "made-by-command.txt", "seen.xml",
    ]  # fmt: skip
    for command in ("diff", "apply"):
        said = here.infloop(command, "last", "--include", "nothing*", code=2).stderr
        assert "fits 'nothing*'" in said
    here.infloop("apply", "last", "--to", "result", "--include", "report.xml")
    git("checkout", "-q", "-f", "result", cwd=here.repo)
    git("reset", "-q", "--soft", "HEAD^", cwd=here.repo)
    assert changed(here.repo) == RESULT | {"report.xml"}


def paths(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line.split()[0] for line in done.stdout.splitlines()[:-1]]


def test_what_an_agent_had_done_when_its_process_died_is_part_of_the_result(
    tmp_path: Path,
) -> None:
    here = machine(tmp_path)
    waits = f"touch {tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"
    here.bot([{"write": "half.txt", "content": "h\n"}, {"shell": waits}])
    process = here.begin("run", here.file("w", [agent(useWorktree=True)], "start next work"))
    eventually((tmp_path / "begun").exists, "the agent is at work")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    (tmp_path / "go").touch()
    write(here.repo / "mine.txt", "m\n")
    shown = here.infloop("diff", "last").stdout
    assert "+h" in shown
    here.infloop("apply", "last")
    (here.repo / "mine.txt").unlink()
    assert patch_of(here.repo) == shown.rstrip("\n")
