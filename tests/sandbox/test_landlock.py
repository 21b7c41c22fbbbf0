"""Landlock rulesets, put on by real processes; and what older kernels lack."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from infloop.sandbox.keepers.guard_child import (
    _LANDLOCK_RESTRICT_SELF,
    _no_new_privileges,
    _system_call,
)
from infloop.sandbox.kernel import landlock
from infloop.sandbox.view.system_paths import PROGRAMS
from support.canaries import UNPRIVILEGED, USER, directory_for_children, outside, place
from support.parts import missing, ruled_out

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def _this_machine_has_landlock() -> None:
    if piece := landlock.missing(landlock.version()):
        missing(f"these tests need {piece}")


restricted = pytest.mark.usefixtures("_this_machine_has_landlock")


def behind(ruleset: int, deed: Callable[[], object]) -> bool:
    """Return whether a process of the children's user, behind the ruleset, could do it."""
    pid = os.fork()
    if pid == 0:
        try:
            if USER:
                os.setgroups([])
                os.setresgid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED)
                os.setresuid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED)
            _no_new_privileges()
            _system_call("Landlock", _LANDLOCK_RESTRICT_SELF, ruleset, 0)
            deed()
        except OSError:
            os._exit(1)
        except BaseException:
            os._exit(2)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, 1)
    return code == 0


@pytest.mark.parametrize(
    ("offered", "lacking"),
    [(0, "disabled"), (1, "version 3"), (2, "version 3"), (3, ""), (4, ""), (7, ""), (99, "")],
)
def test_a_kernel_that_cannot_keep_files_apart_lacks_something_with_a_name(
    offered: int, lacking: str
) -> None:
    said = landlock.missing(offered)
    assert bool(said) == bool(lacking)
    assert lacking in said


@pytest.mark.parametrize(("offered", "open_ends"), [(3, 1), (5, 1), (6, 0), (7, 0), (99, 0)])
def test_what_an_older_kernel_leaves_open_is_said(offered: int, open_ends: int) -> None:
    assert len(landlock.not_covered(offered)) == open_ends


@restricted
def test_files_are_reached_as_far_as_the_lists_go() -> None:
    with place() as parent:
        paths = {name: directory_for_children(parent, name) for name in ("read", "write", "other")}
        for directory in paths.values():
            (directory / "file").write_text("x")
            (directory / "file").chmod(0o666)
        single = paths["other"] / "single"
        single.write_text("x")
        read, write, other = paths["read"], paths["write"], paths["other"]
        ruleset = landlock.ruleset(
            [str(read), str(single)], [str(write), os.devnull], network_open=True
        )
        try:
            allowed = {
                "read a listed file": lambda: (read / "file").read_text(),
                "list a listed directory": lambda: list(read.iterdir()),
                "read what may be written": lambda: (write / "file").read_text(),
                "write": lambda: (write / "new").write_text("x"),
                "truncate": lambda: os.truncate(write / "file", 0),
                "make a directory": (write / "d").mkdir,
                "move into it": lambda: (write / "new").rename(write / "d" / "new"),
                "make a pipe with a name": lambda: os.mkfifo(write / "pipe"),
                "read a single file": single.read_text,
                "write to a device": lambda: os.open(os.devnull, os.O_WRONLY),
                "see that a file is there": (other / "file").stat,
            }
            denied = {
                "write to what is to be read": lambda: (read / "file").write_text("y"),
                "truncate what is to be read": lambda: os.truncate(read / "file", 0),
                "make a file there": lambda: (read / "new").touch(),
                "read elsewhere": lambda: (other / "file").read_text(),
                "list elsewhere": lambda: list(other.iterdir()),
                "write elsewhere": lambda: (other / "file").write_text("y"),
                "link in from elsewhere": lambda: os.link(other / "file", write / "linked"),
                "move in from elsewhere": lambda: (other / "file").rename(write / "moved"),
                "write to a single file": lambda: single.write_text("y"),
                "read another device": lambda: os.open("/dev/zero", os.O_RDONLY),
                "list the root": lambda: os.listdir("/"),  # noqa: PTH208  (shorter)
            }
            assert [name for name, deed in allowed.items() if not behind(ruleset, deed)] == []
            assert [name for name, deed in denied.items() if behind(ruleset, deed)] == []
        finally:
            os.close(ruleset)
        assert (read / "file").read_text() == (other / "file").read_text() == "x"


@restricted
def test_a_program_runs_only_from_where_it_may_be_read() -> None:
    def run_true() -> None:
        subprocess.run(["/bin/true"], check=True)

    programs = [os.path.realpath(path) for path in PROGRAMS]
    with_programs = landlock.ruleset(programs, [os.devnull], network_open=True)
    without = landlock.ruleset([], [os.devnull], network_open=True)
    assert (behind(with_programs, run_true), behind(without, run_true)) == (True, False)
    os.close(with_programs)
    os.close(without)


@restricted
def test_a_link_cannot_lead_a_rule_elsewhere() -> None:
    with place() as parent:
        (parent / "link").symlink_to("/etc")
        for path in (parent / "link", parent / "link" / "ssl"):
            with pytest.raises(OSError, match="behind one"):
                landlock.ruleset([str(path)], [], network_open=True)


@restricted
@pytest.mark.parametrize("network_open", [True, False])
def test_tcp_is_left_alone_only_where_the_network_is_open(network_open: bool) -> None:
    if landlock.version() < 4:
        ruled_out("this kernel's Landlock leaves TCP to the filter of system calls")
    ruleset = landlock.ruleset([], [], network_open=network_open)
    with socket.create_server(("127.0.0.1", 0)) as server:
        deeds: list[Callable[[], object]] = [
            lambda: socket.socket().bind(("127.0.0.1", 0)),
            lambda: socket.socket().connect(server.getsockname()),
        ]
        assert [behind(ruleset, deed) for deed in deeds] == [network_open] * 2
    os.close(ruleset)


@restricted
def test_signals_and_abstract_sockets_stay_inside() -> None:
    if landlock.not_covered(landlock.version()):
        ruled_out("this kernel's Landlock does not cover them")
    ruleset = landlock.ruleset([], [], network_open=True)
    with place() as parent, outside(parent) as world:
        abstract = world.variables["ABSTRACT"].replace("@", "\0")

        def signal_own_child() -> None:
            child = os.fork()
            if child == 0:
                signal.pause()
            os.kill(child, signal.SIGKILL)

        assert not behind(ruleset, lambda: os.kill(world.victim.pid, signal.SIGTERM))
        assert not behind(ruleset, lambda: socket.socket(socket.AF_UNIX).connect(abstract))
        assert behind(ruleset, signal_own_child)
        assert world.victim.poll() is None
    os.close(ruleset)
