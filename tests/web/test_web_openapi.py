"""The OpenAPI document is true: every operation is asked, well and badly, and does as it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from infloop.web.api import ROUTERS
from support.server import TOKEN, Answer, Client, process, put_workflow, workflow

# What a parameter or body can be that means something here.
GOOD = {
    "workflow_id": "tiny",
    "provider_id": "claude",
    "connection_id": "lab",
    "queue_id": "q-none",
    "approval_id": "none",
    "name": "none",
    "trigger_id": "aaaaaaaaaaaaaaaaaaaaaa",
}
BODIES: dict[str, Any] = {
    "POST /api/workflows": workflow("fresh", "true"),
    "PUT /api/workflows/{workflow_id}": workflow("tiny", "true", version=1),
    "POST /api/workflows/check": workflow("fresh", "true"),
    "POST /api/workflows/references": workflow("fresh", "true"),
    "POST /api/workflows/starter": {"id": "first"},
    "POST /api/workflows/read": {"name": "a.json", "text": "{}"},
    "POST /api/workflows/loop-file": workflow("fresh", "true"),
    "POST /api/run": {"workflowId": "tiny"},
    "POST /api/runs/{run_id}/rewind": {"step": "c1"},
    "POST /api/approvals/{approval_id}": {"decision": "deny"},
    "POST /api/triggers": {"name": "t", "enabled": True, "workflowId": "tiny"},
    "POST /api/providers/hermes-local": {
        "label": "L",
        "host": "http://h",
        "ports": [{"port": 1, "profile": "m"}],
    },
}
STREAMS = (
    "/api/events",
    "/api/runs/{run_id}/events",
    "/api/dev/events",
    "/api/dev/{name}/log/events",
)
NASTY = ("", "0", "-1", "é", "%00", "..%2f..", "a" * 5_000, "%F0%9F%92%A9", "{}", "' OR 1=1 --")


def test_documented_errors_need_no_validators() -> None:
    routes = [route for router in ROUTERS for route in router.routes]
    assert len(routes) > 50
    assert not [route for route in routes if getattr(route, "response_fields", None)]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("openapi")
    put_workflow(folder / "data", workflow("tiny", "true"))
    settings = {"api_token": TOKEN, "login_rate_limit": "0", "webhook_rate_limit": "0"}
    with process(folder, **settings) as made:
        yield made.client


@pytest.fixture(scope="module")
def document(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/api/openapi.json").json()
    return found


@pytest.fixture(scope="module")
def run_id(client: Client) -> str:
    return str(client.run("tiny")["runId"])


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if path not in STREAMS:
                yield method.upper(), path, operation


def test_the_document_names_every_route_that_programs_rely_on(document: dict[str, Any]) -> None:
    listed = {f"{method} {path}" for method, path, _ in operations(document)}
    for path in STREAMS:
        listed.add(f"GET {path}")
    assert {
        "GET /api/workflows",
        "POST /api/workflows",
        "GET /api/workflows/{workflow_id}",
        "PUT /api/workflows/{workflow_id}",
        "DELETE /api/workflows/{workflow_id}",
        "POST /api/run",
        "GET /api/run",
        "POST /api/run/stop",
        "GET /api/runs",
        "GET /api/runs/{workflow_id}/{run_id}",
        "GET /api/events",
        "GET /api/providers",
        "GET /api/providers/{provider_id}/agents",
        "GET /api/providers/{provider_id}/profiles",
        "GET /api/providers/hermes-local",
        "POST /api/providers/hermes-local",
        "GET /api/providers/hermes-local/{connection_id}",
        "PUT /api/providers/hermes-local/{connection_id}",
        "DELETE /api/providers/hermes-local/{connection_id}",
        "GET /api/fs/list",
        "GET /api/triggers",
        "POST /api/triggers",
        "GET /api/triggers/{trigger_id}",
        "PUT /api/triggers/{trigger_id}",
        "DELETE /api/triggers/{trigger_id}",
        "POST /api/triggers/{trigger_id}/test",
        "GET /api/triggers/queue",
        "DELETE /api/triggers/queue/{queue_id}",
        "GET /api/approvals",
        "GET /api/approvals/{approval_id}",
        "POST /api/approvals/{approval_id}",
        "GET /api/webhook-plugins",
        "POST /api/webhook/{trigger_id}",
    } <= listed


def test_every_operation_answers_as_documented(
    client: Client, document: dict[str, Any], run_id: str
) -> None:
    for method, path, operation in operations(document):
        filled = path.format(**GOOD, run_id=run_id)
        body = BODIES.get(f"{method} {path}")
        answer = client.ask(method, filled, body)
        is_as_documented(answer, operation, document, f"{method} {filled}")


@pytest.mark.parametrize("value", NASTY)
def test_bad_parameters_are_answered_as_documented_and_never_break_anything(
    client: Client, document: dict[str, Any], value: str
) -> None:
    for method, path, operation in operations(document):
        names = [each["name"] for each in operation.get("parameters", ())]
        if not names:
            continue
        filled = path.format(**dict.fromkeys([*GOOD, "run_id"], value or "x"))
        queries = [each["name"] for each in operation["parameters"] if each["in"] == "query"]
        query = "&".join(f"{name}={value.replace(' ', '+')}" for name in queries)
        target = f"{filled}?{query}".replace("é", "%C3%A9").replace(" ", "%20")
        answer = client.ask(method, target, BODIES.get(f"{method} {path}"))
        if not is_elsewhere(answer):
            is_as_documented(answer, operation, document, f"{method} {target[:200]}")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x",
        b"[]",
        b"{}",
        b'{"a": 1}',
        b'{"id": 1, "name": [], "nodes": {}, "edges": 3}',
        b'{"workflowId": null, "inputs": null, "label": null, "host": 1, "ports": "x"}',
        b'{"workflowId": "tiny", "inputs": {"a": 1e999}}',
        b'{"step": ""}',
        b'{"payload": "\\u0000", "headers": {"a\\n": "b\\r\\n"}, "start": 7}',
        b'{"headers": {"\\u00e9": "\\u4f60"}}',
        b'{"ports": [1e400]}',
        b"{" + b'"a":[' * 60 + b"]" * 60 + b"}",
    ],
    ids=lambda body: repr(body[:30]),
)
def test_bad_bodies_are_answered_as_documented_and_never_break_anything(
    client: Client, document: dict[str, Any], run_id: str, body: bytes
) -> None:
    for method, path, operation in operations(document):
        if method in ("GET", "DELETE") or path == "/logout":
            continue
        filled = path.format(**GOOD, run_id=run_id)
        headers = {"content-type": "application/json"}
        answer = client.ask(method, filled, body=body, headers=headers)
        is_as_documented(answer, operation, document, f"{method} {filled} {body[:80]!r}")


def test_without_the_token_every_operation_answers_401_as_documented(
    client: Client, document: dict[str, Any]
) -> None:
    for method, path, operation in operations(document):
        filled = path.format(**dict.fromkeys([*GOOD, "run_id"], "x"))
        answer = Client(client.port).ask(method, filled)
        is_as_documented(answer, operation, document, f"{method} {filled}")
        if path.startswith("/api/") and "webhook/" not in path:
            assert answer.status == 401


def is_elsewhere(answer: Answer) -> bool:
    """Say whether what was asked is not the operation's path at all."""
    if answer.status == 404 and "there is nothing at" in answer.json()["message"]:
        return True
    return answer.status == 405


