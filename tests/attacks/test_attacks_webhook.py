"""Strangers at the address of a trigger, row by row of a table."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from infloop.catalog.plugins import PluginFiles
from infloop.triggers.signatures import verify
from support.attack_tables import Attack, AttackTable
from support.server import Answer, Client, Here, here, put_workflow, raw, workflow
from support.webhooks import Stand

if TYPE_CHECKING:
    from infloop.model.plugin import Signature

TABLE = AttackTable("webhook")
SECRET = "wh-s3cr3t-0123456789"
UNKNOWN = "Qp3bBKPc04r3UQGQt71Dsw"


def test_every_row_is_tried() -> None:
    TABLE.check()


@dataclass(frozen=True)
class Target:
    """A server in this process, and the address of its one trigger."""

    served: Here
    trigger: str
    begun: int

    async def send(self, request: dict[str, Any]) -> Answer:
        """Send a request of a row, signed as the row says."""
        if "at" in request:
            clock = self.served.clock
            clock.forward(self.begun + request["at"] * 1000 - clock.now_ms())
        body = bytes.fromhex(request["hex"]) if "hex" in request else request["body"].encode()
        signed = request.get("signed", "").encode() or bytes.fromhex(request.get("signed_hex", ""))
        headers = {"content-type": "application/json", "x-github-event": "push"}
        given = {
            "x-hub-signature-256": request.get("signature", "sha256={S}"),
            **request.get("headers", {}),
        }
        secret = request.get("secret", SECRET)
        headers |= {name: fill(v, signed or body, secret) for name, v in given.items() if v}
        to = UNKNOWN if request.get("to") == "unknown" else self.trigger
        client = Client(self.served.client.port)
        return await asyncio.to_thread(
            client.ask,
            request.get("method", "POST"),
            f"/api/webhook/{to}",
            body=body,
            headers=headers,
        )

    async def runs(self, answers: list[Answer]) -> int:
        """How many runs there are once all that was promised has ended."""
        for answer in answers:
            if answer.status == 202:
                name = answer.json()["queueId"].removeprefix("q-")
                await asyncio.to_thread(self.served.client.finished, name)
        return len((await self.served.ask("GET", "/api/runs?limit=100")).json()["runs"])


def fill(text: str, body: bytes, secret: str) -> str:
    """Put signatures of a body into a text."""
    digest = hmac.digest(secret.encode(), body, hashlib.sha256)
    weak = hmac.digest(secret.encode(), body, hashlib.sha1).hex()
    text = text.replace("{S}", digest.hex()).replace("{U}", digest.hex().upper())
    return text.replace("{B}", base64.b64encode(digest).decode()).replace("{1}", weak)


@asynccontextmanager
async def target(folder: Path, **trigger: Any) -> AsyncIterator[Target]:
    put_workflow(folder / "data", workflow("echo", "true"))
    made = {
        "name": "t",
        "enabled": True,
        "workflowId": "echo",
        "pluginId": "github",
        "eventType": "push",
        "inputs": {},
        "secret": SECRET,
        **trigger,
    }
    async with here(folder) as served:
        answer = await served.ask("POST", "/api/triggers", made)
        assert answer.status == 201, answer.body
        yield Target(served, answer.json()["trigger"]["id"], served.clock.now_ms())


@pytest.mark.parametrize("attack", TABLE.at("send"))
async def test_only_a_genuine_request_becomes_a_run(tmp_path: Path, attack: Attack) -> None:
    async with target(tmp_path) as aimed:
        if "previous" in attack:
            keep_old_secret(aimed, **attack["previous"])
        answers = [await aimed.send(request) for request in attack["send"]]
        assert [answer.status for answer in answers] == attack["expect"]
        assert await aimed.runs(answers) == attack["runs"]


def keep_old_secret(aimed: Target, secret: str, seconds: int) -> None:
    """Let a secret of before count for some more seconds, as `infloop triggers` does."""
    file = aimed.served.data / "triggers" / f"{aimed.trigger}.json"
    trigger = json.loads(file.read_text())
    until = aimed.begun + seconds * 1000
    file.write_text(json.dumps({**trigger, "previousSecret": secret, "previousSecretUntil": until}))


@pytest.mark.parametrize("attack", TABLE.at("timed"))
async def test_a_signature_is_of_its_time(tmp_path: Path, attack: Attack) -> None:
    body = b'{"type": "checkout.session.completed"}'
    async with target(tmp_path, pluginId="stripe", eventType="checkout.session.completed") as aimed:
        for shift in attack["times"]:
            time = str(aimed.served.clock.now_ms() // 1000 + shift)
            made = hmac.new(SECRET.encode(), f"{time}.".encode() + body, hashlib.sha256)
            said = attack["header"].replace("{t}", time).replace("{s}", made.hexdigest())
            answer = await asyncio.to_thread(
                Client(aimed.served.client.port).ask,
                "POST",
                f"/api/webhook/{aimed.trigger}",
                body=body,
                headers={"stripe-signature": said},
            )
            assert answer.status == attack["expect"], shift


@pytest.mark.parametrize("attack", TABLE.at("length"))
async def test_a_length_that_is_a_lie_is_no_request(tmp_path: Path, attack: Attack) -> None:
    async with target(tmp_path) as aimed:
        port = aimed.served.client.port
        for request in attack["send"]:
            said = request.replace("{P}", str(port)).replace("{T}", aimed.trigger)
            got = await asyncio.to_thread(raw, port, said.encode())
            assert int(got.split(b" ", 2)[1]) in attack["expect"], got[:200]
        assert await aimed.runs([]) == 0


@pytest.mark.parametrize("attack", TABLE.at("alike"))
async def test_nobody_learns_which_addresses_exist(tmp_path: Path, attack: Attack) -> None:
    async with target(tmp_path) as aimed:
        answers = [await aimed.send(request) for request in attack["send"]]
    assert {answer.status for answer in answers} == {attack["expect"]}
    assert len({told(answer) for answer in answers}) == 1


def told(answer: Answer) -> str:
    """What an answer says, without what is another in each."""
    body = {name: value for name, value in answer.json().items() if name != "correlationId"}
    kept = {n: v for n, v in answer.headers.items() if n not in ("date", "x-correlation-id")}
    return json.dumps([body, kept])


@pytest.mark.parametrize("attack", TABLE.at("steps"))
def test_a_signature_is_compared_in_the_same_steps_wherever_it_is_wrong(
    tmp_path: Path, attack: Attack
) -> None:
    plugin = PluginFiles(tmp_path).find("github")
    assert plugin is not None
    assert plugin.signature is not None
    body = attack["body"].encode()
    right = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    taken = [steps(plugin.signature, right, body, ok=True)]
    for at in attack["wrong_at"]:
        wrong = right[:at] + ("0" if right[at] != "0" else "1") + right[at + 1 :]
        taken.append(steps(plugin.signature, wrong, body, ok=False))
    assert any("compare_digest" in step for step in taken[0])
    assert all(each == taken[0] for each in taken)


def steps(signature: Signature, given: str, body: bytes, *, ok: bool) -> list[str]:
    """The calls that it takes to judge a signature."""
    taken: list[str] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        taken.append(f"{event} {getattr(argument, '__name__', frame.f_code.co_name)}")

    headers = (("x-hub-signature-256", f"sha256={given}"),)
    sys.setprofile(note)
    try:
        verdict = verify(signature, [SECRET], headers, body, 0)
    finally:
        sys.setprofile(None)
    assert verdict.ok is ok
    return taken


@pytest.mark.parametrize("attack", TABLE.at("guesses"))
async def test_guesses_are_limited_together_and_leave_nothing(
    tmp_path: Path, attack: Attack
) -> None:
    stand = Stand(tmp_path)
    statuses = set()
    for number in range(attack["count"]):
        remote = f"10.0.{number >> 8}.{number & 255}"
        statuses.add((await stand.post(b"", to=secrets.token_urlsafe(16), remote=remote)).status)
    assert statuses == {401, 429}
    assert len(stand.webhooks._requests) <= 64
    assert stand.queued == []


@pytest.mark.parametrize("attack", TABLE.at("bomb"))
async def test_a_genuine_bomb_is_refused(tmp_path: Path, attack: Attack) -> None:
    keys = range(attack.get("keys", 1))
    middle = ",".join(attack["middle"].replace("{n}", str(n)) for n in keys)
    times = attack["times"]
    async with target(tmp_path) as aimed:
        body = attack["begin"] * times + middle + attack["end"] * times
        answer = await aimed.send({"body": body})
        assert answer.status == 400
        assert await aimed.runs([]) == 0
