"""What a child inherits, decided in one pure function and seen by a real child."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from infloop.errors import SettingsError, StepError
from infloop.policy.environment import ChildEnvironment, child_environment, parse_passthrough
from infloop.sandbox.base import ChildRequest
from infloop.sandbox.levels.host import HostSandbox

if TYPE_CHECKING:
    from collections.abc import Mapping

SECRETS = {
    "INFLOOP_API_TOKEN": "canary-own-token",
    "INFLOOP_DATA_DIR": "/canary",
    "ANTHROPIC_API_KEY": "canary-anthropic",
    "AWS_ACCESS_KEY_ID": "canary-aws-id",
    "AWS_SECRET_ACCESS_KEY": "canary-aws-secret",
    "GH_TOKEN": "canary-gh",
    "DATABASE_URL": "postgres://canary",
    "SSH_AUTH_SOCK": "/canary/agent",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/canary",
    "XDG_RUNTIME_DIR": "/canary/run",
    "LD_PRELOAD": "",
    "PYTHONPATH": "/canary/python",
    "GIT_SSH_COMMAND": "/canary/ssh",
    "CLAUDECODE": "1",
    "CLAUDE_CODE_ENTRYPOINT": "cli",
    "CLAUDE_CODE_SSE_PORT": "4711",
    "CLAUDE_CODE_USE_BEDROCK": "1",
    "MY_TOOL_HOME": "/opt/tool",
}
PLAIN = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/home/dev",
    "USER": "dev",
    "LANG": "C.UTF-8",
    "LC_TIME": "C",
    "TZ": "Europe/Berlin",
    "TERM": "xterm",
    "TMPDIR": "/tmp",
    "SSL_CERT_FILE": "/etc/ssl/cert.pem",
    "NODE_EXTRA_CA_CERTS": "/etc/ssl/cert.pem",
    "HTTPS_PROXY": "http://proxy:3128",
    "https_proxy": "http://proxy:3128",
    "NO_PROXY": "localhost",
}


async def seen_by_a_child(
    monkeypatch: pytest.MonkeyPatch, env: Mapping[str, str]
) -> dict[str, str]:
    """Start a real `env` from a server process whose own environment is full of secrets."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    sandbox = HostSandbox()
    try:
        result = await sandbox.run(ChildRequest(argv=("/usr/bin/env", "-0"), cwd="/", env=env))
    finally:
        await sandbox.close()
    assert result.error == ""
    assert result.exit_code == 0
    variables = result.stdout.split("\0")[:-1]
    return dict(variable.split("=", 1) for variable in variables)


@pytest.mark.claim("I29", "I31", "I32")
@pytest.mark.parametrize(
    ("passthrough", "added"),
    [
        ("", set()),
        ("ANTHROPIC_API_KEY", {"ANTHROPIC_API_KEY"}),
        ("AWS_*", {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}),
        ("AWS_SECRET*", {"AWS_SECRET_ACCESS_KEY"}),
        (" GH_TOKEN , DATABASE_URL ,", {"GH_TOKEN", "DATABASE_URL"}),
        ("NOT_SET,NOT_SET_*", set()),
        ("gh_token", set()),
        ("GH_TOKE", set()),
        ("MY_TOOL_HOME", {"MY_TOOL_HOME"}),
        ("CLAUDECODE,CLAUDE_CODE_ENTRYPOINT", set()),
        ("CLAUDE_CODE_*", {"CLAUDE_CODE_USE_BEDROCK"}),
        ("C*", {"CLAUDE_CODE_USE_BEDROCK"}),
        ("L*", set()),
        ("PYTHON*", set()),
        ("GIT*,GIT_*", set()),
        ("GIT_SSH_COMMAND", {"GIT_SSH_COMMAND"}),
        ("PYTHONPATH", {"PYTHONPATH"}),
    ],
)
async def test_a_child_gets_the_base_set_and_what_is_named_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, passthrough: str, added: set[str]
) -> None:
    entries = parse_passthrough(passthrough)
    seen = await seen_by_a_child(monkeypatch, child_environment({**SECRETS, **PLAIN}, entries, {}))
    assert seen == {**PLAIN, **{name: SECRETS[name] for name in added}}


@pytest.mark.claim("I32")
@pytest.mark.parametrize(
    "passthrough",
    ["INFLOOP_API_TOKEN", "INFLOOP_*", "INFLOOP_API_*", "INFLOOP*", "INF*", "I*", "infloop_token"],
)
def test_naming_our_own_namespace_is_refused(passthrough: str) -> None:
    with pytest.raises(SettingsError, match="never reach a child"):
        parse_passthrough(f"HOME,{passthrough}")
    with pytest.raises(SettingsError, match="never reach a child"):
        child_environment(SECRETS, [passthrough], {})


