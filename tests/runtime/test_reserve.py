"""What stays free on a disk: no run begins without it, and none takes it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from infloop.engine.graph import Definition
from infloop.errors import GuardError, StoreError
from infloop.model.events import GuardFailed
from infloop.runtime.confinement.disk_reserve import MIN_FREE_FILES, format_size
from support.canaries import place
from support.eventually import eventually, eventually_async
from support.processes import alive, new_token
from support.runs import World, world
from support.server import Client, here, put_workflow
from support.server import workflow as shell_workflow
from support.small_disk import deaf_disk, left, settings_at, small_disk, workplace
from support.user_machine import agent, command, machine, script
from support.workflows import edges, node, workflow

MIB = 1 << 20
LARGER_THAN_ANY = 1 << 60
DEADLINE_S = 40.0

# Fifty megabytes a second, also when it is asked to stop.
WRITES_ON = """
import signal, subprocess, sys, time
def asked(number, frame):
    open("asked", "w").close()
signal.signal(signal.SIGTERM, asked)
token = subprocess.Popen(["sleep", "{token}"])
with open("large", "wb", buffering=0) as file:
    while True:
        file.write(bytes(1 << 20))
        time.sleep(0.02)
"""


def flow(*nodes: dict[str, Any]) -> dict[str, Any]:
    chain = " next ".join(each["id"] for each in nodes)
    return workflow([node("start", "start"), *nodes], edges(f"start next {chain}"))


async def start_in(app: World, folder: Path, root: dict[str, Any]) -> str:
    definition = Definition(root["id"], {root["id"]: root})
    return await app.service.start(definition, {}, workdir=str(folder))


@pytest.mark.parametrize("level", ["host", "guard", "sandbox"])
async def test_a_run_that_fills_a_disk_is_ended_and_no_other(level: str) -> None:
    chosen = settings_at(level)
    with place() as parent, small_disk(parent / "disk") as disk:
        here, there = workplace(disk / "here"), workplace(parent / "there")
        reserve, token, go = 128 * MIB, new_token(), there / "go"
        waits = script(
            "w", f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)"
        )
        writes = script("w", WRITES_ON.replace("{token}", token))
        async with (
            world(parent, min_free_disk_bytes=reserve, **chosen) as app,
            asyncio.timeout(DEADLINE_S),
        ):
            other = await start_in(app, there, flow(waits))
            ended = await app.finish(await start_in(app, here, flow(writes)))
            assert alive(token) == []
            assert ended.status == "failed"
            assert f"are left on the disk of {str(here)!r}, and 128 MB" in ended.result.error
            assert "INFLOOP_MIN_FREE_DISK_BYTES" in ended.result.error
            assert any(isinstance(each, GuardFailed) for each in ended.events)
            # It is killed at once: with the grace period of other ends it would go on writing.
            assert not (here / "asked").exists()
            assert 0 < left(disk) < reserve
            with pytest.raises(GuardError, match="must stay free"):
                await start_in(app, here, flow(waits))
            go.touch()
            assert (await app.finish(other)).status == "succeeded"


async def test_a_disk_that_does_not_answer_is_waited_for_by_nobody_else(tmp_path: Path) -> None:
    near = workplace(tmp_path / "near")
    root = flow(command("c", "true"))
    with deaf_disk(tmp_path / "far") as far:
        async with (
            world(tmp_path, min_free_disk_bytes=1) as app,
            asyncio.timeout(DEADLINE_S),
        ):
            there = asyncio.create_task(start_in(app, far, root))
            writing = await start_in(app, near, {**root, "id": "b", "writePaths": [str(far)]})
            other = await start_in(app, near, {**root, "id": "c"})
            assert (await app.finish(other)).status == "succeeded"
            assert not there.done()
            assert list(app.service.live()) == [writing]
            with pytest.raises(GuardError, match=f"{str(far)!r} does not answer"):
                await there
            ended = await app.finish(writing)
            assert ended.status == "failed"
            assert f"the disk of {str(far)!r} does not answer" in ended.result.error


async def test_the_disk_of_the_data_directory_is_that_of_every_run() -> None:
    chosen = settings_at("host")
    with place() as parent, small_disk(parent / "disk") as disk:
        there = workplace(parent / "there")
        token = new_token()
        writes = script("w", WRITES_ON.replace("{token}", token), cwd=str(workplace(disk / "here")))
        sleeps = script("w", "import time\ntime.sleep(600)", timeoutMs=0)
        async with (
            world(disk, min_free_disk_bytes=128 * MIB, **chosen) as app,
            asyncio.timeout(DEADLINE_S),
        ):
            other = await start_in(app, there, flow(sleeps))
            ended = await app.finish(await start_in(app, there, flow(writes)))
            for done in (ended, await app.finish(other)):
                assert done.status == "failed"
                assert f"left on the disk of {str(disk / 'data')!r}" in done.result.error
            assert alive(token) == []
            assert (await app.service.store.run_log.run(ended.run_id)).status == "failed"
            with pytest.raises(StoreError, match="must stay free"):
                await start_in(app, there, flow(sleeps))
            (disk / "here/large").unlink()
            again = script("w", "return {}")
            assert (await app.finish(await start_in(app, there, flow(again)))).status == "succeeded"


async def test_what_waits_goes_on_waiting_until_there_is_room_again(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        token = new_token()
        put_workflow(disk / "data", shell_workflow("waits", f"sleep {token}"))
        put_workflow(disk / "data", shell_workflow("next", "true"))

        def look(client: Client) -> None:
            first = client.post("/api/run", {"workflowId": "waits"}).json()["runId"]
            eventually(lambda: bool(alive(token)))
            second = client.post("/api/run", {"workflowId": "next"}).json()["runId"]
            (disk / "large").write_bytes(bytes(200 * MIB))
            assert client.finished(first)["status"] == "failed"
            refused = client.post("/api/run", {"workflowId": "next"})
            assert refused.status == 503
            assert b"must stay free" in refused.body
            assert client.get(f"/api/runs/{second}").json()["run"]["status"] == "queued"
            (disk / "large").unlink()
            assert client.finished(second)["status"] == "succeeded"

        async with here(disk, min_free_disk_bytes=128 * MIB, max_concurrent_runs=1) as served:
            await asyncio.to_thread(look, served.client)


def test_a_worktree_that_there_is_no_room_to_save_stays(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        user = machine(disk / "machine")
        user.variables = {"INFLOOP_MIN_FREE_DISK_BYTES": str(128 * MIB)}
        line = "i=0; while :; do head -c 1M /dev/urandom > f$i; i=$((i + 1)); sleep 0.02; done"
        user.bot([{"shell": line}])
        worktree = user.file("w", [agent(useWorktree=True)], "start next work")
        refused = user.infloop("run", worktree, code=1)
        assert "must stay free (INFLOOP_MIN_FREE_DISK_BYTES)" in refused.stdout + refused.stderr
        assert "could not be saved and so it stays" in refused.stdout + refused.stderr
        assert left(disk) > 32 * MIB
        (kept,) = user.worktrees()
        assert (kept / "f0").stat().st_size == MIB


async def test_no_run_begins_where_few_files_fit(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", files=MIN_FREE_FILES // 2) as disk:
        async with world(tmp_path, min_free_disk_bytes=MIB) as app:
            with pytest.raises(GuardError, match="more files fit on the disk"):
                await start_in(app, disk, flow(command("c", "true")))


async def test_no_run_begins_where_too_little_is_left(tmp_path: Path) -> None:
    async with world(tmp_path, min_free_disk_bytes=LARGER_THAN_ANY) as app:
        with pytest.raises(StoreError, match="remove what is not needed there") as caught:
            await app.run(flow(script("s", "open('ran', 'w')")))
    assert repr(str(tmp_path / "data")) in str(caught.value)
    assert not (tmp_path / "work/ran").exists()


async def test_no_run_goes_on_or_back_where_too_little_is_left(tmp_path: Path) -> None:
    token = new_token()
    root = flow(command("c", f"test -e go || sleep {token}"))
    async with world(tmp_path) as app:
        run_id = await app.start(root)
        await eventually_async(lambda: bool(alive(token)))
    (tmp_path / "work/go").touch()
    async with world(tmp_path, min_free_disk_bytes=LARGER_THAN_ANY) as app:
        with pytest.raises(StoreError, match="must stay free"):
            await app.service.resume(run_id)
        with pytest.raises(StoreError, match="must stay free"):
            await app.service.rewind(run_id, "c")
    async with world(tmp_path, min_free_disk_bytes=0) as app:
        await app.service.resume(run_id)
        assert (await app.finish(run_id)).status == "succeeded"


def test_the_command_line_says_what_to_do(tmp_path: Path) -> None:
    user = machine(tmp_path)
    user.variables = {"INFLOOP_MIN_FREE_DISK_BYTES": str(LARGER_THAN_ANY)}
    refused = user.infloop(
        "run", user.file("w", [script("s", "return {}")], "start next s"), code=1
    )
    assert "must stay free (INFLOOP_MIN_FREE_DISK_BYTES)" in refused.stderr
    assert user.run_ids() == []


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1 << 20, "1 MB"),
        (3 << 29, "1.5 GB"),
        (1 << 50, "1048576 GB"),
    ],
)
def test_a_size_is_shown_for_people(size: int, shown: str) -> None:
    assert format_size(size) == shown
