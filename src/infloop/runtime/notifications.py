"""Tells a command or a web address of the operator's choice when a run ends or waits for a person.

- No run waits for a notification, and none fails by one. What cannot be delivered is a warning in
  the log.
- Each delivery has a deadline, and only a few wait at the same time. More are dropped with a
  warning.
- A notification has the summary of a run: no inputs, no outputs, no text of a question's details.
  Known secrets are redacted.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from infloop.errors import EgressError, InfloopError, SettingsError, StepError
from infloop.model.values import compact_json
from infloop.sandbox.base import ChildRequest
from infloop.store.interfaces.ledger import CallFilter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from infloop.model.clock import Clock
    from infloop.model.values import JsonObject
    from infloop.runtime.event_bus import BusMessage
    from infloop.sandbox.base import Sandbox
    from infloop.store.interfaces.ledger import CallLedger
    from infloop.store.interfaces.run_log import RunLog, RunRow

DEADLINE_S = 15.0
"""How long one delivery may take."""

MAX_WAITING = 200
MAX_AT_ONCE = 4
_MAX_ANSWER_BYTES = 64 << 10
_HTTP_ERROR = 300
_WHSEC = "whsec_"
_MIN_KEY_BYTES = 16

NotificationType: TypeAlias = Literal["run.finished", "run.paused", "approval.asked"]

_log = logging.getLogger("infloop.notifications")


class Notification(msgspec.Struct, frozen=True):
    """A message that is ready to be delivered; `body` is JSON."""

    id: str
    time_ms: int
    body: bytes


Deliver: TypeAlias = Callable[[Notification], Awaitable[None]]
"""Delivers a notification; raises InfloopError if that fails."""


class Notifications:
    """The notifications of one process; without anybody to deliver to, there are none."""

    def __init__(
        self,
        deliver: Sequence[Deliver],
        run_log: RunLog,
        ledger: CallLedger,
        clock: Clock,
        redact: Callable[[JsonObject], JsonObject],
    ) -> None:
        self._deliver = deliver
        self._run_log = run_log
        self._ledger = ledger
        self._clock = clock
        self._redact = redact
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)

    @property
    def is_used(self) -> bool:
        return bool(self._deliver)

    def run_ended(self, run_id: str, *, paused: bool = False) -> None:
        """Notify soon that a run has ended, or has paused."""
        self._start(run_id, "run.paused" if paused else "run.finished")

    def watch(self, message: BusMessage) -> None:
        """Notify soon if this message says that a person is asked."""
        if isinstance(message, dict) and message.get("type") == "approval_asked":
            shown = ("approvalId", "kind", "title", "stepPath", "expiresAt")
            asked: JsonObject = {key: message.get(key) for key in shown}
            self._start(str(message.get("runId")), "approval.asked", {"approval": asked})

    async def settle(self) -> None:
        """Return when all notifications so far are delivered; after a deadline give them up."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=DEADLINE_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        if late:
            _log.warning("%d notifications were not delivered in time", len(late))

    def _start(self, run_id: str, kind: NotificationType, more: JsonObject | None = None) -> None:
        if not self._deliver:
            return
        if len(self._tasks) >= MAX_WAITING:
            _log.warning("no notification %r of run %s: too many are waiting", kind, run_id)
            return
        task = asyncio.create_task(self._notify(run_id, kind, more or {}))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _notify(self, run_id: str, kind: NotificationType, more: JsonObject) -> None:
        async with self._slots:
            try:
                made = await self._made(run_id, kind, more)
            except InfloopError as error:
                _log.warning("no notification %r of run %s: %s", kind, run_id, error)
                return
            await asyncio.gather(
                *(self._try(deliver, made, kind, run_id) for deliver in self._deliver)
            )

    async def _try(
        self, deliver: Deliver, made: Notification, kind: NotificationType, run_id: str
    ) -> None:
        try:
            async with asyncio.timeout(DEADLINE_S):
                await deliver(made)
        except TimeoutError:
            _log.warning("notification %r of run %s: not delivered in time", kind, run_id)
        except InfloopError as error:
            _log.warning("notification %r of run %s: %s", kind, run_id, error)

    async def _made(self, run_id: str, kind: NotificationType, more: JsonObject) -> Notification:
        row = await self._run_log.run(run_id)
        spent = await self._ledger.total(CallFilter(run_id=run_id))
        now = self._clock.now_ms()
        content: JsonObject = {
            "type": kind,
            "timestamp": datetime.fromtimestamp(now / 1000, UTC).isoformat(timespec="milliseconds"),
            "data": self._redact({**_summary(row), "costUsd": spent.known_usd, **more}),
        }
        return Notification(f"msg_{uuid.uuid4().hex}", now, compact_json(content).encode())


