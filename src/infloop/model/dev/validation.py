"""The checks of a configuration. The first problem wins; their order and words are fixed.

Order: root, watch groups, processes, hooks, servers, watcher, events, workflows, startup workflows.
Tables are visited in the order of their names' bytes.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from infloop.model.dev.config import (
    DevConfig,
    ExecProbe,
    HttpProbe,
    LogLineProbe,
    RestartProcess,
    RunHook,
    RunWorkflow,
    StartProcess,
    StateKeyProbe,
    StopProcess,
    TcpProbe,
    WaitForProcess,
    WriteState,
)
from infloop.model.dev.graph import overlap, reachable_steps, recursion
from infloop.model.dev.reading import ConfigError
from infloop.model.patterns import BadPattern, compile_pattern

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from infloop.model.dev.config import Event, Hook, OutputRule, Probe, Process, Step, Workflow

T = TypeVar("T")


class Address(NamedTuple):
    """A socket address."""

    host: str
    port: int


def parse_address(text: str) -> Address | None:
    """Return the parts of `127.0.0.1:80` or `[::1]:80`; None for all else, also a name."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        address = ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        return None
    if not colon or not port.isdecimal() or not port.isascii() or int(port[:6]) > 65_535:
        return None
    return Address(str(address), int(port)) if (address.version == 6) == bracketed else None


def validate(config: DevConfig, *, root_exists: bool) -> None:
    """Raise ConfigError for the first problem."""
    if not root_exists:
        raise ConfigError(f"config root '{config.root}' does not exist")
    if not config.watch:
        raise ConfigError("config must define at least one watch group")
    for name, group in _sorted(config.watch):
        if not group.paths:
            raise ConfigError(f"watch group '{name}' must define at least one path")
        workflow = config.workflow_of(name)
        if workflow not in config.workflow:
            raise ConfigError(f"watch group '{name}' references missing workflow '{workflow}'")
    for name, process in _sorted(config.process):
        _under(f"invalid process '{name}'", _process_problem(config, process))
    _dependency_cycle(config)
    for name, hook in _sorted(config.hook):
        _under(f"invalid hook '{name}'", _hook_problem(config, hook))
        if hook.observe and hook.observe.workflow not in config.workflow:
            missing = hook.observe.workflow
            raise ConfigError(f"hook '{name}' observes missing workflow '{missing}'")
    for kind, bind in (
        ("event_server", config.event_server.bind),
        ("browser_reload_server", config.browser_reload_server.bind),
    ):
        if parse_address(bind) is None:
            raise ConfigError(f"{kind} bind '{bind}' is not a valid socket address")
    if config.watcher.poll_interval_ms == 0:
        raise ConfigError("watcher poll_interval_ms must be greater than zero")
    for name, event in _sorted(config.event):
        _under(f"invalid event '{name}'", _event_problem(event))
        if event.workflow not in config.workflow:
            raise ConfigError(f"event '{name}' references missing workflow '{event.workflow}'")
    for name, workflow_table in _sorted(config.workflow):
        _under(f"invalid workflow '{name}'", _workflow_problem(config, workflow_table))
    _graph_problems(config)
    for name in config.startup_workflows:
        if name not in config.workflow:
            raise ConfigError(f"startup workflow references missing workflow '{name}'")


def warnings(config: DevConfig) -> list[str]:
    """Return what is allowed and still worth a thought."""
    return [*_open_events(config), *_own_variables(config)]


def _open_events(config: DevConfig) -> Iterator[str]:
    for name, event in _sorted(config.event):
        reached = reachable_steps(config, event.workflow, RunHook, RestartProcess)
        step = next(reached, None)
        if event.pattern is None and isinstance(step, RunHook | RestartProcess):
            what = (
                f"runs hook '{step.hook}'"
                if isinstance(step, RunHook)
                else f"restarts process '{step.process}'"
            )
            yield (
                f"event '{name}' has no pattern, and its workflow '{event.workflow}' {what}: any "
                "text that a child sends gets there; add a pattern such as '^[a-z0-9/-]+$'"
            )


def _own_variables(config: DevConfig) -> Iterator[str]:
    environments = [
        *((f"process '{name}'", table.env) for name, table in _sorted(config.process)),
        *((f"hook '{name}'", table.env) for name, table in _sorted(config.hook)),
    ]
    for owner, variables in environments:
        for variable in variables:
            if variable.upper().startswith("INFLOOP_"):
                yield (
                    f"{owner} sets {variable}, which never reaches a child: variables named "
                    "INFLOOP_* are infloop's own"
                )


def _sorted(table: Mapping[str, T]) -> list[tuple[str, T]]:
    return sorted(table.items(), key=lambda item: item[0].encode())


def _under(context: str, problem: tuple[str, ...]) -> None:
    if problem:
        raise ConfigError(context, *problem)


