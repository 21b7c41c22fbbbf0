"""Memory that children take: bounded for each, and theirs to go first when there is none left."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from infloop.sandbox.keepers.orphans import KEEPER_PIDS
from infloop.sandbox.kernel.resource_limits import memory_here
from support.canaries import place
from support.prompt_agent import agent_folder, asking, manifest, settings, theirs
from support.runs import Finished, World, world
from support.small_disk import settings_at, workplace
from support.user_machine import command, script
from support.workflows import edges, node, workflow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LEVELS = ["host", "guard", "sandbox"]
MIB = 1 << 20
LIMIT = 512 * MIB
DEADLINE_S = 40.0
HINT = "the kernel may have ended it for lack of memory; its limit was 512 MB"

SCORE = "return {'score': int(open('/proc/self/oom_score_adj').read())}"
KILLS_ITSELF = "import os\nos.kill(os.getpid(), 9)"


@pytest.fixture
def top() -> Iterator[Path]:
    with agent_folder() as folder:
        yield folder


def flow(*steps: dict[str, Any]) -> dict[str, Any]:
    chain = " next ".join(each["id"] for each in steps)
    return workflow([node("start", "start"), *steps], edges(f"start next {chain}"))


async def ran(level: str, roots: Sequence[dict[str, Any]], **more: Any) -> list[Finished]:
    """Run workflows at a level, one after the other."""
    chosen = settings_at(level) | {"max_child_memory_bytes": LIMIT, **more}
    with place() as parent:
        workplace(parent / "work")
        async with world(parent, **chosen) as app, asyncio.timeout(DEADLINE_S):
            return [await app.run(root) for root in roots]


async def score_of_a_child(app: World) -> int:
    score = (await app.run(flow(script("s", SCORE)))).scope["s"]["result"]["score"]
    assert isinstance(score, int)
    return score


@pytest.mark.parametrize("level", LEVELS)
async def test_when_memory_runs_out_children_go_first(level: str) -> None:
    own = int(Path("/proc/self/oom_score_adj").read_text())
    with place() as parent:
        workplace(parent / "work")
        async with world(parent, **settings_at(level)) as app, asyncio.timeout(DEADLINE_S):
            assert await score_of_a_child(app) == max(own, 500)
            assert await score_of_a_child(app) == max(own, 500)
            scores = [Path(f"/proc/{pid}/oom_score_adj").read_text() for pid in KEEPER_PIDS]
    assert scores
    assert {int(each) for each in scores} == {own}
    assert int(Path("/proc/self/oom_score_adj").read_text()) == own


@pytest.mark.parametrize("level", LEVELS)
async def test_a_killed_script_says_what_may_have_been_the_reason(level: str) -> None:
    (killed,) = await ran(level, [flow(script("s", KILLS_ITSELF))])
    assert killed.status == "failed"
    assert HINT in killed.result.error


@pytest.mark.parametrize("level", LEVELS)
async def test_a_killed_command_says_what_may_have_been_the_reason(level: str) -> None:
    (killed,) = await ran(level, [flow(command("c", "kill -9 $$"))])
    assert HINT in killed.scope["c"]["detail"]


@pytest.mark.parametrize("level", ["guard", "sandbox"])
async def test_a_killed_agent_says_what_may_have_been_the_reason(top: Path, level: str) -> None:
    manifest(top)
    theirs(top / "work/file", "")
    more = {**settings(level), **settings_at(level), "max_child_memory_bytes": LIMIT}
    async with world(top, **more) as app, asyncio.timeout(DEADLINE_S):
        killed = await app.run(asking(KILLS_ITSELF, useWorktree=False))
    assert killed.status == "failed"
    assert HINT in killed.result.error


@pytest.mark.parametrize("level", LEVELS)
async def test_what_we_end_ourselves_is_not_laid_to_the_kernel(level: str) -> None:
    deaf = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(600)"
    (late,) = await ran(level, [flow(script("s", deaf, timeoutMs=300))])
    assert late.status == "failed"
    assert "did not finish within 300 ms" in late.result.error
    assert "memory" not in late.result.error


@pytest.mark.parametrize("level", LEVELS)
async def test_unless_set_the_limit_is_three_quarters_of_the_memory(level: str) -> None:
    asks = "import resource\nreturn {'most': resource.getrlimit(resource.RLIMIT_DATA)[0]}"
    (told,) = await ran(level, [flow(script("s", asks))], max_child_memory_bytes=0)
    assert told.scope["s"]["result"]["most"] == memory_here() * 3 // 4


@pytest.mark.parametrize("says", ["max\n", "", "none"])
def test_a_container_without_a_limit_has_the_memory_of_its_machine(
    tmp_path: Path, says: str
) -> None:
    file = tmp_path / "memory.max"
    machine = memory_here(file)
    file.write_text(says)
    assert memory_here(file) == machine
    file.write_text(f"{64 * MIB}\n")
    assert memory_here(file) == 64 * MIB
