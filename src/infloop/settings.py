"""Everything an operator can set: `INFLOOP_*` variables, or the same names in `infloop.toml`.

This is the only reader of the environment beside `app`. The file is read from
`~/.config/infloop/infloop.toml` or from where `INFLOOP_CONFIG` points, never from the working
directory: a repository must not be able to change what an agent may do. A name that is not known
is an error, so that a misspelt limit is not taken for a limit.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from infloop.errors import SettingsError
from infloop.model.isolation import RequestedLevel
from infloop.policy.spending import Window

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "INFLOOP_"
# Read by a provider under its own name, so they cannot be fields.
FREE_PREFIXES = ("INFLOOP_PROVIDER_BIN_",)
SECRETS = frozenset({"api_token"})
"""Settings whose values are shown nowhere."""


def _home(variable: str, fallback: str) -> Path:
    configured = os.environ.get(variable, "")
    return Path(configured) if configured.startswith("/") else Path.home() / fallback


class Settings(BaseModel):
    """The operator's choices."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data_dir: Path = Field(
        default_factory=lambda: _home("XDG_DATA_HOME", ".local/share") / "infloop",
        description="Where runs, workflows and secrets are kept; only you can read it.",
    )
    workflows_dir: Path | None = Field(
        None, description="Your workflows, found by id. Default: `workflows` in the data directory."
    )
    library_dir: Path | None = Field(
        None, description="Read-only presets, found by id. Default: those that come with infloop."
    )
    providers_dir: Path | None = Field(
        None, description="Provider manifests. Default: `providers` in the data directory."
    )
    connections_dir: Path | None = Field(
        None,
        description="Connections to model servers. Default: `connections` in the data directory.",
    )
    triggers_dir: Path | None = Field(
        None,
        description="What starts workflows by itself. Default: `triggers` in the data directory.",
    )
    webhook_plugins_dir: Path | None = Field(
        None, description="Senders of webhooks. Default: `plugins` in the data directory."
    )
    run_history_limit: int = Field(
        100, ge=1, description="Finished runs kept per workflow; the oldest are forgotten."
    )
    max_run_node_executions: int = Field(
        10_000, ge=0, description="Steps a run may take before it fails; 0 means no limit."
    )
    max_run_duration_ms: int = Field(
        86_400_000,
        ge=0,
        description="How long a run may take, checked before each step; 0 means no limit.",
    )
    max_run_cost_usd: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description=(
            "What a run may spend, in US dollars, as its agents and judges report it; "
            "past it the run fails. 0 means no limit."
        ),
    )
    max_total_cost_usd: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description=(
            "What all runs together may spend in a window of time, in US dollars; past it no run "
            "starts, and a running one fails at its next step that costs something. 0 means no "
            "limit."
        ),
    )
    cost_window: Window = Field(
        "process",
        description=(
            "The window: what this process has spent, beginning anew with each start; or the local "
            "day, week (from Monday) or month, of all processes that share the data directory."
        ),
    )
    require_known_cost: bool = Field(
        default=False,
        description="Fail a run when one of its agents or judges does not say what it cost.",
    )
    snapshots: bool = Field(
        default=True,
        description=(
            "Keep the directory of every agent and script step as it was before and after, for "
            "`infloop diff` and `infloop rewind`; `off` takes no snapshots."
        ),
    )
    audit_max_bytes: int = Field(
        16 << 20,
        ge=4096,
        description="How long a file of the audit log becomes before the log goes on in a new one.",
    )
    audit_max_files: int = Field(
        12, ge=2, description="Files of the audit log that are kept; the oldest are removed."
    )
    max_output_bytes: int = Field(
        2 << 20,
        ge=4096,
        description="Bytes kept of each output stream of a child: its beginning and its end.",
    )
    min_free_disk_bytes: int = Field(
        1 << 30,
        ge=0,
        description=(
            "Bytes that stay free on the disks of the data directory and of where runs work: with "
            "less left no run begins, and those that work there fail. 0 means none."
        ),
    )
    max_child_memory_bytes: int = Field(
        0,
        ge=0,
        description=(
            "Bytes of memory that each process of a child may take, and all of them together where "
            "that can be bounded. 0 means three quarters of the machine's memory."
        ),
    )
    max_command_ms: int = Field(
        7_200_000,
        ge=1_000,
        le=604_800_000,
        description=(
            "How long any script or shell command may run, whatever its `timeoutMs` says; then it "
            "is ended with all that it started. There is always a limit, at most a week."
        ),
    )
    child_env_passthrough: str = Field(
        "",
        description=(
            "Variables children get beside the base set: names or `PREFIX_*`, by commas. "
            "Nothing that begins with INFLOOP_ is ever passed."
        ),
    )
    isolation: RequestedLevel = Field(
        "auto",
        description=(
            "How children are confined: the strongest level that holds on this machine, or the one "
            "that you name. A workflow can ask for a stronger one."
        ),
    )
    service_user: str = Field(
        "",
        description=(
            "As whom children run when infloop is started by root, by name; levels that confine "
            "need one then."
        ),
    )
    egress_enforce: bool = Field(
        default=False,
        description=(
            "Let children connect only to the hosts of their provider, their workflow and "
            "INFLOOP_EGRESS_ALLOWLIST, each through a proxy of its own."
        ),
    )
    egress_allowlist: str = Field(
        "", description="Hosts that every child may connect to, by commas: `*.example.com`."
    )
    egress_denylist: str = Field(
        "", description="Hosts and addresses that no child may connect to, by commas."
    )
    approval_timeout_ms: int = Field(
        600_000,
        ge=0,
        le=604_800_000,
        description=(
            "How long an agent waits for a person where its manifest says `ask`; then it is "
            "denied. 0 means that nobody is asked and `ask` denies at once."
        ),
    )
    host: str = Field(
        "127.0.0.1",
        description=(
            "Where `infloop serve` listens. An address that others can reach needs "
            "INFLOOP_API_TOKEN."
        ),
    )
    port: int = Field(
        3000,
        ge=0,
        le=65_535,
        description="Its port; if it is in use, one of the next 20. 0 means any that is free.",
    )
    metrics_port: int = Field(
        0,
        ge=0,
        le=65_535,
        description=(
            "A port of 127.0.0.1 where `infloop serve` answers `/metrics`, and nothing else, "
            "without a token. 0 means none."
        ),
    )
    api_token: str = Field(
        "",
        repr=False,
        description=(
            "What everybody must know who uses the API or the console; without it, whoever reaches "
            "the server may use it."
        ),
    )
    allow_insecure: bool = Field(
        default=False,
        description="Listen without a token where others can reach the server. Do not.",
    )
    allowed_hosts: str = Field(
        "",
        description=(
            "Names under which the server is reached, by commas, beside localhost and the address "
            "it listens on: `loops.example.com`."
        ),
    )
    max_concurrent_runs: int = Field(
        4, ge=1, le=1_000, description="Runs that a server drives at once; others wait."
    )
    queue_limit: int = Field(
        100, ge=1, le=1_000_000, description="Runs that may wait; more are refused."
    )
    webhook_rate_limit: int = Field(
        120, ge=0, description="Requests a minute that each trigger takes; 0 means no limit."
    )
    login_rate_limit: int = Field(
        20,
        ge=0,
        description="Logins a minute that the server takes from all browsers; 0 means no limit.",
    )
    python_bin: str = Field("python3", description="The interpreter of Python scripts.")
    deno_bin: str = Field("", description="The Deno that runs TypeScript. Default: found.")
    bun_bin: str = Field("", description="The Bun that runs TypeScript where Deno is missing.")
    node_bin: str = Field("", description="The Node that runs TypeScript where both are missing.")

    @property
    def workflows(self) -> Path:
        """The folder of the user's own workflows."""
        return self.workflows_dir or self.data_dir / "workflows"

    @property
    def providers(self) -> Path:
        """The folder of provider manifests."""
        return self.providers_dir or self.data_dir / "providers"

    @property
    def connections(self) -> Path:
        """The folder of connections."""
        return self.connections_dir or self.data_dir / "connections"

    @property
    def triggers(self) -> Path:
        """The folder of triggers."""
        return self.triggers_dir or self.data_dir / "triggers"

    @property
    def webhook_plugins(self) -> Path:
        """The folder of webhook plugins."""
        return self.webhook_plugins_dir or self.data_dir / "plugins"


