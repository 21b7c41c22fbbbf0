"""Every port that infloop opens is known here, so that a new one is announced or has a token."""

from __future__ import annotations

import re
from pathlib import Path

import infloop

SOURCE = Path(infloop.__file__).parent
OPENS_A_LISTENER = re.compile(r"create_server\(|start_server\(|\.bind\(|start_unix_server\(")

LISTENERS = {
    "web/http_server.py": "announces its ports",
    "lowlevel/own_ports.py": "the announcements themselves",
    "egress/loopback_listener.py": "a child's proxy, which wants its token",
    "sandbox/levels/guard.py": "a child's proxy, which wants its token",
    "sandbox/levels/service_relay.py": "in the child's own network",
    "sandbox/keepers/bubblewrap_child.py": "in the child's own network",
    "sandbox/self_check/canaries.py": "made to be attacked",
}


def test_every_module_that_listens_is_listed_with_its_reason() -> None:
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if OPENS_A_LISTENER.search(path.read_text(encoding="utf-8"))
    }
    assert found == set(LISTENERS)
