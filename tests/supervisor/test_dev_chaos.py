"""Everything at once: processes that die, hang, fork away and flood; hooks that fail; events."""

from __future__ import annotations

import json
import random
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.dev_loop import TELLS_ITS_ENVIRONMENT, dev_loop, pids_with, post
from support.thorough import amount

TELL = json.dumps(TELLS_ITS_ENVIRONMENT)[:-1]
EVENTS = amount(300, thorough=1_000)
CONFIG = f"""
root = "."
[event_server]
rate_limit = 0
[watch.files]
paths = ["*.txt"]
workflow = "hooks"
[process.tell]
command = {TELL}, "tell"]
[process.dies]
command = ["sh", "-c", "sleep 0.0$(($$ % 9)); exit 1"]
restart = "always"
restart_delay_ms = 1
max_restart_delay_ms = 20
[process.ignores]
command = ["sh", "-c", "trap '' TERM INT HUP; while :; do sleep 77621; done"]
stop_grace_ms = 50
[process.forks]
command = ["sh", "-c", "(setsid sleep 77622 &) ; setsid sh -c 'sleep 77623' & exec sleep 77624"]
restart = "always"
[process.floods]
command = ["sh", "-c", "while :; do head -c 100000 /dev/zero | tr '\\\\0' x; sleep 0.05; done"]
output = {{ inherit = false }}
[hook.fails]
command = ["false"]
[hook.works]
command = ["sh", "-c", "echo run >> runs"]
[event.cheap]
state_key = "c"
workflow = "cheap"
[event.works]
state_key = "w"
workflow = "hooks"
[event.restarts]
state_key = "r"
workflow = "restart"
[workflow.hooks]
steps = [{{ action = "run_hook", hook = "works" }}, {{ action = "run_hook", hook = "fails" }}]
[workflow.cheap]
steps = [{{ action = "write_state", key = "copy", value = "{{{{ c }}}}" }}]
[workflow.restart]
steps = [{{ action = "restart_process", process = "forks" }}]
"""


@pytest.mark.thorough
@pytest.mark.claim("D7")
def test_no_event_is_lost_and_no_process_is_left(tmp_path: Path) -> None:
    chance = random.Random(15)
    with dev_loop(tmp_path, CONFIG) as loop:
        loop.ready()
        child = loop.variables("tell")
        kinds = ["cheap"] * (EVENTS - 50) + ["works"] * 40 + ["restarts"] * 10
        chance.shuffle(kinds)

        def one(number: int) -> tuple[str, int]:
            kind = kinds[number]
            status = post(child, kind, f"value {number}").status
            assert json.loads((loop.root / ".devloop/state.json").read_bytes())
            return kind, status

        with ThreadPoolExecutor(4) as senders:
            answers = list(senders.map(one, range(EVENTS)))
        assert {status for _, status in answers} <= {204, 503}
        accepted = sum(1 for _, status in answers if status == 204)
        assert accepted > EVENTS / 2
        loop.logged(" starts: event '", times=accepted)
        loop.logged("error=hook 'fails' failed", times=answers.count(("works", 204)))
        assert loop.log.count(" starts: event '") == accepted
        assert (loop.root / "runs").read_text().count("run") == answers.count(("works", 204))
        assert re.search("process dies is in a crash loop", loop.log)
        before = pids_with("sleep\0" + "7762")
        assert before
        assert loop.end(signal.SIGTERM) == 0
    assert pids_with("sleep\0" + "7762") == []
