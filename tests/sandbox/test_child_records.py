"""Children on record: what a crash of server and keeper together leaves behind is ended."""

from __future__ import annotations

import json
import os
import shlex
import signal
import stat
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from infloop.sandbox.keepers.child_records import RECORD_VARIABLE, autogroup
from infloop.sandbox.keepers.keeper import (
    PR_SET_CHILD_SUBREAPER,
    Process,
    all_processes,
    descendants,
    prctl,
    send_signal,
)
from support.child_records import DEAD, about, bystander, forge, identified, lives, where
from support.eventually import eventually, text_in
from support.processes import program_name
from support.runs import world
from support.server import infloop, process, put_workflow, workflow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.server import Process as Server


DAEMON = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
if os.fork():
    os._exit(0)
if "setsid" in sys.argv:
    os.setsid()
if os.fork():
    os._exit(0)
for fd in range(3):
    os.close(fd)
with open(sys.argv[1] + ".new", "w") as file:
    file.write(str(os.getpid()))
os.rename(sys.argv[1] + ".new", sys.argv[1])
signal.alarm(300)
time.sleep(600)
"""
"""Ends by itself, so that even a test that is killed leaves it for some minutes only."""


@contextmanager
def survivors(folder: Path, *names: str) -> Iterator[list[Process]]:
    """The processes that wrote their ids to these files, which a failed test may leave behind."""
    left = [identified(pid_in(folder / name)) for name in names]
    try:
        yield left
    finally:
        for each in left:
            send_signal(each, signal.SIGKILL)


@pytest.fixture
def subreaper() -> Iterator[None]:
    """What loses its parent becomes a child of this process."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    yield
    prctl(PR_SET_CHILD_SUBREAPER, 0)


def reap_at_once(processes: list[Process]) -> None:
    """Let these leave the process table as soon as they end, as a good first process does."""

    def reap(pid: int) -> None:
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)

    for each in processes:
        threading.Thread(target=reap, args=(each.pid,), daemon=True).start()


def pid_in(file: Path) -> int:
    return int(text_in(file))


def records(folder: Path) -> list[Path]:
    return sorted(file for file in (folder / "data/pids").iterdir() if is_record(file))


def is_record(file: Path) -> bool:
    return not file.is_file() or file.read_bytes().strip() != b""


def files(folder: Path) -> list[str]:
    return sorted(file.name for file in (folder / "data/pids").iterdir())


def start(server: Server, name: str, line: str) -> str:
    put_workflow(server.data, workflow(name, line))
    asked = server.client.post("/api/run", {"workflowId": name})
    assert asked.status == 202, asked.body
    return str(asked.json()["runId"])


def daemonizing(folder: Path, *, alone: bool, bare: bool, then: str) -> str:
    """A shell line that leaves a daemon, which ignores TERM, and then does something else."""
    words = ["env", "-i"] if bare else []
    words += [sys.executable, "-c", DAEMON, str(folder / "daemon"), *(["setsid"] if alone else [])]
    return f"{shlex.join(words)}; echo $$ > {folder}/child; {then}"


def kill_with_keepers(server: Server) -> None:
    """Kill a server and its keepers so that none of them can act on the death of another."""
    table = all_processes()
    own = [identified(server.process.pid)]
    below = descendants({server.process.pid}, table)
    own += [each for each in below if program_name(each.pid) == "infloop-keeper"]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for each in own:
            send_signal(each, number)
    server.process.wait(30)
    assert len(own) > 1
    eventually(lambda: not any(lives(each) for each in own))


def test_a_child_is_on_record_in_private_while_it_lives_and_no_longer(tmp_path: Path) -> None:
    line = daemonizing(tmp_path, alone=True, bare=False, then="sleep 600")
    with process(tmp_path, isolation="host") as server:
        run_id = start(server, "w", line)
        child = identified(pid_in(tmp_path / "child"))
        daemon = identified(pid_in(tmp_path / "daemon"))
        (record,) = records(tmp_path)
        assert stat.S_IMODE(record.stat().st_mode) == 0o600
        assert stat.S_IMODE(record.parent.stat().st_mode) == 0o700
        eventually(lambda: record.read_text().count("\n") > 1)
        first, second = map(json.loads, record.read_text().splitlines())
        assert first == about(run=run_id, step="c1")
        session = autogroup(child.pid)
        assert second == {"pid": child.pid, "start": child.start, "autogroup": session}
        assert child.session == child.pid != os.getsid(server.process.pid)
        server.client.post(f"/api/runs/{run_id}/cancel", {})
        assert server.client.finished(run_id)["status"] == "cancelled"
        assert not lives(child)
        assert not lives(daemon)
        assert records(tmp_path) == []
        assert server.end() == 0
    assert files(tmp_path) == []


