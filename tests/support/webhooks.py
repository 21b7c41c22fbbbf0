"""Webhooks over real files of triggers, plugins and workflows, without a server."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

from infloop.catalog.lookup import CatalogLookup
from infloop.catalog.plugins import PluginFiles
from infloop.catalog.triggers import TriggerFiles
from infloop.catalog.workflows import WorkflowCatalog
from infloop.triggers.firing import Firing
from infloop.triggers.webhook import Delivery, NotQueued, QueuePosition, WebhookAnswer, Webhooks

NOW = 1_700_000_000_000
ID = "Mp3bBKPc04r3UQGQt71Dsw"
SECRET = "hunter2-hunter2-hunter2"
WORKFLOW: dict[str, Any] = {
    "id": "review",
    "name": "Review",
    "inputs": [
        {"name": "title", "type": "string", "default": "none"},
        {"name": "count", "type": "number", "default": 0},
        {"name": "urgent", "type": "boolean", "default": False},
    ],
    "nodes": [{"id": "start", "type": "start"}],
    "edges": [],
}
TRIGGER: dict[str, Any] = {
    "id": ID,
    "name": "opened",
    "enabled": True,
    "workflowId": "review",
    "pluginId": "github",
    "eventType": "issues",
    "match": [{"lhs": "{{body.action}}", "op": "==", "rhs": "opened"}],
    "inputs": {"title": "{{body.issue.title}}"},
    "secret": SECRET,
    "createdAt": NOW,
    "updatedAt": NOW,
}
BODY = b'{"action": "opened", "issue": {"title": "It breaks"}}'


class Stand:
    """Triggers, plugins and workflows in a directory, and a queue of a certain length."""

    def __init__(self, folder: Path, *, room: int = 100, per_minute: int = 120) -> None:
        self.folder = folder
        self.room = room
        self.queued: list[Firing] = []
        for name in ("triggers", "plugins", "workflows"):
            (folder / name).mkdir(parents=True)
        self.write("workflows", "review", WORKFLOW)
        self.lookup = CatalogLookup(
            TriggerFiles(folder / "triggers"),
            PluginFiles(folder / "plugins"),
            WorkflowCatalog(folder / "workflows"),
        )
        self.webhooks = Webhooks(self.lookup, self.enqueue, per_minute=per_minute)

    def write(self, kind: str, name: str, raw: dict[str, Any], mode: int = 0o600) -> Path:
        path = self.folder / kind / f"{name}.json"
        path.write_text(json.dumps(raw))
        path.chmod(mode)
        return path

    def trigger(self, **changes: Any) -> None:
        raw = {**TRIGGER, **changes}
        self.write("triggers", raw["id"], {k: v for k, v in raw.items() if v is not None})

    async def enqueue(self, firing: Firing) -> QueuePosition | NotQueued:
        for number, before in enumerate(self.queued):
            if firing.key and before.key == firing.key:
                return QueuePosition(f"q-{number}", number + 1)
        if firing.fingerprint in {before.fingerprint for before in self.queued} - {""}:
            return "replayed"
        if len(self.queued) >= self.room:
            return "queue-full"
        self.queued.append(firing)
        self.lookup.fired(firing.trigger_id, NOW)
        return QueuePosition(f"q-{len(self.queued) - 1}", len(self.queued))

    async def post(
        self,
        body: bytes = BODY,
        *,
        to: str = ID,
        at: int = NOW,
        secret: str | None = SECRET,
        remote: str = "192.0.2.1",
        query: tuple[tuple[str, str], ...] = (),
        **headers: str,
    ) -> WebhookAnswer:
        sent = {"X-GitHub-Event": "issues", "Content-Type": "application/json"}
        if secret is not None:
            made = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
            sent["X-Hub-Signature-256"] = f"sha256={made}"
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        delivery = Delivery(to, tuple(sent.items()), body, query, remote)
        return await self.webhooks.receive(delivery, at)
