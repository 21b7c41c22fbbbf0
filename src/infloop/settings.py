"""The settings: `INFLOOP_*` variables, or the same names in `infloop.toml`.

- This module and `app` are the only readers of the environment.
- The file is `~/.config/infloop/infloop.toml`, or the one that `INFLOOP_CONFIG` names. It is never
  read from the working directory: a repository must not change what an agent may do.
- An unknown name in the file is an error. An unknown variable is a warning, which every command
  prints: other programs may set variables with this prefix.
- A setting is one field of `Settings`. `tools/gen_docs.py` writes it into `docs/settings.md`.
- The tables of the file, such as `[providers.NAME]`, configure the built-in agent
  (`infloop.model.agent_config`). They name variables that hold keys, never keys.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from infloop.errors import SettingsError
from infloop.model.isolation import RequestedLevel
from infloop.model.records import FieldInfo, Record
from infloop.model.type_checks import ValidationError
from infloop.policy.leaks.modes import LeakMode
from infloop.policy.spending import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from infloop.model.agent_config import AgentConfig
    from infloop.model.type_checks import Mistake

PREFIX = "INFLOOP_"
AUTO_TOKEN = "auto"  # noqa: S105  (a word that asks for one)
# Variables that providers read under their own names, so they cannot be fields.
FREE_PREFIXES = ("INFLOOP_PROVIDER_BIN_",)


CONFIG_VARIABLE = "INFLOOP_CONFIG"
NO_HOME = Path("/nonexistent")
"""Stands for the home of a user who has none; it is the one that Debian gives to `nobody`."""

Source: TypeAlias = Literal["default", "file", "environment", "command line"]
_COMMAND_LINE: Source = "command line"


def home_directory() -> Path:
    """Return the home of our user: HOME, or what the password database says, or NO_HOME."""
    named = os.environ.get("HOME", "")
    if not named.startswith("/"):
        try:
            named = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            named = ""
    return Path(named) if named.startswith("/") else NO_HOME


def _default_data_dir() -> Path:
    folder = _user_folder("XDG_DATA_HOME", ".local/share")
    if folder is None:
        raise SettingsError(
            f"user {os.getuid()} has no home directory: set INFLOOP_DATA_DIR to a directory for "
            "infloop, or HOME"
        )
    return folder / "infloop"


def _user_folder(variable: str, fallback: str) -> Path | None:
    """Return a folder of the user by the XDG rules; None for a user without a home."""
    configured = os.environ.get(variable, "")
    if configured.startswith("/"):
        return Path(configured)
    home = home_directory()
    return None if home == NO_HOME else home / fallback


def _setting(
    default: object = None,
    *,
    description: str,
    low: float | None = None,
    high: float | None = None,
    secret: bool = False,
    factory: Callable[[], object] | None = None,
) -> Any:
    """Declare a setting. `low` and `high` are the range of a number."""
    return FieldInfo(
        default, description=description, low=low, high=high, secret=secret, factory=factory
    )


_FLAGS = {
    **dict.fromkeys(("1", "on", "t", "true", "y", "yes"), True),
    **dict.fromkeys(("0", "off", "f", "false", "n", "no"), False),
}


def _from_text(text: str, kind: object) -> object:
    """Return the value that a variable's text means; the text itself if it means none."""
    try:
        if kind is bool:
            return _FLAGS.get(text.lower(), text)
        return kind(text) if kind in (int, float) else text
    except ValueError:
        return text


