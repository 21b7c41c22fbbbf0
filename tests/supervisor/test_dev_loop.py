"""Development loops as a person runs them: real files, processes and signals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from itertools import pairwise
from pathlib import Path

import pytest

from support.dev_loop import TELLS_ITS_ENVIRONMENT, dev_loop, pids_with, post
from support.eventually import eventually, text_in
from support.parts import ruled_out
from support.processes import is_running
from support.server import infloop

SMOKE = """
root = "."
debounce_ms = 50
startup_workflows = ["startup"]
unknown_key = "is ignored"

[watch.content]
paths = ["watched.txt"]

[process.server]
command = ["python3", "-m", "http.server", "{port}", "--bind", "127.0.0.1"]
autostart = false
restart = "always"
env = {{ MARKER = "{marker}" }}

[process.server.readiness]
kind = "http"
url = "http://127.0.0.1:{port}/"
interval_ms = 50

[hook.read]
command = ["./scripts/read-watched.sh"]
capture = "text"
state_key = "current_value"

[workflow.startup]
steps = [
  {{ action = "start_process", process = "server" }},
  {{ action = "wait_for_process", process = "server" }},
  {{ action = "run_hook", hook = "read" }},
  {{ action = "log", message = "startup value: {{{{current_value}}}}" }},
]

