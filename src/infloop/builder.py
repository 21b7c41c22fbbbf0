"""Workflows in Python: each function makes a step of a loop file.

    from infloop import agent, loop, workflow

    flow = workflow("Until green", steps=[
        loop("rounds", max=10, until="pytest -q", steps=[
            agent("claude", prompt="Fix the failing tests."),
        ]),
    ])

- A function has the name of the kind of step, and an underscore where that is a word of Python:
  `if_`. An argument is a key of the loop file in snake_case: `use_worktree`, `on_error`, `else_`.
- An argument that leads to another step takes an id, a list of steps, or None: nothing follows.

Nothing here runs a workflow. This file is copied into a sandbox and is imported there without the
rest of the package, so it imports the standard library only.

What is between "made" and "end" is written by tools/gen_builder.py.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, EllipsisType, FrameType
    from typing import Literal, TypeAlias, TypedDict

    Duration: TypeAlias = "str | Literal[0]"  # "90s", "10m", "1h30m"
    Money: TypeAlias = "str | float"  # "$5", 0.5
    Text: TypeAlias = "str | float"  # a number is taken as it is written
    Json: TypeAlias = "str | float | bool | Mapping[str, Json] | Sequence[Json] | None"
    Jump: TypeAlias = "str | Iterable[Step] | EllipsisType | None"  # ... means the next step
    Position: TypeAlias = "tuple[int, int, int, int]"

    # -- made: types --
    Check = TypedDict(
        "Check",
        {
            "command": str,
            "contains": str,
            "matches": str,
            "judge": str,
            "env": "Mapping[str, Text]",
            "cwd": str,
            "timeout": "Duration",
            "useWorktree": bool,
            "worktree": str,
            "worktreeRef": str,
            "includeUncommitted": bool,
            "worktreeInclude": "list[str] | tuple[str, ...]",
            "mustRun": bool,
            "model": str,
            "provider": str,
            "in": str,
            "id": str,
            "label": str,
        },
        total=False,
    )

    Comparison = TypedDict(
        "Comparison",
        {
            "left": str,
            "is": str,
            "isNot": str,
            "contains": str,
            "matches": str,
        },
        total=False,
    )

    class Input(TypedDict, total=False):
        type: Literal["string", "number", "boolean", "text"]
        default: Json
        description: str

    class Limits(TypedDict, total=False):
        steps: int
        time: Duration
        cost: Money
        runs: int

    class Untrusted(TypedDict, total=False):
        agents: Literal["never", "sandboxed-only", "text", "any"]
        commands: Literal["never", "env", "any"]

    class Workspace(TypedDict, total=False):
        repository: str
        ref: str

    # -- end --


class Step:
    """One step: its keys as a loop file has them, the arguments they come from, and its call."""

    __slots__ = ("arguments", "at", "keys")

    def __init__(
        self, keys: dict[str, object], arguments: dict[str, str], at: Position | None
    ) -> None:
        self.keys = keys
        self.arguments = arguments
        self.at = at


class Workflow(Step):
    """A whole workflow. A file assigns it to a variable."""

    __slots__ = ()


# -- made: functions --
def workflow(
    name: str | None = None,
    *,
    steps: Iterable[Step],
    inputs: Mapping[str, Text | Input | None] | None = None,
    id: str | None = None,
    description: str | None = None,
    globals: Mapping[str, Text] | None = None,
    on_crash: Literal["fail", "resume"] | None = None,
    on_budget: Literal["fail", "pause"] | None = None,
    strict: bool | None = None,
    requires: list[str] | tuple[str, ...] | None = None,
    limits: Limits | None = None,
    isolation: Literal["container", "sandbox", "guard", "host", "auto"] | None = None,
    untrusted: Untrusted | None = None,
    egress: Literal["open", "allowlist", "none"] | None = None,
    egress_allowlist: list[str] | tuple[str, ...] | None = None,
    allow_local: list[int] | tuple[int, ...] | None = None,
    read_paths: list[str] | tuple[str, ...] | None = None,
    write_paths: list[str] | tuple[str, ...] | None = None,
    workspace: Workspace | None = None,
) -> Workflow:
    """A whole workflow.

    name               Its name for people.
    steps              What it does, in this order.
    inputs             The inputs of a run: a default, or type, default and description.
    id                 The workflow's name; a plain file name, and its file's name.
    description        What it is for.
    globals            Fixed texts; {{globals.name}} in any step.
    on_crash           Record an interrupted run as failed, or resume it.
    on_budget          Fail when money runs out, or pause and wait for `infloop resume`.
    strict             Fail when a loop uses up its rounds, or when nothing follows a `not_met`.
    requires           Labels that a server or worker must have to run it: gpu, repo:web.
    limits             The limits of a run.
    isolation          The weakest level at which children may run.
    untrusted          What an untrusted value may reach.
    egress             Where children may connect; it can only be stricter than the operator's.
    egress_allowlist   Hosts that all children may connect to if there is an allowlist.
    allow_local        Services of this machine that confined children may use: 5432.
    read_paths         Paths that confined children may read besides their directory.
    write_paths        Paths that confined children may change besides their directory.
    workspace          The repository in which a run works, in a checkout of its own.
    """
    return _workflow(locals())


def start(
    id: str | None = None,
    *,
    label: str | None = None,
    next: Jump = ...,
) -> Step:
    """Where a run begins.

    id      Its name; references use it.
    label   What the console shows instead of the id.
    """
    return _step("start", locals(), ("next",))


def end(
    outcome: Literal["succeeded", "failed"] | None = None,
    *,
    id: str | None = None,
    label: str | None = None,
) -> Step:
    """Ends the run, or the branch or called workflow it is in, through all loops around it.

    outcome   What the run, branch or called workflow ends as.
    id        Its name; references use it.
    label     What the console shows instead of the id.
    """
    return _step("end", locals())


def agent(
    provider: str | None = None,
    *,
    id: str | None = None,
    label: str | None = None,
    prompt: str | None = None,
    prompt_file: str | None = None,
    cwd: str | None = None,
    timeout: Duration | None = None,
    profile: str | None = None,
    act_as: str | None = None,
    use_worktree: bool | None = None,
    worktree: str | None = None,
    worktree_ref: str | None = None,
    include_uncommitted: bool | None = None,
    worktree_include: list[str] | tuple[str, ...] | None = None,
    on_rate_limit: Literal["fail", "wait"] | None = None,
    rate_limit_max_wait: Duration | None = None,
    idle_timeout: Duration | None = None,
    session: str | None = None,
    tools: list[str] | tuple[str, ...] | None = None,
    continue_session: bool | None = None,
    skip_permissions: bool | None = None,
    next: Jump = ...,
    on_error: Jump = ...,
) -> Step:
    """Asks an agent (a CLI, an HTTP model or a script of turns) to do something.

    provider              The id of a provider manifest.
    id                    Its name; references use it.
    label                 What the console shows instead of the id.
    prompt                What the agent is asked to do.
    prompt_file           A file that holds it.
    cwd                   Where the agent works; the run's directory if empty.
    timeout               The agent is stopped after this long; 0 means no limit.
    profile               The model that the agent uses; its provider's default if empty.
    act_as                The named agent that a CLI provider should act as.
    use_worktree          Work on a copy of the repository at the directory.
    worktree              Steps that name the same worktree share it; the step's own id if empty.
    worktree_ref          The commit or branch that the worktree starts at; HEAD if empty.
    include_uncommitted   The worktree starts with the uncommitted changes of the directory.
    worktree_include      Ignored files that the worktree needs as well, by glob: .env,
                          config/*.local.
    on_rate_limit         Fail, or wait until the limit is lifted and ask again; the wait survives
                          restarts.
    rate_limit_max_wait   A usage limit that is lifted later fails the step.
    idle_timeout          An agent that prints nothing for this long (ms) is stopped as stalled; 0
                          means no limit.
    session               The agent's own session to continue: the `sessionId` of an earlier step.
    tools                 The only tools that the built-in agent has, by name; all of them if
                          missing.
    continue_session      In a loop, the next round continues the agent's own session if it can.
    skip_permissions      Add the manifest's dangerousArgs: the agent acts without asking.
    """
    return _step("agent", locals(), ("next", "on_error"))


def script(
    language: Literal["ts", "py"] | None = None,
    *,
    id: str | None = None,
    label: str | None = None,
    inputs: Mapping[str, Json] | None = None,
    outputs: list[str] | tuple[str, ...] | None = None,
    code: str | None = None,
    code_file: str | None = None,
    cwd: str | None = None,
    timeout: Duration | None = None,
    next: Jump = ...,
    on_error: Jump = ...,
) -> Step:
    """Runs inline Python or TypeScript.

    language    TypeScript or Python.
    id          Its name; references use it.
    label       What the console shows instead of the id.
    inputs      Arguments of run, by position in this order.
    outputs     Keys of the returned object that become outputs.
    code        The script. References in it are not filled in; use inputs.
    code_file   A file that holds it.
    cwd         Where the script runs; the run's directory if empty.
    timeout     The script is stopped after this long; 0 means the operator's longest time.
    """
    return _step("script", locals(), ("next", "on_error"))


def command(
    cmd: str,
    *,
    id: str | None = None,
    label: str | None = None,
    env: Mapping[str, Text] | None = None,
    cwd: str | None = None,
    timeout: Duration | None = None,
    use_worktree: bool | None = None,
    worktree: str | None = None,
    worktree_ref: str | None = None,
    include_uncommitted: bool | None = None,
    worktree_include: list[str] | tuple[str, ...] | None = None,
    next: Jump = ...,
    on_error: Jump = ...,
) -> Step:
    """Runs a command that must succeed.

    cmd                   A shell line. A reference in it becomes an environment variable, never
                          shell text.
    id                    Its name; references use it.
    label                 What the console shows instead of the id.
    env                   Variables for the command.
    cwd                   Where it runs; the run's directory if empty.
    timeout               The command is stopped after this long; 0 means the operator's longest
                          time.
    use_worktree          Work on a copy of the repository at the directory.
    worktree              Steps that name the same worktree share it; the step's own id if empty.
    worktree_ref          The commit or branch that the worktree starts at; HEAD if empty.
    include_uncommitted   The worktree starts with the uncommitted changes of the directory.
    worktree_include      Ignored files that the worktree needs as well, by glob: .env,
                          config/*.local.
    """
    return _step("command", locals(), ("next", "on_error"))


def check(
    what: str | Check,
    *,
    id: str | None = None,
    label: str | None = None,
    met: Jump = ...,
    not_met: Jump = ...,
    on_error: Jump = ...,
    next: Jump = ...,
) -> Step:
    """Met or not met. Directly in a loop, met ends the loop and not met begins the next round.

    id      Its name; references use it.
    label   What the console shows instead of the id.
    """
    return _step("check", locals(), ("met", "not_met", "on_error", "next"))


def loop(
    id: str | None = None,
    *,
    label: str | None = None,
    until: str | Check | None = None,
    steps: Iterable[Step] | None = None,
    max: int | None = None,
    check_first: bool | None = None,
    mode: str | None = None,
    infinite: bool | None = None,
    no_progress_limit: bool | int | None = None,
    next: Jump = ...,
    exhausted: Jump = ...,
    on_error: Jump = ...,
) -> Step:
    """Repeats its children, from the first on, until a condition is met or rounds run out.

    id                  Its name; references use it.
    label               What the console shows instead of the id.
    until               Ends the loop when it holds: a shell line, or a dictionary.
    steps               Its body.
    max                 After this many rounds the loop is left by exhausted, or by next.
    check_first         Ask the condition before the first round; if it is met, no round begins.
    mode                Accepted for older files; it has no effect.
    infinite            Ignore the number of rounds; budgets still hold.
    no_progress_limit   Stop when this many rounds in a row ended with the same files and the same
                        answer of the condition; true means 3, false or 0 never.
    """
    return _step("loop", locals(), ("next", "exhausted", "on_error"))


def if_(
    comparison: str | Comparison,
    *,
    id: str | None = None,
    label: str | None = None,
    then: Jump = ...,
    else_: Jump = ...,
    on_error: Jump = ...,
) -> Step:
    """Goes one way or the other.

    id      Its name; references use it.
    label   What the console shows instead of the id.
    """
    return _step("if", locals(), ("then", "else_", "on_error"))


def parallel(
    id: str | None = None,
    *,
    label: str | None = None,
    branches: Mapping[str, Iterable[Step]] | None = None,
    mode: Literal["wait-all", "race", "quorum"] | None = None,
    quorum_n: int | None = None,
    on_error: Literal["fail-fast", "best-effort"] | None = None,
    all_done: Jump = ...,
    first_done: Jump = ...,
    quorum_met: Jump = ...,
    error: Jump = ...,
    next: Jump = ...,
) -> Step:
    """Runs its branches at the same time. A branch begins at each child no sibling leads to.

    id         Its name; references use it.
    label      What the console shows instead of the id.
    branches   Steps that run at the same time, by the name of their branch.
    mode       All must succeed, the first success wins, or quorumN must succeed.
    quorum_n   How many must succeed, for mode quorum.
    on_error   Fail at the first failure, or when the goal is out of reach.
    """
    return _step("parallel", locals(), ("all_done", "first_done", "quorum_met", "error", "next"))


def call(
    workflow: str,
    *,
    id: str | None = None,
    label: str | None = None,
    inputs: Mapping[str, Json] | None = None,
    outputs: Mapping[str, Text] | None = None,
    next: Jump = ...,
    on_error: Jump = ...,
) -> Step:
    """Calls another workflow, which sees only what it is passed.

    workflow   The id of the workflow to call.
    id         Its name; references use it.
    label      What the console shows instead of the id.
    inputs     Values for its inputs, by name.
    outputs    Name here: path there, such as agent-1.stdout.
    """
    return _step("call", locals(), ("next", "on_error"))


def judge(
    criteria: str,
    *,
    id: str | None = None,
    label: str | None = None,
    candidates: list[str] | tuple[str, ...] | None = None,
    judge_prompt: str | None = None,
    model: str | None = None,
    provider: str | None = None,
    next: Jump = ...,
    on_error: Jump = ...,
) -> Step:
    """Asks a model which of several candidates is best.

    criteria       What makes a candidate good.
    id             Its name; references use it.
    label          What the console shows instead of the id.
    candidates     At least two texts.
    judge_prompt   Instead of the usual ones.
    model          The provider's default if empty.
    provider       Who judges; claude if empty.
    """
    return _step("judge", locals(), ("next", "on_error"))


def approval(
    question: str,
    *,
    id: str | None = None,
    label: str | None = None,
    details: str | None = None,
    timeout: Duration | None = None,
    next: Jump = ...,
    on_error: Jump = ...,
) -> Step:
    """Waits until a person allows or denies something.

    question   What a person allows or denies, in one line.
    id         Its name; references use it.
    label      What the console shows instead of the id.
    details    What the person should know, such as a diff.
    timeout    Without an answer until then it is denied; 0 means the server's time.
    """
    return _step("approval", locals(), ("next", "on_error"))


def note(
    text: str,
    *,
    id: str | None = None,
    label: str | None = None,
) -> Step:
    """A note on the canvas.

    text    For people; it has no effect.
    id      Its name; references use it.
    label   What the console shows instead of the id.
    """
    return _step("note", locals())


# -- end --


_file = ""
"""The file that is built, if one is: calls are noted with their position in it."""
_positions: dict[CodeType, list[tuple[int | None, ...]]] = {}


def _step(kind: str, given: Mapping[str, object], jumps: tuple[str, ...] = ()) -> Step:
    """Make a step of the arguments of its function; the first one is the value of its kind."""
    keys, arguments = _keys(given, jumps, kind)
    return Step(keys, arguments, _call(sys._getframe(2)))  # noqa: SLF001


def _workflow(given: Mapping[str, object]) -> Workflow:
    keys, arguments = _keys(given, (), "name")
    if keys["name"] is None:
        del keys["name"]
    return Workflow(keys, arguments, _call(sys._getframe(2)))  # noqa: SLF001


def _keys(
    given: Mapping[str, object], jumps: tuple[str, ...], first: str
) -> tuple[dict[str, object], dict[str, str]]:
    """Return the arguments that are given as keys of a loop file, and the name of each argument."""
    keys: dict[str, object] = {}
    arguments: dict[str, str] = {}
    for name, value in given.items():
        key = first if not keys else _key(name)
        if not keys or (value is not ... if name in jumps else value is not None):
            keys[key] = _plain(value)
            arguments[key] = name
    return keys, arguments


def _key(name: str) -> str:
    """Return `on_error` as `onError`, and `else_` as `else`."""
    head, *rest = name.rstrip("_").split("_")
    return head + "".join(map(str.capitalize, rest))


def _plain(value: object) -> object:
    """Return a copy of a value that holds only what a loop file can; raise TypeError or ValueError.

    A set has no order, and bytes are no text.
    """
    if isinstance(value, str):
        value.encode()  # no half of a surrogate pair
        return value
    if value is None or isinstance(value, (int, Step)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} cannot be part of a workflow: use a finite number")
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{key!r} cannot be a key of a workflow: use a text")
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (set, frozenset, bytes, bytearray)):
        return [_plain(inner) for inner in value]
    raise TypeError(
        f"{type(value).__name__} cannot be part of a workflow: use texts, numbers, lists, "
        "dictionaries and steps"
    )


def _call(frame: FrameType | None) -> Position | None:
    """Return where in the file that is built the innermost call is: line, column, and its end."""
    while frame is not None and frame.f_code.co_filename != _file:
        frame = frame.f_back
    return _where(frame.f_code, frame.f_lasti, frame.f_lineno) if frame is not None else None


def _where(code: CodeType, instruction: int, line: int) -> Position:
    """Return the position of an instruction; columns count bytes from 0."""
    if hasattr(code, "co_positions"):  # since Python 3.11
        if code not in _positions:
            _positions[code] = list(code.co_positions())
        first, last, begin, end = _positions[code][instruction // 2]
        if first is not None and last is not None and begin is not None and end is not None:
            return first, begin, last, end
    return line, 0, line, 0
