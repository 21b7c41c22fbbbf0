"""The audit log: entries stay, and a change to them is detected."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest
import uvloop

from infloop.app.storage import open_audit
from infloop.errors import AuditError, StoreError
from infloop.lowlevel.directory_lock import lock_directory
from infloop.model.audit import (
    ACTORS,
    EVENTS,
    MAX_DETAILS_CHARS,
    SYSTEM,
    WITHHELD,
    Actor,
    ActorKind,
    AuditEntry,
    AuditFilter,
    EventName,
    audit_event,
    fingerprint,
)
from infloop.model.values import JsonValue
from infloop.runtime.clock import SetClock
from infloop.settings import load_settings
from infloop.store.audit import files as audit_files
from infloop.store.audit.reading import Flaw, Follower, newest, verify
from support import forkserver
from support.audit_logs import open_audit_log
from support.hostile_text import HOSTILE, unsafe
from support.paths import CHILDREN

ALL = AuditFilter()
CHILD = CHILDREN / "audit_writer.py"
SMALL = 4096
MEMBERS = [
    *("time", "event", "actor", "outcome", "correlationId", "runId", "workflowId", "details"),
    *("prev", "hash"),
]


async def write(folder: Path, count: int, *, first: int = 0, **options: Any) -> None:
    """Record so many entries, with a number each."""
    async with open_audit_log(folder, **options) as log:
        for number in range(first, first + count):
            await log.record("login.failed", Actor("open"), details={"number": number})


def current(folder: Path) -> Path:
    return folder / "audit.jsonl"


def lines(folder: Path) -> list[bytes]:
    return current(folder).read_bytes().splitlines(keepends=True)


def entries(folder: Path) -> list[AuditEntry]:
    """All entries, the oldest first."""
    found = newest(folder, ALL, 1_000_000)
    assert found.unreadable == 0
    return found.entries[::-1]


def numbers(found: list[AuditEntry]) -> list[Any]:
    return [entry.details["number"] for entry in found if "number" in entry.details]


# -- an entry --------------------------------------------------------------------------------------


@pytest.mark.claim("I60")
async def test_what_happens_is_appended_as_one_json_object_a_line(tmp_path: Path) -> None:
    clock = SetClock(1_782_907_200_123)
    async with open_audit_log(tmp_path / "audit", clock=clock) as log:
        await log.record(
            "run.finished",
            Actor("api-token", "ci"),
            outcome="succeeded",
            correlation_id="cid_1",
            run_id="r-1",
            workflow_id="w",
            details={"steps": 3},
        )
        (line,) = lines(tmp_path / "audit")
        entry = json.loads(line)
        assert list(entry) == MEMBERS
        assert entry | {"prev": "", "hash": ""} == {
            "time": "2026-07-01T12:00:00.123Z",
            "event": "run.finished",
            "actor": {"kind": "api-token", "name": "ci"},
            "outcome": "succeeded",
            "correlationId": "cid_1",
            "runId": "r-1",
            "workflowId": "w",
            "details": {"steps": 3},
            "prev": "",
            "hash": "",
        }
        clock.forward(1000)
        await log.record("login.ended", Actor("browser-session"))
        assert lines(tmp_path / "audit")[0] == line
        assert [each.event for each in entries(tmp_path / "audit")] == [
            "run.finished",
            "login.ended",
        ]


async def test_each_line_holds_the_hash_of_the_one_before_and_its_own(tmp_path: Path) -> None:
    await write(tmp_path, 5)
    prev = "0" * 64
    for line in lines(tmp_path):
        entry = json.loads(line)
        assert entry["prev"] == prev
        body, _, rest = line.rpartition(b',"hash":"')
        assert rest == f'{entry["hash"]}"}}\n'.encode()
        prev = hashlib.sha256(body + b"}").hexdigest()
        assert prev == entry["hash"]


async def test_the_log_is_private_from_the_moment_it_appears(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        await write(tmp_path / "data/audit", 1)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "data/audit").stat().st_mode) == 0o700
    assert stat.S_IMODE(current(tmp_path / "data/audit").stat().st_mode) == 0o600


async def test_a_log_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    await write(tmp_path, 1)
    current(tmp_path).chmod(0o644)
    await write(tmp_path, 1)
    assert stat.S_IMODE(current(tmp_path).stat().st_mode) == 0o600


@pytest.mark.claim("I66")
@pytest.mark.parametrize("kind", get_args(ActorKind))
async def test_an_entry_says_who_acted(tmp_path: Path, kind: ActorKind) -> None:
    async with open_audit_log(tmp_path) as log:
        await log.record("run.stopped", Actor(kind, "somebody"))
    assert json.loads(lines(tmp_path)[0])["actor"] == {"kind": kind, "name": "somebody"}


def test_every_event_and_every_actor_has_a_meaning() -> None:
    assert list(EVENTS) == list(get_args(EventName))
    assert list(ACTORS) == list(get_args(ActorKind))
    assert {"api-token", "browser-session", "webhook", "system", "open"} <= set(ACTORS)


async def test_an_event_that_is_not_on_the_list_is_not_recorded(tmp_path: Path) -> None:
    async with open_audit_log(tmp_path) as log:
        with pytest.raises(ValueError, match=r"'run\.invented'"):
            await log.record("run.invented", SYSTEM)  # type: ignore[arg-type]
    assert entries(tmp_path) == []


# -- hostile values --------------------------------------------------------------------------------

FORGERIES = {
    **HOSTILE,
    "a line of its own": 'x"}\n{"time":"2026-01-01T00:00:00.000Z","event":"login.succeeded"}\n',
    "line ends": "one\ntwo\r\nthree\rfour",
    "quotes": '","hash":"' + "0" * 64,
    "surrogates": "\ud83d\ude00 \udcff",
}


@pytest.mark.parametrize("text", FORGERIES.values(), ids=FORGERIES)
async def test_no_value_begins_a_line_or_reaches_the_terminal(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_audit_log(tmp_path / "audit") as log:
        await log.record(
            "webhook.refused",
            Actor("webhook", text),
            outcome=text,
            correlation_id=text,
            run_id=text,
            workflow_id=text,
            details={text: text, "list": [text, {"deep": text}]},
        )
        await log.record("login.ended", SYSTEM)
    written = current(tmp_path / "audit").read_text(encoding="ascii")
    assert written.count("\n") == 2
    assert written.replace("\n", "").isprintable()
    assert verify(tmp_path / "audit").flaw is None
    assert newest(tmp_path / "audit", ALL, 9).unreadable == 0

    monkeypatch.setenv("INFLOOP_DATA_DIR", str(tmp_path))
    for options in ([], ["--json"]):
        await asyncio.to_thread(command, "audit", *options)
        shown = capsys.readouterr().out
        assert shown.count("\n") == 2
        assert unsafe(shown) == []


def command(*words: str) -> int:
    from infloop import cli

    return cli.run(words)


SECRETS = [
    *("token", "apiToken", "api_key", "API-KEY", "secret", "signingSecret", "password", "passwd"),
    *("Authorization", "cookie", "Set-Cookie", "privateKey", "credentials", "x-hub-signature-256"),
    *("body", "rawBody", "payload", "headers", "key"),
]


@pytest.mark.claim("I67")
@pytest.mark.parametrize("name", SECRETS)
async def test_no_secret_and_no_request_body_is_written(tmp_path: Path, name: str) -> None:
    secret = "hunter2-hunter2"
    async with open_audit_log(tmp_path) as log:
        details: dict[str, Any] = {
            name: secret,
            "trigger": {name: {"nested": secret}, "list": [{name: [secret]}]},
        }
        await log.record("trigger.changed", Actor("api-token"), details=details)
    assert b"hunter2" not in current(tmp_path).read_bytes()
    (entry,) = entries(tmp_path)
    assert entry.details[name] == WITHHELD


async def test_whether_there_is_a_secret_is_no_secret(tmp_path: Path) -> None:
    details = {"secret": True, "token": None, "name": "build", "idempotent": "yes"}
    async with open_audit_log(tmp_path) as log:
        await log.record("trigger.changed", SYSTEM, details=details)
    (entry,) = entries(tmp_path)
    assert entry.details == details


def test_a_credential_is_recognised_by_its_mark_and_not_told_by_it() -> None:
    assert fingerprint("a-trigger-id-1234") == fingerprint("a-trigger-id-1234")
    assert fingerprint("a-trigger-id-1234") != fingerprint("a-trigger-id-1235")
    assert "trigger" not in fingerprint("a-trigger-id-1234")


ODD: dict[str, Any] = {
    "long text": "x" * 100_000,
    "many members": {f"member-{number}": number for number in range(10_000)},
    "long list": list(range(10_000)),
    "wide and deep": {f"a{i}": {f"b{j}": ["c" * 400] * 40 for j in range(40)} for i in range(40)},
    "bottomless": [],
    "not a number": [float("nan"), float("inf"), -float("inf")],
    "huge number": 10**5000,
    "not JSON": {1: object(), "bytes": b"\xff"},
}
for _ in range(2_000):
    ODD["bottomless"] = [ODD["bottomless"]]


@pytest.mark.parametrize("name", ODD)
async def test_an_entry_is_bounded_and_readable_whatever_is_given(
    tmp_path: Path, name: str
) -> None:
    async with open_audit_log(tmp_path) as log:
        await log.record("workflow.saved", Actor("cli", "y" * 9999), details={"odd": ODD[name]})
    (line,) = lines(tmp_path)
    assert len(line) < MAX_DETAILS_CHARS + 4_000
    assert verify(tmp_path).flaw is None
    assert len(entries(tmp_path)) == 1


# -- durability ------------------------------------------------------------------------------------


class Syncs:
    """Counts what is made durable."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        real = os.fsync

        def counting(descriptor: int) -> None:
            self.count += stat.S_ISREG(os.fstat(descriptor).st_mode)
            real(descriptor)

        monkeypatch.setattr(os, "fsync", counting)


