"""Requests that make triggers, and deliveries to them."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

from support.server import (
    Answer,
    Client,
    workflow,
)

SECRET = "wh-s3cr3t-0123456789"
ECHO = workflow("echo", "true", inputs=[{"name": "word", "type": "string", "default": "none"}])
GENERIC = {
    "name": "Any",
    "enabled": True,
    "workflowId": "echo",
    "inputs": {"word": "{{body.word}}"},
}


def make(client: Client, **more: Any) -> dict[str, Any]:
    answer = client.post("/api/triggers", {**GENERIC, **more})
    assert answer.status == 201, answer.body
    trigger: dict[str, Any] = answer.json()["trigger"]
    return trigger


def send(client: Client, trigger_id: str, body: bytes = b"{}", **headers: str) -> Answer:
    sent = {"content-type": "application/json", **headers}
    path = f"/api/webhook/{trigger_id}"
    return Client(client.port).ask("POST", path, body=body, headers=sent)


def signed(body: bytes, secret: str = SECRET) -> dict[str, str]:
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {"x-hub-signature-256": f"sha256={digest}", "x-github-event": "push"}


GITHUB = {"pluginId": "github", "eventType": "push", "inputs": {}}
