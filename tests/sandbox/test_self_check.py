"""The battery: it finds what is open, levels keep what they promise, and the strongest is taken."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

from infloop.errors import MissingPart, SettingsError
from infloop.model.isolation import LEVELS, UNCONFINED
from infloop.sandbox.levels import LEVEL_CLASSES
from infloop.sandbox.levels.choice import (
    LevelChoice,
    check_level,
    choose,
    level_class,
    open_level,
)
from infloop.sandbox.levels.host import HostSandbox
from infloop.sandbox.levels.keeper_sandbox import SandboxOptions
from infloop.sandbox.promises import PROMISES
from infloop.sandbox.self_check import probes
from infloop.sandbox.self_check.battery import ATTEMPTS, QUICK, self_check
from infloop.sandbox.self_check.canaries import canaries_in
from support import forkserver
from support.canaries import USER, place
from support.confinement import need_bubblewrap, need_guard
from support.parts import ruled_out, ruled_out_if
from support.thorough import some

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from infloop.model.isolation import Level
    from infloop.sandbox.base import Sandbox

ALL = {name for names in ATTEMPTS.values() for name in names}
OPEN_EVERYWHERE = {
    *("read_secret", "read_home", "read_round_about", "read_shared_memory", "see_system_v_memory"),
    *("write_outside", "write_startup_files", "see_processes", "attack_process"),
    *("read_process_secrets", "connect_unix", "connect_loopback", "connect_machine"),
    *("send_datagrams", "ask_name_server", "open_odd_sockets", "use_keyrings", "trace_itself"),
    *("change_repository", "write_tool_configuration", "flood_processes", "flood_descriptors"),
    *("flood_file", "flood_temp", "flood_memory", "gain_privileges", "reach_kernel"),
}
"""What any unconfined child reaches, so that a canary which is not reached is a broken canary."""


@contextlib.asynccontextmanager
async def opened(level: Any) -> AsyncIterator[tuple[Sandbox, str]]:
    need(level)
    with place() as folder:
        sandbox = open_level(level, SandboxOptions(str(folder), user=USER))
        try:
            yield sandbox, str(folder)
        finally:
            await sandbox.close()
        assert list(folder.iterdir()) == []


def need(level: str) -> None:
    if level == "sandbox":
        need_bubblewrap()
    if level == "guard":
        need_guard()


# The battery


@pytest.mark.claim("I29")
@pytest.mark.parametrize("level", ["host", "guard", "sandbox"])
async def test_a_level_keeps_what_it_promises(level: str) -> None:
    async with opened(level) as (sandbox, folder):
        check = await self_check(sandbox, folder, user=USER)
    assert (check.level, check.error, check.broken) == (level, "", ())
    assert {finding.attempt for finding in check.findings} == ALL
    if level == "host":
        reached = {finding.attempt for finding in check.findings if finding.reached}
        assert OPEN_EVERYWHERE - reached == set(), "an unconfined child reaches the canaries"


@pytest.mark.thorough
@pytest.mark.parametrize("level", some(["sandbox", "guard"], one_in=2))
async def test_a_level_that_promises_more_than_it_keeps_is_found_out(level: Level) -> None:
    class Pretender(HostSandbox):
        promises = level_class(level).promises
        shared_process_limit = level_class(level).shared_process_limit

    sandbox = Pretender(user=USER)
    with place() as folder:
        try:
            check = await self_check(sandbox, str(folder), user=USER)
        finally:
            await sandbox.close()
    assert not check.holds
    broken = {finding.attempt for finding in check.broken}
    promised = {name for promise in sandbox.promises for name in ATTEMPTS[promise]}
    assert OPEN_EVERYWHERE & promised <= broken
    assert "use_proxy" in broken


async def test_a_sandbox_in_which_nothing_starts_does_not_hold() -> None:
    async with opened("host") as (sandbox, folder):
        check = await self_check(sandbox, folder, user=USER, python="/no/such/python")
    assert not check.holds
    assert "/no/such/python" in check.error


@ruled_out_if(os.geteuid() != 0, "only root can be root")
async def test_nothing_is_tried_as_root() -> None:
    sandbox = HostSandbox()
    with place() as folder:
        try:
            check = await self_check(sandbox, str(folder), user=USER)
        finally:
            await sandbox.close()
    assert "not made as root" in check.error
    assert check.findings == ()


def test_every_attempt_belongs_to_one_promise_and_says_what_it_tries() -> None:
    named = [name for names in ATTEMPTS.values() for name in names]
    assert len(named) == len(set(named))
    assert set(named) == {attempt.__name__ for attempt in probes.ATTEMPTS}
    assert all(attempt.__doc__ for attempt in probes.ATTEMPTS)
    assert set(ATTEMPTS) == set(PROMISES)
    assert set(QUICK) <= set(named)


def test_the_classes_of_the_levels_have_the_order_of_their_names() -> None:
    assert tuple(each.level for each in LEVEL_CLASSES) == LEVELS
    assert [each.level for each in LEVEL_CLASSES if not each.confines] == [UNCONFINED]
    assert all(each.promises <= set(PROMISES) for each in LEVEL_CLASSES)


# The choice


async def test_auto_takes_the_strongest_level_that_holds(tmp_path: Path) -> None:
    need_bubblewrap()
    with place() as folder:
        choice = await choose(
            "auto", SandboxOptions(str(folder), user=USER), tmp_path / "proofs.json"
        )
    assert choice.level == "sandbox"
    assert [check.level for check in choice.checks] == ["container", "sandbox"]
    assert "container" in choice.reasons[0]


async def test_a_level_is_proved_where_paths_are_long() -> None:
    """Longer than the address of a Unix socket can be."""
    need_bubblewrap()
    with place() as folder:
        deep = folder / ("d" * 120)
        deep.mkdir(mode=0o711)
        choice = await choose("sandbox", SandboxOptions(str(deep), user=USER))
        assert choice.level == "sandbox"
        host = HostSandbox(user=USER)
        try:
            report = await self_check(host, str(deep), user=USER, attempts=["connect_unix"])
        finally:
            await host.close()
    assert [finding.reached for finding in report.findings] == [True]


async def test_a_proof_is_remembered_until_the_circumstances_change(tmp_path: Path) -> None:
    need_bubblewrap()
    cache = tmp_path / "proofs.json"
    with place() as folder:
        where = SandboxOptions(str(folder), user=USER)
        assert (await choose("sandbox", where, cache)).level == "sandbox"
    # Where nothing can be put up any more only memory can say that it holds.
    assert (await choose("sandbox", where, cache)).level == "sandbox"
    assert stat.S_IMODE(cache.stat().st_mode) == 0o600
    stored = json.loads(cache.read_text())
    cache.write_text(json.dumps({**stored, "key": [*stored["key"][:1], "another boot"]}))
    with pytest.raises(FileNotFoundError):
        await choose("sandbox", where, cache)
    cache.write_text("not json")
    with pytest.raises(FileNotFoundError):
        await choose("sandbox", where, cache)


@contextlib.contextmanager
def strangers() -> Iterator[None]:
    """Connect to everything that this process begins to listen on, as another user could."""
    over = threading.Event()

    def connect() -> None:
        known = _listeners()
        while not over.is_set():
            for family, address in _listeners() - known:
                with contextlib.suppress(OSError), socket.socket(family) as stream:
                    stream.connect(address)
                    stream.sendall(b"hello")

    thread = threading.Thread(target=connect)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _listeners() -> set[tuple[int, Any]]:
    ours = set()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            ours.add(str(path.readlink()).removeprefix("socket:[").removesuffix("]"))
    tcp = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    ports = {int(each[1][-4:], 16) for each in tcp if each[3] == "0A" and each[9] in ours}
    unix = (line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:])
    names = {each[7][1:] for each in unix if each[6] in ours and each[7:] and each[7][0] == "@"}
    return {(socket.AF_INET, ("127.0.0.1", port)) for port in ports} | {
        (socket.AF_UNIX, f"\0{name}") for name in names
    }


async def test_a_stranger_who_touches_the_canaries_lowers_no_level() -> None:
    need_bubblewrap()
    with place() as folder, strangers():
        choice = await choose("auto", SandboxOptions(str(folder), user=USER))
    assert choice.level == "sandbox"


async def test_a_level_that_fails_its_check_is_refused_and_not_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The strongest level here is one that promises more than it keeps."""

    class Pretender(HostSandbox):
        level = "sandbox"  # type: ignore[assignment]
        confines = True
        promises = level_class("sandbox").promises

        @classmethod
        def open(cls, options: SandboxOptions) -> Self:
            return cls(user=options.user)

    monkeypatch.setattr("infloop.sandbox.levels.choice.LEVEL_CLASSES", (Pretender, *LEVEL_CLASSES))
    with place() as folder, pytest.raises(SettingsError, match="failed its check") as refused:
        await choose("auto", SandboxOptions(str(folder), user=USER))
    assert "INFLOOP_ISOLATION" in str(refused.value)


