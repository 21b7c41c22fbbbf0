"""Provider manifests: one class per transport.

A manifest class declares its fields, its own rules (`check`) and the secrets that it holds or names
(`secrets`). Then it is one line in `Provider`. `infloop.providers` makes a provider of a manifest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

from infloop.model.definition import parse_definition
from infloop.model.problems import short_repr
from infloop.model.schema import Document, FileModel, Whole, field, publish
from infloop.model.texts import (
    BaseUrl,
    Endpoint,
    FileName,
    HostPattern,
    PathBelow,
    VariableName,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from infloop.errors import Problem
    from infloop.model.problems import Report
    from infloop.model.values import JsonValue

OutputFormatName: TypeAlias = Literal["claude-stream-json", "codex-json", "plain"]
DialectName: TypeAlias = Literal["openai", "openai-responses", "anthropic"]


class ProviderBase(Document):
    """What every provider has."""

    id: FileName = field("", "Id", "The id that workflows use.")
    label: str = field("", "Label", "What the console shows.")
    description: str = field("", "Description", "What it does, in one line.")
    glyph: str | None = field(None, "Glyph", "A character for the console.")

    def check(self, report: Report) -> None:
        """Report what is wrong with the manifest besides its types."""

    def secrets(self, variables: Mapping[str, str]) -> Iterator[str]:
        """Yield the secrets that it holds, or names in `variables`; they are redacted everywhere.

        Values may be empty.
        """
        yield from ()

    @property
    def is_portable(self) -> bool:
        """Whether a queued run may carry it to another machine: it holds no secret, only names."""
        return not any(self.secrets({}))


class Brokered(FileModel):
    """An API key that the agent uses without having it: it gets a token of its run instead."""

    protects = True

    required_keys = ("dialect", "keyVariable", "baseUrl")

    dialect: Literal["anthropic", "openai"] = field(
        "anthropic", "Dialect", "The API whose calls may be made with the key: anthropic or openai."
    )
    key_variable: VariableName = field("", "Key variable", "The variable that holds the key.")
    base_url: BaseUrl = field("", "Base URL", "Where the API is.")
    base_url_variable: VariableName | None = field(
        None,
        "Base URL variable",
        "The variable with the agent's base URL. If infloop has it too, its value is used.",
    )
    args: tuple[str, ...] = field(
        (),
        "Arguments",
        "Added right after the program, for one that takes the base URL as an argument: {url}.",
    )
    withheld: tuple[VariableName, ...] = field(
        (), "Withheld", "Other variables with credentials, which the agent does not get."
    )


class Setup(FileModel):
    """How a person installs the program and logs in, and how to see whether that was done."""

    install: str | None = field(None, "Install", "The command that installs the program.")
    login: str | None = field(None, "Log in", "The command with which a person logs in.")
    login_variables: tuple[VariableName, ...] = field(
        (), "Login variables", "Variables that hold a key; one of them is enough."
    )
    login_files: tuple[PathBelow, ...] = field(
        (), "Login files", "Files below your home that exist after a login."
    )
    login_folder_variable: VariableName | None = field(
        None, "Login folder", "The variable that names another folder for these files."
    )
    version_args: tuple[str, ...] = field(
        (),
        "Version arguments",
        "With these arguments the program prints its version. Without them it is not asked.",
    )


class ProgramProvider(ProviderBase):
    """What every agent that is a program has."""

    env_passthrough: tuple[VariableName, ...] = field(
        (), "Variables", "Variables of infloop's environment that it gets: names, or PREFIX_*."
    )
    egress_allowlist: tuple[HostPattern, ...] | None = field(
        None, "Hosts", "Hosts that it may connect to when egress is enforced; empty means none."
    )
    home_read: tuple[PathBelow, ...] = field(
        (), "Home, to read", "Paths below your home that it may read when confined: .gitconfig."
    )
    home_write: tuple[PathBelow, ...] = field(
        (),
        "Home, to write",
        "Paths below your home that it may change when confined: its login, unless its key is "
        "brokered.",
    )
    broker: Brokered | None = field(
        None, "Key", "How the agent uses an API key that it is not given."
    )
    setup: Setup = field(Setup(), "Setup", "How it is installed, and how one logs in.")

    def check(self, report: Report) -> None:
        for name in self.env_passthrough:
            if name.upper().startswith("INFLOOP_"):
                report.warning("envPassthrough", f"{name!r} never reaches a child", "remove it")

    def secrets(self, variables: Mapping[str, str]) -> Iterator[str]:
        if self.broker is not None:
            for name in (self.broker.key_variable, *self.broker.withheld):
                yield variables.get(name, "")


class CliProvider(ProgramProvider):
    """An agent that is a program."""

    model_title = "Provider: program"
    required_keys = ("id", "label", "description", "bin")

    transport: Literal["cli"] = field("cli", "Transport", "cli")
    bin: str = field("", "Program", "Its name on PATH, or its path.")
    args: tuple[str, ...] = field(
        (),
        "Arguments",
        "{prompt}, {agent} and {model} are replaced; without a value the option is left out.",
    )
    output_format: OutputFormatName = field("plain", "Output", "How its output is parsed.")
    prompt_via: Literal["arg", "stdin"] = field("arg", "Prompt via", "Where the prompt goes.")
    host_args: tuple[str, ...] = field(
        (),
        "Arguments at level host",
        "Added where infloop does not confine the program, such as the agent's own sandbox.",
    )
    confined_args: tuple[str, ...] = field(
        (),
        "Arguments where it is confined",
        "Added at every other level, where the agent's own sandbox often cannot start.",
    )
    dangerous_args: tuple[str, ...] = field(
        (),
        "Dangerous arguments",
        "Added only for a node that skips permission prompts, instead of the two above.",
    )
    judge_args: tuple[str, ...] = field(
        (),
        "Arguments of a judge",
        "Instead of all others when it judges: it answers and needs no permissions.",
    )
    resume_args: tuple[str, ...] = field(
        (), "Resume arguments", "Added to continue the agent's own session; {session} is its id."
    )


PermissionAnswer: TypeAlias = Literal["allow", "ask", "deny"]


class Permissions(FileModel):
    """The answer when an agent asks for permission to use a tool, by the tool's kind."""

    protects = True

    default: PermissionAnswer = field("deny", "Default", "For every kind that is not named here.")
    read: PermissionAnswer | None = field(None, "Read", "Reading files or data.")
    edit: PermissionAnswer | None = field(None, "Edit", "Changing files or what is in them.")
    delete: PermissionAnswer | None = field(None, "Delete", "Removing files or data.")
    move: PermissionAnswer | None = field(None, "Move", "Moving or renaming files.")
    search: PermissionAnswer | None = field(None, "Search", "Searching.")
    execute: PermissionAnswer | None = field(None, "Execute", "Running commands or code.")
    think: PermissionAnswer | None = field(None, "Think", "Reasoning and planning.")
    fetch: PermissionAnswer | None = field(None, "Fetch", "Fetching data from the network.")
    other: PermissionAnswer | None = field(None, "Other", "Tools without a kind, or with this one.")


