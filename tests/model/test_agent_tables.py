"""The tables of `infloop.toml` that configure the built-in agent: strict, and without keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from infloop.errors import SettingsError
from infloop.policy.credential_names import looks_like_key
from infloop.policy.leaks.guard import LeakGuard
from infloop.policy.leaks.rules import shipped_rules
from infloop.settings import Settings, load_settings, shown_settings

FULL = """
isolation = "guard"

[providers.local]
kind = "openai-compatible"
base_url = "http://127.0.0.1:11434/v1"
default_model = "qwen3"

[providers.anthropic]
kind = "anthropic"
api_key_env = "ANTHROPIC_API_KEY"

[router.coding]
provider = "anthropic"
model = "claude-sonnet-5-5"

[agent]
max_turns = 7
tools = ["fs_read", "shell"]
search_url = "https://search.example.com/?q={query}"
search_key_env = "SEARCH_KEY"

[security.leaks]
mode = "enforce"

[security.secrets]
mode = "env_first"

[[security.egress.rules]]
tool = "web_fetch"
host = "docs.example.com"
path_prefix = "/api"
methods = ["GET"]

[[security.approvals.rules]]
capability = "execute"
answer = "ask"
pattern = "git push*"

[mcp.servers.bot]
command = "bot"
env = ["BOT_TOKEN"]
"""


def load(tmp_path: Path, text: str, **variables: str) -> Settings:
    file = tmp_path / "infloop.toml"
    file.write_text(text)
    return load_settings({"INFLOOP_CONFIG": str(file), **variables})


def test_all_tables_are_read_and_shown(tmp_path: Path) -> None:
    settings = load(tmp_path, FULL)
    config = settings.agent_config
    assert config.providers["local"].default_model == "qwen3"
    assert config.router.coding is not None
    assert config.agent.tools == ("fs_read", "shell")
    assert config.security.egress.rules[0].path_prefix == "/api"
    assert config.mcp.servers["bot"].env == ("BOT_TOKEN",)
    assert settings.isolation == "guard"
    assert settings.with_options(isolation="host").agent_config is config
    tables = shown_settings(settings)["tables"]
    assert tables["agent.tools"] == "fs_read, shell"
    assert tables["providers.anthropic.api_key_env"] == "ANTHROPIC_API_KEY"
    assert tables["security.egress.rules[1].host"] == "docs.example.com"


def test_the_mode_of_the_leak_guard_is_one_setting_and_the_environment_wins(tmp_path: Path) -> None:
    table = '[security.leaks]\nmode = "enforce"\n'
    assert load(tmp_path, table).leaks_mode == "enforce"
    assert load(tmp_path, table).source_of("leaks_mode") == "file"
    assert load(tmp_path, table, INFLOOP_LEAKS_MODE="warn").leaks_mode == "warn"
    assert load(tmp_path, 'leaks_mode = "enforce"\n' + table).leaks_mode == "enforce"
    with pytest.raises(SettingsError, match="contradict"):
        load(tmp_path, 'leaks_mode = "off"\n' + table)


@pytest.mark.claim("L10", "L16", "L50")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[provider.x]\n", r"\[provider\] is not a table of the settings; did you mean \[prov"),
        ("[agent]\nmax_turn = 3\n", r"\[agent\] has no key 'max_turn'; did you mean 'max_turns'"),
        ('[agent]\nmax_turns = "3"\n', r"\[agent\] max_turns: must be a whole number"),
        ("[agent]\nmax_turns = true\n", r"\[agent\] max_turns: must be a whole number"),
        ("[agent]\nmax_turns = 0\n", "at least 1"),
        ("[agent]\nmax_turns = -1\n", "must not be negative"),
        ('[agent]\ntools = "fs_read"\n', r"\[agent\] tools: must be a list"),
        ("[agent]\ntools = [1]\n", r"tools\[1\]: must be a text"),
        ("agent = 3\n", r"\[agent\] must be a table"),
        ('[security.secrets]\nmode = "keyring"\n', "must be one of env_first"),
        ('[security.leaks]\nmode = "redct"\n', "did you mean 'redact'"),
        ('[security.leak]\nmode = "redact"\n', "did you mean 'leaks'"),
        ("[[security.egress.rules]]\nhots = 'x'\n", "has no key 'hots'; did you mean 'host'"),
        ("[[security.egress.rules]]\ntool = 'x'\n", "needs the key 'host'"),
        ("[[security.egress.rules]]\nhost = 'x'\nports = [0]\n", "are not ports"),
        ("[[security.approvals.rules]]\nanswer = 'ask'\n", "needs the key 'capability'"),
        (
            "[[security.approvals.rules]]\nanswer = 'ask'\ncapability = 'exceute'\n",
            "did you mean 'execute'",
        ),
        ('[providers.x]\nkind = "opanai"\n', "did you mean 'openai'"),
        ("[providers.x]\n", r"\[providers.x\] needs the key 'kind'"),
        ('[providers.x]\nkind = "openai-compatible"\n', "needs the key 'base_url'"),
        ('[providers.x]\nkind = "openai"\nbase_url = "ftp://x"\n', "an http or https address"),
        ('[providers."a:b"]\nkind = "openai"\n', "a name has letters"),
        ('[router.coding]\nprovider = "x"\n', "no such table below"),
        ('[router.code]\nprovider = "x"\n', "has no key 'code'"),
        ('[mcp.servers.bot]\ncommand = "a"\nurl = "http://x"\n', "either `command` or `url`"),
    ],
)
def test_a_mistake_in_a_table_is_named_with_its_key(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(SettingsError, match=problem):
        load(tmp_path, text)


KEYS = (
    "sk-proj-Ab12Cd34Ef56Gh78Ij90Kl12Mn34Op56Qr78",
    "sk-ant-api03-Ab12Cd34Ef56Gh78Ij90Kl12Mn34Op56Qr78-St90Uv12Wx34AA",
    "AIzaSyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q",
    "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",
    "0123456789abcdef0123456789abcdef",
    "gsk_Ab12Cd34Ef56Gh78Ij90",
    "my key with spaces 123456",
)


@pytest.mark.claim("L9")
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    "place",
    [
        '[providers.x]\nkind = "openai"\napi_key_env = "{}"\n',
        '[agent]\nsearch_key_env = "{}"\n',
        '[mcp.servers.bot]\ncommand = "bot"\nenv = ["{}"]\n',
        '[mcp.servers.bot]\nurl = "https://x"\ntoken_env = "{}"\n',
        '[providers.x]\nkind = "openai"\napi_key = "{}"\n',
        '[providers.x]\nkind = "{}"\n',
        '[security.leaks]\nmode = "{}"\n',
        '[providers.x]\nkind = "openai"\nbase_url = "https://user:{}@example.com"\n',
    ],
)
def test_a_key_where_a_name_belongs_is_refused_and_not_repeated(
    tmp_path: Path, place: str, key: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        load(tmp_path, place.format(key))
    shown = str(refused.value)
    assert key not in shown
    assert key[4:16] not in shown


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY",
        "MY_OPENAI_KEY_2",
        "ANTHROPIC_KEY_FOR_TEAM_12",
        "key",
        "azureOpenAiKey",
    ],
)
def test_names_of_variables_are_no_keys(name: str) -> None:
    assert not looks_like_key(name, LeakGuard((), shipped_rules))