class Settings(Record):
    """The operator's settings. A field with `secret=True` is never shown."""

    _sources: ClassVar[Mapping[str, Source]] = {}
    _agent_config: ClassVar[AgentConfig | None] = None

    data_dir: Path = _setting(
        factory=_default_data_dir,
        description="The directory of runs, workflows and secrets; only you can read it.",
    )
    database: str = _setting(
        "",
        secret=True,
        description=(
            "The PostgreSQL database that several machines share: `postgresql://user@host/name`. "
            "Without it, runs are stored in a SQLite file in the data directory."
        ),
    )
    workflows_dir: Path | None = _setting(
        None,
        description="The folder of your workflows. Default: `workflows` in the data directory.",
    )
    library_dir: Path | None = _setting(
        None, description="The folder of read-only presets. Default: those that come with infloop."
    )
    providers_dir: Path | None = _setting(
        None,
        description="The folder of provider manifests. Default: `providers` in the data directory.",
    )
    connections_dir: Path | None = _setting(
        None,
        description=(
            "The folder of connections to model servers. Default: `connections` in the data "
            "directory."
        ),
    )
    triggers_dir: Path | None = _setting(
        None,
        description="The folder of triggers. Default: `triggers` in the data directory.",
    )
    webhook_plugins_dir: Path | None = _setting(
        None, description="The folder of webhook plugins. Default: `plugins` in the data directory."
    )
    run_history_limit: int = _setting(
        100, low=1, description="Finished runs to keep per workflow; the oldest are deleted."
    )
    max_run_node_executions: int = _setting(
        10_000, low=0, description="The maximum number of steps of a run; 0 means no limit."
    )
    max_run_duration_ms: int = _setting(
        86_400_000,
        low=0,
        description="The maximum duration of a run, checked before each step; 0 means no limit.",
    )
    max_run_cost_usd: float = _setting(
        0.0,
        low=0,
        description=(
            "The maximum cost of a run in US dollars, as its agents and judges report it; above "
            "it the run fails. 0 means no limit."
        ),
    )
    max_total_cost_usd: float = _setting(
        0.0,
        low=0,
        description=(
            "The maximum cost of all runs in a window of time, in US dollars. Above it no run "
            "starts, and an active run fails at its next step that costs money. 0 means no limit."
        ),
    )
    cost_window: Window = _setting(
        "process",
        description=(
            "The window of INFLOOP_MAX_TOTAL_COST_USD: the time since this process started; or the "
            "local day, week (from Monday) or month, for all processes that share the data "
            "directory or the database."
        ),
    )
    require_known_cost: bool = _setting(
        default=False,
        description="Fail a run when one of its agents or judges does not report its cost.",
    )
    unpriced_usd_per_mtok: float = _setting(
        100.0,
        low=0,
        high=1_000_000,
        description=(
            "What a million tokens of a model that is on no price list cost, in US dollars, for "
            "the limits on cost. 0 means that such models cost nothing."
        ),
    )
    snapshots: bool = _setting(
        default=True,
        description=(
            "Take a snapshot of the working directory before and after every agent and script "
            "step, for `infloop diff` and `infloop rewind`; `off` takes none."
        ),
    )
    repositories: str = _setting(
        "",
        description=(
            "The beginnings of addresses, separated by commas, of repositories that workflows may "
            "name as their workspace: `https://host/team`, `ssh://git@host/team`, or a directory "
            "of repositories on this machine. Default: none."
        ),
    )
    repository_credential_helper: str = _setting(
        "",
        description=(
            "The git credential helper with which repositories are fetched over https, as in "
            "git's `credential.helper`. ssh uses the keys and the agent of your user."
        ),
    )
    leaks_mode: LeakMode = _setting(
        "redact",
        description=(
            "What happens when a step says a secret: it is replaced (`redact`), the step fails "
            "(`enforce`), a warning is added (`warn`), or nothing (`off`)."
        ),
    )
    audit_max_bytes: int = _setting(
        16 << 20,
        low=4096,
        description="The size at which the audit log continues in a new file.",
    )
    audit_max_files: int = _setting(
        12, low=2, description="Files of the audit log to keep; the oldest are deleted."
    )
    max_output_bytes: int = _setting(
        2 << 20,
        low=4096,
        description="Bytes to keep of each output stream of a child: its start and its end.",
    )
    min_free_disk_bytes: int = _setting(
        1 << 30,
        low=0,
        description=(
            "Bytes that must stay free on the disks of the data directory and of working "
            "directories. With less, no run starts, and runs that work there fail. 0 means none."
        ),
    )
    max_child_memory_bytes: int = _setting(
        0,
        low=0,
        description=(
            "The memory limit in bytes of each process of a child, and of all together where the "
            "system supports it. 0 means three quarters of the machine's memory."
        ),
    )
    max_api_call_ms: int = _setting(
        3_600_000,
        low=1_000,
        high=604_800_000,
        description=(
            "The maximum duration of a call of an HTTP provider, whatever the node's `timeoutMs` "
            "says. Then the step fails. The limit is at most a week."
        ),
    )
    max_command_ms: int = _setting(
        7_200_000,
        low=1_000,
        high=604_800_000,
        description=(
            "The maximum duration of any script or shell command, whatever its `timeoutMs` says. "
            "Then it is killed with all processes it started. The limit is at most a week."
        ),
    )
    child_env_passthrough: str = _setting(
        "",
        description=(
            "Environment variables to pass to children in addition to the base set: names or "
            "`PREFIX_*`, separated by commas. Variables named INFLOOP_* are never passed."
        ),
    )
    isolation: RequestedLevel = _setting(
        "auto",
        description=(
            "The isolation level of children: the strongest one that works on this machine, or the "
            "one that you name. A workflow can require a stronger one."
        ),
    )
    service_user: str = _setting(
        "",
        description=(
            "The name of the user as whom children run when infloop is started by root. Without it "
            "they are confined as root at level `sandbox`, and run as `nobody` at `guard`."
        ),
    )
    egress_enforce: bool = _setting(
        default=False,
        description=(
            "Let children connect only to the hosts of their provider, their workflow and "
            "INFLOOP_EGRESS_ALLOWLIST, through one proxy for each run."
        ),
    )
    egress_allowlist: str = _setting(
        "",
        description="Hosts that every child may connect to, separated by commas: `*.example.com`.",
    )
    egress_denylist: str = _setting(
        "", description="Hosts and addresses that no child may connect to, separated by commas."
    )
    approval_timeout_ms: int = _setting(
        600_000,
        low=0,
        high=604_800_000,
        description=(
            "How long an agent waits for a person's answer where its manifest says `ask`; then the "
            "request is denied. 0 means that nobody is asked and `ask` denies at once."
        ),
    )
    host: str = _setting(
        "127.0.0.1",
        description=(
            "The address that `infloop serve` listens on. One that others can reach requires "
            "INFLOOP_API_TOKEN."
        ),
    )
    port: int = _setting(
        3000,
        low=0,
        high=65_535,
        description="Its port, or one of the next 20 if it is in use. 0 means any free port.",
    )
    metrics_port: int = _setting(
        0,
        low=0,
        high=65_535,
        description=(
            "A port of 127.0.0.1 where `infloop serve` answers only `/metrics`, without a token. "
            "0 means none."
        ),
    )
    api_token: str = _setting(
        "",
        secret=True,
        description=(
            "The token for the API and the console. `auto` makes one and keeps it in the data "
            "directory. Without a token, all programs of your user may use the server."
        ),
    )
    allow_insecure: bool = _setting(
        default=False,
        description="Allow listening without a token where others can reach the server. Avoid it.",
    )
    allowed_hosts: str = _setting(
        "",
        description=(
            "Host names of the server, separated by commas, in addition to localhost and the "
            "address it listens on: `loops.example.com`."
        ),
    )
    max_concurrent_runs: int = _setting(
        4,
        low=0,
        high=1_000,
        description=(
            "Runs that a server or a worker executes at the same time; others wait. 0 means that a "
            "server only accepts runs and leaves them to workers."
        ),
    )
    worker_labels: str = _setting(
        "",
        description=(
            "Labels of this server or worker, separated by commas: `gpu, repo:web`. It runs only "
            "workflows whose `requires` has no other labels."
        ),
    )
    worker_timeout_ms: int = _setting(
        30_000,
        low=5_000,
        high=3_600_000,
        description=(
            "With PostgreSQL: after how long without a sign of life other machines take this "
            "process for dead and fail or resume its runs. At least 5 seconds."
        ),
    )
    queue_limit: int = _setting(
        100, low=1, high=1_000_000, description="Runs that may wait in the queue; more are refused."
    )
    webhook_rate_limit: int = _setting(
        120, low=0, description="Requests a minute to each trigger; 0 means no limit."
    )
    login_rate_limit: int = _setting(
        20,
        low=0,
        description="Logins a minute from all browsers together; 0 means no limit.",
    )
    notify_command: str = _setting(
        "",
        description=(
            "A shell line that is run, as you, when a run has ended, has paused or waits for an "
            "answer; it gets a JSON object on standard input."
        ),
    )
    notify_url: str = _setting(
        "",
        secret=True,
        description="An http or https address to which the same JSON object is posted.",
    )
    notify_secret: str = _setting(
        "",
        secret=True,
        description=(
            "Signs what is posted to INFLOOP_NOTIFY_URL, as Standard Webhooks says: `whsec_` and "
            "at least 16 bytes in base64."
        ),
    )
    python_bin: str = _setting("python3", description="The interpreter for Python scripts.")
    deno_bin: str = _setting("", description="Deno, which runs TypeScript if Bun is missing.")
    bun_bin: str = _setting(
        "", description="Bun, which runs TypeScript. Default: the installed one."
    )
    node_bin: str = _setting("", description="Node, which runs TypeScript if both are missing.")

    @classmethod
    def prepare(cls, raw: dict[str, Any]) -> dict[str, Any]:
        """Read texts: variables are nothing else."""
        fields = cls.model_fields
        return {
            name: _from_text(value, fields[name].annotation)
            if isinstance(value, str) and name in fields
            else value
            for name, value in raw.items()
        }

    def with_options(self, **given: object) -> Settings:
        """Return these settings with values from the command line."""
        changed = self.model_copy(update=given)
        changed.note_sources({**self._sources, **dict.fromkeys(given, _COMMAND_LINE)})
        return changed

    def note_sources(self, sources: Mapping[str, Source]) -> None:
        """Remember where values are from; the others are defaults."""
        self.__dict__["_sources"] = {**sources}

    def source_of(self, name: str) -> Source:
        """Return where the value of a setting is from."""
        return self._sources.get(name, "default")

    def with_agent_config(self, config: AgentConfig) -> Settings:
        """Return these settings with other tables."""
        changed = self.model_copy()
        changed.__dict__["_agent_config"] = config
        return changed

    @property
    def agent_config(self) -> AgentConfig:
        """The tables of the file."""
        from infloop.model.agent_config import AgentConfig

        return self._agent_config or AgentConfig()

    @property
    def workflows(self) -> Path:
        return self.workflows_dir or self.data_dir / "workflows"

    @property
    def providers(self) -> Path:
        return self.providers_dir or self.data_dir / "providers"

    @property
    def connections(self) -> Path:
        return self.connections_dir or self.data_dir / "connections"

    @property
    def triggers(self) -> Path:
        return self.triggers_dir or self.data_dir / "triggers"

    @property
    def dev_loops(self) -> Path:
        """The folder of all development loops: their status, logs and requests."""
        return self.data_dir / "dev"

    @property
    def webhook_plugins(self) -> Path:
        return self.webhook_plugins_dir or self.data_dir / "plugins"