async def test_what_matters_for_security_is_durable_and_the_rest_comes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = Syncs(monkeypatch)
    async with open_audit_log(tmp_path) as log:
        for _ in range(5):
            await log.record("webhook.ignored", Actor("webhook"))
        assert (len(lines(tmp_path)), syncs.count) == (5, 0)
        await log.record("login.failed", Actor("open"))
        assert (len(lines(tmp_path)), syncs.count) == (6, 1)
        await log.record("run.started", SYSTEM)
        assert syncs.count == 1
    assert syncs.count == 2


async def test_what_is_recorded_meanwhile_is_made_durable_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = Syncs(monkeypatch)
    async with open_audit_log(tmp_path) as log, asyncio.TaskGroup() as tasks:
        for number in range(500):
            details = {"number": number}
            tasks.create_task(log.record("login.failed", SYSTEM, details=details))
    assert numbers(entries(tmp_path)) == list(range(500))
    assert syncs.count < 100


async def test_an_entry_whose_waiter_went_away_is_written_all_the_same(tmp_path: Path) -> None:
    async with open_audit_log(tmp_path) as log:
        tasks = [
            asyncio.create_task(log.record("login.failed", SYSTEM, details={"number": number}))
            for number in range(20)
        ]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert numbers(entries(tmp_path)) == list(range(20))