def shown_settings(chosen: Settings) -> dict[str, Any]:
    """Return the settings and their JSON Schema for another program; a secret is set or not set."""
    values = chosen.model_dump(mode="json")
    for name in SECRETS:
        values[name] = "set" if values[name] else "not set"
    return {"values": values, "schema": Settings.model_json_schema()}


def variable(field: str) -> str:
    """Return the name of a setting's variable."""
    return PREFIX + field.upper()


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the file and the environment; the environment wins."""
    env = os.environ if environ is None else environ
    return _validated({**_from_file(env), **_from_environment(env)})


def _from_file(env: Mapping[str, str]) -> dict[str, Any]:
    named = env.get("INFLOOP_CONFIG", "")
    path = Path(named) if named else _home("XDG_CONFIG_HOME", ".config") / "infloop/infloop.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if named:
            raise SettingsError(f"INFLOOP_CONFIG names {named!r}, which does not exist") from None
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"cannot read {str(path)!r}: {error}") from None


def _from_environment(env: Mapping[str, str]) -> dict[str, Any]:
    return {
        name[len(PREFIX) :].lower(): value
        for name, value in env.items()
        if name.startswith(PREFIX)
        and name != "INFLOOP_CONFIG"
        and not name.startswith(FREE_PREFIXES)
    }


def _validated(values: dict[str, Any]) -> Settings:
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise SettingsError("\n".join(map(_explain, error.errors()))) from None


def _explain(error: Any) -> str:
    field = str(error["loc"][0])
    name = variable(field)
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(field, Settings.model_fields, n=1)
        hint = f"; did you mean {variable(near[0])}?" if near else ""
        return f"{name} is not a setting{hint} (`infloop docs settings` lists them)"
    given = "unusable" if field in SECRETS else repr(error["input"])
    return f"{name} is {given}: {error['msg'].lower()}"
