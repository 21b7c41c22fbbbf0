"""Where runs work: which changes of a directory are welcome, and by which name it is known."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import pytest

from infloop.errors import GuardError
from infloop.model.events import DirectoryId, RunResumed, RunStarted
from infloop.runtime.confinement.workdirs import Workdirs
from infloop.store.sqlite.known_directories import MOST_PATHS
from support.runs import world
from support.server import process, put_workflow
from support.server import workflow as of_lines
from support.stores import store_in
from support.user_machine import machine
from support.workflows import edges, node, workflow

if TYPE_CHECKING:
    from pathlib import Path

TOUCH = workflow(
    [
        node("s", "start"),
        node("c", "condition", kind="command", command={"cmd": "touch was-here"}),
        node("e", "end"),
    ],
    edges("s next c met e"),
)


async def works_in(top: Path, folder: Path) -> RunStarted:
    """Run in a directory, in a process of its own as it were."""
    async with world(top) as here:
        here.folder = folder
        done = await here.run(TOUCH)
    assert done.status == "succeeded", done.result
    assert (folder / "was-here").exists()
    started = done.events[0]
    assert isinstance(started, RunStarted)
    return started


async def test_a_directory_that_was_made_anew_is_welcome(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    first = await works_in(tmp_path, place)
    shutil.move(place, tmp_path / "kept")
    place.mkdir()
    again = await works_in(tmp_path, place)
    assert first.directory is not None
    assert again.directory is not None
    assert again.directory.inode == place.stat().st_ino != first.directory.inode


async def test_a_path_that_always_was_a_link_may_lead_anywhere(tmp_path: Path) -> None:
    link = tmp_path / "link"
    for target in ("one", "two"):
        (tmp_path / target).mkdir()
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        started = await works_in(tmp_path, link)
        assert started.workdir == str(tmp_path / target)


async def test_what_took_a_directorys_place_is_worked_in_under_its_own_name(
    tmp_path: Path,
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    await works_in(tmp_path, place)
    place.rename(tmp_path / "moved")
    place.symlink_to("moved")
    await works_in(tmp_path, tmp_path / "moved")


@pytest.mark.parametrize("how", ["in it", "named", "relative"])
def test_the_command_line_calls_a_directory_as_its_user_does(tmp_path: Path, how: str) -> None:
    here = machine(tmp_path)
    flow = here.file("w", [], "start")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    here.infloop("run", flow)
    here.repo.rename(tmp_path / "gone")
    here.repo.symlink_to(elsewhere)
    if how == "in it":  # as a shell that went there says
        here.variables["PWD"] = str(here.repo)
        told = here.infloop("run", flow, code=2, cwd=here.repo)
    elif how == "named":
        told = here.infloop("run", flow, "--cwd", str(here.repo), code=2, cwd=tmp_path)
    else:
        told = here.infloop("run", flow, "--cwd", "./repo", code=2, cwd=tmp_path)
    assert f"'{here.repo}' leads to '{elsewhere}'" in told.stderr
    here.variables["PWD"] = "/"  # which is not true
    here.infloop("run", flow, cwd=elsewhere)


def test_the_server_tells_why_no_run_begins_there(tmp_path: Path) -> None:
    place, moved = tmp_path / "place", tmp_path / "moved"
    place.mkdir()
    put_workflow(tmp_path / "server/data", of_lines("w", "true"))
    with process(tmp_path / "server") as server:
        asked = {"workflowId": "w", "cwd": str(place)}
        begun = server.client.post("/api/run", asked).json()["runId"]
        assert server.client.finished(begun)["status"] == "succeeded"
        place.rename(moved)
        place.symlink_to(moved)
        refused = server.client.post("/api/run", asked)
    assert (refused.status, refused.json()["error"]) == (503, "confinement-failed")
    assert f"'{place}' leads to '{moved}'" in refused.json()["message"]


async def test_a_rewound_run_begins_in_what_is_there_and_goes_on_in_that(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    async with world(tmp_path, snapshots=False) as here:
        here.folder = place
        first = await here.run(TOUCH)
        place.rename(tmp_path / "kept")
        place.mkdir()
        again = await here.finish(await here.service.rewind(first.run_id, "c"))
    began = [each.directory for each in again.events if isinstance(each, RunResumed)]
    assert [each.inode for each in began if each] == [place.stat().st_ino]


async def test_after_a_restart_a_device_may_have_another_number(tmp_path: Path) -> None:
    there = tmp_path.stat()
    async with store_in(tmp_path / "data") as store:
        dirs = Workdirs(store.run_log, there.st_dev, "this start")
        now = (await dirs.enter(str(tmp_path))).id
        assert now is not None
        other = now.device + 1
        with pytest.raises(GuardError, match="is another directory"):
            await dirs.enter_again("r", str(tmp_path), DirectoryId(now.inode, other, now.mounts))
        earlier = DirectoryId(now.inode, other, "another start")
        assert (await dirs.enter_again("r", str(tmp_path), earlier)).id == now


async def test_of_very_many_directories_the_oldest_are_forgotten(tmp_path: Path) -> None:
    async with store_in(tmp_path) as store:
        async with asyncio.TaskGroup() as tasks:
            for number in range(MOST_PATHS + 2):
                tasks.create_task(store.run_log.note_worked_in(f"/{number}"))
        known = [
            await store.run_log.has_worked_in(f"/{number}") for number in (0, 1, 2, MOST_PATHS + 1)
        ]
    assert known == [False, False, True, True]