SECRETS = frozenset(name for name, field in Settings.model_fields.items() if field.secret)
"""The settings whose values are never shown."""


def password_of(database: str) -> list[str]:
    """Return the password in the address of a database, as it is written and as it is meant."""
    host, _, path = database.partition("://")[2].partition("/")
    options = path.partition("?")[2].split("&")
    written = [host.rpartition("@")[0].partition(":")[2]]
    written += [option.removeprefix("password=") for option in options if "password=" in option]
    return sorted({text for each in written for text in (each, _unquoted(each)) if text})


def _unquoted(text: str) -> str:
    """Return a part of an address with its `%20` decoded; the text itself if one is invalid."""
    first, *rest = text.split("%")
    try:
        data = [bytes.fromhex(each[:2]) + each[2:].encode() for each in rest]
        return b"".join((first.encode(), *data)).decode()
    except ValueError:
        return text


def shown_settings(chosen: Settings) -> dict[str, Any]:
    """Return the settings, their JSON Schema, where each value is from, and what is unknown.

    A secret is shown only as set or not set.
    """
    from infloop.model.json_schema import json_schema

    values = {name: getattr(chosen, name) for name in Settings.model_fields}
    values |= {name: str(value) for name, value in values.items() if isinstance(value, Path)}
    for name in SECRETS:
        values[name] = "set" if values[name] else "not set"
    return {
        "tables": _shown_tables(chosen.agent_config),
        "values": values,
        "schema": json_schema(Settings),
        "variables": {name: variable(name) for name in values},
        "sources": {name: chosen.source_of(name) for name in values},
        "unknown": unknown_variables(),
    }