async def test_a_closed_log_takes_nothing(tmp_path: Path) -> None:
    async with open_audit_log(tmp_path) as log:
        pass
    with pytest.raises(AuditError, match="closed"):
        await log.record("login.failed", SYSTEM)


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.claim("I65")
async def test_with_the_default_settings_the_log_keeps_months(tmp_path: Path) -> None:
    chosen = load_settings({"INFLOOP_DATA_DIR": str(tmp_path)})
    size, files, folder = chosen.audit_max_bytes, chosen.audit_max_files, tmp_path / "audit"
    days, daily = 180, 120
    async with open_audit_log(folder, max_bytes=size, max_files=files) as log:
        for day in range(days):
            details: dict[str, JsonValue] = {"number": day}
            entry = audit_event(day * 86_400_000, "login.failed", Actor("open"), details=details)
            await log.record_all([entry] * daily)
    kept = numbers(entries(folder))
    assert kept == [day for day in range(days) for _ in range(daily)]
    # Three months of six thousand entries a day fit into the files that are kept.
    each = sum(file.stat().st_size for file in folder.iterdir()) / (days * daily)
    assert size * (files - 1) / each > 90 * 6_000


@pytest.mark.claim("I65")
async def test_the_log_is_rotated_by_the_settings_and_goes_on_in_one_chain(tmp_path: Path) -> None:
    environ = {
        "INFLOOP_DATA_DIR": str(tmp_path),
        "INFLOOP_AUDIT_MAX_BYTES": str(SMALL),
        "INFLOOP_AUDIT_MAX_FILES": "3",
    }
    async with open_audit(load_settings(environ)) as log:
        for number in range(100):
            await log.record("login.failed", Actor("open"), details={"number": number})
    folder = tmp_path / "audit"
    files = [*audit_files.earlier_files(folder), current(folder)]
    assert sorted(folder.iterdir()) == sorted(files)
    assert len(files) == 3
    for file in files:
        assert file.stat().st_size <= SMALL
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for before, after in pairwise(files):
        first = json.loads(after.read_bytes().splitlines()[0])
        last = json.loads(before.read_bytes().splitlines()[-1])
        assert (first["event"], first["details"]) == ("audit.rotated", {"before": before.name})
        assert first["prev"] == last["hash"]
    kept = numbers(entries(folder))
    assert kept == list(range(kept[0], 100))
    assert len(kept) > 20
    assert verify(folder).flaw is None
    assert verify(folder).files == 3


