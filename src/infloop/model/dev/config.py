"""The tables of `devloop.toml`.

Types are strict: a number is not a text and a boolean is not a number. Unknown keys are ignored
here; `reading` turns them into warnings.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from infloop.model.dev.line_levels import LineLevel

U64: TypeAlias = Annotated[int, Field(ge=0, le=2**64 - 1)]
BodyStyle: TypeAlias = Literal["plain", "dim"]
RestartPolicy: TypeAlias = Literal["never", "on_failure", "always"]
Condition: TypeAlias = Literal["started", "ready"]


class Table(BaseModel):
    """One table of the file."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class Watcher(Table):
    """How files are watched."""

    kind: Literal["native", "poll"] = Field("native", description="Kernel events, or polling.")
    poll_interval_ms: U64 = Field(250, description="The time between two polls.")
    default_excludes: bool = Field(
        default=True, description="Leave out directories of version control and of caches."
    )


class EventServer(Table):
    """Where external events are received."""

    bind: str = Field("127.0.0.1:0", description="An IP address and a port; port 0: a free one.")
    rate_limit: U64 = Field(
        1_200, description="Requests a minute for each event; 0 means no limit."
    )


class BrowserReloadServer(Table):
    """Where browsers wait for a reload."""

    bind: str = Field("127.0.0.1:0", description="An IP address and a port; port 0: a free one.")


class WatchGroup(Table):
    """Files whose changes start a workflow."""

    paths: list[str] = Field(description="Patterns relative to the root.")
    workflow: str | None = Field(None, description="The workflow; default: the group's name.")


class _Probe(Table):
    interval_ms: U64 = Field(500, description="The time between two checks.")
    timeout_ms: U64 = Field(15_000, description="How long to wait for the first success.")


class HttpProbe(_Probe):
    """A GET request is answered with 2xx."""

    kind: Literal["http"]
    url: str


class StateKeyProbe(_Probe):
    """A key of the session state holds a text that is not blank."""

    kind: Literal["state_key"]
    key: str


class TcpProbe(_Probe):
    """A TCP connection is accepted."""

    kind: Literal["tcp"]
    address: str = Field(description="HOST:PORT.")


class ExecProbe(_Probe):
    """A command exits with 0."""

    kind: Literal["exec"]
    command: list[str]


class LogLineProbe(_Probe):
    """A line of the process's output matches since it was started."""

    kind: Literal["log_line"]
    pattern: str


Probe: TypeAlias = Annotated[
    HttpProbe | StateKeyProbe | TcpProbe | ExecProbe | LogLineProbe, Field(discriminator="kind")
]


class OutputRule(Table):
    """Stores a part of an output line in the session state."""

    state_key: str
    extract: Literal["regex", "url_token"] = "regex"
    pattern: str | None = None
    capture_group: U64 = 1


class ProcessOutput(Table):
    """What happens to a process's output."""

    inherit: bool = Field(default=True, description="Show the lines.")
    level: LineLevel = Field("debug", description="Show lines of this level and above.")
    body_style: BodyStyle = "plain"
    rules: list[OutputRule] = []


class HookOutput(Table):
    """What happens to a hook's output."""

    inherit: bool = Field(default=True, description="Show the lines.")
    level: LineLevel = Field("debug", description="Show lines of this level and above.")
    body_style: BodyStyle = "dim"


class Process(Table):
    """A process that is kept running."""

    command: list[str]
    cwd: str | None = Field(None, description="Relative to the root.")
    autostart: bool = True
    restart: RestartPolicy = "never"
    env: dict[str, str] = {}
    readiness: Probe | None = None
    liveness: Probe | None = None
    output: ProcessOutput = ProcessOutput()
    depends_on: list[str] | dict[str, Condition] = Field(
        [],
        description=(
            "Processes that start first: a list waits until they are ready; a table says for each "
            "whether `started` is enough."
        ),
    )
    stop_grace_ms: U64 = Field(2_000, description="The time between TERM and KILL.")
    restart_delay_ms: U64 = Field(500, description="The delay of the first restart; it doubles.")
    max_restart_delay_ms: U64 = Field(30_000, description="The longest delay of a restart.")
    max_restarts: U64 = Field(0, description="Give up after so many in a row; 0 means never.")
    events: list[str] | None = Field(
        None, description="The events that it may send; default: all of them."
    )


