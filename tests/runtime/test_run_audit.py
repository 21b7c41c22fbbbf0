"""The audit log has the start and the end of every run, whichever process drives it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from infloop.model.audit import AuditEntry, AuditFilter
from infloop.store.audit.reading import newest
from support import forkserver
from support.eventually import eventually
from support.runs import world
from support.server import environment, infloop, process, put_workflow, workflow
from support.workflows import edges, node
from support.workflows import workflow as graph

LINE = "touch begun; until test -e go; do sleep 0.02; done"


def told(folder: Path, run_id: str = "") -> list[AuditEntry]:
    """What the log says of runs, or of one, the oldest first."""
    wanted = AuditFilter(event="run", run=run_id)
    return newest(folder / "data/audit", wanted, 10_000).entries[::-1]


def brief(entries: list[AuditEntry]) -> list[tuple[str, str, str]]:
    return [(entry.event, entry.actor.kind, entry.outcome) for entry in entries]


def crashed(folder: Path, **more: Any) -> str:
    """A run whose process was killed in the middle of its step; return its id."""
    put_workflow(folder / "data", workflow("long", LINE, **more))
    with forkserver.Command(("run", "long"), folder, environment(folder)) as driving:
        eventually((folder / "begun").exists)
        driving.kill()
    (folder / "begun").unlink()
    (folder / "go").touch()
    (run,) = infloop(folder, "runs", "--json", "--status", "interrupted").stdout.splitlines()
    return str(json.loads(run)["runId"])


@pytest.mark.claim("I61")
def test_each_run_is_in_the_log_with_its_start_and_its_end(
    tmp_path: Path,
) -> None:
    put_workflow(tmp_path / "data", workflow("w", "true", "false"))
    infloop(tmp_path, "run", "w")
    infloop(tmp_path, "rewind", "last", "--to", "c2", "--yes")
    with process(tmp_path) as server:
        server.client.run("w")
        assert server.end() == 0
    entries = told(tmp_path)
    assert brief(entries) == [
        ("run.started", "cli", ""),
        ("run.finished", "system", "succeeded"),
        ("run.rewound", "cli", ""),
        ("run.started", "system", ""),
        ("run.finished", "system", "succeeded"),
        ("run.queued", "open", ""),
        ("run.started", "system", ""),
        ("run.finished", "system", "succeeded"),
    ]
    for start, end in ((0, 1), (3, 4), (6, 7)):
        first, last = entries[start], entries[end]
        assert first.run_id == last.run_id
        assert first.workflow_id == last.workflow_id == "w"
        assert first.correlation_id == last.correlation_id != ""
    assert len({entries[number].run_id for number in (0, 3, 6)}) == 3
    assert entries[2].run_id == entries[0].run_id
    infloop(tmp_path, "audit", "--verify")


@pytest.mark.claim("I61")
@pytest.mark.parametrize(
    ("command", "then"),
    [
        (["run", "w"], [("run.recovered", "system", "failed")]),
        (
            ["resume"],
            [
                ("run.resumed", "cli", ""),
                ("run.recovered", "system", "resumed"),
                ("run.finished", "system", "succeeded"),
            ],
        ),
        (
            ["cancel"],
            [
                ("run.stopped", "cli", ""),
                ("run.recovered", "system", "cancelled"),
                ("run.finished", "system", "cancelled"),
            ],
        ),
        (["serve"], [("run.recovered", "system", "failed")]),
    ],
    ids=["by the next run", "by going on", "by stopping it", "by a server"],
)
def test_a_run_that_was_cleared_up_after_a_crash_is_in_the_log_once(
    tmp_path: Path, command: list[str], then: list[tuple[str, str, str]]
) -> None:
    put_workflow(tmp_path / "data", workflow("w", "true"))
    run_id = crashed(tmp_path)
    if command == ["serve"]:
        with process(tmp_path) as server:
            assert server.said
            assert server.end() == 0
    else:
        infloop(tmp_path, *command, *([] if "w" in command else [run_id]))
    infloop(tmp_path, "run", "w")
    entries = told(tmp_path, run_id)
    assert brief(entries) == [("run.started", "cli", ""), *then]
    assert {entry.workflow_id for entry in entries} == {"long"}
    assert len({entry.correlation_id for entry in entries}) == 1


def test_a_server_that_goes_on_with_a_run_says_so_in_the_log(tmp_path: Path) -> None:
    run_id = crashed(tmp_path, onCrash="resume")
    with process(tmp_path) as server:
        assert server.client.finished(run_id)["status"] == "succeeded"
        assert server.end() == 0
    assert brief(told(tmp_path, run_id)) == [
        ("run.started", "cli", ""),
        ("run.recovered", "system", "resumed"),
        ("run.finished", "system", "succeeded"),
    ]


@pytest.mark.claim("I61")
async def test_the_log_has_all_of_many_runs_when_what_drove_them_is_closed(tmp_path: Path) -> None:
    short = graph([node("s", "start"), node("e", "end")], edges("s next e"))
    async with world(tmp_path, run_history_limit=1000) as here:
        begun = [await here.start(short) for _ in range(150)]
        for run_id in begun:
            await here.service.wait(run_id)
    counted = Counter((entry.event, entry.run_id) for entry in told(tmp_path))
    both = ("run.started", "run.finished")
    assert counted == {(event, run_id): 1 for event in both for run_id in begun}


def test_a_log_that_cannot_be_written_stops_no_run_that_is_under_way_and_it_is_said(
    tmp_path: Path,
) -> None:
    audit = tmp_path / "data/audit"
    put_workflow(tmp_path / "data", workflow("w", f"mv {audit} {audit}.old; touch {audit}"))
    ran = infloop(tmp_path, "run", "w", code=1)
    assert "run succeeded" in ran.stdout
    assert "the audit log lacks 'run.finished' of run" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_run_that_cannot_be_recorded_does_not_begin_and_none_goes_on(tmp_path: Path) -> None:
    run_id = crashed(tmp_path)
    audit = tmp_path / "data/audit"
    audit.rename(tmp_path / "data/audit.old")
    audit.write_text("a file in its place")
    for command in (
        ["run", "long"],
        ["resume", run_id],
        ["rewind", run_id, "--to", "c1", "--yes"],
    ):
        refused = infloop(tmp_path, *command, code=1)
        assert "the audit log in" in refused.stderr
        assert "Traceback" not in refused.stderr
    # Nothing was added, and the step did not begin a second time.
    (listed,) = infloop(tmp_path, "runs", "--json").stdout.splitlines()
    assert json.loads(listed)["runId"] == run_id
    assert not (tmp_path / "begun").exists()