[workflow.content]
steps = [
  {{ action = "run_hook", hook = "read" }},
  {{ action = "write_state", key = "current_url", value = "http://x/{{{{ current_value }}}}" }},
  {{ action = "log", message = "changed value: {{{{current_value}}}}", style = "boxed" }},
]
"""


def script(folder: Path, name: str, text: str) -> None:
    file = folder / "project" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.claim("D3")
def test_the_smoke_test_of_the_original_passes(tmp_path: Path) -> None:
    script(tmp_path, "scripts/read-watched.sh", 'cat "$DEVLOOP_ROOT/watched.txt"')
    watched = tmp_path / "project/watched.txt"
    watched.write_text("initial\n")
    config = SMOKE.format(port=free_port(), marker=tmp_path.name)
    with dev_loop(tmp_path, config, "run", "--config", "devloop.toml", ignore_int=True) as loop:
        loop.logged("startup value: initial")
        loop.ready()
        pid = pids_with("http.server")
        for number in range(4):  # each edit is noticed, and the same content is none
            watched.write_text(f"trial-{number}\n")
            loop.logged(f"|  changed value: trial-{number}  |")
        watched.write_text("trial-3\n")
        watched.touch()
        watched.write_text("updated\n")
        loop.logged("changed value: updated")
        assert loop.log.count("workflow content starts: watched.txt changed") == 5
        assert loop.state == {
            "current_url": "http://x/updated",
            "current_value": "updated",
            "last_changed_files": ["watched.txt"],
            "last_workflow": "content",
            "root": str(tmp_path / "project"),
        }
        assert "unknown key unknown_key is ignored" in loop.log
        assert re.search(r"^\[read-watched.sh read\] updated$", loop.out, re.MULTILINE)
        environ = Path(f"/proc/{pid[0]}/environ").read_bytes() if pid else b""
        assert b"MARKER=" in environ
        assert b"do-not-inherit" not in environ, "children get an allowlist of variables"
        assert loop.end(signal.SIGINT) == 0
    assert "received ctrl-c, shutting down" in loop.log
    assert not [each for each in pid if is_running(each)]


SUPERVISED = """
root = "."
startup_workflows = ["startup"]
[watch.none]
paths = ["restart-please"]
workflow = "again"
[process.stubborn]
command = ["./stubborn.sh"]
stop_grace_ms = 100
[process.careful]
command = ["sh", "-c", "trap 'sleep 0.3; touch saved; exit' TERM; while :; do sleep 0.05; done"]
stop_grace_ms = 30000
[process.crashing]
command = ["sh", "-c", "echo dead; exit 3"]
restart = "on_failure"
restart_delay_ms = 10
max_restarts = 6
[process.missing]
command = ["./no-such-program"]
restart = "always"
restart_delay_ms = 60000
[process.done]
command = ["true"]
restart = "on_failure"
[process.flood]
command = ["sh", "-c", "yes flood-line | head -c 3000000; echo; echo flooded; exec sleep 77603"]
output = { inherit = false, rules = [{ state_key = "flooded", pattern = "^(flooded)$" }] }
readiness = { kind = "state_key", key = "flooded" }
[process.base]
command = ["sh", "-c", "echo $$ > base.pid; sleep 0.1; echo base is up; exec sleep 77604"]
readiness = { kind = "log_line", pattern = "is up$", interval_ms = 20 }
[process.dependent]
command = ["sh", "-c", "test -s base.pid && echo depends > depended; exec sleep 77605"]
depends_on = ["base"]
liveness = { kind = "exec", command = ["test", "!", "-e", "kill-dependent"], interval_ms = 50 }
restart = "always"
restart_delay_ms = 10
[workflow.startup]
steps = [
  { action = "wait_for_process", process = "flood" },
  { action = "log", message = "startup done" },
]
[workflow.again]
steps = [{ action = "restart_process", process = "stubborn" }]
"""


def test_processes_are_kept_and_nothing_of_them_is_left(tmp_path: Path) -> None:
    inner_script = "trap '' TERM; echo \\$\\$ > inner; exec sleep 77601"
    script(tmp_path, "stubborn.sh", f"trap '' TERM\nsh -c \"{inner_script}\" & sleep 77602")
    with dev_loop(tmp_path, SUPERVISED) as loop:
        loop.ready()
        inner = int(text_in(loop.root / "inner"))
        loop.logged("process crashing is in a crash loop: 5 restarts in a row")
        loop.logged("process crashing exited with exit status: 3", times=7)
        assert "failed to start process 'missing': " in loop.log
        assert loop.out.count("[sh crashing] dead\n") == 7
        loop.logged("process base is ready via log line is up$")
        text_in(loop.root / "depended")
        assert "flood-line" not in loop.out
        assert "base is up\n" in infloop(tmp_path, "dev", "logs", "base").stdout
        (loop.root / "kill-dependent").touch()
        loop.logged("process dependent failed its liveness command test")
        loop.logged("started process dependent", times=2)
        (loop.root / "restart-please").write_text("now")
        loop.logged("started process stubborn", times=2)
        assert not is_running(inner), "what ignores TERM is killed with what it started"
        eventually(lambda: (loop.root / "inner").read_text() not in ("", f"{inner}\n"))
        children = pids_with("sleep\0" + "7760")
        assert children
        files = [*(tmp_path / "data/dev").rglob("*")]
        assert any(path.name == "status.json" for path in files)
        assert [path for path in files if path.stat().st_mode & 0o077] == []
        assert loop.end(signal.SIGTERM) == 0
    assert [pid for pid in children if is_running(pid)] == []
    assert "process done exited with exit status: 0" in loop.log
    assert (loop.root / "saved").exists(), "it had the time that it was given"


def test_a_loop_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    config = """
root = "."
[watch.none]
paths = ["x"]
workflow = "w"
[process.p]
command = ["sh", "-c", "echo $$ > pid; exec sleep 77607"]
[workflow.w]
steps = [{ action = "notify_reload" }]
"""
    with dev_loop(tmp_path, config) as loop:
        loop.ready()
        pid = int(text_in(loop.root / "pid"))
        keeper = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        # Both at once: only a record of the child is left.
        os.kill(keeper, signal.SIGSTOP)
        loop.process.kill()
        loop.process.wait()
        os.kill(keeper, signal.SIGKILL)
        assert is_running(pid)
    with dev_loop(tmp_path, config) as after:
        after.ready()
        assert "ended 1 processes of p that a crash left running" in after.log
        assert not is_running(pid)


WRITES = """
root = "."
debounce_ms = 20
[watch.fmt]
paths = ["src/*.py"]
[watch.test]
paths = ["src/*.out"]
[hook.fmt]
command = ["./fmt.sh"]
[hook.test]
command = ["./test.sh"]
[workflow.fmt]
steps = [{ action = "run_hook", hook = "fmt" }, { action = "log", message = "fmt done" }]
[workflow.test]
steps = [{ action = "run_hook", hook = "test" }, { action = "log", message = "test done" }]
"""


def test_a_workflow_does_not_start_itself_and_a_person_does(tmp_path: Path) -> None:
    script(
        tmp_path,
        "fmt.sh",
        'for f in src/*.py; do tr -d " " < $f > $f.tmp; mv $f.tmp $f; done\n'
        "[ -e once ] || date +%N > src/a.out\n"
        "[ -e hold ] && sleep 0.2 && echo quiet\n"
        "while [ -e hold ]; do sleep 0.02; done\n"
        "while [ -e busy ]; do echo x >> ../elsewhere; sleep 0.005; done",
    )
    script(tmp_path, "test.sh", "touch once; echo >> src/a.py")
    (tmp_path / "project/src").mkdir()
    source = tmp_path / "project/src/a.py"
    source.write_text("x\n")
    with dev_loop(tmp_path, WRITES) as loop:
        loop.ready()
        source.write_text("x = 1\n")
        loop.logged("test done")
        loop.logged(
            "stopped a cycle: `fmt` wrote `src/a.out`, which triggers `test`, which writes "
            "`src/a.py`"
        )
        assert loop.log.count("fmt done") == 1
        # A person's edit while a hook runs and writes nothing counts.
        hold, busy, elsewhere = loop.root / "hold", loop.root / "busy", tmp_path / "elsewhere"
        hold.touch()
        source.write_text("y = 2\n")
        eventually(lambda: loop.out.count("quiet") == 1)
        source.write_text("edited = 1\n")
        a_moment_after(source)
        hold.unlink()
        loop.logged("workflow fmt starts: src/a.py changed", times=3)
        eventually(lambda: source.read_text() == "edited=1\n")
        loop.logged("fmt done", times=3)
        # So does one while the hook writes less than that, all the time and elsewhere.
        a_moment_after(source)
        busy.touch()
        source.write_text("z = 3\n")
        text_in(elsewhere)
        a_moment_after(source)
        source.write_text("long = 1\n" * 500)
        a_moment_after(source)
        busy.unlink()
        loop.logged("fmt done", times=5)
        assert source.read_text() == "long=1\n" * 500
        a_moment_after(source)
        source.write_text("last = 1\n")
        loop.logged("fmt done", times=6)
        assert loop.log.count("workflow fmt starts: ") == 6, "and nothing runs without a reason"


def a_moment_after(file: Path) -> None:
    """Do what a person does who saved a file, or sees that it was written: nothing, for a while."""
    saved = file.stat().st_mtime
    eventually(lambda: time.time() > saved + 0.3)


WITHOUT_INOTIFY = (
    *("unshare", "-Ur", "sh", "-c"),
    'echo 0 > /proc/sys/user/max_inotify_instances && exec "$0" "$@"',
)


def test_where_the_kernel_cannot_watch_files_are_polled(tmp_path: Path) -> None:
    if subprocess.run([*WITHOUT_INOTIFY, "true"], capture_output=True, check=False).returncode:
        ruled_out("no user namespace can be made")
    script(tmp_path, "fmt.sh", "tr -d ' ' < src/a.py > a.tmp; mv a.tmp src/a.py")
    source = tmp_path / "project/src/a.py"
    source.parent.mkdir()
    source.write_text("x\n")
    with dev_loop(tmp_path, WRITES, within=WITHOUT_INOTIFY) as loop:
        loop.ready()
        assert "Too many open files; polling every 250 ms instead" in loop.log
        source.write_text("x = 1\n")
        loop.logged("fmt done")
        source.write_text("y = 1\n")
        loop.logged("fmt done", times=2)
        assert source.read_text() == "y=1\n"
        assert loop.log.count("workflow fmt starts") == 2, "its own writes started nothing"


OBSERVED = """
root = "."
[watch.none]
paths = ["nothing"]
workflow = "seen"
[hook.loud]
command = ["sh", "-c", "date +%s%N >> polls; cat value"]
capture = "text"
state_key = "seen"
observe = { workflow = "seen", interval_ms = 200 }
[hook.silent]
command = ["sh", "-c", "echo silent; exit 4"]
output = { inherit = false }
observe = { workflow = "seen", interval_ms = 100 }
[process.tell]
command = {TELL}
[event.pushed]
state_key = "pushed"
workflow = "seen"
[workflow.seen]
steps = [{ action = "log", message = "seen {{seen}}" }]
"""


@pytest.mark.claim("D32", "D41", "D42", "D45", "D46", "D47")
def test_an_observed_hook_runs_its_workflow_when_it_changed_the_state(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    value = tmp_path / "project/value"
    value.write_text("one\n")
    command = json.dumps([*TELLS_ITS_ENVIRONMENT, "tell"])
    with dev_loop(tmp_path, OBSERVED.replace("{TELL}", command)) as loop:
        loop.logged("seen one")
        polls = loop.root / "polls"
        eventually(lambda: polls.read_text().count("\n") >= 3)
        value.write_text("two\n")
        loop.logged("seen two")
        count = polls.read_text().count("\n")
        eventually(lambda: polls.read_text().count("\n") >= count + 3)
        assert loop.log.count("workflow seen starts: hook 'loud' changed the state") == 2
        times = [int(line) / 1e9 for line in polls.read_text().split()]
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert len(gaps) <= (times[-1] - times[0]) / 0.2 + 2, "once an interval"
        assert min(gaps) < 0.2 + 1, "an interval and a tick; the best, others use this machine"
        assert post(loop.variables("tell"), "pushed", "now").status == 204
        loop.logged("workflow seen starts: event 'pushed'")
        assert loop.log.count("observed hook failed: hook 'silent' failed with status") == 1
        assert "[sh loud] two" in loop.out
        assert "silent\n" not in loop.out
        assert loop.process.poll() is None


def test_a_session_is_kept_and_a_hook_may_fail(tmp_path: Path) -> None:
    config = """
