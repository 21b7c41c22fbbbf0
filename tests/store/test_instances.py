"""Lock files of processes that own runs."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path
from typing import cast

from infloop.lowlevel.lock_file import is_held, remove_if_free
from infloop.model.events import RunFinished
from infloop.store.sqlite.liveness import SqliteInstance
from support.stores import at, new_run, started, store_in


async def test_a_lock_is_judged_by_its_holder_and_not_by_its_name(
    tmp_path: Path,
) -> None:
    async with store_in(tmp_path) as store:
        me = await store.liveness.register()
        path = tmp_path / "instances" / f"{me.id}.lock"
        left_behind = tmp_path / "instances" / "i-dead.lock"
        left_behind.write_text("")
        assert await store.liveness.state("i-dead") == "dead"
        assert await store.liveness.state(me.id) == "alive"

        # The name is used again by a living process while somebody still has the old file open.
        with left_behind.open() as old:
            path.rename(left_behind)
            fcntl.flock(old, fcntl.LOCK_SH | fcntl.LOCK_NB)
            assert await store.liveness.state("i-dead") == "alive"
            assert not remove_if_free(left_behind)
        assert left_behind.exists()
        left_behind.rename(path)
        await me.close()


async def test_probing_a_dead_owner_never_makes_it_look_alive(
    tmp_path: Path,
) -> None:
    async with store_in(tmp_path) as store:
        path = tmp_path / "instances" / "i-dead.lock"
        path.parent.mkdir()
        path.write_text("")
        with path.open() as prober:
            fcntl.flock(prober, fcntl.LOCK_SH | fcntl.LOCK_NB)
            assert not is_held(path)
            assert await store.liveness.state("i-dead") == "dead"


async def test_sweeping_removes_the_dead_but_not_the_word_of_those_with_unsettled_runs(
    tmp_path: Path,
) -> None:
    async with store_in(tmp_path) as store, store_in(tmp_path) as other:
        me = await store.liveness.register()
        idle, owner = [await other.liveness.register() for _ in range(2)]
        await store.run_log.create_run(new_run("r1", owner=owner.id), started())
        for gone in (idle, owner):
            cast("SqliteInstance", gone)._lock.release()
            (tmp_path / "instances" / f"{gone.id}.lock").write_text("")

        await store.liveness.sweep()
        assert [path.stem for path in (tmp_path / "instances").iterdir()] == [me.id]
        assert {row.id for row in await store.liveness.instances()} == {me.id, owner.id}
        assert await store.liveness.state(owner.id) == "dead"

        await store.run_log.append("r1", 1, [at(2, RunFinished("failed"))])
        await store.liveness.sweep()
        assert {row.id for row in await store.liveness.instances()} == {me.id}
        await me.close()


async def test_lock_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    async with store_in(tmp_path / "data") as store:
        before = os.umask(0)
        try:
            me = await store.liveness.register()
        finally:
            os.umask(before)
        (path,) = (tmp_path / "data" / "instances").iterdir()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        await me.close()