class AcpProvider(ProgramProvider):
    """An agent that is a program and speaks the Agent Client Protocol on its standard streams."""

    model_title = "Provider: ACP"
    required_keys = ("id", "label", "description", "transport", "bin")

    transport: Literal["acp"] = field("acp", "Transport", "acp")
    bin: str = field("", "Program", "Its name on PATH, or its path.")
    args: tuple[str, ...] = field((), "Arguments", "The arguments that make it speak ACP, if any.")
    permissions: Permissions = field(
        Permissions(), "Permissions", "The answers to its requests: allow, ask or deny."
    )


class Auth(FileModel):
    """How requests are authenticated: a token from the environment or from this file, not both."""

    protects = True

    required_keys = ("type",)

    type: Literal["bearer", "x-api-key"] = field(
        "bearer", "Type", "bearer (an Authorization header) or x-api-key (a header of that name)."
    )
    env_var: str | None = field(None, "Variable", "The variable that holds the token.")
    token: str | None = field(None, "Token", "The token itself.", secret=True)


class Profile(FileModel):
    """A model that an HTTP provider offers."""

    required_keys = ("id",)

    id: str = field("", "Id", "The model's name.")
    label: str | None = field(None, "Label", "What the console shows.")


class HttpProvider(ProviderBase):
    """A model behind an HTTP API: OpenAI-compatible, OpenAI's own, or Anthropic's."""

    model_title = "Provider: HTTP"
    required_keys = ("id", "label", "description", "transport", "baseUrl", "endpoint")

    transport: Literal["http"] = field("http", "Transport", "http")
    base_url: BaseUrl = field("", "Base URL", "Where the API is, such as http://127.0.0.1:8080/v1.")
    endpoint: Endpoint = field("", "Endpoint", "The path below it that answers prompts.")
    dialect: DialectName = field(
        "openai",
        "Dialect",
        "openai (chat completions), openai-responses (Responses) or anthropic (Messages).",
    )
    profiles_endpoint: Endpoint | None = field(None, "Models", "The path that lists models.")
    auth: Auth | None = field(None, "Authentication", "None if missing.")
    profiles: tuple[Profile, ...] = field((), "Profiles", "The models to choose from.")
    default_profile: str | None = field(
        None, "Default profile", "The model a node gets by default."
    )
    max_output_tokens: Whole | None = field(
        None, "Longest answer", "In tokens; what the API allows if missing."
    )
    price_list: str | None = field(
        None,
        "Price list",
        "Which prices apply (openai, anthropic, …) if the base URL does not tell.",
    )

    def check(self, report: Report) -> None:
        if self.auth is not None and bool(self.auth.env_var) == bool(self.auth.token):
            report.error("auth", "needs either envVar or token", "name one of the two")
        if self.max_output_tokens is not None and self.max_output_tokens < 1:
            report.error("maxOutputTokens", f"{self.max_output_tokens} is not a length")

    def secrets(self, variables: Mapping[str, str]) -> Iterator[str]:
        if self.auth is not None:
            yield self.auth.token or ""
            yield variables.get(self.auth.env_var or "", "")