async def test_a_death_between_two_files_changes_nothing(tmp_path: Path) -> None:
    await write(tmp_path, 3)
    current(tmp_path).rename(tmp_path / "audit-000001.jsonl")
    await write(tmp_path, 2, first=3)
    assert numbers(entries(tmp_path)) == [0, 1, 2, 3, 4]
    assert [entry.event for entry in entries(tmp_path)].count("audit.rotated") == 1
    assert verify(tmp_path).flaw is None


def cut_off(folder: Path, count: int = 20) -> bytes:
    """Leave the log as a process does that dies in the middle of a line; return that piece."""
    data = current(folder).read_bytes()
    start = data.rstrip(b"\n").rfind(b"\n") + 1
    current(folder).write_bytes(data[: start + count])
    return data[start : start + count]


def as_it_is(_folder: Path, _piece: bytes) -> None:
    """Nobody has seen it yet."""


def aside_and_there(folder: Path, piece: bytes) -> None:
    """A process had set the piece aside, and died."""
    last = entries_before_the_end(folder)[-1]["hash"]
    name = f"piece-{last[:16]}-{hashlib.sha256(piece).hexdigest()[:16]}"
    (folder / name).write_bytes(piece)


def aside_and_gone(folder: Path, piece: bytes) -> None:
    """A process had set the piece aside and cut the file, and died before it said so."""
    aside_and_there(folder, piece)
    current(folder).write_bytes(current(folder).read_bytes().removesuffix(piece))


def entries_before_the_end(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(folder) if line.endswith(b"\n")]


@pytest.mark.parametrize("left", [as_it_is, aside_and_there, aside_and_gone])
async def test_a_line_that_was_cut_off_is_set_aside_and_noted(
    tmp_path: Path, left: Callable[[Path, bytes], None]
) -> None:
    await write(tmp_path, 4)
    piece = cut_off(tmp_path)
    flaw = verify(tmp_path).flaw
    assert flaw is not None
    assert (flaw.file, flaw.line) == ("audit.jsonl", 4)
    assert "cut off" in flaw.why
    left(tmp_path, piece)

    await write(tmp_path, 2, first=10)
    assert verify(tmp_path).flaw is None
    found = entries(tmp_path)
    assert numbers(found) == [0, 1, 2, 10, 11]
    (noted,) = [entry for entry in found if entry.event == "audit.repaired"]
    (kept,) = tmp_path.glob("piece-*")
    assert noted.details == {"pieces": [kept.name]}
    assert kept.read_bytes() == piece


async def test_a_first_line_that_was_cut_off_is_set_aside_too(tmp_path: Path) -> None:
    current(tmp_path).write_bytes(b'{"time":')
    await write(tmp_path, 1)
    assert [entry.event for entry in entries(tmp_path)] == ["audit.repaired", "login.failed"]
    assert verify(tmp_path).flaw is None


async def test_a_piece_longer_than_what_is_read_at_once_is_set_aside_whole(tmp_path: Path) -> None:
    await write(tmp_path, 2)
    piece = b"\0" * 200_000
    with current(tmp_path).open("ab") as file:
        file.write(piece)
    await write(tmp_path, 1, first=2)
    assert numbers(entries(tmp_path)) == [0, 1, 2]
    (kept,) = tmp_path.glob("piece-*")
    assert kept.read_bytes() == piece
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


async def test_a_whole_line_that_is_no_entry_stays_and_is_named(tmp_path: Path) -> None:
    await write(tmp_path, 2)
    with current(tmp_path).open("ab") as file:
        file.write(b"garbage\n")
    await write(tmp_path, 2, first=2)
    assert verify(tmp_path).flaw == Flaw("audit.jsonl", 3, "it is not an entry")
    found = newest(tmp_path, ALL, 9)
    assert (numbers(found.entries), found.unreadable) == ([3, 2, 1, 0], 1)


# -- a log that cannot be written ------------------------------------------------------------------


async def test_where_nothing_can_be_written_nothing_counts_as_recorded(tmp_path: Path) -> None:
    (tmp_path / "audit").write_text("a file in its place")
    async with open_audit_log(tmp_path / "audit") as log:
        with pytest.raises(AuditError, match="cannot be used"):
            await log.record("trigger.created", Actor("api-token"))
    assert issubclass(AuditError, StoreError)


