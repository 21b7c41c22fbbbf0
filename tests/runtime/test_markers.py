"""Every active run has a file in `active-runs/`, for other programs to see."""

from __future__ import annotations

import json
import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from infloop.sandbox.keepers.keeper import read_process
from support import forkserver
from support.eventually import text_in
from support.server import environment, infloop, process, put_workflow, workflow

if TYPE_CHECKING:
    from collections.abc import Iterator

DEAD = "i-00000000deadbeef"


def listed(folder: Path, name: str) -> list[str]:
    """What `ls` shows."""
    if not (folder / name).is_dir():
        return []
    return sorted(file.name for file in (folder / name).iterdir() if file.name[0] != ".")


def everything(folder: Path, name: str) -> list[str]:
    return sorted(file.name for file in (folder / name).iterdir())


@contextmanager
def waiting(folder: Path, name: str = "w") -> Iterator[forkserver.Command]:
    """`infloop run` of a workflow whose child waits until the pipe `name` is written to."""
    os.mkfifo(folder / name)
    put_workflow(folder / "data", workflow(name, f"echo $$ > {name}.pid; cat {name}"))
    with forkserver.Command(("run", name), folder, environment(folder)) as running:
        try:
            text_in(folder / f"{name}.pid")
            yield running
        finally:
            running.kill()


def let_end(folder: Path, running: forkserver.Command, name: str = "w") -> int:
    (folder / name).write_text("go\n")
    return running.wait(30)


def runs(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in infloop(folder, "runs", "--json").stdout.splitlines()]


@pytest.mark.claim("I55")
def test_while_a_run_is_under_way_it_and_its_child_are_on_record_and_no_longer(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    with waiting(tmp_path) as running:
        (marker,) = listed(data, "active-runs")
        content = json.loads((data / "active-runs" / marker).read_text())
        owner = read_process(running.pid)
        assert owner is not None
        (run,) = runs(tmp_path)
        assert marker == f"{run['runId']}.{content['instanceId']}"
        assert content["startedAt"] > 0
        assert content == {
            "runId": run["runId"],
            "workflowId": "w",
            "instanceId": content["instanceId"],
            "pid": running.pid,
            "processStarted": str(owner.start),
            "bootId": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            "startedAt": content["startedAt"],
        }
        assert stat.S_IMODE((data / "active-runs").stat().st_mode) == 0o700
        assert stat.S_IMODE((data / "active-runs" / marker).stat().st_mode) == 0o600
        (record,) = listed(data, "pids")
        child = json.loads((data / "pids" / record).read_text().splitlines()[1])
        assert child["pid"] == int((tmp_path / "w.pid").read_text())
        assert record.startswith(content["instanceId"])
        assert let_end(tmp_path, running) == 0
    assert everything(data, "active-runs") == []
    assert everything(data, "pids") == []


def test_what_a_killed_process_left_is_removed_by_the_next_and_a_living_ones_is_not(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    with waiting(tmp_path, "killed") as killed, waiting(tmp_path, "living") as living:
        assert len(listed(data, "active-runs")) == 2
        killed.kill()
        killed.wait(30)
        (data / "active-runs" / f".free7.{DEAD}").write_text("")
        (data / "active-runs" / "notes.txt").symlink_to(tmp_path / "living.pid")
        put_workflow(data, workflow("next", "true"))
        infloop(tmp_path, "run", "next")
        (left,) = listed(data, "active-runs")
        assert json.loads((data / "active-runs" / left).read_text())["pid"] == living.pid
        assert (tmp_path / "living.pid").exists()
        assert let_end(tmp_path, living, "living") == 0
    assert everything(data, "active-runs") == []


def test_a_marker_that_cannot_be_written_stops_no_run(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", workflow("w", "true"))
    with process(tmp_path) as server:
        (tmp_path / "data/active-runs").rmdir()
        assert server.client.run("w")["status"] == "succeeded"
        assert server.end() == 0
