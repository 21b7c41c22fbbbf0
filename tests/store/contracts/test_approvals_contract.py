"""The contract of every approval store: one answer a question, the first one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from infloop.errors import NotFound
from infloop.model.approval import AllowOrDeny, Approval
from infloop.model.audit import Actor
from infloop.model.values import JsonObject
from infloop.store.interfaces.approvals import KEPT_MS, AlreadySettled
from support.stores import OpenStore

CLI = Actor("cli")


def made(name: str, asked_at: int = 1_000, expires_at: int = 2_000, action: str = "") -> Approval:
    details: JsonObject = {"command": "rm \ud800", "nested": {"n": 1}}
    return Approval(
        id=name,
        kind="permission",
        title="May it?",
        details=details,
        asked_at=asked_at,
        expires_at=expires_at,
        run_id="forgotten",
        workflow_id="w",
        path="a",
        action=action,
    )


async def test_a_question_comes_back_as_it_was_asked(open_store: OpenStore, tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await store.approvals.ask(made("q"), "me")
        read = await store.approvals.read("q")
        assert (read.state, read.title, read.kind) == ("waiting", "May it?", "permission")
        assert (read.run_id, read.workflow_id, read.path) == ("forgotten", "w", "a")
        assert (read.asked_at, read.expires_at) == (1_000, 2_000)
        assert read.details == {"command": "rm ?", "nested": {"n": 1}}
        assert await store.approvals.waiting() == [read]
        assert await store.approvals.owners() == ["me"]
        with pytest.raises(NotFound):
            await store.approvals.read("never asked")


@pytest.mark.parametrize(("answer", "state"), [("allow", "allowed"), ("deny", "denied")])
async def test_an_answer_says_who_gave_it_when_and_why(
    open_store: OpenStore, tmp_path: Path, answer: AllowOrDeny, state: str
) -> None:
    async with open_store(tmp_path) as store:
        await store.approvals.ask(made("q"), "me")
        who = Actor("mcp", "client")
        given = await store.approvals.answer("q", answer, who, "because", 1_500)
        assert (given.state, given.answered_by, given.answered_at) == (state, who, 1_500)
        assert given.note == "because"
        assert await store.approvals.read("q") == given
        assert await store.approvals.settled(given.state) == [given]
        assert await store.approvals.waiting() == []
        assert await store.approvals.owners() == []


async def test_of_many_who_answer_at_once_one_is_heard(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store, open_store(tmp_path) as other:
        await store.approvals.ask(made("q"), "me")
        answering = [
            each.approvals.answer("q", "allow", Actor("cli", name), "", 1_500)
            for name in ("one", "two", "three")
            for each in (store, other)
        ]
        answers = await asyncio.gather(*answering, return_exceptions=True)
        (heard,) = [answer for answer in answers if isinstance(answer, Approval)]
        refused = [answer for answer in answers if isinstance(answer, AlreadySettled)]
        assert len(refused) == len(answers) - 1
        assert (await other.approvals.read("q")).answered_by == heard.answered_by


async def test_an_unknown_question_takes_no_answer(open_store: OpenStore, tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        with pytest.raises(NotFound):
            await store.approvals.answer("never asked", "allow", CLI, "", 1)


async def test_an_answer_that_comes_too_late_is_refused_before_anybody_looked(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        await store.approvals.ask(made("q"), "nobody")
        with pytest.raises(AlreadySettled, match="nobody answered in time"):
            await store.approvals.answer("q", "allow", CLI, "", 2_000)
        assert (await store.approvals.read("q")).state == "waiting"
        assert (await store.approvals.expire("q", 2_000)).state == "expired"
        with pytest.raises(AlreadySettled, match="nobody answered in time"):
            await store.approvals.answer("q", "allow", CLI, "", 1_500)


async def test_only_what_is_due_expires_and_an_answer_stays(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        for name, expires_at in (("early", 2_000), ("late", 9_000), ("answered", 2_000)):
            await store.approvals.ask(made(name, expires_at=expires_at), "me")
        await store.approvals.answer("answered", "allow", CLI, "", 1_500)
        await store.approvals.expire_due(2_000)
        states = {name: (await store.approvals.read(name)).state for name in ("early", "late")}
        assert states == {"early": "expired", "late": "waiting"}
        assert (await store.approvals.expire("answered", 3_000)).state == "allowed"


async def test_what_is_withdrawn_loses_its_details_and_an_answer_stays(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        for name in ("asked", "answered"):
            await store.approvals.ask(made(name), "me")
        await store.approvals.answer("answered", "deny", CLI, "", 1_500)
        for name in ("asked", "answered"):
            await store.approvals.withdraw(name, "no longer needed", 1_600)
        gone, kept = [await store.approvals.read(name) for name in ("asked", "answered")]
        assert (gone.state, gone.note, gone.details) == ("withdrawn", "no longer needed", {})
        assert (kept.state, kept.details["nested"]) == ("denied", {"n": 1})
        with pytest.raises(AlreadySettled, match="no longer needed"):
            await store.approvals.answer("asked", "allow", CLI, "", 1_700)


async def test_the_questions_of_one_process_are_listed_by_its_name(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        for name, owner in (("a", "dead"), ("b", "dead"), ("c", "alive"), ("d", "dead")):
            await store.approvals.ask(made(name), owner)
        await store.approvals.answer("d", "allow", CLI, "", 1_500)
        assert sorted(await store.approvals.owners()) == ["alive", "dead"]
        assert [each.id for each in await store.approvals.waiting_for("dead")] == ["a", "b"]


async def test_a_question_of_another_owner_is_taken_over_for_the_same_action_only(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        await store.approvals.ask(made("q", action="exact"), "dead")
        for run, path, action, owner, time in (
            ("other", "a", "exact", "me", 1_500),
            ("forgotten", "b", "exact", "me", 1_500),
            ("forgotten", "a", "another", "me", 1_500),
            ("forgotten", "a", "exact", "dead", 1_500),  # it still waits itself
            ("forgotten", "a", "exact", "me", 2_000),  # expired
        ):
            assert await store.approvals.take_over(run, path, action, owner, time) is None
        taken = await store.approvals.take_over("forgotten", "a", "exact", "me", 1_500)
        assert taken is not None
        assert (taken.id, taken.state, taken.action) == ("q", "waiting", "exact")
        assert await store.approvals.owners() == ["me"]


@pytest.mark.parametrize(("answer", "state"), [("allow", "allowed"), ("deny", "denied")])
async def test_an_answer_that_nobody_got_is_found_and_used_once(
    open_store: OpenStore, tmp_path: Path, answer: AllowOrDeny, state: str
) -> None:
    async with open_store(tmp_path) as store, open_store(tmp_path) as other:
        await store.approvals.ask(made("q", action="exact"), "dead")
        assert not await store.approvals.use("q", 1_100)  # not answered yet
        await store.approvals.answer("q", answer, CLI, "", 1_200)
        taken = await store.approvals.take_over("forgotten", "a", "exact", "me", 1_500)
        assert taken is not None
        assert taken.state == state
        uses = [each.approvals.use("q", 1_600) for each in (store, other, store)]
        assert sorted(await asyncio.gather(*uses)) == [False, False, True]
        assert await store.approvals.take_over("forgotten", "a", "exact", "me", 1_700) is None


async def test_what_was_answered_is_kept_for_months_and_not_for_ever(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        for name in ("answered", "open"):
            await store.approvals.ask(made(name), "nobody")
        await store.approvals.answer("answered", "deny", Actor("mcp", "it"), "no", 1_500)
        await store.approvals.ask(made("next", KEPT_MS, KEPT_MS + 1), "nobody")
        kept = await store.approvals.read("answered")
        assert (kept.state, kept.answered_by, kept.note) == ("denied", Actor("mcp", "it"), "no")
        later = KEPT_MS + 2_000
        await store.approvals.ask(made("later", later, later + 1), "nobody")
        with pytest.raises(NotFound):
            await store.approvals.read("answered")
        assert [each.id for each in await store.approvals.waiting()] == ["open", "next", "later"]
