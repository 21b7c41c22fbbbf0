"""The OpenAPI document against a fuzzer that reads it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.server import TOKEN, process, put_workflow, workflow
from support.thorough import amount

FUZZER = Path(sys.executable).parent / "schemathesis"
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
# Streams do not end, and the doctor starts children.
LEFT_OUT = {
    *("/api/events", "/api/runs/{run_id}/events"),
    *("/api/dev/events", "/api/dev/{name}/log/events"),
    *("/api/doctor", "/api/doctor/attack"),
}


@pytest.mark.heavy
def test_a_fuzzer_finds_no_failure_and_no_undocumented_answer(tmp_path: Path) -> None:
    put_workflow(tmp_path / "data", workflow("tiny", "true"))
    limits = {"login_rate_limit": "0", "webhook_rate_limit": "0"}
    with process(tmp_path, api_token=TOKEN, **limits) as served:
        document = served.client.get("/api/openapi.json").json()
        paths = sorted({*document["paths"]} - LEFT_OUT)
        fuzzed = subprocess.run(
            [
                FUZZER,
                "run",
                f"http://127.0.0.1:{served.client.port}/api/openapi.json",
                f"--header=Authorization: Bearer {TOKEN}",
                f"--checks={','.join(CHECKS)}",
                "--phases=coverage,fuzzing",
                f"--max-examples={amount(2, thorough=10)}",
                "--no-color",
                *(f"--include-path={path}" for path in paths),
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert fuzzed.returncode == 0, fuzzed.stdout[:6_000]
