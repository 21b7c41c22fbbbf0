"""Commands that tests fork do what the real command does."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support import forkserver
from support.eventually import eventually
from support.server import PATIENCE, Client, environment, put_workflow, workflow

SEEN = "(umask; pwd; date +%Z; ls /proc/self/fd; wc -c; echo $HOME) > seen"


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--version",),
        ("nonsense",),
        ("runs", "--help"),
        ("runs", "--json"),
        ("run", "nowhere"),
        ("show", "\udcff"),
        ("schema", "settings"),
    ],
)
def test_a_forked_command_answers_as_a_started_one_does(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    env = environment(tmp_path)
    forked = forkserver.run(arguments, tmp_path, env, PATIENCE)
    real = forkserver.start(arguments, tmp_path, env, PATIENCE)
    assert (forked.returncode, forked.stdout) == (real.returncode, real.stdout)
    assert forked.stderr == real.stderr


def test_a_forked_command_finds_the_world_that_a_started_one_finds(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", workflow("look", SEEN))
    env = {**environment(tmp_path), "TZ": "Asia/Tokyo", "INFLOOP_CHILD_ENV_PASSTHROUGH": "TZ"}
    before = os.umask(0o027)
    try:
        for way in (forkserver.run, forkserver.start):
            done = way(("run", "look"), tmp_path, env, PATIENCE)
            assert done.returncode == 0, done.stderr
            (tmp_path / "seen").rename(tmp_path / f"seen by {way.__name__}")
    finally:
        os.umask(before)
    forked, real = sorted(tmp_path.glob("seen by *"))
    assert forked.read_text() == real.read_text()
    assert "0027" in real.read_text()
    assert "JST" in real.read_text()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -9)])
def test_a_forked_server_serves_and_ends_as_a_started_one_does(
    tmp_path: Path, number: int, code: int
) -> None:
    def forked(env: dict[str, str]) -> forkserver.Command:
        return forkserver.Command(("serve",), tmp_path, env)

    def real(env: dict[str, str]) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "infloop", "serve"]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=tmp_path, env=env, stdout=pipe, stderr=pipe, text=True)

    seen = []
    for start in (forked, real):
        with start(environment(tmp_path / start.__name__)) as server:
            assert server.stdout is not None
            said, _, port = server.stdout.readline().rpartition(":")
            status = Client(int(port)).get("/api/workflows").status
            limit = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
            assert server.poll() is None
            server.send_signal(number)
            _, err = server.communicate(timeout=PATIENCE)
            seen.append((said, status, limit, server.returncode, err))
    assert seen[0] == seen[1]
    assert (seen[0][1], seen[0][3]) == (200, code)


def test_a_forked_command_can_ignore_signals_and_have_a_session_of_its_own(tmp_path: Path) -> None:
    put_workflow(
        tmp_path / "data", workflow("wait", "touch up; until test -e go; do sleep 0.02; done")
    )
    with forkserver.Command(
        ("run", "wait"),
        tmp_path,
        environment(tmp_path),
        new_session=True,
        ignored=[signal.SIGHUP],
    ) as command:
        assert os.getsid(command.pid) == command.pid
        eventually((tmp_path / "up").exists)
        command.send_signal(signal.SIGHUP)
        (tmp_path / "go").touch()
        assert "succeeded" in command.communicate(PATIENCE)[0]
