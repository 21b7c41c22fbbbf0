"""Links that a confined child leaves where a later one works: they widen nobody's fence."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.canaries import place
from support.confinement import need_bubblewrap
from support.runs import World, world
from support.server import workflow
from support.thorough import amount

if TYPE_CHECKING:
    from collections.abc import Iterator

EXCHANGE = Path(__file__).parent.parent / "support/children/exchange.py"
RUNS = amount(6, thorough=25)
USER = "nobody" if os.geteuid() == 0 else ""

levels = pytest.mark.parametrize("level", ["guard", "sandbox"])


@pytest.fixture
def top() -> Iterator[Path]:
    """A place with `work`, where runs work, and `home`, where they have no business."""
    need_bubblewrap()
    with place() as folder:
        for name in ("work/a/sub", "home"):
            (folder / name).mkdir(parents=True)
        (folder / "home/secret").write_text("the-canary")
        if USER:
            for name in ("work", "work/a", "work/a/sub", "home"):
                shutil.chown(folder / name, USER)
        yield folder


def settings(level: str) -> dict[str, Any]:
    return {"isolation": level, "service_user": USER, "snapshots": False}


async def plant_and_follow(here: World, cwd: str, **lists: list[str]) -> str:
    """Let one child put a link in place of `a/sub`, and another work in `cwd`; return the error."""
    # What is listed is mounted, and cannot be moved itself.
    plant = "mv a b && mkdir a && ln -s ../../home a/sub"
    steps = workflow("w", plant, "cat secret a/sub/secret; touch planted a/sub/planted", **lists)
    steps["nodes"][2]["config"]["command"]["cwd"] = cwd
    ended = await here.run(steps)
    assert (here.folder / "a/sub").is_symlink()
    assert "the-canary" not in ended.said()
    return ended.result.error


@levels
async def test_a_directory_that_became_a_link_is_not_worked_in(top: Path, level: str) -> None:
    async with world(top, **settings(level)) as here:
        assert "by a link" in await plant_and_follow(here, "a/sub")
    assert os.listdir(top / "home") == ["secret"]  # noqa: PTH208  (its names alone)


@levels
@pytest.mark.parametrize("listed", ["readPaths", "writePaths"])
async def test_a_listed_path_that_became_a_link_is_not_followed(
    top: Path, level: str, listed: str
) -> None:
    async with world(top, **settings(level)) as here:
        error = await plant_and_follow(here, ".", **{listed: [str(top / "work/a/sub")]})
        assert "by a link" in error
    assert os.listdir(top / "home") == ["secret"]  # noqa: PTH208


@levels
async def test_the_users_own_link_to_where_a_run_works_is_followed_at_its_start(
    top: Path, level: str
) -> None:
    (top / "way").symlink_to("work")
    async with world(top, **settings(level)) as here:
        here.folder = top / "way"
        ended = await here.run(workflow("w", "pwd -P; touch made"))
    assert ended.status == "succeeded", ended.result
    assert (top / "work/made").exists()


@pytest.mark.thorough
@levels
async def test_a_link_that_another_run_exchanges_for_the_directory_is_not_followed(
    top: Path, level: str
) -> None:
    work = top / "work"
    shutil.copy(EXCHANGE, work / "exchange.py")
    (work / "a/link").symlink_to(top / "home")
    exchange = "(while [ ! -e over ]; do sleep 0.1; done) | python3 exchange.py a/sub a/link"
    steps = workflow("steps", *["cat secret; touch planted; true"] * 3)
    for step in steps["nodes"][1:]:
        step["config"]["command"]["cwd"] = "a/sub"
    async with world(top, **settings(level)) as here:
        exchanging = await here.start(workflow("exchange", exchange))
        ended = [await here.run(steps) for _ in range(RUNS)]
        (work / "over").touch()
        assert (await here.finish(exchanging)).status == "succeeded"
    assert not [each for each in ended if "the-canary" in each.said()]
    assert os.listdir(top / "home") == ["secret"]  # noqa: PTH208