class ScriptedProvider(ProviderBase):
    """A file of turns that plays an agent: for demos, documents and tests."""

    model_title = "Provider: scripted"
    required_keys = ("id", "label", "description", "transport", "script")

    transport: Literal["scripted"] = field("scripted", "Transport", "scripted")
    script: str = field("", "Script", "The file of turns, in the folder of this file.")

    @property
    def is_portable(self) -> bool:
        return False  # the file of turns is not part of it


class BuiltinProvider(ProviderBase):
    """infloop's own agent: a model of the settings' tables, and tools behind one gate."""

    model_title = "Provider: built-in agent"
    required_keys = ("id", "label", "description", "transport")

    transport: Literal["builtin"] = field("builtin", "Transport", "builtin")


Provider: TypeAlias = CliProvider | AcpProvider | HttpProvider | ScriptedProvider | BuiltinProvider
"""All manifests."""

_PROVIDERS: Mapping[str, type[ProviderBase]] = {
    model.model_fields["transport"].default: model for model in get_args(Provider)
}


def parse_provider(data: bytes) -> tuple[Provider | None, list[Problem]]:
    """Read a provider manifest."""

    def choose(raw: Mapping[str, JsonValue], report: Report) -> type[ProviderBase] | None:
        transport = raw.get("transport") or "cli"
        if isinstance(transport, str) and transport in _PROVIDERS:
            return _PROVIDERS[transport]
        known = ", ".join(_PROVIDERS)
        report.error("transport", f"{short_repr(transport)} is not a transport", f"use {known}")
        return None

    provider, problems = parse_definition(data, choose, lambda found, report: found.check(report))
    return cast("Provider | None", provider), problems


def provider_schema() -> dict[str, Any]:
    """Return the JSON Schema of a provider manifest."""
    return publish(Provider, "provider")
