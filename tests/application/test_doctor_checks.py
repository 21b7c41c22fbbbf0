"""The checks of `infloop doctor`: settings tables as data, and the command itself."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from infloop.application.checks import CHECKS
from infloop.application.checks.agent import check_agent
from infloop.application.checks.machine import check_clock, check_data, check_programs
from infloop.model.agent_config import AgentConfig, ModelProvider, Route, Router
from infloop.model.agent_tables import read_tables
from infloop.store.opening import why_unreadable
from support.server import infloop

if TYPE_CHECKING:
    from pathlib import Path

    from infloop.application.checks import Check

KEY = "sk-a-value-that-nobody-may-see"
HOST = {"host": "docs.test"}
PROVIDER = {"kind": "openai", "api_key_env": "MY_KEY", "default_model": "m"}


def checks_of(
    tables: dict[str, Any], *, leaks: str = "redact", variables: tuple[str, ...] = ()
) -> list[tuple[str, str, str]]:
    config, problems = read_tables(tables)
    assert not problems
    found = check_agent(config, leaks, lambda name: name in variables)
    return [(each.id, each.status, f"{each.message} {each.fix}") for each in found]


def one(checks: list[tuple[str, str, str]], name: str) -> tuple[str, str]:
    (found,) = ((status, text) for each, status, text in checks if each == name)
    return found


@pytest.mark.claim("L46")
@pytest.mark.parametrize(
    ("mode", "status"),
    [("off", "warn"), ("warn", "warn"), ("redact", "ok"), ("enforce", "ok")],
)
def test_a_leak_guard_that_lets_secrets_through_is_a_warning(mode: str, status: str) -> None:
    found, text = one(checks_of({}, leaks=mode), "leaks.mode")
    assert found == status
    assert mode in text
    assert ("INFLOOP_LEAKS_MODE=redact" in text) is (status == "warn")


@pytest.mark.claim("L45")
def test_it_is_said_how_keys_are_found() -> None:
    assert one(checks_of({}), "secrets.mode") == ("ok", "env_first: keys come from variables ")


@pytest.mark.claim("L47")
def test_egress_rules_are_counted_and_wide_ones_are_named() -> None:
    def with_rules(*rules: dict[str, Any]) -> list[tuple[str, str, str]]:
        return checks_of({"security": {"egress": {"rules": list(rules)}}})

    status, text = one(checks_of({}), "egress.rules")
    assert (status, "[[security.egress.rules]]" in text) == ("warn", True)
    narrow = {**HOST, "path_prefix": "/a", "methods": ["GET"]}
    assert one(with_rules(narrow, narrow), "egress.rules") == ("ok", "2 egress rules ")
    assert not [each for each in with_rules(narrow) if each[0] == "egress.wide"]
    for missing, rule in (
        ("methods", {**HOST, "path_prefix": "/a"}),
        ("path_prefix", {**HOST, "methods": ["GET"]}),
        ("path_prefix", {**HOST, "methods": ["GET"], "path_prefix": "/"}),
        ("path_prefix and no methods", HOST),
    ):
        status, text = one(with_rules(narrow, rule), "egress.wide")
        assert status == "warn"
        assert "docs.test" in text
        assert f"has no {missing} " in text


@pytest.mark.claim("L48", "L13")
def test_routes_and_key_variables_are_checked_by_name() -> None:
    tables = {
        "providers": {"mine": PROVIDER, "other": {"kind": "anthropic"}},
        "router": {
            "planning": {"provider": "mine"},
            "coding": {"provider": "other"},
        },
    }
    checks = checks_of({"providers": {"mine": PROVIDER}}, variables=("MY_KEY",))
    assert one(checks, "providers.keys") == ("ok", "[providers.mine] api_key_env: MY_KEY is set ")
    checks = checks_of(tables)
    status, text = one(checks, "providers.keys")
    assert (status, text) == (
        "warn",
        "[providers.mine] api_key_env: MY_KEY is not set export MY_KEY=…",
    )
    routes = [(status, text) for name, status, text in checks if name == "routes"]
    assert ("ok", "planning: mine m ") in routes
    assert any(
        status == "error" and "[router.coding] has no model" in text for status, text in routes
    )
    nowhere = AgentConfig(
        providers={"mine": ModelProvider(kind="openai")},
        router=Router(summary=Route(provider="mnie")),
    )
    found = check_agent(nowhere, "redact", lambda _: True)
    assert ("routes", "error") in [(each.id, each.status) for each in found]


def test_rules_that_answer_for_everybody_are_named() -> None:
    rules = [
        {"capability": "network-write", "answer": "allow"},
        {"capability": "network-write", "answer": "allow", "pattern": "https://docs.test/*"},
        {"capability": "execute", "answer": "allow", "trait": "destructive"},
        {"capability": "read", "answer": "allow"},
    ]
    checks = checks_of({"security": {"approvals": {"rules": rules}}})
    assert [status for name, status, _ in checks if name == "approvals"] == ["warn", "warn"]
    assert one(checks_of({}), "approvals")[0] == "ok"


def by_id(checks: list[Check]) -> dict[str, str]:
    return {each.id: each.status for each in checks}


async def test_the_data_directory_is_checked(tmp_path: Path) -> None:
    data = tmp_path / "data"

    async def checked(free: int = 0) -> dict[str, str]:
        return by_id(list(check_data(data, free, await why_unreadable(data))))

    assert set((await checked()).values()) == {"ok"}
    data.mkdir(0o755)
    with sqlite3.connect(data / "journal.db") as database:
        database.execute("CREATE TABLE a (b)")
    database.close()
    found = await checked(1 << 60)
    assert found == {
        "data.directory": "ok",
        "data.modes": "warn",
        "data.disk": "error",
        "data.database": "ok",
    }
    data.chmod(0o777)
    (data / "journal.db").write_bytes(b"x" * 4096)
    found = await checked()
    assert found["data.directory"] == "error"
    assert found["data.database"] == "error"


def test_a_clock_behind_the_files_is_a_warning() -> None:
    assert check_clock(0).status == "warn"
    assert check_clock(4_000_000_000_000).status == "ok"


@pytest.mark.claim("L48")
def test_an_endpoint_outside_of_the_sandbox_is_a_warning() -> None:
    for url, said in (
        ("http://127.0.0.1:9222", "outside of the sandbox"),
        ("http://192.0.2.1:9222", "browser_cdp_url"),
        ("nonsense", "browser_cdp_url"),
    ):
        checks = {each.id: each for each in check_programs(url, confines=True)}
        assert set(checks) == {"tools.git", "tools.containers", "tools.browser"}
        assert checks["tools.browser"].status == "warn"
        assert said in checks["tools.browser"].message + checks["tools.browser"].fix


@pytest.mark.claim("L44", "L48")
def test_the_doctor_works_without_a_file_and_with_a_broken_one(tmp_path: Path) -> None:
    told = json.loads(infloop(tmp_path, "doctor", "--level", "host", "--json").stdout)
    assert not (tmp_path / "data").exists()
    found = {each["id"]: each for each in told["checks"]}
    assert found["config.parse"]["status"] == "ok"
    assert found["egress.rules"]["status"] == "warn"
    assert {"tools.git", "tools.containers", "tools.browser", "secrets.mode"} <= set(found)
    assert set(found) <= set(CHECKS)
    assert all(each["fix"] for each in told["checks"] if each["status"] != "ok")
    assert [each["id"] for each in told["checks"]] == sorted(
        (each["id"] for each in told["checks"]), key=list(CHECKS).index
    )
    infloop(tmp_path, "doctor", "--level", "host", "--strict", code=1)
    file = tmp_path / "infloop.toml"
    for content in (
        "not toml at all [",
        "[providers.a]\nkind = 'openai'\napi_key_env = '" + KEY + "'",
        "[security.egres]\nrules = []",
    ):
        file.write_text(content)
        said = infloop(tmp_path, "doctor", "--level", "host", code=1, config=str(file))
        assert "error config.parse: " in said.stdout
        assert "ok    tools.git: " in said.stdout
        assert KEY not in said.stdout + said.stderr
