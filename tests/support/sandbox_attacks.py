"""The table of attacks on a sandbox, and the child that tries one of them."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from infloop.sandbox.access import Access
from infloop.sandbox.base import ChildRequest
from support.canaries import PYTHON, numbers
from support.parts import ruled_out
from support.paths import ATTACK_TABLES
from support.thorough import FACTOR, some

if TYPE_CHECKING:
    from collections.abc import Mapping

TABLE = tomllib.loads((ATTACK_TABLES / "sandbox.toml").read_text())
ATTACKS = [
    pytest.param(attack, id=f"{attack.get('case', 'own')}: {attack['name']}")
    for attack in TABLE["attack"]
]

_HARMLESS_ALONE = {
    "opens a message queue",
    "waits for someone to connect from outside",
    "waits for a connection on a port that it did not choose",
}
"""What is nobody's loss in namespaces that nobody else is in."""

_HARMFUL_ALONE = [
    tried
    for tried, attack in zip(ATTACKS, TABLE["attack"], strict=True)
    if attack["name"] not in _HARMLESS_ALONE
]
# In `make test` each attack is tried at one of the levels, in `make test-thorough` at both.
IN_NAMESPACES = some(_HARMFUL_ALONE, one_in=2)
"""The attacks that are tried at level `sandbox`."""
WITHOUT_NAMESPACES = [each for each in ATTACKS if FACTOR or each not in IN_NAMESPACES]
"""The attacks that are tried at level `guard`."""


async def nobody_answers(listeners: Mapping[int, socket.socket]) -> None:
    for listener in listeners.values():
        listener.close()


def attack_request(attack: dict[str, Any], world: Any) -> ChildRequest:
    """The attack as a child whose only peer is a proxy, at a port that others have too."""
    env = {**world.environment(), "NUMBERS": json.dumps(numbers())}
    if attack.get("needs") == "root":
        if os.geteuid() != 0:
            ruled_out("only root can make a program that makes root")
        env["SETUID_ID"] = str(shutil.copy("/usr/bin/id", world.workspace / "id"))
        (world.workspace / "id").chmod(0o4755)
    if attack.get("needs") in ("TCP6", "LAN") and attack["needs"] not in env:
        ruled_out(f"this machine has no address for {attack['needs']}")
    return ChildRequest(
        argv=(PYTHON, "-c", TABLE["prelude"] + attack["code"]),
        cwd=str(world.workspace),
        env=env,
        timeout_ms=20_000,
        access=Access(
            write=(str(world.workspace),),
            network="proxy",
            proxy_port=int(env["OTHER_LOOPBACK"]),
            on_listening=nobody_answers,
        ),
    )