async def test_a_link_in_place_of_the_log_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("")
    current(tmp_path).symlink_to(elsewhere)
    async with open_audit_log(tmp_path) as log:
        with pytest.raises(AuditError):
            await log.record("trigger.created", Actor("api-token"))
    assert elsewhere.read_text() == ""


async def test_a_lock_that_another_process_keeps_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(tmp_path, 1)
    monkeypatch.setattr(audit_files, "_LOCK_SECONDS", 0.05)
    async with open_audit_log(tmp_path) as log:
        with (
            lock_directory(tmp_path, 1, "testing"),
            pytest.raises(AuditError, match="another process"),
        ):
            await log.record("login.failed", SYSTEM)
        await log.record("login.failed", SYSTEM, details={"number": 1})
    assert numbers(entries(tmp_path)) == [0, 1]


FULL_DISK = """
import asyncio, resource, signal, sys
from pathlib import Path
from infloop.errors import AuditError
from infloop.model.audit import SYSTEM
from infloop.store.audit.log import AuditLog

async def main():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    folder = Path(sys.argv[1])
    async with AuditLog(folder, lambda: 0, max_bytes=1 << 20, max_files=2) as log:
        await log.record("login.failed", SYSTEM, details={"number": 0})
        size = (folder / "audit.jsonl").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, resource.RLIM_INFINITY))
        try:
            await log.record("login.failed", SYSTEM, details={"number": 1})
        except AuditError as error:
            print(error)
        print((folder / "audit.jsonl").stat().st_size - size)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        await log.record("login.failed", SYSTEM, details={"number": 2})

asyncio.run(main())
"""


async def test_half_an_entry_on_a_full_disk_is_taken_back(tmp_path: Path) -> None:
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", FULL_DISK, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    said, left = ran.stdout.splitlines()
    assert "free space" in said
    assert left == "0"
    assert numbers(entries(tmp_path)) == [0, 2]
    assert verify(tmp_path).flaw is None


# -- several processes, and their deaths -----------------------------------------------------------


@contextmanager
def writing(folder: Path, name: str, count: int) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, str(CHILD), str(folder), name, str(count), "20000"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=30)


async def test_several_processes_write_one_chain(tmp_path: Path) -> None:
    with (
        writing(tmp_path, "a", 150) as a,
        writing(tmp_path, "b", 150) as b,
        writing(tmp_path, "c", 150) as c,
    ):
        for process in (a, b, c):
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in (a, b, c):
            await asyncio.to_thread(process.wait, 60)
    assert verify(tmp_path).flaw is None
    assert verify(tmp_path).files > 3
    for name in "abc":
        mine = [entry for entry in entries(tmp_path) if entry.actor.name == name]
        assert sorted(numbers(mine)) == list(range(150))


async def test_killed_at_random_points_no_acknowledged_entry_is_lost(tmp_path: Path) -> None:
    chance = random.Random(5)
    acknowledged: set[tuple[str, int]] = set()
    for turn in range(10):
        with writing(tmp_path, f"{turn}", 100_000) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("go\n")
            process.stdin.flush()
            for _ in range(chance.randint(1, 60)):
                line = await asyncio.to_thread(process.stdout.readline)
                acknowledged.add((f"{turn}", int(line)))
            os.kill(process.pid, signal.SIGKILL)
    await write(tmp_path, 1)
    assert verify(tmp_path).flaw is None
    written = [
        (entry.actor.name, entry.details["number"])
        for entry in entries(tmp_path)
        if "number" in entry.details
    ]
    assert acknowledged <= set(written)
    assert len(written) == len(set(written))


# -- verifying -------------------------------------------------------------------------------------


def changed(line: bytes) -> bytes:
    return line.replace(b'"login.failed"', b'"login.ended"')


def rehashed(line: bytes) -> bytes:
    """A line as a careful forger writes it: what it says is changed, and its hash fits."""
    entry = json.loads(changed(line))
    del entry["hash"]
    body = json.dumps(entry, separators=(",", ":"))
    name = hashlib.sha256(body.encode()).hexdigest()
    return f'{body[:-1]},"hash":"{name}"}}\n'.encode()


def reordered(line: bytes) -> bytes:
    members = json.loads(line)
    return json.dumps(dict(sorted(members.items())), separators=(",", ":")).encode() + b"\n"


