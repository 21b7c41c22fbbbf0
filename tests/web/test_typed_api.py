"""Every response of the API has named fields; free JSON only holds what is the user's own."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deno
import pytest

from support.paths import ROOT
from support.server import Client, process

FREE = {
    "Approval.details": "what an agent asks, in its own words",
    "CatalogContent.schemas": "JSON Schemas",
    "ConnectionBody.ports": "a port is checked by the rules for connection files",
    "ConditionChecked.detail": "what a condition returned",
    "ConditionChecked.met": "what a condition returned",
    "AuditEntry.details": "differs by event",
    "NodeFinished.outputs": "what a step returned",
    "NodeStarted.resolvedConfig": "a node of a workflow",
    "RunFinished.scope": "what the steps of a workflow returned",
    "RunStarted.inputs": "the inputs of a workflow",
    "NodeType.config": "a JSON Schema",
    "NodeType.new": "a node of a workflow",
    "PluginEvent.examplePayload": "what a sender sends",
    "QueueItem.inputs": "the inputs of a workflow",
    "RunDetail.scope": "what the steps of a workflow returned",
    "Idle.scope": "what the steps of a workflow returned",
    "QueuedState.scope": "the inputs of a workflow",
    "RunWorkflow.called": "workflow files",
    "RunWorkflow.workflow": "a workflow file",
    "Explanation.inputs": "the inputs of a workflow",
    "RunRequest.inputs": "the inputs of a workflow",
    "SettingsView.schema": "a JSON Schema",
    "StarterWorkflow.workflow": "a workflow file",
    "TrialRequest.payload": "what a sender sends",
    "TrialResult.body": "what a sender is answered",
    "WorkflowDetail.workflow": "a workflow file",
}
"""Where free JSON is allowed, and whose content it is."""


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with process(tmp_path_factory.mktemp("typed")) as made:
        client: Client = made.client
        yield client.get("/api/openapi.json").json()


def free_places(name: str, schema: dict[str, Any]) -> Iterator[str]:
    """Yield the places of a schema at which anything may stand."""
    for field, inner in schema.get("properties", {}).items():
        yield from free_places(f"{name}.{field}", inner)
    for key in ("anyOf", "oneOf", "allOf"):
        for inner in schema.get(key, ()):
            yield from free_places(name, inner)
    if "items" in schema:
        yield from free_places(name, schema["items"])
    more = schema.get("additionalProperties")
    if isinstance(more, dict) and more:
        yield from free_places(name, more)
    if _is_free(schema):
        yield name


def _is_free(schema: dict[str, Any]) -> bool:
    if schema.get("type") == "object":
        more = schema.get("additionalProperties")
        return "properties" not in schema and not (isinstance(more, dict) and more)
    structure = {"type", "$ref", "properties", "anyOf", "oneOf", "allOf", "items", "enum", "const"}
    return not structure & set(schema)


def test_every_json_response_is_a_named_model(document: dict[str, Any]) -> None:
    untyped = [
        f"{method.upper()} {path} {status}"
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        for status, response in operation["responses"].items()
        for kind, content in response.get("content", {}).items()
        if kind == "application/json" and "$ref" not in content.get("schema", {})
    ]
    assert untyped == []


def test_free_json_stands_only_where_the_content_is_the_users_own(
    document: dict[str, Any],
) -> None:
    found = {
        place
        for name, schema in document["components"]["schemas"].items()
        for place in free_places(name, schema)
    }
    assert found == set(FREE)


def test_the_types_compile_under_strict_without_any_or_unknown(
    document: dict[str, Any], tmp_path: Path
) -> None:
    types = generated_types(document)
    assert re.search(r"[:|(\[] ?(any|unknown)\b", types) is None
    file = tmp_path / "api.ts"
    use = """
const page = JSON.parse("{}") as Responses["GET /api/runs"];
const ids: string[] = page.runs.map((run) => run.runId);
const answer = JSON.parse("{}") as Responses["GET /api/runs/{run_id}"];
export const place: number | string =
  answer.run.kind === "queued" ? answer.run.position : answer.run.workflowName;
// @ts-expect-error  a field that does not exist is noticed
export const wrong = page.runs[0].nothing;
export default ids;
"""
    file.write_text(types + use)
    strict = {"compilerOptions": {"strict": True, "noImplicitAny": True}}
    (tmp_path / "deno.json").write_text(json.dumps(strict))
    checked = subprocess.run(
        [deno.find_deno_bin(), "check", "--quiet", "--no-remote", str(file)],
        cwd=tmp_path,
        env={"DENO_DIR": str(tmp_path / "cache"), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr


def generated_types(document: dict[str, Any]) -> str:
    spec = importlib.util.spec_from_file_location("api_types", ROOT / "tools/api_types.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    made: str = tool.typescript(document)
    return made
