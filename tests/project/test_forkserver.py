"""Commands that tests fork do what the real command does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support import forkserver
from support.server import PATIENCE, environment, put_workflow, workflow

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
