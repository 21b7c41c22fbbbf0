"""Who gets in: what the server makes of hostile Hosts, Origins, types, sizes, paths and tokens."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from infloop.errors import SettingsError
from infloop.web.exposure import (
    Exposure,
    RequestOrigin,
    decide_exposure,
    refuse_host,
    refuse_origin,
)
from support.server import TOKEN, Client, process, put_workflow, raw, workflow


@pytest.fixture(scope="module")
def open_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server as it is without any setting."""
    folder = tmp_path_factory.mktemp("open")
    put_workflow(folder / "data", workflow("tiny", "true"))
    with process(folder) as served:
        yield served.client


@pytest.fixture(scope="module")
def closed_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server with a token."""
    folder = tmp_path_factory.mktemp("closed")
    put_workflow(folder / "data", workflow("tiny", "true"))
    with process(folder, api_token=TOKEN, allowed_hosts="loops.example.com") as served:
        yield served.client


# -- names ----------------------------------------------------------------------------------------

STRANGE_HOSTS = (
    "evil.example",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "evil.example:3000",
    "169.254.169.254",
    "192.168.1.7",
    "0.0.0.0",
    "localhost@evil.example",
    "localhost:3000:4000",
    "localhost/evil",
    "localhost%00",
    "[::1",
    "2130706433",
    "0x7f.1",
    "",
    "loops.example.com",
)


@pytest.mark.parametrize("host", STRANGE_HOSTS)
def test_a_request_that_names_another_server_is_refused(open_client: Client, host: str) -> None:
    for path in ("/", "/api/workflows", "/api/events", "/healthz", "/nowhere", "/api/webhook/x"):
        answer = open_client.get(path, host=host)
        assert (answer.status, answer.json()["error"]) == (403, "forbidden"), path


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "LOCALHOST", "127.8.9.1"])
def test_a_loopback_name_with_the_servers_port_or_none_means_this_server(
    open_client: Client, host: str
) -> None:
    assert open_client.get("/api/workflows", host=host).status == 200
    own = f"{host}:{open_client.port}"
    assert open_client.get("/api/workflows", host=own).status == 200
    for port in (1, 80, open_client.port - 1, open_client.port + 1, 65_535):
        answer = open_client.get("/api/workflows", host=f"{host}:{port}")
        assert (answer.status, answer.json()["error"]) == (403, "forbidden")
        assert "INFLOOP_ALLOWED_HOSTS" in answer.json()["message"]


def test_a_name_that_the_operator_listed_means_this_server(closed_client: Client) -> None:
    assert closed_client.get("/api/workflows", host="loops.example.com").status == 200
    assert closed_client.get("/api/workflows", host="LOOPS.example.com:443").status == 200
    assert closed_client.get("/api/workflows", host="x.loops.example.com").status == 403


def test_a_listed_name_with_a_port_means_that_port_alone() -> None:
    exposure = decide_exposure("127.0.0.1", "", ["localhost:8080", "[fd00::7]:81", "[fd00::8]"])

    def refused(host: str) -> bool:
        asked = RequestOrigin("GET", "/", [host], [], {}, ("127.0.0.1", 3000))
        return bool(refuse_host(asked, exposure))

    for named in ("localhost:8080", "localhost:3000", "localhost", "[fd00::7]:81", "[fd00::8]:5"):
        assert not refused(named), named
    for other in ("localhost:8081", "127.0.0.1:8080", "[fd00::7]:82", "[fd00::7]", "[fd00::9]:81"):
        assert refused(other), other


@pytest.mark.parametrize(
    "head",
    [
        b"GET /api/workflows HTTP/1.1\r\n",
        b"GET /api/workflows HTTP/1.0\r\n",
        b"GET /api/workflows HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n",
        b"GET /api/workflows HTTP/1.1\r\nHost: evil.example\r\nHost: localhost\r\n",
    ],
)
def test_exactly_one_host_header_is_needed(open_client: Client, head: bytes) -> None:
    got = raw(open_client.port, head + b"Connection: close\r\n\r\n")
    assert got.split(b" ")[1] in (b"400", b"403"), got


def test_the_address_that_a_request_arrived_at_is_a_name_of_the_server() -> None:
    def asked(host: str, arrived_at: str) -> RequestOrigin:
        return RequestOrigin("GET", "/", [host], [], {}, (arrived_at, 3000))

    assert not refuse_host(asked("192.168.1.7:3000", "192.168.1.7"), Exposure("0.0.0.0"))
    # A container may publish the port under another number.
    assert not refuse_host(asked("192.168.1.7:3001", "192.168.1.7"), Exposure("0.0.0.0"))
    assert not refuse_host(asked("localhost:3001", "192.168.1.7"), Exposure("0.0.0.0"))
    assert refuse_host(asked("localhost:3001", "127.0.0.1"), Exposure("127.0.0.1"))
    assert not refuse_host(asked("[fd00::7]:3000", "fd00::7"), Exposure("::"))
    assert refuse_host(asked("192.168.1.8:3000", "192.168.1.7"), Exposure("0.0.0.0"))


# -- web pages ------------------------------------------------------------------------------------

FOREIGN = (
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": ""},
    {"origin": "http://127.0.0.1"},
    {"origin": "http://127.0.0.1:1"},
    {"origin": "http://localhost:{port}"},
    {"origin": "http://127.0.0.1:{port}.evil.example"},
    {"origin": "http://evil@127.0.0.1:{port}"},
    {"origin": "file://"},
    {"origin": "chrome-extension://abcdef"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "SAME-ORIGIN "},
    {"sec-fetch-site": "cross-site", "origin": "http://127.0.0.1:{port}"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/workflows"),
        ("GET", "/api/events"),
        ("POST", "/api/run"),
        ("POST", "/api/run/stop"),
        ("DELETE", "/api/workflows/tiny"),
        ("POST", "/login"),
        ("POST", "/logout"),
        ("OPTIONS", "/api/run"),
        ("GET", "/metrics"),
    ],
)
def test_a_web_page_of_another_origin_gets_nothing(
    open_client: Client, method: str, path: str
) -> None:
    for headers in FOREIGN:
        sent = {name: value.format(port=open_client.port) for name, value in headers.items()}
        answer = open_client.ask(method, path, headers=sent)
        assert (answer.status, answer.json()["error"]) == (403, "forbidden"), sent
        assert "access-control-allow-origin" not in answer.headers, sent


def test_the_servers_own_pages_may_ask(open_client: Client) -> None:
    own = {"origin": f"http://127.0.0.1:{open_client.port}", "sec-fetch-site": "same-origin"}
    assert open_client.ask("GET", "/api/workflows", headers=own).status == 200
    assert open_client.ask("POST", "/api/run", {"workflowId": "tiny"}, headers=own).status == 202


def test_a_link_from_elsewhere_leads_to_a_page_and_to_no_route_of_the_api(
    open_client: Client,
) -> None:
    followed = {
        "sec-fetch-site": "cross-site",
        "sec-fetch-mode": "navigate",
        "sec-fetch-dest": "document",
    }
    assert open_client.ask("GET", "/", headers=followed).status == 200
    assert open_client.ask("GET", "/api/workflows", headers=followed).status == 403
    assert open_client.ask("POST", "/", headers=followed).status == 403


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonp",
        "text/plain; application/json",
        "",
    ],
)
def test_a_body_that_a_form_could_send_is_refused(open_client: Client, kind: str) -> None:
    body = json.dumps({"workflowId": "tiny"}).encode()
    answer = open_client.ask("POST", "/api/run", body=body, headers={"content-type": kind})
    assert (answer.status, answer.json()["error"]) == (415, "unsupported-media-type")


def test_a_webhooks_sender_may_have_any_origin(open_client: Client) -> None:
    answer = open_client.ask(
        "POST",
        "/api/webhook/aaaaaaaaaaaaaaaaaaaaaa",
        body=b"{}",
        headers={"origin": "https://sender.example", "sec-fetch-site": "cross-site"},
    )
    assert answer.status == 401


# -- bodies, paths, methods -----------------------------------------------------------------------


def test_a_body_that_is_announced_as_too_large_is_not_read(open_client: Client) -> None:
    head = (
        f"POST /api/run HTTP/1.1\r\nHost: localhost:{open_client.port}\r\n"
        "Content-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n"
    )
    got = raw(open_client.port, head.encode())
    assert got.startswith(b"HTTP/1.1 413")
    assert b'"too-large"' in got


def test_a_body_that_becomes_too_large_is_cut_off(open_client: Client) -> None:
    head = (
        f"POST /api/webhook/aaaaaaaaaaaaaaaaaaaaaa HTTP/1.1\r\nHost: localhost:{open_client.port}"
        "\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    got = raw(open_client.port, head.encode() + chunk * 17 + b"0\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 413"), got[:200]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"workflowId": NaN}',
        b'{"workflowId": "tiny", "workflowId": "tiny"}',
        b'{"workflowId": "\\ud800"}',
        b'{"workflowId": "a\\u0000b"}',
        b'{"workflowId": 1}',
        b'{"workflowId": "tiny", "more": 1}',
        b'{"workflowId": "tiny", "inputs": []}',
        b'{"inputs": {}}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"workflowId": ' + b"9" * 5_000 + b"}",
    ],
    ids=lambda body: repr(body[:40]),
)
def test_a_body_that_cannot_be_read_is_answered_400(open_client: Client, body: bytes) -> None:
    answer = open_client.ask(
        "POST", "/api/run", body=body, headers={"content-type": "application/json"}
    )
    assert (answer.status, answer.json()["error"]) == (400, "invalid-request")


ESCAPES = (
    "..",
    "../tiny",
    "..%2ftiny",
    "%2e%2e%2ftiny",
    "..%5ctiny",
    "%2fetc%2fpasswd",
    "tiny.json",
    "tiny%00",
    "tiny%0a",
    ".tiny",
    "~root",
    "con",
    "a" * 300,
    "%ff",
    "tiny%2f..%2ftiny",
)


@pytest.mark.parametrize("name", ESCAPES)
@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
def test_an_id_never_leads_out_of_its_folder(open_client: Client, method: str, name: str) -> None:
    content = workflow("tiny", "true") if method == "PUT" else None
    answer = open_client.ask(method, f"/api/workflows/{name}", content)
    assert answer.status in (400, 404, 405, 409), answer.body
    assert answer.json()["error"] != "internal"
    assert open_client.get("/api/workflows/tiny").status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/api/runs/{}",
        "/api/runs/tiny/{}",
        "/api/runs/{}/events",
        "/api/runs/{}/diff",
        "/api/triggers/{}",
        "/api/providers/{}/profiles",
        "/api/providers/hermes-local/{}",
    ],
)
def test_no_path_parameter_reaches_a_file(open_client: Client, path: str) -> None:
    for name in ESCAPES:
        answer = open_client.get(path.format(name))
        assert answer.status in (400, 404), (name, answer.body)


@pytest.mark.parametrize("workflow_id", ["../tiny", "/etc/passwd", "tiny.json", "..", "", "a/b"])
def test_a_run_is_never_started_from_a_path(open_client: Client, workflow_id: str) -> None:
    answer = open_client.post("/api/run", {"workflowId": workflow_id})
    assert (answer.status, answer.json()["error"]) == (404, "not-found")


@pytest.mark.parametrize("method", ["TRACE", "PATCH", "DELETE", "CONNECT", "PROPFIND"])
def test_a_method_that_no_route_has_is_refused(open_client: Client, method: str) -> None:
    request = f"{method} /api/run HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    got = raw(open_client.port, request.encode())
    assert got.split(b" ")[1] in (b"400", b"405"), got


def test_every_answer_has_the_security_headers_and_an_id(open_client: Client) -> None:
    answers = [
        open_client.get("/"),
        open_client.get("/api/workflows"),
        open_client.get("/nowhere"),
        open_client.get("/", host="evil.example"),
        open_client.ask("POST", "/api/run", body=b"{", headers={"content-type": "text/plain"}),
    ]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["x-correlation-id"].startswith("cid_")
        assert "server" not in answer.headers
    assert len({answer.headers["x-correlation-id"] for answer in answers}) == len(answers)


# -- the token ------------------------------------------------------------------------------------

API = (
    "/api/workflows",
    "/api/run",
    "/api/runs",
    "/api/events",
    "/api/triggers",
    "/api/triggers/queue",
    "/api/providers",
    "/api/providers/hermes-local",
    "/api/fs/list",
    "/api/audit",
    "/api/catalog",
    "/api/costs",
    "/api/openapi.json",
    "/api/mcp",
    "/api/nowhere",
    "/api/",
    "/api",
    "/api/webhook",
    "/api/webhook/a/b",
    "/metrics",
    "//api/workflows",
    "/API/workflows",
    "/api//workflows",
    "/x/../api/workflows",
)


@pytest.mark.claim("I11")
@pytest.mark.parametrize("path", API)
def test_every_path_demands_the_token(closed_client: Client, path: str) -> None:
    answer = Client(closed_client.port).get(path)
    assert (answer.status, answer.json()["error"]) == (401, "unauthorized")
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.claim("I11")
def test_where_webhooks_arrive_no_token_is_asked_for(closed_client: Client) -> None:
    answer = Client(closed_client.port).ask("POST", "/api/webhook/aaaaaaaaaaaaaaaaaaaaaa")
    assert answer.json()["error"] == "bad-signature"


@pytest.mark.claim("I14")
@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_a_program_logs_in_with_the_token(closed_client: Client, scheme: str) -> None:
    stranger = Client(closed_client.port)
    assert stranger.get("/api/runs", authorization=f"{scheme} {TOKEN}  ").status == 200
    assert stranger.get("/metrics", authorization=f"{scheme} {TOKEN}").status == 200


@pytest.mark.parametrize(
    "given",
    [
        "",
        "Bearer",
        "Bearer ",
        f"Basic {TOKEN}",
        TOKEN,
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN.upper()}",
        f"Bearer x {TOKEN}",
        f"Bearer {hashlib.sha256(TOKEN.encode()).hexdigest()}",
        "Bearer \xff\xfe",
    ],
)
def test_anything_but_the_token_is_refused(closed_client: Client, given: str) -> None:
    headers = {"authorization": given.encode("latin-1").decode("latin-1")}
    answer = Client(closed_client.port).ask("GET", "/api/runs", headers=headers)
    assert answer.status == 401
    assert TOKEN not in answer.body.decode()


def test_health_is_answered_to_anybody_and_says_nothing_else(closed_client: Client) -> None:
    for path in ("/healthz", "/readyz"):
        assert Client(closed_client.port).get(path).json() == {"status": "ok"}


def test_no_answer_shows_the_token(closed_client: Client) -> None:
    for path in ("/api/catalog", "/api/doctor", "/api/audit", "/metrics", "/api/openapi.json"):
        answer = closed_client.get(path)
        assert answer.status == 200
        assert TOKEN not in answer.body.decode()
    settings = closed_client.get("/api/catalog").json()["settings"]["values"]
    assert settings["api_token"] == "set"


# -- where it listens -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.7", "10.0.0.1", "loops.example.com", "127.0.0.1.evil"]
)
def test_an_address_that_others_reach_needs_a_token(host: str) -> None:
    with pytest.raises(SettingsError, match="INFLOOP_API_TOKEN"):
        decide_exposure(host, "")
    assert decide_exposure(host, TOKEN).token == TOKEN
    warned = decide_exposure(host, "", allow_insecure=True)
    assert "INSECURE" in warned.warnings[0]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_a_loopback_address_needs_none(host: str) -> None:
    assert decide_exposure(host, "") == Exposure(host)


@pytest.mark.parametrize("token", [" ", "two words", "tab\t", "ünïcode", "line\n", "nul\0"])
def test_a_token_that_no_header_can_carry_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(SettingsError, match="INFLOOP_API_TOKEN") as refused:
        decide_exposure("0.0.0.0", token)
    assert token.strip() == "" or token not in str(refused.value)


def test_a_short_token_draws_a_warning_where_it_is_not_refused() -> None:
    for decided in (
        decide_exposure("127.0.0.1", "secret"),
        decide_exposure("0.0.0.0", "secret", allow_insecure=True),
    ):
        assert "INFLOOP_API_TOKEN" in decided.warnings[0]


def test_a_host_that_is_none_cannot_be_listed() -> None:
    with pytest.raises(SettingsError, match="INFLOOP_ALLOWED_HOSTS"):
        decide_exposure("127.0.0.1", "", ["*.example.com"])


def test_several_origins_are_no_origin() -> None:
    asked = RequestOrigin(
        "GET", "/api/runs", ["localhost"], ["http://localhost"] * 2, {}, ("127.0.0.1", 80)
    )
    assert refuse_origin(asked)


def test_the_open_server_keeps_nothing_on_disk_that_others_can_read(tmp_path: Path) -> None:
    with process(tmp_path / "x") as served:
        assert served.client.get("/api/runs").status == 200
        assert oct(served.data.stat().st_mode)[-3:] == "700"