def doubled(line: bytes) -> bytes:
    """A second `event` that some readers see and others do not."""
    return line.replace(b'{"time"', b'{"event":"login.succeeded","time"')


TAMPERED: dict[str, tuple[Callable[[list[bytes]], list[bytes]], int, str]] = {
    "a word changed": (lambda x: [*x[:2], changed(x[2]), *x[3:]], 3, "changed"),
    "a word and its hash": (lambda x: [*x[:2], rehashed(x[2]), *x[3:]], 4, "removed, added"),
    "a line removed": (lambda x: [*x[:2], *x[3:]], 3, "removed"),
    "the first removed": (lambda x: x[1:], 1, "removed"),
    "a line repeated": (lambda x: [*x[:3], *x[2:]], 4, "added"),
    "two exchanged": (lambda x: [*x[:2], x[3], x[2], *x[4:]], 3, "moved"),
    "a line made up": (lambda x: [*x[:2], b'{"event":"x"}\n', *x[2:]], 3, "not an entry"),
    "not an object": (lambda x: [*x[:2], b"[1]\n", *x[2:]], 3, "not an entry"),
    "no text": (lambda x: [*x[:2], b"\xff\0\n", *x[2:]], 3, "not an entry"),
    "an empty line": (lambda x: [*x[:2], b"\n", *x[2:]], 3, "not an entry"),
    "a bottomless line": (lambda x: [*x[:2], b"[" * 99_999 + b"\n", *x[2:]], 3, "not an entry"),
    "spaces": (lambda x: [*x[:2], x[2].replace(b",", b", ", 1), *x[3:]], 3, "as infloop writes"),
    "another order": (lambda x: [*x[:2], reordered(x[2]), *x[3:]], 3, "hash"),
    "a member twice": (lambda x: [*x[:2], doubled(x[2]), *x[3:]], 3, "hash|as infloop writes"),
    "an escape": (lambda x: [*x[:2], x[2].replace(b"open", b"\\u006fpen"), *x[3:]], 3, "writes"),
}


@pytest.mark.parametrize("name", TAMPERED)
async def test_the_first_line_that_is_not_as_it_was_is_named(tmp_path: Path, name: str) -> None:
    tamper, where, why = TAMPERED[name]
    await write(tmp_path, 6)
    assert verify(tmp_path).flaw is None
    assert verify(tmp_path).entries == 6
    current(tmp_path).write_bytes(b"".join(tamper(lines(tmp_path))))
    verdict = verify(tmp_path)
    assert verdict.flaw is not None
    assert (verdict.flaw.file, verdict.flaw.line) == ("audit.jsonl", where)
    assert any(each in verdict.flaw.why for each in why.split("|")), verdict.flaw.why
    assert verdict.entries == where - 1


async def test_a_file_that_is_missing_in_between_is_noticed(tmp_path: Path) -> None:
    await write(tmp_path, 60, max_bytes=SMALL, max_files=100)
    files = audit_files.earlier_files(tmp_path)
    assert len(files) > 3
    files[1].unlink()
    flaw = verify(tmp_path).flaw
    assert flaw is not None
    assert (flaw.file, flaw.line) == (files[2].name, 1)


async def test_a_log_cut_at_its_end_is_told_by_a_hash_that_was_noted(tmp_path: Path) -> None:
    await write(tmp_path, 5)
    noted = verify(tmp_path).last
    current(tmp_path).write_bytes(b"".join(lines(tmp_path)[:3]))
    verdict = verify(tmp_path)
    assert verdict.flaw is None
    assert verdict.last != noted


def test_a_log_that_does_not_exist_is_intact_and_empty(tmp_path: Path) -> None:
    verdict = verify(tmp_path / "audit")
    assert (verdict.entries, verdict.files, verdict.flaw) == (0, 0, None)
    assert not (tmp_path / "audit").exists()


# -- reading ---------------------------------------------------------------------------------------

START = 1_782_907_200_000

SOUGHT: dict[str, tuple[AuditFilter, list[int]]] = {
    "everything": (AuditFilter(), [5, 4, 3, 2, 1, 0]),
    "an event": (AuditFilter(event="run.started"), [4, 3]),
    "an area": (AuditFilter(event="run"), [5, 4, 3]),
    "not half a word": (AuditFilter(event="ru"), []),
    "a kind of actor": (AuditFilter(actor="webhook"), [3, 2]),
    "a name": (AuditFilter(actor="build"), [3, 2]),
    "a run": (AuditFilter(run="r-2"), [5, 4]),
    "the beginning of a run": (AuditFilter(run="r-"), [5, 4, 3]),
    "a request": (AuditFilter(correlation_id="cid_2"), [3, 2]),
    "since": (AuditFilter(since=START + 3000), [5, 4, 3]),
    "until": (AuditFilter(until=START + 1000), [1, 0]),
    "both ends": (AuditFilter(since=START + 1000, until=START + 2000), [2, 1]),
    "all at once": (
        AuditFilter("run.started", "webhook", "r-1", "cid_2", START, START + 9000),
        [3],
    ),
}