@pytest.mark.claim("I31")
@pytest.mark.parametrize(
    "passthrough",
    [
        "*",
        "_*",
        "1*",
        "_1*",
        "*_TOKEN",
        "A*B",
        "A**",
        "A-B",
        "1A",
        "A B",
        "A=B",
        "Ä",
        "A\nB",
        "A\0",
    ],
)
def test_a_passthrough_that_is_no_name_and_no_prefix_is_refused(passthrough: str) -> None:
    with pytest.raises(SettingsError, match="cannot be passed to children"):
        parse_passthrough(passthrough)
    with pytest.raises(SettingsError, match="cannot be passed to children"):
        child_environment(SECRETS, [passthrough], {})


@pytest.mark.parametrize(
    "value",
    ["", "two\nlines", "A=B", "=", "\nINFLOOP_X=1", "ünï\u2028code", "\udcff\udc80", "x" * 100_000],
)
async def test_a_value_set_by_a_workflow_arrives_exactly(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    env = child_environment(PLAIN, (), {"GIVEN": value})
    seen = await seen_by_a_child(monkeypatch, env)
    expected = value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    assert seen == {**PLAIN, "GIVEN": expected}


async def test_a_value_too_long_for_the_kernel_is_an_error_and_not_cut() -> None:
    sandbox = HostSandbox()
    env = child_environment(PLAIN, (), {"GIVEN": "x" * 1_000_000})
    try:
        result = await sandbox.run(ChildRequest(argv=("/usr/bin/env",), cwd="/", env=env))
    finally:
        await sandbox.close()
    assert "Argument list too long" in result.error
    assert result.stdout == ""


@pytest.mark.parametrize(
    "name",
    [
        *("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "DYLD_INSERT_LIBRARIES"),
        *("BASH_ENV", "ENV", "IFS", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND"),
        *("PYTHONSTARTUP", "PYTHONPATH", "PYTHONHOME", "PYTHONWARNINGS"),
        *("NODE_OPTIONS", "PERL5LIB", "PERL5OPT", "RUBYOPT", "JAVA_TOOL_OPTIONS"),
        *("GIT_DIR", "GIT_SSH_COMMAND", "GIT_CONFIG_COUNT", "PATH", "HOME"),
        *("INFLOOP_API_TOKEN", "INFLOOP_", "infloop_x"),
    ],
)
def test_a_workflow_cannot_set_a_variable_that_changes_which_code_runs(name: str) -> None:
    with pytest.raises(StepError, match="cannot be set by a workflow"):
        child_environment(PLAIN, (), {name: "x"})


@pytest.mark.parametrize("name", ["", "A=B", "A B", "1A", "A\n", "A\0", "Ä", "BASH_FUNC_ls%%"])
def test_a_workflow_cannot_set_what_is_no_variable_name(name: str) -> None:
    with pytest.raises(StepError, match="not a variable name"):
        child_environment(PLAIN, (), {name: "x"})


def test_a_workflow_cannot_set_a_value_with_a_nul() -> None:
    with pytest.raises(StepError, match="NUL"):
        child_environment(PLAIN, (), {"GIVEN": "a\0INFLOOP_X=1"})


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        (".:/usr/bin:", "/usr/bin"),
        (":/a:bin:../b:/c", "/a:/c"),
        ("node_modules/.bin:~/bin", ""),
        ("/a::/b", "/a:/b"),
    ],
)
def test_the_working_directory_is_on_no_childs_path(path: str, kept: str) -> None:
    assert child_environment({"PATH": path}, (), {}) == {"PATH": kept}


def test_a_workflow_may_replace_a_harmless_inherited_variable() -> None:
    assert child_environment(PLAIN, (), {"TZ": "UTC"})["TZ"] == "UTC"


def test_what_children_inherit_is_chosen_once_and_no_child_changes_it_for_the_next() -> None:
    server_env = dict(PLAIN)
    environment = ChildEnvironment(server_env, ["GIVEN"])
    server_env["GIVEN"] = "too late"
    environment()["PATH"] = "/evil"
    environment({"EXTRA": "x"})["HOME"] = "/evil"
    with pytest.raises(StepError, match="cannot be set by a workflow"):
        environment({"LD_PRELOAD": "x"})
    assert environment() == environment({}) == PLAIN
    assert environment({"EXTRA": "x"}) == {**PLAIN, "EXTRA": "x"}