def is_as_documented(
    answer: Answer, operation: dict[str, Any], document: dict[str, Any], asked: str
) -> None:
    assert answer.status < 500 or answer.status == 503, f"{asked}: {answer.body!r}"
    documented = operation["responses"].get(str(answer.status))
    assert documented is not None, f"{asked}: {answer.status} {answer.body[:300]!r}"
    kinds = documented.get("content", {})
    if not kinds or not answer.body:
        return
    kind = answer.headers["content-type"].partition(";")[0]
    assert kind in kinds, f"{asked}: {answer.status} {kind}"
    if kind == "application/json" and "schema" in kinds.get(kind, {}):
        misfit = list(misfits(json.loads(answer.body), kinds[kind]["schema"], document, "$"))
        assert not misfit, f"{asked}: {misfit} {answer.body[:500]!r}"


def misfits(value: Any, schema: dict[str, Any], document: dict[str, Any], at: str) -> Iterator[str]:
    """Where a value is not what its schema says; of JSON Schema, what our document uses."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        if all(list(misfits(value, one, document, at)) for one in schema["anyOf"]):
            yield f"{at} fits none of {len(schema['anyOf'])}"
        return
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
    }
    kind = schema.get("type")
    if kind and not isinstance(value, kinds[kind]):  # type: ignore[arg-type]
        yield f"{at} is no {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at} is none of {schema['enum']}"
    if "const" in schema and value != schema["const"]:
        yield f"{at} is not {schema['const']}"
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from misfits(item, schema.get("items", {}), document, f"{at}[{index}]")
    if isinstance(value, dict):
        yield from (
            f"{at}.{name} is missing" for name in schema.get("required", ()) if name not in value
        )
        for name, item in value.items():
            if name in schema.get("properties", {}):
                yield from misfits(item, schema["properties"][name], document, f"{at}.{name}")
            elif schema.get("additionalProperties") is False:
                yield f"{at}.{name} is not documented"
