"""The environment of hooks and processes: the same allowlist as for every other child."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.dev_loop import dev_loop
from support.eventually import eventually

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """
root = "."
startup_workflows = ["startup"]
{inherit}

[watch.startup]
paths = ["watched.txt"]

[process.server]
command = ["sh", "-c", "env > server.tmp; mv server.tmp server.env; exec sleep 600"]
autostart = false

[hook.look]
command = ["sh", "-c", "env > hook.env"]

[workflow.startup]
steps = [
  {{ action = "run_hook", hook = "look" }},
  {{ action = "start_process", process = "server" }},
]
"""


@pytest.mark.claim("I33")
@pytest.mark.parametrize("inherits", [False, True])
def test_hooks_and_processes_get_the_allowlist_unless_all_is_asked_for(
    tmp_path: Path, inherits: bool
) -> None:
    config = CONFIG.format(inherit="inherit_env = true" if inherits else "")
    with dev_loop(tmp_path, config, child_env_passthrough="HOM*,LANGUAGE") as loop:
        eventually((loop.root / "server.env").exists)
        for name in ("hook.env", "server.env"):
            seen = (loop.root / name).read_text()
            assert f"HOME={tmp_path / 'home'}" in seen
            assert ("do-not-inherit" in seen) is inherits
            assert ("INFLOOP_DATA_DIR" in seen) is False
        assert ("inherit_env = true: children get the whole environment" in loop.log) is inherits