@pytest.mark.claim("I56", "I57")
@pytest.mark.parametrize(
    ("alone", "bare", "then"),
    [
        (True, False, "sleep 300"),
        (False, True, "sleep 300"),
        (False, False, "trap '' TERM HUP; sleep 300 & wait"),
        (False, True, "until test -e {folder}/go; do sleep 0.02; done"),
    ],
    ids=[
        "a session of its own",
        "no environment",
        "a child that ignores TERM too",
        "no environment, and the child has ended since",
    ],
)
@pytest.mark.usefixtures("subreaper")
def test_what_outlived_server_and_keeper_is_ended_before_the_next_one_serves(
    tmp_path: Path, alone: bool, bare: bool, then: str
) -> None:
    line = daemonizing(tmp_path, alone=alone, bare=bare, then=then.format(folder=tmp_path))
    with process(tmp_path, isolation="host") as server:
        run_id = start(server, "w", line)
        with survivors(tmp_path, "child", "daemon") as left:
            child = left[0]
            eventually(lambda: records(tmp_path)[0].read_text().count("\n") > 1)
            kill_with_keepers(server)
            assert all(lives(each) for each in left)
            assert len(records(tmp_path)) == 1
            reap_at_once(left)
            (tmp_path / "go").touch()
            eventually(lambda: "go" not in then or not lives(child))
            with process(tmp_path, isolation="host") as again:
                assert again.said
                assert not any(lives(each) for each in left)
                assert records(tmp_path) == []
                assert f"run {run_id[:8]}, step c1: processes left running" in complaints(tmp_path)
                run = again.client.get(f"/api/runs/{run_id}").json()["run"]
                assert run["status"] == "failed"
                assert again.end() == 0
    with process(tmp_path, isolation="host") as third:
        assert complaints(tmp_path) == ""
        found = third.client.get("/api/audit?event=run.recovered").json()["entries"]
        assert [entry["runId"] for entry in found] == [run_id]


@pytest.mark.claim("I56")
@pytest.mark.parametrize("command", [["resume"], ["rewind", "--to", "c1", "--yes"], ["cancel"]])
def test_what_outlived_its_run_is_ended_before_somebody_goes_on_with_it(
    tmp_path: Path, command: list[str]
) -> None:
    then = f"test -e {tmp_path}/go || sleep 600"
    line = daemonizing(tmp_path, alone=True, bare=False, then=then)
    with process(tmp_path, isolation="host") as server:
        run_id = start(server, "w", line)
        with survivors(tmp_path, "child", "daemon") as left:
            kill_with_keepers(server)
            assert all(lives(each) for each in left)
            (tmp_path / "go").touch()
            done = infloop(tmp_path, command[0], run_id, *command[1:])
            assert f"run {run_id[:8]}, step c1: processes left running" in done.stderr
            assert not any(lives(each) for each in left)
            assert records(tmp_path) == []


def complaints(folder: Path) -> str:
    return (folder / "stderr").read_text()


@pytest.mark.claim("I59")
def test_a_process_is_ended_by_its_whole_identity_and_never_by_an_id_alone(tmp_path: Path) -> None:
    with (
        bystander() as real,
        bystander() as other,
        bystander(**{RECORD_VARIABLE: f"{DEAD}.3"}) as marked,
    ):
        forge(tmp_path, f"{DEAD}.1", about(), {"pid": real.pid, "start": real.start})
        forge(tmp_path, f"{DEAD}.2", about(), {"pid": other.pid, "start": other.start - 1})
        forge(tmp_path, f"{DEAD}.3", about())
        with process(tmp_path, isolation="host") as server:
            assert server.said
            assert [lives(each) for each in (real, other, marked)] == [False, True, False]
        assert records(tmp_path) == []


