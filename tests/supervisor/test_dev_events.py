"""External events through a real loop: what is accepted, what is refused, what follows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from support.dev_loop import (
    TELLS_ITS_ENVIRONMENT,
    DevLoop,
    dev_loop,
    pids_with,
    post,
    send,
)
from support.eventually import eventually
from support.server import infloop

TELL = json.dumps(TELLS_ITS_ENVIRONMENT)
CONFIG = f"""
root = "."
startup_workflows = ["tell"]
[watch.none]
paths = ["nothing"]
workflow = "tell"
[process.all]
command = {TELL[:-1]}, "all"]
[process.some]
command = {TELL[:-1]}, "some"]
events = ["free"]
[process.none]
command = {TELL[:-1]}, "none"]
events = []
[process.restarted]
command = ["sh", "-c", "echo $$ >> $DEVLOOP_ROOT/restarted; exec sleep 600"]
[hook.told]
command = ["sh", "-c", "cat /proc/$$/cmdline /proc/$$/environ >> $DEVLOOP_ROOT/told; pwd >> cwds"]
[event.browser_path]
state_key = "current_path"
workflow = "follow"
pattern = "^/(|posts/[a-z0-9-]+)$"
[event.free]
state_key = "free_text"
workflow = "expand"
[workflow.tell]
steps = [{{ action = "log", message = "started" }}]
[workflow.follow]
steps = [
  {{ action = "run_hook", hook = "told" }},
  {{ action = "restart_process", process = "restarted" }},
  {{ action = "log", message = "followed {{{{current_path}}}}" }},
]
[workflow.expand]
steps = [
  {{ action = "write_state", key = "expanded", value = "<{{{{ free_text }}}}>" }},
  {{ action = "log", message = "expanded {{{{ expanded }}}}" }},
]
[workflow.secret]
steps = [{{ action = "log", message = "never" }}]
"""


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevLoop]:
    with dev_loop(tmp_path_factory.mktemp("events"), CONFIG) as running:
        yield running.ready()


@pytest.fixture(scope="module")
def child(loop: DevLoop) -> Mapping[str, str]:
    """The variables of a child that may send every event."""
    return loop.variables("all")


@pytest.mark.claim("D6", "D7", "D8", "D14", "D21", "D33")
def test_an_event_of_a_child_runs_its_workflow_once(
    loop: DevLoop, child: Mapping[str, str]
) -> None:
    before = loop.state
    eventually(lambda: (loop.root / "restarted").read_text().count("\n") == 1)
    url = child["DEVLOOP_EVENT_BROWSER_PATH_URL"]
    assert url == f"{child['DEVLOOP_EVENTS_BASE_URL']}/events/browser_path"
    headers = {"Authorization": f"Bearer {child['DEVLOOP_EVENTS_TOKEN']}"}
    headers["Content-Type"] = "application/json; charset=utf-8"
    for _ in range(2):
        assert send(url, b'{"value": "/posts/x"}', headers).status == 204
    loop.logged("followed /posts/x")
    eventually(lambda: (loop.root / "restarted").read_text().count("\n") == 2)
    assert loop.log.count("workflow follow starts: event 'browser_path'") == 1
    changed = {k for k, v in loop.state.items() if before.get(k) != v}
    assert changed == {"current_path", "last_workflow"}


@pytest.mark.claim("D34", "D37")
def test_an_idle_loop_starts_the_workflow_at_once(loop: DevLoop, child: Mapping[str, str]) -> None:
    delays = []
    for number in range(5):
        before = loop.log.count("workflow expand starts")
        sent = datetime.now(UTC)
        assert post(child, "free", f"quick {number}").status == 204
        log = loop.logged("workflow expand starts", times=before + 1)
        line = [each for each in log.splitlines() if "workflow expand starts" in each][-1]
        delays.append(datetime.fromisoformat(line.split()[3]) - sent)
    assert min(delays) < timedelta(milliseconds=250), "the best of five: others use this machine"


@pytest.mark.claim("D35", "D36")
def test_while_nothing_happens_nothing_is_printed_or_started(
    loop: DevLoop, child: Mapping[str, str]
) -> None:
    loop.logged("workflow expand starts")
    eventually(lambda: not workflow_runs(loop))
    before = loop.log, loop.out, below(loop.process.pid)
    time.sleep(1)
    assert (loop.log, loop.out, below(loop.process.pid)) == before


def workflow_runs(loop: DevLoop) -> bool:
    """Whether the last line of the log is of a workflow that runs."""
    return " starts: " in loop.log.splitlines()[-1]


def below(pid: int) -> set[str]:
    """All processes below one, each with its start time."""
    parents, names = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1])
        names[int(path.parent.name)] = f"{path.parent.name} {fields[19]}"
    found = {pid}
    while more := {each for each, parent in parents.items() if parent in found} - found:
        found |= more
    return {names[each] for each in found}


REFUSED = {
    "no object": (422, b'"x"', {}),
    "no value": (422, b"{}", {}),
    "a number": (422, b'{"value": 1}', {}),
    "a list": (422, b'{"value": ["/posts/x"]}', {}),
    "no JSON": (400, b"value=/posts/x", {}),
    "not closed": (400, b'{"value": "/posts/x"', {}),
    "no type": (415, b'{"value": "/"}', {"content-type": ""}),
    "a form": (415, b"{}", {"content-type": "application/x-www-form-urlencoded"}),
    "too large": (413, b'{"value": "' + b"x" * 65_536 + b'"}', {}),
    "another host": (403, b'{"value": "/"}', {"host": "evil.example"}),
    "another port": (403, b'{"value": "/"}', {"host": "127.0.0.1:1"}),
    "a web page": (403, b'{"value": "/"}', {"origin": "http://evil.example"}),
    "a page of this machine": (403, b'{"value": "/"}', {"origin": "http://localhost:3000"}),
    "a cross-site fetch": (403, b'{"value": "/"}', {"sec-fetch-site": "cross-site"}),
    "another value": (400, b'{"value": "/etc/passwd"}', {}),
    "a value before": (400, b'{"value": "x/posts/x"}', {}),
    "a line end": (400, b'{"value": "/posts/x\\n"}', {}),
    "a line before": (400, b'{"value": "x\\n/posts/x"}', {}),
    "a NUL": (400, b'{"value": "/posts/x\\u0000"}', {}),
}


@pytest.mark.claim("D5", "D17", "D19", "D29", "D39")
@pytest.mark.parametrize(("status", "body", "headers"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_changes_nothing(
    status: int, body: bytes, headers: dict[str, str], loop: DevLoop, child: Mapping[str, str]
) -> None:
    before, starts = loop.state, loop.log.count(" starts: ")
    sent = {
        "authorization": f"Bearer {child['DEVLOOP_EVENTS_TOKEN']}",
        "content-type": "application/json",
        **headers,
    }
    assert send(child["DEVLOOP_EVENT_BROWSER_PATH_URL"], body, sent).status == status
    assert loop.state == before
    assert loop.log.count(" starts: ") == starts


PLACES = [
    *("/", "/events", "/events/", "/events/free/x", "/events//free", "/events/missing"),
    *("/events/secret", "/workflows/secret", "/workflow/secret/run", "/state", "/state/root"),
    *("/processes", "/process/all/restart", "/run", "/exec", "/config", "/shutdown", "/reload"),
    *("/events/../state", "/events/%2e%2e/state", "/browser-events", "/healthz", "/api/runs"),
    *("/events/free?workflow=secret&state_key=root&command=id", "/Events/free", "/events/FREE"),
]


@pytest.mark.claim("D10", "D22", "D24", "D38", "D54", "D55", "D56")
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
def test_there_is_one_method_on_one_form_of_path(
    method: str, loop: DevLoop, child: Mapping[str, str]
) -> None:
    before, starts = loop.state, loop.log.count(" starts: ")
    headers = {
        "authorization": f"Bearer {child['DEVLOOP_EVENTS_TOKEN']}",
        "content-type": "application/json",
    }
    fields = {"workflow": "secret", "state_key": "root", "command": ["id"], "path": "/"}
    for place in PLACES:
        base = child["DEVLOOP_EVENTS_BASE_URL"]
        answer = send(base, json.dumps(fields).encode(), headers, method=method, path=place)
        known = place.startswith("/events/free?")
        expected = (422 if method == "POST" else 405) if known else 404
        assert answer.status == expected, (method, place)
        assert answer.body.strip() in (b"", b"the body must be an object whose `value` is a text")
    assert loop.state == before
    assert loop.log.count(" starts: ") == starts


WRONG = {
    "none": {},
    "empty": {"authorization": "Bearer "},
    "lower case": {"authorization": "bearer {}"},
    "basic": {"authorization": "Basic {}"},
    "alone": {"authorization": "{}"},
    "longer": {"authorization": "Bearer {}x"},
    "a space": {"authorization": "Bearer  {}"},
    "a cookie": {"cookie": "token={}"},
}


@pytest.mark.claim("D4", "D30")
@pytest.mark.parametrize("headers", WRONG.values(), ids=WRONG)
def test_without_the_token_nothing_is_revealed(
    headers: dict[str, str], loop: DevLoop, child: Mapping[str, str]
) -> None:
    base, token = child["DEVLOOP_EVENTS_BASE_URL"], child["DEVLOOP_EVENTS_TOKEN"]
    sent = {name: value.format(token) for name, value in headers.items()}
    answers = set()
    for place in ("/events/browser_path", "/events/missing", "/", "/state"):
        for method, body in (("POST", b'{"value": "/"}'), ("POST", b"{"), ("GET", b"")):
            more = {**sent, "host": "evil.example"} if body == b"{" else sent
            answer = send(base, body, more, method=method, path=place)
            named = tuple(sorted(k for k in answer.headers if k != "date"))
            answers.add((answer.status, answer.body, named))
    assert {status for status, _, _ in answers} == {401}
    assert len(answers) == 1


@pytest.mark.claim("D13", "D20", "D26", "D27")
def test_a_token_is_only_where_it_belongs_and_allows_only_its_events(
    loop: DevLoop, child: Mapping[str, str]
) -> None:
    some, none = loop.variables("some"), loop.variables("none")
    assert not [name for name in none if name.startswith("DEVLOOP_EVENT")]
    assert [name for name in some if name.endswith("_URL") and "EVENT_" in name] == [
        "DEVLOOP_EVENT_FREE_URL"
    ]
    assert post(some, "free", "of some").status == 204
    loop.logged("expanded <of some>")
    before = loop.state
    for name in ("browser_path", "missing"):
        assert post(some, name, "/").status == 401
    assert loop.state == before
    # Another process of the same user that knows the token can send: a documented limit.
    assert post(child, "free", "of another process").status == 204
    eventually(lambda: loop.state["free_text"] == "of another process")
    doctor = infloop(loop.folder, "doctor", "--level", "host").stdout
    assert f"the development loop in {str(loop.root)!r} takes events (" in doctor
    for token in (child["DEVLOOP_EVENTS_TOKEN"], some["DEVLOOP_EVENTS_TOKEN"]):
        assert len(token) >= 22
        assert token not in loop.log + loop.out + json.dumps(loop.state)
        assert pids_with(token) == []


HOSTILE = [
    *("$(touch pwned)", "`touch pwned`", "; touch pwned", "a\nb", "{{ root }}", "{{free_text}}"),
    *("nul \0 here", "\x1b[2J\x1b]0;title\x07", "'\"", "é漢\U0001f600", " padded "),
]


def expanded(loop: DevLoop, value: str) -> bool:
    return bool(loop.state.get("expanded") == f"<{value}>")


@pytest.mark.claim("D9", "D15", "D17", "D18")
def test_a_value_is_stored_as_it_was_sent_and_never_means_anything(
    loop: DevLoop, child: Mapping[str, str]
) -> None:
    for value in HOSTILE:
        body = {"value": value, "state_key": "root", "workflow": "secret", "command": ["id"]}
        headers = {
            "authorization": f"Bearer {child['DEVLOOP_EVENTS_TOKEN']}",
            "content-type": "application/json",
        }
        url = child["DEVLOOP_EVENT_FREE_URL"]
        assert send(url, json.dumps(body).encode(), headers).status == 204
        eventually(partial(expanded, loop, value))
        assert loop.state["free_text"] == value
    assert not list(loop.root.rglob("pwned"))
    assert "\x1b" not in loop.log
    assert post(child, "browser_path", "/posts/marker-in-value").status == 204
    loop.logged("followed /posts/marker-in-value")
    told = (loop.root / "told").read_bytes()
    assert told
    assert b"marker-in-value" not in told
    assert {*(loop.root / "cwds").read_text().split()} == {str(loop.root)}


@pytest.mark.claim("D11", "D12", "D25", "D43", "D44")
def test_a_listener_exists_only_for_declared_events_and_only_on_loopback(
    loop: DevLoop, child: Mapping[str, str], tmp_path: Path
) -> None:
    listening = listeners(loop.process.pid)
    port = int(child["DEVLOOP_EVENTS_BASE_URL"].rpartition(":")[2])
    assert listening == {("127.0.0.1", port)}
    assert loop.log.count("listening for external events at") == 1
    exposed = CONFIG.replace("[event.free]", '[event_server]\nbind = "0.0.0.0:0"\n[event.free]')
    (tmp_path / "devloop.toml").write_text(exposed)
    refused = infloop(tmp_path, "dev", code=1).stderr
    assert "event_server listens on 0.0.0.0, which other machines can reach" in refused
    observed = f"""
root = "."
[watch.none]
paths = ["nothing"]
workflow = "w"
[hook.h]
command = {TELL[:-1].replace("exec sleep 600", "echo same")}, "observed"]
capture = "text"
state_key = "k"
observe = {{ workflow = "w", interval_ms = 50 }}
[workflow.w]
steps = [{{ action = "log", message = "changed to {{{{k}}}}" }}]
"""
    with dev_loop(tmp_path / "observed", observed) as other:
        other.logged("changed to same")
        assert listeners(other.process.pid) == set()
        variables = other.variables("observed")
        assert not [name for name in variables if name.startswith("DEVLOOP_EVENT")]


def listeners(pid: int) -> set[tuple[str, int]]:
    """The TCP sockets on which a process listens."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            inodes.add(str(link.readlink()).removeprefix("socket:[").removesuffix("]"))
    found = set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in inodes:
            address, _, port = fields[1].partition(":")
            parts = reversed(bytes.fromhex(address))
            found.add((".".join(map(str, parts)), int(port, 16)))
    return found