class Observe(Table):
    """Runs a hook at an interval, and a workflow when the hook changed the state."""

    workflow: str
    interval_ms: U64 = 1_000


class Hook(Table):
    """A command that a workflow runs to its end."""

    command: list[str]
    cwd: str | None = Field(None, description="Relative to the root.")
    env: dict[str, str] = {}
    output: HookOutput = HookOutput()
    capture: Literal["ignore", "text", "json"] | None = None
    state_key: str | None = None
    observe: Observe | None = None
    timeout_ms: U64 = Field(0, description="Then it is ended; 0 means no limit.")
    events: list[str] | None = Field(
        None, description="The events that it may send; default: all of them."
    )


class Event(Table):
    """An event that a child may send: one state key, one workflow."""

    state_key: str
    workflow: str
    pattern: str | None = Field(None, description="What a value must match; ^ and $ anchor it.")


class _ProcessStep(Table):
    process: str


class StartProcess(_ProcessStep):
    """Starts a process unless it runs."""

    action: Literal["start_process"]


class StopProcess(_ProcessStep):
    """Stops a process."""

    action: Literal["stop_process"]


class RestartProcess(_ProcessStep):
    """Stops a process and starts it again."""

    action: Literal["restart_process"]


class WaitForProcess(_ProcessStep):
    """Waits until a process is ready."""

    action: Literal["wait_for_process"]


class RunHook(Table):
    """Runs a hook to its end."""

    action: Literal["run_hook"]
    hook: str


class RunWorkflow(Table):
    """Runs another workflow here."""

    action: Literal["run_workflow"]
    workflow: str


class SleepMs(Table):
    """Waits."""

    action: Literal["sleep_ms"]
    duration_ms: U64


class WriteState(Table):
    """Stores a text in the session state."""

    action: Literal["write_state"]
    key: str
    value: str


class Log(Table):
    """Prints a message."""

    action: Literal["log"]
    message: str
    style: Literal["plain", "boxed"] = "plain"


class NotifyReload(Table):
    """Tells the browsers to load their page again."""

    action: Literal["notify_reload"]


class RunLoop(Table):
    """Runs an infloop workflow to its end; its inputs are templates of the session state."""

    action: Literal["run_loop"]
    loop: str = Field(description="The workflow's file, relative to the root, or its id.")
    inputs: dict[str, str] = {}


Step: TypeAlias = Annotated[
    StartProcess
    | StopProcess
    | RestartProcess
    | WaitForProcess
    | RunHook
    | RunWorkflow
    | SleepMs
    | WriteState
    | Log
    | NotifyReload
    | RunLoop,
    Field(discriminator="action"),
]


class Workflow(Table):
    """Steps, and the workflows that follow."""

    steps: list[Step]
    triggers: list[str] = []


class DevConfig(Table):
    """The whole file. `root` and `state_file` are absolute once it is loaded."""

    root: str
    debounce_ms: U64 = 250
    state_file: str | None = None
    startup_workflows: list[str] = []
    inherit_env: bool = Field(
        default=False, description="Pass the whole environment to children, secrets included."
    )
    watcher: Watcher = Watcher()
    event_server: EventServer = EventServer()
    browser_reload_server: BrowserReloadServer = BrowserReloadServer()
    watch: dict[str, WatchGroup] = {}
    process: dict[str, Process] = {}
    hook: dict[str, Hook] = {}
    event: dict[str, Event] = {}
    workflow: dict[str, Workflow] = {}

    RESERVED_KEYS: ClassVar = frozenset({"root", "last_workflow", "last_changed_files"})

    def workflow_of(self, group: str) -> str:
        """Return the workflow of a watch group."""
        named = self.watch[group].workflow
        return group if named is None else named

    @property
    def state_path(self) -> str:
        """Where the session state is stored."""
        return self.state_file or f"{self.root.rstrip('/')}/.devloop/state.json"


def by_name(names: dict[str, object] | dict[str, str]) -> list[str]:
    """Return names in the order of their bytes."""
    return sorted(names, key=str.encode)