async def test_a_level_asked_for_by_name_that_does_not_hold_is_refused() -> None:
    with place() as folder, pytest.raises(SettingsError, match="'container' does not hold here"):
        await choose("container", SandboxOptions(str(folder), user=USER))


async def test_host_needs_no_proof() -> None:
    assert await choose("host", SandboxOptions("/no/such/place")) == LevelChoice("host")


async def test_what_is_missing_is_named() -> None:
    with place() as folder:
        check = await check_level("container", SandboxOptions(str(folder), user=USER))
    assert not check.holds
    assert "read-only root" in check.reason
    with pytest.raises(MissingPart):
        open_level("container", SandboxOptions("/", user=USER))


# The command


def doctor(*arguments: str, code: int = 0) -> str:
    variables = {"PATH", "HOME"} & {*os.environ}
    env = {name: os.environ[name] for name in variables} | {"INFLOOP_DATA_DIR": "/nonexistent"}
    done = forkserver.run(("doctor", *arguments), Path.cwd(), env, 120)
    assert (done.returncode, done.stderr) == (code, ""), done
    return done.stdout


def test_the_doctor_says_what_is_there_and_what_is_missing() -> None:
    need("sandbox")
    need("guard")
    said = doctor()
    assert "Linux" in said.splitlines()[0]
    assert "container no: level 'container' needs" in said
    assert "sandbox   holds" in said