@pytest.mark.parametrize("name", SOUGHT)
async def test_entries_are_found_newest_first_by(tmp_path: Path, name: str) -> None:
    clock = SetClock(START)
    build = Actor("webhook", "build")
    facts: list[tuple[EventName, Actor, dict[str, str]]] = [
        ("login.failed", Actor("open"), {"correlation_id": "cid_1"}),
        ("login.succeeded", Actor("browser-session"), {"correlation_id": "cid_3"}),
        ("webhook.accepted", build, {"correlation_id": "cid_2"}),
        ("run.started", build, {"correlation_id": "cid_2", "run_id": "r-1"}),
        ("run.started", Actor("cli"), {"run_id": "r-2"}),
        ("run.finished", SYSTEM, {"run_id": "r-2"}),
    ]
    async with open_audit_log(tmp_path, clock=clock) as log:
        for number, (event, actor, more) in enumerate(facts):
            await log.record(event, actor, **more, details={"number": number})
            clock.forward(1000)
    wanted, expected = SOUGHT[name]
    assert numbers(newest(tmp_path, wanted, 100).entries) == expected
    assert numbers(newest(tmp_path, wanted, 2).entries) == expected[:2]


async def test_the_newest_are_found_over_all_files(tmp_path: Path) -> None:
    await write(tmp_path, 60, max_bytes=SMALL, max_files=100)
    assert numbers(newest(tmp_path, AuditFilter(event="login"), 45).entries) == list(
        range(59, 14, -1)
    )


async def test_a_follower_sees_every_entry_once_through_rotations(tmp_path: Path) -> None:
    await write(tmp_path, 5, max_bytes=SMALL, max_files=100)
    seen: list[Any] = []
    with closing(Follower(tmp_path)) as follower:
        assert follower.read(ALL) == []
        for first in range(5, 100, 19):  # more than a file holds, so that some are never current
            await write(tmp_path, 19, first=first, max_bytes=SMALL, max_files=100)
            seen += numbers(follower.read(ALL))
            assert follower.read(ALL) == []
    assert seen == list(range(5, 100))


async def test_a_follower_of_a_log_that_does_not_exist_sees_it_begin(tmp_path: Path) -> None:
    with closing(Follower(tmp_path / "audit")) as follower:
        assert follower.read(ALL) == []
        await write(tmp_path / "audit", 2)
        assert numbers(follower.read(ALL)) == [0, 1]


async def test_a_follower_is_not_confused_by_a_line_that_is_cut_off(tmp_path: Path) -> None:
    await write(tmp_path, 3)
    cut_off(tmp_path)
    with closing(Follower(tmp_path)) as follower:
        await write(tmp_path, 2, first=10)
        found = follower.read(ALL)
    assert [entry.event for entry in found] == ["audit.repaired", "login.failed", "login.failed"]


# -- the command -----------------------------------------------------------------------------------