def _process_problem(config: DevConfig, process: Process) -> tuple[str, ...]:
    if not process.command or not process.command[0]:
        return ("process command must not be empty",)
    for probe in (process.readiness, process.liveness):
        if probe and (problem := _probe_problem(probe)):
            return problem
    for rule in process.output.rules:
        if problem := _rule_problem(rule):
            return problem
    for name in process.depends_on:
        if name not in config.process:
            return (f"process depends on missing process '{name}'",)
    return _scope_problem(config, process.events)


def _dependency_cycle(config: DevConfig) -> None:
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> None:
        if name in path:
            raise ConfigError(f"process dependency cycle: {' -> '.join([*path, name])}")
        if name not in done:
            for each in config.process[name].depends_on:
                visit(each, [*path, name])
            done.add(name)

    for name, _ in _sorted(config.process):
        visit(name, [])


def _probe_problem(probe: Probe) -> tuple[str, ...]:
    match probe:
        case HttpProbe():
            return () if probe.url.strip() else ("http probe url must not be empty",)
        case StateKeyProbe():
            return () if probe.key else ("state_key probe key must not be empty",)
        case TcpProbe():
            host, _, port = probe.address.rpartition(":")
            valid = host and port.isdecimal() and 0 < int(port[:6]) <= 65_535
            return () if valid else (f"tcp probe address '{probe.address}' is not HOST:PORT",)
        case ExecProbe():
            return () if probe.command else ("exec probe command must not be empty",)
        case LogLineProbe():
            return _pattern_problem("log_line probe", probe.pattern)


def _rule_problem(rule: OutputRule) -> tuple[str, ...]:
    if not rule.state_key:
        return ("output rule state_key must not be empty",)
    if rule.pattern is not None and (found := _pattern_problem("output rule", rule.pattern)):
        return found
    return _reserved(rule.state_key)


def _hook_problem(config: DevConfig, hook: Hook) -> tuple[str, ...]:
    if not hook.command or not hook.command[0]:
        return ("hook command must not be empty",)
    if hook.capture == "text" and hook.state_key is None:
        return ("text capture requires state_key",)
    if hook.observe and not hook.observe.workflow:
        return ("observed hook workflow must not be empty",)
    if hook.observe and hook.observe.interval_ms == 0:
        return ("observed hook interval_ms must be greater than zero",)
    return _reserved(hook.state_key or "") or _scope_problem(config, hook.events)


def _event_problem(event: Event) -> tuple[str, ...]:
    if not event.state_key:
        return ("event state_key must not be empty",)
    if not event.workflow:
        return ("event workflow must not be empty",)
    if event.pattern is not None and (found := _pattern_problem("event", event.pattern)):
        return found
    return _reserved(event.state_key)


def _scope_problem(config: DevConfig, events: list[str] | None) -> tuple[str, ...]:
    missing = next((name for name in events or () if name not in config.event), None)
    return () if missing is None else (f"events names missing event '{missing}'",)


def _pattern_problem(kind: str, pattern: str) -> tuple[str, ...]:
    try:
        compile_pattern(pattern)
    except BadPattern as error:
        return f"invalid {kind} regex '{pattern}'", str(error)
    return ()


def _reserved(key: str) -> tuple[str, ...]:
    if key not in DevConfig.RESERVED_KEYS:
        return ()
    return (f"state key '{key}' is reserved: infloop writes it itself; choose another name",)


def _workflow_problem(config: DevConfig, workflow: Workflow) -> tuple[str, ...]:
    if not workflow.steps:
        return ("workflow must contain at least one step",)
    for step in workflow.steps:
        if problem := _step_problem(config, step):
            return problem
    for name in workflow.triggers:
        if name not in config.workflow:
            return (f"workflow references missing workflow '{name}'",)
    return ()


def _step_problem(config: DevConfig, step: Step) -> tuple[str, ...]:
    match step:
        case StartProcess() | StopProcess() | RestartProcess() | WaitForProcess():
            if step.process not in config.process:
                return (f"workflow references missing process '{step.process}'",)
        case RunHook():
            if step.hook not in config.hook:
                return (f"workflow references missing hook '{step.hook}'",)
        case RunWorkflow():
            if step.workflow not in config.workflow:
                return (f"workflow references missing workflow '{step.workflow}'",)
        case WriteState():
            return _reserved(step.key)
        case _:
            pass
    return ()


def _graph_problems(config: DevConfig) -> None:
    for name, _ in _sorted(config.workflow):
        if path := recursion(config, name):
            raise ConfigError(f"workflow recursion detected: {' -> '.join(path)}")
    for name, workflow in _sorted(config.workflow):
        if workflow.triggers and (both := overlap(config, name)):
            raise ConfigError(
                f"workflow '{both}' is reachable both as a trigger target and via run_workflow in "
                "the same execution tree"
            )
