"""What the documents say about the development loop."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from infloop.model.dev import config
from infloop.web.dev_events import ROUTES
from support.paths import ROOT
from support.server import infloop

SECURITY = (ROOT / "docs/security.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs/dev-loop.md").read_text(encoding="utf-8")
TRUST = SECURITY[SECURITY.index("## The development loop") :]


def words(text: str) -> str:
    return " ".join(text.split())


def mentions(text: str, *phrases: str) -> None:
    for phrase in phrases:
        assert phrase in words(text), phrase


@pytest.mark.claim("D1")
def test_every_way_in_has_its_row_in_the_trust_model() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+?) \| .+ \|$", TRUST, re.MULTILINE)
    ways = " ".join(way for way, _ in rows)
    for method, path, _ in ROUTES:
        assert f"`{method} {path}`" in ways
    for way in ("`devloop.toml`", "watched files", "state file", "output of", "signals, keys"):
        assert way in ways
    source = (ROOT / "src/infloop/web/dev_events.py").read_text(encoding="utf-8")
    in_code = {*re.findall(r'^[A-Z_]+ = "(/[^"]+)"$', source, re.MULTILINE)}
    assert {path.replace("{name}", "") for _, path, _ in ROUTES} == in_code
    for table in ("event_server", "browser_reload_server"):
        assert f"`{table}.bind`" in SECURITY


@pytest.mark.claim("D25", "D26", "D29", "D31", "D57")
def test_the_security_page_names_what_events_cost() -> None:
    mentions(
        TRUST,
        "Events are a listener that was not there before. Declaring one is logged in one line",
        "The token does not stop a hostile process of your own user.",
        "A child that was taken over can send every event that its token allows.",
        "Loopback is not a boundary by itself",
        "no accounts, no TLS and no delegation",
        "For requests between services use what is made for that",
    )


@pytest.mark.claim("D48", "D49", "D50", "D51", "D52", "D53")
def test_the_page_says_when_to_push_and_when_to_poll() -> None:
    guidance = PAGE[PAGE.index("## Push or poll") : PAGE.index("## Browser reload")]
    push, poll = guidance.split("Use polling when")
    mentions(push, "precise and a user caused it", "it must be quick", "trusted already")
    mentions(poll, "must stay simple", "a listener is not worth it", "some delay or repeated work")


@pytest.mark.claim("D40")
def test_every_key_is_documented_and_events_with_their_scope() -> None:
    for table, keys in (
        ("", config.DevConfig.model_fields),
        ("process.NAME.", config.Process.model_fields),
        ("hook.NAME.", config.Hook.model_fields),
        ("watcher.", config.Watcher.model_fields),
    ):
        for key in keys:
            assert f"`{table}{key}" in PAGE or f"`.{key}`" in PAGE, table + key
    events = PAGE[PAGE.index("## External events") :]
    mentions(events, "`state_key` is the only key that it writes, `workflow` the only workflow")


@pytest.mark.claim("D58")
def test_weaknesses_can_be_reported_and_advisories_are_listed() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    mentions(text, "## Reporting a weakness", "## Advisories None.")


@pytest.mark.claim("D2")
def test_the_documents_need_no_configuration(tmp_path: Path) -> None:
    assert infloop(tmp_path, "dev", "docs", "security").stdout == SECURITY
    assert infloop(tmp_path, "dev", "docs", "config").stdout == PAGE
    assert infloop(tmp_path, "docs", "behavior").stdout == PAGE
    assert infloop(tmp_path, "docs", "config").stdout == PAGE


def test_the_examples_of_the_page_are_right_configurations() -> None:
    for block in re.findall(r"^```toml[^\n]*\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        tables = {"root": ".", **tomllib.loads(block)}
        config.DevConfig.model_validate(tables)