root = "."
startup_workflows = ["bad", "slow", "json"]
[watch.none]
paths = ["x"]
workflow = "json"
[hook.bad]
command = ["false"]
[hook.slow]
command = ["sleep", "60"]
timeout_ms = 50
[hook.json]
command = ["echo", '{"a": {"b": 1}, "root": "/evil"}']
capture = "json"
[workflow.bad]
steps = [{ action = "run_hook", hook = "bad" }, { action = "log", message = "not reached" }]
[workflow.slow]
steps = [{ action = "run_hook", hook = "slow" }]
[workflow.json]
steps = [{ action = "run_hook", hook = "json" }]
"""
    state = tmp_path / "project/.devloop/state.json"
    state.parent.mkdir(parents=True)
    state.write_text('{"kept": "from before"}')
    with dev_loop(tmp_path, config) as loop:
        loop.ready()
        assert loop.state["kept"] == "from before"
        assert loop.state["a"] == {"b": 1}
        assert loop.state["root"] == str(loop.root)
        for text in (
            "workflow=bad error=hook 'bad' failed with status exit status: 1",
            "workflow=slow error=hook 'slow' was ended after 50 ms",
            "hook 'json' cannot set the reserved state key 'root'",
        ):
            assert text in loop.log
        assert "not reached" not in loop.log