@pytest.mark.claim("I59")
@pytest.mark.parametrize("same", [True, False])
def test_a_session_whose_leader_is_gone_is_ended_if_it_is_the_same_and_not_its_successor(
    tmp_path: Path, same: bool
) -> None:
    line = "sleep 300 </dev/null >/dev/null 2>&1 & echo $$ $!"
    said = subprocess.check_output(["sh", "-c", line], start_new_session=True, env={}, text=True)
    leader, pid = map(int, said.split())
    member = identified(pid)
    session = autogroup(pid)
    assert (member.session, bool(session)) == (leader, True)
    forge(
        tmp_path,
        f"{DEAD}.1",
        about(),
        {"pid": leader, "start": 1, "autogroup": session if same else f"{session}0"},
    )
    try:
        with process(tmp_path, isolation="host") as server:
            assert server.said
            assert lives(member) != same
        assert records(tmp_path) == []
    finally:
        send_signal(member, signal.SIGKILL)


@pytest.mark.claim("I59")
@pytest.mark.parametrize("place", ["another boot", "another namespace"])
def test_a_record_of_another_boot_or_namespace_is_dropped(tmp_path: Path, place: str) -> None:
    boot, namespace = where().split()
    there = f"{boot} pid:[1]" if place == "another namespace" else f"{'0' * 36} {namespace}"
    with bystander(**{RECORD_VARIABLE: f"{DEAD}.1"}) as innocent:
        known = {"pid": innocent.pid, "start": innocent.start}
        forge(tmp_path, f"{DEAD}.1", about(where=there), known)
        with process(tmp_path, isolation="host") as server:
            assert server.said
            assert lives(innocent)
        assert records(tmp_path) == []


@pytest.mark.claim("I59")
def test_the_children_and_runs_of_a_living_server_are_left_alone_by_another(tmp_path: Path) -> None:
    line = daemonizing(tmp_path, alone=True, bare=False, then="sleep 600")
    with process(tmp_path, isolation="host") as server:
        run_id = start(server, "w", line)
        own = [identified(pid_in(tmp_path / name)) for name in ("child", "daemon")]
        before = records(tmp_path)
        assert len(before) == 1
        put_workflow(server.data, workflow("other", "true"))
        # A server that was itself a child of a dead one: its children are in both records.
        with bystander(**{RECORD_VARIABLE: before[0].name}) as theirs:
            known = {"pid": theirs.pid, "start": theirs.start}
            forge(tmp_path, f"{DEAD}.1", about(), known)
            infloop(tmp_path, "run", "other")
            assert all(lives(each) for each in (*own, theirs))
        assert records(tmp_path) == before
        assert server.client.get(f"/api/runs/{run_id}").json()["run"]["status"] == "running"


async def swept(folder: Path) -> None:
    """Start on what is there; in this process, because nothing is signalled."""
    async with world(folder, isolation="host") as here:
        assert await here.service.recover() == ([], [], [])


@pytest.mark.parametrize(
    "name", ["i-00000000deadbeef.7", "notes.txt", "..lock", "i-00000000deadbeef.7.new"]
)
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"   ",
        b"\xff\0",
        b"[]\n",
        b"{}\n",
        b'{"where": 1}\n',
        b"[" * 60_000,
        b"x" * 100_000,
    ],
)
async def test_garbage_is_removed(tmp_path: Path, name: str, content: bytes) -> None:
    forge(tmp_path, name).write_bytes(content)
    await swept(tmp_path)
    assert files(tmp_path) == []


async def test_a_link_and_a_pipe_among_the_records_are_removed_and_not_followed(
    tmp_path: Path,
) -> None:
    kept = tmp_path / "kept"
    kept.write_text("kept")
    folder = forge(tmp_path, "garbage").parent
    (folder / f"{DEAD}.1").symlink_to(kept)
    os.mkfifo(folder / f"{DEAD}.2")
    await swept(tmp_path)
    assert files(tmp_path) == []
    assert kept.read_text() == "kept"


def test_a_record_torn_by_the_crash_still_leads_to_its_processes(tmp_path: Path) -> None:
    with bystander(**{RECORD_VARIABLE: f"{DEAD}.1"}) as marked:
        torn = forge(tmp_path, f"{DEAD}.1", about())
        torn.write_text(f'{torn.read_text()}{{"pid": 1')
        with process(tmp_path, isolation="host") as server:
            assert server.said
            assert not lives(marked)


def test_a_child_that_cannot_be_put_on_record_is_not_started(tmp_path: Path) -> None:
    with process(tmp_path, isolation="host") as server:
        (tmp_path / "data/pids").rmdir()
        run = server.client.finished(start(server, "w", f"touch {tmp_path}/ran"))
        assert run["status"] == "failed"
        assert "could not be recorded" in str(run)
    assert not (tmp_path / "ran").exists()
