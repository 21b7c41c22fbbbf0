"""Provider manifests: who answers a prompt, and how to reach them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from pydantic import ConfigDict

from infloop.model.definition import parse_definition
from infloop.model.problems import shown
from infloop.model.schema import Document, FileModel, field, publish, required
from infloop.model.texts import BaseUrl, Endpoint, FileName, HostPattern, VariableName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infloop.errors import Problem
    from infloop.model.problems import Report
    from infloop.model.values import JsonValue


class ProviderBase(Document):
    """What every provider has."""

    id: FileName = field("", "Id", "The name that workflows use.")
    label: str = field("", "Label", "What the console shows.")
    description: str = field("", "Description", "What it does, in a line.")
    glyph: str | None = field(None, "Glyph", "A character for the console.")


class CliProvider(ProviderBase):
    """An agent that is a program."""

    model_config = ConfigDict(
        title="Provider: program", **required("id", "label", "description", "bin")
    )

    transport: Literal["cli"] = field("cli", "Transport", "cli")
    bin: str = field("", "Program", "Its name on PATH, or its path.")
    args: tuple[str, ...] = field(
        (),
        "Arguments",
        "{prompt}, {agent} and {model} are replaced; without a value its option goes too.",
    )
    output_format: Literal["claude-stream-json", "codex-json", "plain"] = field(
        "plain", "Output", "How what it prints is read."
    )
    prompt_via: Literal["arg", "stdin"] = field("arg", "Prompt via", "Where the prompt goes.")
    env_passthrough: tuple[VariableName, ...] = field(
        (), "Variables", "What it gets of our environment: names, or PREFIX_*."
    )
    dangerous_args: tuple[str, ...] = field(
        (), "Dangerous arguments", "Added only for a node that skips permission prompts."
    )
    resume_args: tuple[str, ...] = field(
        (), "Resume arguments", "Added to continue the agent's own session; {session} is its id."
    )
    egress_allowlist: tuple[HostPattern, ...] | None = field(
        None, "Hosts", "Where it may connect to when egress is enforced; an empty list is nowhere."
    )


class Auth(FileModel):
    """How requests are authenticated: a token from the environment or from this file, not both."""

    model_config = required("type")

    type: Literal["bearer"] = field("bearer", "Type", "bearer")
    env_var: str | None = field(None, "Variable", "The variable that holds the token.")
    token: str | None = field(None, "Token", "The token itself.", secret=True)


class Profile(FileModel):
    """A model that an HTTP provider offers."""

    model_config = required("id")

    id: str = field("", "Id", "The model's name.")
    label: str | None = field(None, "Label", "What the console shows.")


class HttpProvider(ProviderBase):
    """A model behind an OpenAI-compatible HTTP API."""

    model_config = ConfigDict(
        title="Provider: HTTP",
        **required("id", "label", "description", "transport", "baseUrl", "endpoint"),
    )

    transport: Literal["http"] = field("http", "Transport", "http")
    base_url: BaseUrl = field("", "Base URL", "Where the API is, such as http://127.0.0.1:8080/v1.")
    endpoint: Endpoint = field("", "Endpoint", "The path of chat completions below it.")
    profiles_endpoint: Endpoint | None = field(None, "Models", "The path that lists models.")
    auth: Auth | None = field(None, "Authentication", "None if missing.")
    profiles: tuple[Profile, ...] = field((), "Profiles", "The models to choose from.")
    default_profile: str | None = field(
        None, "Default profile", "The model a node gets by default."
    )


class ScriptedProvider(ProviderBase):
    """A file of turns that plays an agent: for demos, documents and tests."""

    model_config = ConfigDict(
        title="Provider: scripted", **required("id", "label", "description", "transport", "script")
    )

    transport: Literal["scripted"] = field("scripted", "Transport", "scripted")
    script: str = field("", "Script", "The file of turns, beside this file.")


Provider: TypeAlias = CliProvider | HttpProvider | ScriptedProvider

_PROVIDERS: Mapping[str, type[ProviderBase]] = {
    "cli": CliProvider,
    "http": HttpProvider,
    "scripted": ScriptedProvider,
}


def parse_provider(data: bytes) -> tuple[Provider | None, list[Problem]]:
    """Read a provider manifest."""

    def choose(raw: Mapping[str, JsonValue], report: Report) -> type[ProviderBase] | None:
        transport = raw.get("transport") or "cli"
        if isinstance(transport, str) and transport in _PROVIDERS:
            return _PROVIDERS[transport]
        report.error(
            "transport", f"{shown(transport)} is not a transport", "use cli, http or scripted"
        )
        return None

    provider, problems = parse_definition(data, choose, _provider_rules)
    return cast("Provider | None", provider), problems


def _provider_rules(provider: ProviderBase, report: Report) -> None:
    match provider:
        case CliProvider():
            for name in provider.env_passthrough:
                if name.upper().startswith("INFLOOP_"):
                    report.warning("envPassthrough", f"{name!r} never reaches a child", "remove it")
        case HttpProvider():
            if provider.auth is not None and bool(provider.auth.env_var) == bool(
                provider.auth.token
            ):
                report.error("auth", "needs either envVar or token", "name one of the two")
        case _:
            pass


def provider_schema() -> dict[str, Any]:
    """Return the JSON Schema of a provider manifest."""
    return publish(Provider, "provider")