def _summary(row: RunRow) -> JsonObject:
    ended = row.finished_at
    return {
        "runId": row.id,
        "workflowId": row.workflow_id,
        "workflowName": row.workflow_name,
        "status": row.status,
        "startedAt": row.started_at,
        "finishedAt": ended,
        "durationMs": None if ended is None else ended - row.started_at,
        "steps": row.steps,
        "failedStep": row.failed_step,
        "error": row.error,
        "cause": row.cause.kind,
        "correlationId": row.correlation_id,
    }


# -- where to ------------------------------------------------------------------------------------


def to_command(command: str, sandbox: Sandbox, env: Mapping[str, str], cwd: str) -> Deliver:
    """Return what runs a shell line with each notification on its standard input."""

    async def deliver(made: Notification) -> None:
        request = ChildRequest(
            ("/bin/sh", "-c", command),
            cwd,
            env,
            stdin=made.body + b"\n",
            timeout_ms=round(DEADLINE_S * 1000),
            grace_ms=0,
        )
        result = await sandbox.run(request)
        if result.exit_code != 0:
            how = result.error or f"exit {result.exit_code}"
            raise StepError(f"the command failed: {how} {result.stderr[-200:].strip()}".rstrip())

    return deliver


def to_address(url: str, secret: str) -> Deliver:
    """Return what posts each notification to an address, signed if there is a secret.

    The signature is that of Standard Webhooks. Raises SettingsError for an unusable address or
    secret; the message does not have it.
    """
    from infloop.egress.client import Client, Destination

    key = signing_key(secret) if secret else b""
    try:
        destination = Destination.of(url, private_ok=True)
    except EgressError:
        raise SettingsError("INFLOOP_NOTIFY_URL is not a plain http or https URL") from None

    async def deliver(made: Notification) -> None:
        headers = {"content-type": "application/json", "webhook-id": made.id}
        headers["webhook-timestamp"] = str(made.time_ms // 1000)
        if key:
            headers["webhook-signature"] = signature(key, made)
        async with (
            Client([destination]) as client,
            client.stream(
                "POST",
                url,
                headers=headers,
                content=made.body,
                connect_timeout_s=DEADLINE_S,
                read_timeout_s=DEADLINE_S,
                max_response_bytes=_MAX_ANSWER_BYTES,
            ) as answer,
        ):
            if answer.status >= _HTTP_ERROR:
                raise EgressError(f"{destination.host} answered {answer.status}")

    return deliver


def signing_key(secret: str) -> bytes:
    """Return the key of a secret: what is encoded in base64 after `whsec_`."""
    try:
        key = base64.b64decode(secret.removeprefix(_WHSEC), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(_WHSEC) or len(key) < _MIN_KEY_BYTES:
        raise SettingsError(
            f"INFLOOP_NOTIFY_SECRET is not `{_WHSEC}` and at least {_MIN_KEY_BYTES} bytes in "
            f'base64; make one with: echo "{_WHSEC}$(openssl rand -base64 32)"'
        )
    return key


def signature(key: bytes, made: Notification) -> str:
    """Return the value of the header `webhook-signature`."""
    signed = f"{made.id}.{made.time_ms // 1000}.".encode() + made.body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
