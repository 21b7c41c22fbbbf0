"""Provider manifests, triggers, webhook plugins and connections as files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infloop.catalog.files import read_folder
from infloop.errors import Problem
from infloop.model.connection import Connection, connection_schema, parse_connection
from infloop.model.plugin import Plugin, parse_plugin, plugin_schema
from infloop.model.provider import (
    CliProvider,
    HttpProvider,
    ScriptedProvider,
    parse_provider,
    provider_schema,
)
from infloop.model.texts import host_pattern
from infloop.model.trigger import Trigger, parse_trigger, trigger_schema

Raw = dict[str, Any]
Parse = Callable[[bytes], tuple[Any, list[Problem]]]

CLI: Raw = {
    "id": "claude",
    "label": "Claude",
    "description": "asks claude",
    "glyph": "⟳",
    "bin": "claude",
    "args": ["--print", "--agent", "{agent}", "{prompt}"],
    "outputFormat": "claude-stream-json",
    "promptVia": "arg",
    "envPassthrough": ["ANTHROPIC_API_KEY", "CLAUDE_*"],
    "dangerousArgs": ["--dangerously-skip-permissions"],
    "egressAllowlist": ["api.Anthropic.com", "*.claude.ai", "127.0.0.1", "::1"],
}
HTTP: Raw = {
    "id": "local",
    "label": "Local",
    "description": "a model on this machine",
    "transport": "http",
    "baseUrl": "http://127.0.0.1:8080/v1//",
    "endpoint": "/chat/completions",
    "profilesEndpoint": "/models",
    "auth": {"type": "bearer", "envVar": "LOCAL_TOKEN"},
    "profiles": [{"id": "small", "label": "Small"}, {"id": "large"}],
    "defaultProfile": "small",
}
SCRIPTED: Raw = {
    "id": "demo",
    "label": "Demo",
    "description": "plays a file",
    "transport": "scripted",
    "script": "demo.turns.json",
}
TRIGGER: Raw = {
    "id": "Mp3bBKPc04r3UQGQt71Dsw",
    "name": "opened",
    "enabled": True,
    "workflowId": "review",
    "pluginId": "github",
    "eventType": "pull_request",
    "match": [{"lhs": "{{body.action}}", "op": "==", "rhs": "opened"}],
    "inputs": {"title": "{{body.title}}"},
    "secret": "hunter2-secret",
    "lastFiredAt": None,
    "createdAt": 1778400000000,
    "updatedAt": 1778400000000,
}
PLUGIN: Raw = {
    "id": "frog",
    "displayName": "Frog",
    "icon": "frog",
    "eventHeader": "X-Frog-Event",
    "signature": {"header": "X-Frog-Signature", "scheme": "hmac-sha256", "format": "sha256=<hex>"},
    "events": [
        {
            "type": "leap",
            "displayName": "Leap",
            "fields": [{"path": "body.height", "type": "number", "description": "in cm"}],
            "examplePayload": {"height": 40, "parent": None},
        }
    ],
}
CONNECTION: Raw = {
    "label": "My Hermes!",
    "host": "http://127.0.0.1:9999/",
    "token": "hunter2-token",
    "ports": [{"port": 18643, "profile": "modelA"}, {"port": 18644}],
}


def data(raw: object) -> bytes:
    return json.dumps(raw).encode()


@pytest.mark.claim("I6")
def test_providers_triggers_plugins_and_connections_are_json_files(tmp_path: Path) -> None:
    files: dict[str, tuple[Raw, Parse, type]] = {
        "providers/claude.json": (CLI, parse_provider, CliProvider),
        "triggers/Mp3bBKPc04r3UQGQt71Dsw.json": (TRIGGER, parse_trigger, Trigger),
        "webhook-plugins/frog.json": (PLUGIN, parse_plugin, Plugin),
        "connections/my-hermes.hermes.local.json": (CONNECTION, parse_connection, Connection),
    }
    for name, (raw, parse, kind) in files.items():
        path = tmp_path / name
        path.parent.mkdir()
        path.write_bytes(data(raw))
        made, problems = read_folder(path.parent, parse)
        assert problems == []
        assert [type(one) for one in made] == [kind]


def test_a_program_is_a_provider() -> None:
    provider, problems = parse_provider(data(CLI))
    assert problems == []
    assert isinstance(provider, CliProvider)
    assert provider.transport == "cli"
    assert provider.env_passthrough == ("ANTHROPIC_API_KEY", "CLAUDE_*")
    assert provider.egress_allowlist == ("api.anthropic.com", "*.claude.ai", "127.0.0.1", "::1")


def test_no_list_of_hosts_and_an_empty_one_are_different() -> None:
    without = {key: value for key, value in CLI.items() if key != "egressAllowlist"}
    open_provider, _ = parse_provider(data(without))
    closed_provider, _ = parse_provider(data({**CLI, "egressAllowlist": []}))
    assert isinstance(open_provider, CliProvider)
    assert isinstance(closed_provider, CliProvider)
    assert open_provider.egress_allowlist is None
    assert closed_provider.egress_allowlist == ()


def test_an_http_api_is_a_provider() -> None:
    provider, problems = parse_provider(data(HTTP))
    assert problems == []
    assert isinstance(provider, HttpProvider)
    assert provider.base_url == "http://127.0.0.1:8080/v1"
    assert provider.auth is not None
    assert provider.auth.env_var == "LOCAL_TOKEN"


def test_a_file_of_turns_is_a_provider() -> None:
    provider, problems = parse_provider(data(SCRIPTED))
    assert problems == []
    assert isinstance(provider, ScriptedProvider)
    assert provider.script == "demo.turns.json"


def test_headers_and_hosts_are_brought_to_one_form() -> None:
    plugin, _ = parse_plugin(data(PLUGIN))
    assert plugin is not None
    assert plugin.event_header == "x-frog-event"
    assert plugin.signature is not None
    assert plugin.signature.header == "x-frog-signature"
    connection, _ = parse_connection(data(CONNECTION))
    assert connection is not None
    assert connection.host == "http://127.0.0.1"


def test_secrets_are_not_shown_where_a_definition_is() -> None:
    trigger, _ = parse_trigger(data(TRIGGER))
    connection, _ = parse_connection(data(CONNECTION))
    assert trigger is not None
    assert trigger.secret == "hunter2-secret"
    assert "hunter2" not in f"{trigger!r} {connection!r}"


# name -> reader, file, place, message, severity
WRONG: dict[str, tuple[Parse, Any, str, str, str]] = {
    "not JSON": (parse_provider, None, "file", "expected a JSON object", "error"),
    "an unknown key at the top": (
        parse_provider,
        {**CLI, "colour": "red"},
        "file",
        "unknown field 'colour'",
        "warning",
    ),
    "a transport": (
        parse_provider,
        {**CLI, "transport": "carrier-pigeon"},
        "transport",
        "'carrier-pigeon' is not a transport",
        "error",
    ),
    "no program": (parse_provider, {**CLI, "bin": ""}, "bin", "is missing", "error"),
    "no label": (parse_provider, {**CLI, "label": None}, "label", "is missing", "error"),
    "no description": (
        parse_provider,
        {**CLI, "description": ""},
        "description",
        "is missing",
        "error",
    ),
    "an id that is a path": (
        parse_provider,
        {**CLI, "id": "../x"},
        "id",
        "not a plain file name",
        "error",
    ),
    "arguments in one text": (
        parse_provider,
        {**CLI, "args": "-p"},
        "args",
        "expected a list",
        "error",
    ),
    "an output format": (
        parse_provider,
        {**CLI, "outputFormat": "xml"},
        "outputFormat",
        "'xml' is not a choice here",
        "error",
    ),
    "a variable pattern that opens everything": (
        parse_provider,
        {**CLI, "envPassthrough": ["*"]},
        "envPassthrough[0]",
        "'*' is neither a variable's name nor PREFIX_*",
        "error",
    ),
    "a variable pattern in the middle": (
        parse_provider,
        {**CLI, "envPassthrough": ["A_*_B"]},
        "envPassthrough[0]",
        "neither a variable's name",
        "error",
    ),
    "a variable of ours": (
        parse_provider,
        {**CLI, "envPassthrough": ["INFLOOP_API_TOKEN"]},
        "envPassthrough",
        "'INFLOOP_API_TOKEN' never reaches a child",
        "warning",
    ),
    "an address for a host": (
        parse_provider,
        {**CLI, "egressAllowlist": ["https://x.test/"]},
        "egressAllowlist[0]",
        "'https://x.test/' is not a host",
        "error",
    ),
    "authentication with an unknown key": (
        parse_provider,
        {**HTTP, "auth": {"type": "bearer", "envVar": "A", "header": "x"}},
        "auth",
        "unknown field 'header'",
        "error",
    ),
    "authentication with two tokens": (
        parse_provider,
        {**HTTP, "auth": {"type": "bearer", "envVar": "A", "token": "t"}},
        "auth",
        "needs either envVar or token",
        "error",
    ),
    "authentication without token": (
        parse_provider,
        {**HTTP, "auth": {"type": "bearer"}},
        "auth",
        "needs either envVar or token",
        "error",
    ),
    "another kind of authentication": (
        parse_provider,
        {**HTTP, "auth": {"type": "basic", "token": "t"}},
        "auth.type",
        "'basic' is not a choice here",
        "error",
    ),
    "a dialect": (
        parse_provider,
        {**HTTP, "dialect": "klingon"},
        "dialect",
        "'klingon' is not a choice here",
        "error",
    ),
    "answers without length": (
        parse_provider,
        {**HTTP, "maxOutputTokens": 0},
        "maxOutputTokens",
        "0 is not a length",
        "error",
    ),
    "a base that is no address": (
        parse_provider,
        {**HTTP, "baseUrl": "file:///etc"},
        "baseUrl",
        "is not an http(s) address",
        "error",
    ),
    "a base with a password": (
        parse_provider,
        {**HTTP, "baseUrl": "http://user:pass@host"},
        "baseUrl",
        "is not an http(s) address",
        "error",
    ),
    "an endpoint without slash": (
        parse_provider,
        {**HTTP, "endpoint": "chat"},
        "endpoint",
        "must begin with a slash",
        "error",
    ),
    "a profile without id": (
        parse_provider,
        {**HTTP, "profiles": [{"label": "x"}]},
        "profiles[0].id",
        "is missing",
        "error",
    ),
    "a scripted provider without script": (
        parse_provider,
        {**SCRIPTED, "script": ""},
        "script",
        "is missing",
        "error",
    ),
    "a short trigger id": (
        parse_trigger,
        {**TRIGGER, "id": "short"},
        "id",
        "not a trigger id",
        "error",
    ),
    "a trigger id that is a path": (
        parse_trigger,
        {**TRIGGER, "id": "../../../../etc/passwd"},
        "id",
        "not a trigger id",
        "error",
    ),
    "a trigger that does not say whether it is on": (
        parse_trigger,
        {key: value for key, value in TRIGGER.items() if key != "enabled"},
        "enabled",
        "is missing",
        "error",
    ),
    "a trigger of a workflow elsewhere": (
        parse_trigger,
        {**TRIGGER, "workflowId": "../x"},
        "workflowId",
        "not a plain file name",
        "error",
    ),
    "unsigned requests as text": (
        parse_trigger,
        {**TRIGGER, "verifyOptional": "true"},
        "verifyOptional",
        "expected true or false, got 'true'",
        "error",
    ),
    "a comparison with an unknown key": (
        parse_trigger,
        {**TRIGGER, "match": [{"lhs": "a", "op": "==", "rhs": "b", "negate": True}]},
        "match[0]",
        "unknown field 'negate'",
        "error",
    ),
    "a comparison that never holds": (
        parse_trigger,
        {**TRIGGER, "match": [{"lhs": "a", "op": "matches", "rhs": "a(?!b)"}]},
        "match[0].rhs",
        "never matches",
        "warning",
    ),
    "a plugin called generic": (
        parse_plugin,
        {**PLUGIN, "id": "generic"},
        "id",
        "'generic' cannot be a plugin's id",
        "error",
    ),
    "a plugin in capitals": (
        parse_plugin,
        {**PLUGIN, "id": "Frog"},
        "id",
        "cannot be a plugin's id",
        "error",
    ),
    "a plugin without events": (
        parse_plugin,
        {**PLUGIN, "events": []},
        "events",
        "is missing",
        "error",
    ),
    "an event twice": (
        parse_plugin,
        {**PLUGIN, "events": PLUGIN["events"] * 2},
        "events[1]",
        "the event 'leap' is listed twice",
        "error",
    ),
    "a signature with an unknown key": (
        parse_plugin,
        {**PLUGIN, "signature": {**PLUGIN["signature"], "optional": True}},
        "signature",
        "unknown field 'optional'",
        "error",
    ),
    "a signature by another scheme": (
        parse_plugin,
        {**PLUGIN, "signature": {**PLUGIN["signature"], "scheme": "hmac-md5"}},
        "signature.scheme",
        "'hmac-md5' is not a choice here",
        "error",
    ),
    "a signature without header": (
        parse_plugin,
        {**PLUGIN, "signature": {"scheme": "hmac-sha256", "format": "hex"}},
        "signature.header",
        "is missing",
        "error",
    ),
    "a header with a line break": (
        parse_plugin,
        {**PLUGIN, "eventHeader": "x\r\ny"},
        "eventHeader",
        "is not the name of an HTTP header",
        "error",
    ),
    "a connection with a path": (
        parse_connection,
        {**CONNECTION, "host": "http://h/v1"},
        "host",
        "is not http(s)://host without a path",
        "error",
    ),
    "a port that is none": (
        parse_connection,
        {**CONNECTION, "ports": [{"port": 70_000}]},
        "ports[0].port",
        "70000 is not a port",
        "error",
    ),
    "a connection without ports": (
        parse_connection,
        {**CONNECTION, "ports": []},
        "ports",
        "is missing",
        "error",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_named_and_only_a_warning_lets_the_file_through(name: str) -> None:
    parse, raw, place, message, severity = WRONG[name]
    made, problems = parse(data(raw))
    (problem,) = problems
    assert (problem.place, problem.severity) == (place, severity)
    assert message in problem.message
    assert (made is None) == (severity == "error")


@pytest.mark.parametrize(
    ("parse", "raw"),
    [
        (parse_trigger, {**TRIGGER, "secret": ["hunter2"]}),
        (parse_connection, {**CONNECTION, "token": {"value": "hunter2"}}),
        (parse_provider, {**HTTP, "auth": "Bearer hunter2"}),
        (parse_provider, {**HTTP, "auth": {"type": "bearer", "token": ["hunter2"]}}),
    ],
)
def test_a_problem_with_a_secret_does_not_show_it(parse: Parse, raw: Raw) -> None:
    made, problems = parse(data(raw))
    assert made is None
    assert problems
    assert "hunter2" not in " ".join(map(str, problems))


def test_all_mistakes_of_a_file_are_reported_at_once() -> None:
    wrong = {**HTTP, "baseUrl": "x", "endpoint": "y", "auth": {"type": "z"}, "glyph": 5, "more": 1}
    _, problems = parse_provider(data(wrong))
    assert {problem.place for problem in problems} == {
        *("baseUrl", "endpoint", "auth.type", "glyph", "file", "auth")
    }


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("Example.COM", "example.com"),
        ("example.com.", "example.com"),
        ("*.example.com", "*.example.com"),
        ("localhost", "localhost"),
        ("10.0.0.1", "10.0.0.1"),
        ("Example.com:8443", "example.com:8443"),
        ("2001:DB8::0:1", "2001:db8::1"),
        ("xn--bcher-kva.test", "xn--bcher-kva.test"),
    ],
)
def test_a_host_is_a_name_a_wildcard_below_a_name_or_an_address(text: str, host: str) -> None:
    assert host_pattern(text) == host


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*",
        "*.",
        "**.example.com",
        "a.*.example.com",
        "*example.com",
        "*.10.0.0.1",
        "http://example.com",
        "example.com:0",
        "example.com:65536",
        "*.com",
        "_x.example.com",
        "example.com/x",
        "user@example.com",
        "[::1]",
        "127.1",
        "0x7f.0x1",
        "2130706433",
        "a..b",
        "-a.test",
        "bücher.test",
        "a b",
        "a\n",
        "x" * 64,
        ".".join(["x" * 60] * 5),
    ],
)
def test_anything_else_is_no_host(text: str) -> None:
    with pytest.raises(ValueError, match="is not a host"):
        host_pattern(text)


def test_the_schemas_are_published() -> None:
    schemas = {
        "provider": provider_schema(),
        "trigger": trigger_schema(),
        "plugin": plugin_schema(),
        "connection": connection_schema(),
    }
    for name, schema in schemas.items():
        assert schema["$id"] == f"urn:infloop:schema:{name}"
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert [one["$ref"] for one in schemas["provider"]["anyOf"]] == [
        "#/$defs/CliProvider",
        "#/$defs/AcpProvider",
        "#/$defs/HttpProvider",
        "#/$defs/ScriptedProvider",
        "#/$defs/BuiltinProvider",
    ]
    assert schemas["trigger"]["properties"]["secret"]["writeOnly"] is True
    assert schemas["trigger"]["required"] == ["id", "enabled", "workflowId"]