def test_the_doctor_attacks_a_level_and_tells_other_programs() -> None:
    need("sandbox")
    told = json.loads(doctor("--attack", "--level", "sandbox", "--json"))
    assert told["levels"] == [{"level": "sandbox", "holds": True, "reason": ""}]
    (attack,) = told["attacks"]
    assert (attack["holds"], attack["error"]) == (True, "")
    reached = {each["attempt"] for each in attack["findings"] if each["reached"]}
    assert "read_secret" not in reached
    assert "use_workspace" in reached


def test_the_doctor_prints_what_an_agent_reaches_at_host() -> None:
    said = doctor("--attack", "--level", "host")
    assert "host: what an agent reaches" in said
    assert "open         It reads no file beyond" in said
    assert "kept         Nothing of it lives on" in said


def test_the_doctor_fails_for_a_level_that_is_not_there() -> None:
    assert "read-only root" in doctor("--level", "container", code=1)


async def test_nothing_is_done_as_root_where_the_canaries_user_could_put_links() -> None:
    if USER is None:
        ruled_out("only root gives its canaries away")
    done: list[tuple[str, str]] = []
    watching = True

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if watching and event in ("os.chown", "os.chmod", "socket.bind", "os.mkdir"):
            done.append((event, str(arguments[1 if event == "socket.bind" else 0])))

    sys.addaudithook(note)
    try:
        with place() as parent:
            async with canaries_in(str(parent), USER) as made:
                top = str(made.workspace.parent)
                below = [each for each in done if each[1].startswith(top)]
    finally:
        watching = False
    given = below.index(("os.chown", top))
    assert given == len(below) - 1
    assert ("os.chown", f"{top}/outside/agent.sock") in below