def infloop(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    variables = {"INFLOOP_DATA_DIR": str(folder), "HOME": str(folder), "TZ": "UTC"}
    return forkserver.run(("audit", *words), folder, variables, 60)


async def test_the_command_prints_what_is_asked_for(tmp_path: Path) -> None:
    clock = SetClock(START)
    async with open_audit_log(tmp_path / "audit", clock=clock) as log:
        await log.record("login.failed", Actor("open"), outcome="wrong-token")
        clock.forward(3_600_000)
        await log.record(
            "run.finished",
            Actor("webhook", "build"),
            outcome="succeeded",
            run_id="1f3a9c2e-1111",
            workflow_id="w",
            correlation_id="cid_9",
            details={"steps": 3},
        )
    assert infloop(tmp_path).stdout == (
        "2026-07-01 13:00:00  run.finished       webhook build  succeeded  w  1f3a9c2e  cid_9  "
        '{"steps":3}\n'
        "2026-07-01 12:00:00  login.failed       open  wrong-token\n"
    )
    (one,) = infloop(tmp_path, "--run", "1f3a", "--json").stdout.splitlines()
    assert json.loads(one)["runId"] == "1f3a9c2e-1111"
    assert "login" in infloop(tmp_path, "--event", "login").stdout
    assert "login" not in infloop(tmp_path, "--since", "2026-07-01T12:30").stdout
    assert len(infloop(tmp_path, "--limit", "1").stdout.splitlines()) == 1
    nothing = infloop(tmp_path, "--actor", "nobody")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "no such entry" in nothing.stderr


@pytest.mark.parametrize(
    "words", [["--since", "yesterday"], ["--limit", "0"], ["--follow", "--verify"]], ids=" ".join
)
def test_the_command_refuses(tmp_path: Path, words: list[str]) -> None:
    assert infloop(tmp_path, *words).returncode == 2


async def test_the_command_proves_the_log_or_names_the_broken_line(tmp_path: Path) -> None:
    await write(tmp_path / "audit", 3)
    proved = infloop(tmp_path, "--verify")
    assert proved.returncode == 0
    assert proved.stdout == (
        f"intact: 3 entries in 1 file; the last is {verify(tmp_path / 'audit').last}\n"
    )
    written = lines(tmp_path / "audit")
    current(tmp_path / "audit").write_bytes(b"".join([written[0], changed(written[1]), written[2]]))
    broken = infloop(tmp_path, "--verify")
    assert broken.returncode == 1
    assert broken.stdout.startswith("audit.jsonl line 2: ")
    told = json.loads(infloop(tmp_path, "--verify", "--json").stdout)
    assert (told["intact"], told["entries"], told["flaw"]["line"]) == (False, 1, 2)


async def test_following_shows_the_last_entries_and_then_each_new_one(tmp_path: Path) -> None:
    await write(tmp_path / "audit", 3)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "infloop", "audit", "--follow", "--limit", "2", "--json"),
        env={"INFLOOP_DATA_DIR": str(tmp_path), "HOME": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    seen: list[int] = []

    async def see(until: int) -> None:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            while not seen or seen[-1] != until:
                seen.append(json.loads(await process.stdout.readline())["details"]["number"])

    try:
        await see(2)
        await write(tmp_path / "audit", 2, first=3)
        await see(4)
        process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.wait(), 30)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert seen == [1, 2, 3, 4]
    assert process.returncode == 130


# -- routine entries, which need not wait for the disk ---------------------------------------------


async def test_routine_entries_of_two_writers_follow_one_another(tmp_path: Path) -> None:
    async with open_audit_log(tmp_path) as one, open_audit_log(tmp_path) as other:
        for number in range(20):
            writer = one if number % 3 else other
            await writer.record("webhook.ignored", SYSTEM, details={"number": number})
    assert numbers(entries(tmp_path)) == list(range(20))
    assert verify(tmp_path).flaw is None


async def test_routine_entries_wait_for_a_process_that_is_writing(tmp_path: Path) -> None:
    async with open_audit_log(tmp_path) as log:
        await log.record("webhook.ignored", SYSTEM, details={"number": 0})
        with lock_directory(tmp_path, 1, "testing"):
            waiting = asyncio.create_task(
                log.record("webhook.ignored", SYSTEM, details={"number": 1})
            )
            done, _ = await asyncio.wait([waiting], timeout=0.05)
            assert not done
            assert len(lines(tmp_path)) == 1
        await waiting
    assert numbers(entries(tmp_path)) == [0, 1]


async def test_a_file_that_is_full_is_followed_by_another_for_routine_entries_too(
    tmp_path: Path,
) -> None:
    async with open_audit_log(tmp_path, max_bytes=2_000, max_files=100) as log:
        for number in range(30):
            await log.record("webhook.ignored", SYSTEM, details={"number": number})
    assert len(list(tmp_path.glob("audit-*.jsonl"))) > 2
    assert verify(tmp_path).flaw is None
    assert numbers(entries(tmp_path)) == list(range(30))


def test_routine_entries_are_written_in_a_thread_while_the_disk_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, threads = os.write, list[bool]()

    def slow(descriptor: int, data: bytes) -> int:
        threads.append(threading.current_thread() is not threading.main_thread())
        time.sleep(0.02)
        return real(descriptor, data)

    async def record() -> None:
        async with open_audit_log(tmp_path) as log:
            await log.record("webhook.ignored", SYSTEM)
            with monkeypatch.context() as patch:
                patch.setattr(os, "write", slow)
                for _ in range(2):
                    await log.record("webhook.ignored", SYSTEM)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as infloop does
        runner.run(record())
    assert threads == [False, True]
