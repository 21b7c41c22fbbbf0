"""Repositories that workflows name: what is fetched, what is refused, and what never runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from infloop.errors import GuardError
from infloop.model.repository_address import is_inside, parse_repository
from infloop.workspace.git.commands import Git
from infloop.workspace.git.remote import Credentials, Remote
from infloop.workspace.repositories.mirrors import Limits, Mirrors
from infloop.workspace.snapshots.walk import TreeLimits
from support.repositories import git, programs, repository, write

ADDRESSES = (
    "",
    "web",
    "./web",
    "../web",
    "~/web",
    "-u",
    "--upload-pack=touch /tmp/x",
    "ext::sh -c 'touch /tmp/x'",
    "fd::7",
    "http://example.com/web.git",
    "git://example.com/web.git",
    "ftp://example.com/web.git",
    "file:///etc",
    "file://localhost/srv/git/web",
    "git@example.com:web.git",
    "https://example.com",
    "https:///web.git",
    "https://example.com/web.git?x=1",
    "https://example.com/web.git#main",
    "https://example.com/../web.git",
    "https://example.com/a//b",
    "https://example.com/%2e%2e/web",
    "https://example.com/a b",
    "https://example.com/a\nb",
    "https://example.com/a\0b",
    "https://exämple.com/web",
    "https://example.com:0/web",
    "https://example.com:99999/web",
    "https://127.1/web",
    "https://0x7f000001/web",
    "https://[::1]/web",
    "ssh://-oProxyCommand=x/web",
    "ssh://example.com/-x",
    "ssh://-x@example.com/web",
    "ssh://example.com;id/web",
    "ssh://example.com/$(id)",
    "ssh://example.com/`id`",
    "/srv/git/../../etc",
    "/srv/git/\nx",
    "/srv/git/$(id)",
    "/",
    "/" + "x" * 2000,
)

REFS = (
    "",
    "-",
    "--upload-pack=x",
    "main..other",
    "main~1",
    "main^{tree}",
    "main:a.txt",
    "@",
    "main@{1}",
    "a b",
    "a\nb",
    "a\0b",
    "/main",
    "main/",
    "a//b",
    ".hidden",
    "a/.b",
    "x.lock",
    "refs/infloop/x",
    "refs/pull/1/head",
    "refs/heads",
    "*",
    "+main",
    "x" * 300,
)


@asynccontextmanager
async def mirrors(tmp_path: Path, **more: Any) -> AsyncIterator[Mirrors]:
    async with programs() as run:
        allowed = more.pop("allowed", (str(tmp_path / "git"),))
        yield Mirrors(tmp_path / "mirrors", Git(run), allowed=allowed, **more)


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_that_means_something_else_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"repositor|host|path|port|must not|shortest"):
        parse_repository(address)


@pytest.mark.parametrize(
    "address",
    [
        "https://user:hunter2@example.com/web.git",
        "https://hunter2@example.com/web.git",
        "ssh://git:hunter2@example.com/web.git",
        "https:/user:hunter2@example.com/web",
        "http://user:hunter2@example.com/web",
        "ext::sh user:hunter2@x",
    ],
)
def test_a_password_in_an_address_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(ValueError, match="repository") as refused:
        parse_repository(address)
    assert "hunter2" not in str(refused.value)


def test_the_operator_allows_addresses_by_whole_names() -> None:
    def allows(prefix: str, address: str) -> bool:
        return is_inside(parse_repository(address), prefix)

    assert allows("https://example.com", "https://example.com/team/web")
    assert allows("https://Example.com/team/", "https://example.com/team/web")
    assert allows("/srv/git", "/srv/git/web")
    refused = [
        ("https://example.com/team", "https://example.com/team-evil/web"),
        ("https://example.com", "https://example.com.evil.org/web"),
        ("https://example.com", "https://example.com:8443/web"),
        ("https://example.com", "ssh://example.com/web"),
        ("ssh://git@example.com", "ssh://root@example.com/web"),
        ("/srv/git", "/srv/git-evil/web"),
        ("/", "/etc"),
        ("", "/etc"),
        ("https://", "https://example.com/web"),
        ("file:///srv", "/srv/git"),
    ]
    assert [each for each in refused if allows(*each)] == []


async def test_only_what_is_allowed_is_fetched_and_only_refs_by_plain_names(
    tmp_path: Path,
) -> None:
    origin = repository(tmp_path / "git/web")
    outside = repository(tmp_path / "elsewhere/web")
    (tmp_path / "git/link").symlink_to(outside)
    async with mirrors(tmp_path, allowed=()) as closed:
        with pytest.raises(GuardError, match="INFLOOP_REPOSITORIES"):
            await closed.fetch(str(origin), "main")
    async with mirrors(tmp_path) as made:
        for ref in REFS:
            with pytest.raises(GuardError, match="not the name of a branch"):
                await made.fetch(str(origin), ref)
        for url, why in (
            (str(outside), "INFLOOP_REPOSITORIES"),
            (str(tmp_path / "git/link"), "leads out"),
            (str(tmp_path / "git/nothing"), "there is no repository"),
            ("https://example.com/web", "INFLOOP_REPOSITORIES"),
        ):
            with pytest.raises(GuardError, match=why):
                await made.fetch(url, "main")
        with pytest.raises(GuardError, match="no branch and no tag 'nope'"):
            await made.fetch(str(origin), "nope")


async def test_a_branch_a_tag_and_a_commit_are_fetched_incrementally(tmp_path: Path) -> None:
    origin = repository(tmp_path / "git/web")
    first = git("rev-parse", "HEAD", cwd=origin)
    git("tag", "-a", "-m", "one", "v1", cwd=origin)
    async with mirrors(tmp_path) as made:
        for ref in ("main", "HEAD", "v1", "refs/heads/main", "refs/tags/v1", first):
            assert (await made.fetch(str(origin), ref)).commit == first
        write(origin / "c.txt", "c\n")
        git("add", "-A", cwd=origin)
        git("commit", "-q", "-m", "second", cwd=origin)
        mirror, second = await made.fetch(str(origin), "main")
        assert second == git("rev-parse", "HEAD", cwd=origin)
        assert (await made.fetch(str(origin), "v1")).commit == first
        git("reset", "-q", "--hard", first, cwd=origin)
        assert (await made.fetch(str(origin), "main")).commit == first
        # A commit that no branch has any more is still there for the runs that began with it.
        assert (await made.fetch(str(origin), second)).commit == second
        assert len(list((tmp_path / "mirrors").iterdir())) == 1
        assert not (mirror.common / "hooks").exists()
        assert await made.remove_unused({str(mirror.common)}, 0) == 0
        assert await made.remove_unused((), 3600) == 0
        assert await made.remove_unused((), -1) == 1
        assert list((tmp_path / "mirrors").iterdir()) == []


async def test_nothing_that_a_source_configures_is_executed(tmp_path: Path) -> None:
    origin = repository(tmp_path / "git/web", {".gitattributes": "* filter=evil\n", "a": "a\n"})
    ran = tmp_path / "ran"
    attack = write(tmp_path / "attack", f"#!/bin/sh\ntouch {ran}\ncat\n")
    attack.chmod(0o755)
    for hook in ("post-checkout", "pre-receive", "post-update", "reference-transaction"):
        write(origin / ".git/hooks" / hook, attack.read_bytes()).chmod(0o755)
    for name in (
        "core.fsmonitor",
        "core.sshCommand",
        "core.pager",
        "core.gitProxy",
        "core.alternateRefsCommand",
        "filter.evil.smudge",
        "filter.evil.process",
        "credential.helper",
        "diff.external",
        "gpg.program",
    ):
        git("config", name, str(attack), cwd=origin)
    async with mirrors(tmp_path) as made:
        await made.fetch(str(origin), "main")
    assert not ran.exists()


@pytest.mark.parametrize(
    ("plant", "why"),
    [
        (lambda at, other: write(at / "objects/info/alternates", f"{other}\n"), "borrows"),
        (lambda at, other: write(at / "objects/info/http-alternates", f"{other}\n"), "borrows"),
        (lambda at, _: write(at / "commondir", "../..\n"), "part of another"),
        (lambda at, _: write(at / "config.worktree", ""), "part of another"),
        (lambda at, o: git("config", "include.path", str(o), cwd=at), "include.path"),
        (lambda at, o: git("config", "includeIf.gitdir:/.path", str(o), cwd=at), "(?i)includeif"),
        (lambda at, _: git("config", "extensions.partialClone", "x", cwd=at), "(?i)partialclone"),
        (lambda at, _: git("config", "remote.x.promisor", "true", cwd=at), "promisor"),
        (lambda at, _: git("config", "remote.x.uploadpack", "id", cwd=at), "uploadpack"),
        (lambda at, _: git("config", "uploadpack.packObjectsHook", "id", cwd=at), "(?i)packobj"),
        (
            lambda at, _: (at / "config").rename(at / "c") and (at / "config").symlink_to("c"),
            "plain",
        ),
        (lambda at, o: (at / "objects").rename(at / "o") and (at / "objects").symlink_to(o), "own"),
    ],
)
async def test_a_local_source_that_reaches_further_is_refused(
    tmp_path: Path, plant: Any, why: str
) -> None:
    origin = repository(tmp_path / "git/web")
    secret = repository(tmp_path / "secret")
    plant(origin / ".git", secret / ".git/objects")
    async with mirrors(tmp_path) as made:
        with pytest.raises(GuardError, match=why):
            await made.fetch(str(origin), "main")
    assert not list((tmp_path / "mirrors").glob("*"))


async def test_what_is_too_large_or_damaged_is_refused(tmp_path: Path) -> None:
    many = repository(tmp_path / "git/many", {f"f{number}": "x\n" for number in range(30)})
    # Eight levels of ten equal trees are a hundred million files in a few objects.
    bomb = repository(tmp_path / "git/bomb", {"a": "x\n"})
    tree = git("rev-parse", "HEAD^{tree}", cwd=bomb)
    for _ in range(8):
        listing = "".join(f"040000 tree {tree}\tt{number}\n" for number in range(10))
        tree = git("mktree", cwd=bomb, input=listing.encode())
    git("update-ref", "HEAD", git("commit-tree", "-m", "b", tree, cwd=bomb), cwd=bomb)
    # A tree with a name that git would never write.
    evil = repository(tmp_path / "git/evil", {"a": "x\n"})
    blob = git("rev-parse", "HEAD:a", cwd=evil)
    raw = b"100644 .git\0" + bytes.fromhex(blob)
    tree = git("hash-object", "-t", "tree", "-w", "--literally", "--stdin", cwd=evil, input=raw)
    git("update-ref", "HEAD", git("commit-tree", "-m", "e", tree, cwd=evil), cwd=evil)
    small = Limits(tree=TreeLimits(files=20))
    async with mirrors(tmp_path, limits=small) as made:
        with pytest.raises(GuardError, match="too large to be checked out"):
            await made.fetch(str(many), "main")
    async with mirrors(tmp_path) as made:
        with pytest.raises(GuardError, match="too large to be checked out"):
            await made.fetch(str(bomb), "main")
        with pytest.raises(GuardError, match=r"hasDotgit|fsck|contains '\.git'"):
            await made.fetch(str(evil), "main")
        await made.fetch(str(many), "main")
    async with mirrors(tmp_path, limits=Limits(mirror_bytes=10)) as made:
        git("commit", "-q", "--allow-empty", "-m", "more", cwd=many)
        with pytest.raises(GuardError, match="more than 10 bytes"):
            await made.fetch(str(many), "main")
    assert not list((tmp_path / "mirrors").glob("*/objects/**/tmp_*"))


def test_a_call_opens_one_protocol_and_only_the_credentials_of_that_one() -> None:
    known = Credentials("/run/agent", "store", "/home/me")
    by = {name: Remote(name, known) for name in ("https", "ssh", "file")}
    assert {name: each.environment()["GIT_ALLOW_PROTOCOL"] for name, each in by.items()} == {
        name: name for name in by
    }
    assert "SSH_AUTH_SOCK" not in by["https"].environment() | by["file"].environment()
    assert "BatchMode=yes" in by["ssh"].environment()["GIT_SSH_COMMAND"]
    assert "credential.helper=store" in by["https"].configuration()
    for name in ("ssh", "file"):
        assert "credential.helper=store" not in by[name].configuration()
        assert "HOME" not in by[name].environment()
