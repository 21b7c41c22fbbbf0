"""No packet of a child with a closed network leaves the machine, however its sockets are set."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from support.confinement import need_bubblewrap, need_guard
from support.parts import need_program, ruled_out
from support.paths import CHILDREN

PATIENCE = 120.0


def packets_that_leave(level: str) -> list[str]:
    """Return where packets went that a hostile child made, in a network of its own."""
    done = subprocess.run(
        [sys.executable, str(CHILDREN / "packets_that_leave.py"), level],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


@pytest.fixture(autouse=True)
def _a_network_can_be_made() -> None:
    if os.geteuid() != 0:
        ruled_out("only root can make a network and record its packets")
    need_program("ip", "/usr/sbin:/usr/bin:/sbin:/bin")
    need_guard()
    need_bubblewrap()


@pytest.mark.parametrize("level", ["guard", "sandbox"])
def test_no_packet_leaves_a_closed_network(level: str) -> None:
    assert packets_that_leave(level) == []


def test_without_a_level_that_confines_such_packets_leave() -> None:
    """Otherwise the test above would show nothing."""
    left = packets_that_leave("host")
    assert "2001:db8:5::5" in left, "a routing header sends a packet elsewhere"
    assert "127.0.0.1" in left, "a packet for loopback goes out by another interface"
    assert "203.0.113.9" in left, "sending connects"
