"""What the API tells about one run: why, its workflow, its steps, its changes, a rewind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from support.repositories import git, repository
from support.runs import scripted
from support.server import TOKEN, Here, here, put_workflow
from support.workflows import edges, node, workflow

ROUNDS = [{"do": [{"write": f"{number}.txt", "content": "new\n"}]} for number in (1, 2)]


def rounds() -> dict[str, Any]:
    """An agent writes one file a round, until there are three."""
    agent = node("agent", "agent", providerId="writer", prompt="go", useWorktree=True)
    command = {"cmd": "test -e 3.txt", "cwd": "{{agent.worktreePath}}"}
    check = node("check", "condition", kind="command", command=command)
    loop = node("fix", "loop", maxIterations=5)
    loop["children"] = [agent, check]
    links = edges("s next fix", "agent next check")
    return workflow([node("s", "start"), loop], links, "rounds")


class Ended(NamedTuple):
    """A server, and a run of it that has ended."""

    served: Here
    run_id: str
    repo: Path

    async def get(self, path: str) -> Any:
        answer = await self.served.ask("GET", f"/api/runs/{self.run_id}{path}")
        assert answer.status == 200, answer.body
        return answer.json()


@asynccontextmanager
async def ended_run(folder: Path, last: str = "new\n", **settings: Any) -> AsyncIterator[Ended]:
    """Run the rounds; the last writes this text."""
    repo = repository(folder / "repo", {"0.txt": "old\n"})
    last_round = {"do": [{"write": "3.txt", "content": last}]}
    scripted(folder / "data/providers", "writer", *ROUNDS, last_round)
    put_workflow(folder / "data", rounds())
    async with here(folder, **settings) as served:
        body = {"workflowId": "rounds", "cwd": str(repo)}
        started = await served.ask("POST", "/api/run", body)
        assert started.status == 202, started.body
        run_id = started.json()["runId"]
        run = await asyncio.to_thread(served.client.finished, run_id)
        assert run["status"] == "succeeded", run
        yield Ended(served, run_id, repo)


async def test_the_api_tells_all_about_a_run(tmp_path: Path) -> None:
    async with ended_run(tmp_path, api_token=TOKEN) as ended:
        why = await ended.get("/why")
        assert why["run"]["status"] == "succeeded"
        assert why["reached"].startswith("fix")
        # The workflow as the run has it, although the file is another by now.
        put_workflow(tmp_path / "data", {**rounds(), "name": "Other"})
        kept = await ended.get("/workflow")
        assert kept["workflow"]["name"] == "rounds"
        assert kept["called"] == {}
        steps = (await ended.get("/steps"))["steps"]
        agents = [step for step in steps if step["nodeId"] == "agent"]
        assert [step["path"] for step in agents] == [f"fix[{n}]/agent" for n in (1, 2, 3)]
        assert [(step["files"], step["insertions"]) for step in agents] == [(1, 1)] * 3
        assert {step["state"] for step in steps} == {"succeeded"}
        assert [step["seq"] for step in steps] == sorted(step["seq"] for step in steps)
        # Page by page it is the same.
        paged: list[Any] = []
        after: int | None = 0
        while after is not None:
            page = await ended.get(f"/steps?limit=2&after={after}")
            paged += page["steps"]
            after = page["next"]
        assert paged == steps
        (changed,) = (await ended.get("/changes"))["directories"]
        assert [file["path"] for file in changed["files"]] == ["1.txt", "2.txt", "3.txt"]
        second = quote("fix[2]")
        (round_two,) = (await ended.get(f"/changes?step={second}"))["directories"]
        assert [file["path"] for file in round_two["files"]] == ["2.txt"]
        plan = await ended.get(f"/rewind?step={second}")
        (restored,) = plan["directories"]
        assert plan["step"] == "fix[2]"
        assert restored["files"] is None  # the worktree is made again
        leaves = [step["path"] for step in steps if step["path"] != "fix"]
        first = leaves.index("fix[2]/agent")
        assert plan["kept"] == {"count": first, "paths": leaves[:first]}
        assert plan["again"] == {"count": len(leaves) - first, "paths": leaves[first:]}
        stats = await ended.served.ask("GET", "/api/runs/stats?since=2020-01-01&by=workflow")
        (row,) = stats.json()["rows"]
        assert (row["key"], row["succeeded"], row["failed"]) == ("rounds", 1, 0)
        assert row["medianMs"] >= 0
        by_day = await ended.served.ask("GET", "/api/runs/stats?since=2020-01-01")
        assert [each["succeeded"] for each in by_day.json()["rows"]] == [1]
        path = "/api/runs/stats?since=2020-01-01&workflowId="
        own, other = [await ended.served.ask("GET", path + name) for name in ("rounds", "other")]
        assert (own.json(), other.json()["rows"]) == (by_day.json(), [])
        later = await ended.served.ask("GET", "/api/runs/stats?since=2999-01-01")
        assert later.json()["rows"] == []
        verified = await ended.served.ask("GET", "/api/audit/verify")
        assert verified.json()["intact"] is True


async def test_changes_are_applied_over_the_api(tmp_path: Path) -> None:
    async with ended_run(tmp_path, api_token=TOKEN) as ended:
        session = await ended.served.ask("GET", "/api/session")
        assert session.json() == {"actor": "api-token", "canAnswer": True}
        path = f"/api/runs/{ended.run_id}/apply"
        on_branch = await ended.served.ask("POST", path, {"branch": "agents/fix"})
        assert on_branch.status == 200, on_branch.body
        assert on_branch.json()["result"]["outcome"] == "applied"
        assert git("show", "agents/fix:3.txt", cwd=ended.repo) == "new"
        assert not (ended.repo / "3.txt").exists()
        applied = (await ended.served.ask("POST", path, {})).json()["result"]
        assert [file["path"] for file in applied["files"]] == ["1.txt", "2.txt", "3.txt"]
        assert (ended.repo / "3.txt").read_text() == "new\n"
        entries = await ended.served.ask("GET", "/api/audit?event=run.applied")
        assert [each["actor"]["kind"] for each in entries.json()["entries"]] == ["api-token"] * 2


async def test_a_file_with_a_new_secret_is_applied_over_the_api_only_if_it_is_allowed(
    tmp_path: Path,
) -> None:
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    async with ended_run(tmp_path, f"{key}\n", api_token=TOKEN) as ended:
        (changed,) = (await ended.get("/changes"))["directories"]
        assert (changed["protected"], changed["secrets"]) == ({}, {"3.txt": ["github"]})
        path = f"/api/runs/{ended.run_id}/apply"
        asked = await ended.served.ask("POST", path, {})
        reason = {"3.txt": "holds a secret: github"}
        assert asked.json()["result"] == {"outcome": "protected", "paths": reason}
        assert key not in asked.body.decode()
        assert not (ended.repo / "3.txt").exists()
        done = await ended.served.ask("POST", path, {"allow": ["3.txt"]})
        assert done.json()["result"]["secrets"] == {"3.txt": ["github"]}
        assert (ended.repo / "3.txt").read_text() == f"{key}\n"


async def test_a_server_without_a_token_applies_nothing(tmp_path: Path) -> None:
    async with ended_run(tmp_path) as ended:
        session = await ended.served.ask("GET", "/api/session")
        assert session.json() == {"actor": "open", "canAnswer": False}
        refused = await ended.served.ask("POST", f"/api/runs/{ended.run_id}/apply", {})
        assert (refused.status, refused.json()["error"]) == (403, "token-needed")
        assert not (ended.repo / "3.txt").exists()


MISTAKES: list[tuple[str, str, Any, int]] = [
    ("GET", "why", None, 404),
    ("GET", "workflow", None, 404),
    ("GET", "steps", None, 404),
    ("GET", "changes", None, 404),
    ("GET", "rewind?step=a", None, 404),
    ("GET", "rewind", None, 400),
    ("GET", "stats", None, 400),
    ("GET", "stats?since=yesterday", None, 400),
    ("GET", "stats?since=0001-01-01", None, 400),
    ("GET", "steps?limit=0", None, 400),
    ("GET", "steps?after=-1", None, 400),
    ("POST", "apply", {}, 404),
    ("POST", "apply", {"to": "x"}, 400),
]


def _full(path: str) -> str:
    return f"/api/runs/{path}" if path.startswith("stats") else f"/api/runs/no/{path}"


async def test_what_does_not_exist_or_is_misspelt_is_said(tmp_path: Path) -> None:
    async with here(tmp_path, api_token=TOKEN) as served:
        answers = [
            (method, path, body, (await served.ask(method, _full(path), body)).status)
            for method, path, body, _ in MISTAKES
        ]
    assert answers == MISTAKES