def variable(field: str) -> str:
    """Return the name of a setting's environment variable."""
    return PREFIX + field.upper()


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the file and the environment; the environment takes precedence."""
    env = os.environ if environ is None else environ
    in_file, in_environment = _from_file(env), _from_environment(env)
    tables = _agent_tables(in_file)
    loaded = _validated({**in_file, **in_environment})
    if tables is not None:
        loaded = loaded.with_agent_config(tables)
    from_file: dict[str, Source] = dict.fromkeys(in_file, "file")
    from_environment: dict[str, Source] = dict.fromkeys(in_environment, "environment")
    loaded.note_sources(from_file | from_environment)
    return loaded


def load_or_defaults(environ: Mapping[str, str] | None = None) -> tuple[Settings, str]:
    """Return the settings, or if they are wrong the defaults and the reason.

    The data directory is the one that is named, if that is possible.
    """
    env = os.environ if environ is None else environ
    try:
        return load_settings(env), ""
    except SettingsError as error:
        named = env.get(variable("data_dir"), "")
        return _validated({"data_dir": named} if named else {}), str(error)


def unknown_variables(environ: Mapping[str, str] | None = None) -> list[str]:
    """Return a sentence about each variable that is named like a setting and is none.

    Values are not shown: one may be a secret.
    """
    env = os.environ if environ is None else environ
    return [_unknown(name) for name in sorted(_named_fields(env)) if not _is_setting(name)]


def _from_file(env: Mapping[str, str]) -> dict[str, Any]:
    named = env.get(CONFIG_VARIABLE, "")
    path = Path(named) if named else _default_file()
    if path is None:
        return {}
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if named:
            raise SettingsError(
                f"{CONFIG_VARIABLE} names {named!r}, which does not exist"
            ) from None
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read {str(path)!r}: {error}") from None
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"cannot read {str(path)!r}: {error}") from None


def _agent_tables(in_file: dict[str, Any]) -> AgentConfig | None:
    """Take the tables out of the file's content. Raises SettingsError with all their problems.

    The mode of the leak guard is a setting too.
    """
    if not in_file:
        return None
    import difflib

    from infloop.model.agent_config import AgentConfig

    known = AgentConfig.__struct_fields__
    if not any(name in known or isinstance(value, dict) for name, value in in_file.items()):
        return None
    from infloop.model.agent_tables import TABLES, read_tables
    from infloop.policy.credential_names import name_problems
    from infloop.policy.leaks.rules import shipped_rules

    raw = {name: in_file.pop(name) for name in TABLES if name in in_file}
    config, problems = read_tables(raw)
    for name in [name for name, value in in_file.items() if isinstance(value, dict)]:
        del in_file[name]
        near = difflib.get_close_matches(name[:80], TABLES, n=1)
        hint = f"; did you mean [{near[0]}]?" if near else f"; known are {', '.join(TABLES)}"
        problems.append(f"[{name[:40]}] is not a table of the settings{hint}")
    mode = config.security.leaks.mode
    if mode is not None and in_file.setdefault("leaks_mode", mode) != mode:
        problems.append("[security.leaks] mode and leaks_mode contradict each other: remove one")
    problems += name_problems(config, shipped_rules())
    if problems:
        raise SettingsError("\n".join(problems))
    return config


def _shown_tables(config: AgentConfig) -> dict[str, Any]:
    from infloop.model.agent_tables import shown_tables

    return shown_tables(config)


def _default_file() -> Path | None:
    folder = _user_folder("XDG_CONFIG_HOME", ".config")
    return folder / "infloop/infloop.toml" if folder is not None else None


def _from_environment(env: Mapping[str, str]) -> dict[str, Any]:
    return {name: value for name, value in _named_fields(env).items() if _is_setting(name)}


def _named_fields(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are named like settings, by field."""
    return {
        name[len(PREFIX) :].lower(): value
        for name, value in env.items()
        if name.startswith(PREFIX)
        and name != CONFIG_VARIABLE
        and not name.startswith(FREE_PREFIXES)
    }


def _is_setting(field: str) -> bool:
    return field in Settings.model_fields


def _validated(values: dict[str, Any]) -> Settings:
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise SettingsError("\n".join(_explain(one, values) for one in error.mistakes)) from None


def _explain(mistake: Mistake, values: Mapping[str, Any]) -> str:
    field = str(mistake.loc[0])
    if mistake.kind == "unknown":
        return _unknown(field)
    given = "unusable" if field in SECRETS else repr(values[field])
    expected = ", ".join(mistake.choices) if mistake.kind == "choice" else mistake.expected
    return f"{variable(field)} is {given}: expected {expected}"


def _unknown(field: str) -> str:
    import difflib

    near = difflib.get_close_matches(field[:80], Settings.model_fields, n=1)
    hint = f"; did you mean {variable(near[0])}?" if near else ""
    name = ascii(variable(field[:80]))[1:-1]
    return f"{name} is not a setting{hint} (`infloop settings` lists them)"
