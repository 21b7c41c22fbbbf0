"""Attacks a sandbox as a hostile child would, and reports what was reached and what was promised.

Every level is attacked with the same attempts (see probes) on the same canaries. Each attempt
belongs to a promise. Attempts on promises that a level does not make are reported too. Some
attempts must succeed: a sandbox in which nothing works would keep every other promise.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from infloop.sandbox.access import Access, ResourceLimits
from infloop.sandbox.base import ChildRequest
from infloop.sandbox.self_check import probes
from infloop.sandbox.self_check.canaries import canaries_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from infloop.sandbox.base import ChildResult, OnOutput, Sandbox, Stream
    from infloop.sandbox.promises import Promise
    from infloop.sandbox.self_check.canaries import Canaries

ATTEMPTS: dict[Promise, tuple[str, ...]] = {
    "environment": ("foreign_variables", "inherited_descriptors"),
    "files": (
        *("read_secret", "read_home", "read_round_about", "hard_link_secret"),
        *("read_shared_memory", "see_system_v_memory", "open_devices"),
    ),
    "writing": ("write_outside", "write_startup_files", "write_system", "write_kernel_settings"),
    "processes": ("read_process_secrets", "attack_process"),
    "sight": ("see_processes",),
    "sockets": ("connect_unix",),
    "network": (
        *("connect_loopback", "connect_ipv6", "connect_machine", "connect_fast_open"),
        *("connect_multipath", "send_datagrams", "ask_name_server", "find_routes"),
    ),
    "kernel": (
        *("open_odd_sockets", "make_namespaces", "enter_namespaces", "change_mounts"),
        *("reach_kernel", "use_keyrings", "trace_itself", "open_by_handle"),
        *("use_other_call_table", "type_into_terminal"),
    ),
    "privileges": ("gain_privileges",),
    "repository": ("change_repository",),
    "workspace": ("write_tool_configuration",),
    "lifetime": ("leave_daemon",),
    "limits": ("flood_processes", "flood_descriptors", "flood_file", "flood_memory"),
    "temp": ("flood_temp",),
    "work": (*("use_workspace", "use_home_and_temp", "use_programs", "use_threads"),),
    "egress": ("use_proxy", "use_local_service"),
}
_MUST_SUCCEED: tuple[Promise, ...] = ("work", "egress")

QUICK = (
    *("foreign_variables", "read_secret", "write_outside", "read_process_secrets"),
    *("connect_loopback", "connect_unix", "make_namespaces", "reach_kernel", "leave_daemon"),
    *("use_workspace", "use_programs", "use_proxy"),
)
"""A few attempts, one for each kind of escape, for every start."""

_LIMITS = ResourceLimits(
    processes=64, open_files=128, file_bytes=8 << 20, memory_bytes=1 << 30, temp_bytes=16 << 20
)
_EXCESS = 48
_INEXACT = 400
"""A limit by the process ids of a namespace allows some hundred processes more."""
_GIVEN_VARIABLES = ("HOME", "TMPDIR", "TMP", "TEMP", "USER", "LOGNAME", "PWD", "LC_CTYPE", "PATH")
_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_PYTHON_PATHS = ("/usr/bin/python3", "/bin/python3", "/usr/local/bin/python3")
_TIMEOUT_MS = 120_000


class Finding(msgspec.Struct, frozen=True):
    """One attempt: the promise it belongs to, whether it succeeded, and what it reached."""

    attempt: str
    promise: Promise
    promised: bool
    reached: bool
    detail: str

    @property
    def holds(self) -> bool:
        """Whether the promise was kept; always true for what is not promised."""
        return not self.promised or self.reached == (self.promise in _MUST_SUCCEED)

    @property
    def what(self) -> str:
        """What was tried, as a sentence."""
        return str(getattr(probes, self.attempt).__doc__)


class AttackReport(msgspec.Struct, frozen=True):
    """The findings of an attack; `error` says why it could not be completed."""

    level: str
    findings: tuple[Finding, ...] = ()
    error: str = ""
    timed_out: bool = False

    @property
    def broken(self) -> tuple[Finding, ...]:
        """The findings that break a promise."""
        return tuple(finding for finding in self.findings if not finding.holds)

    @property
    def holds(self) -> bool:
        """Whether the level keeps all its promises."""
        return not self.error and not self.broken


async def self_check(
    sandbox: Sandbox,
    scratch: str,
    *,
    user: tuple[int, int] | None = None,
    attempts: Sequence[str] = (),
    python: str = "",
    on_attempt: Callable[[], None] | None = None,
) -> AttackReport:
    """Make all attempts, or some of them, on a sandbox.

    The canaries are created in `scratch`, which the children's user must be able to enter. They
    belong to `user`, the user of the sandbox's children, or to our own user. `on_attempt` is called
    after each attempt, as far as the child says so.
    """
    wanted = [*(attempts or (name for names in ATTEMPTS.values() for name in names))]
    on_all = "connect_machine" in wanted
    async with canaries_in(scratch, user, on_all_addresses=on_all) as canaries:
        request = _request(sandbox, canaries, wanted, python or _python())
        result = await sandbox.run(request, on_output=_count_lines(on_attempt))
        if result.error or result.result is None:
            error, timed_out = _reason(result), result.timed_out
            return AttackReport(sandbox.level, error=error, timed_out=timed_out)
        touched = await canaries.touched()
    findings = _findings(sandbox.promises, result.result, touched)
    missing = sorted(set(wanted) - {finding.attempt for finding in findings})
    error = f"no answer about {', '.join(missing)}: {_reason(result)}" if missing else ""
    return AttackReport(sandbox.level, findings, error, result.timed_out)


def _count_lines(on_line: Callable[[], None] | None) -> OnOutput | None:
    """Return a receiver of output that calls `on_line` for each line of standard output."""
    if on_line is None:
        return None

    def receive(stream: Stream, text: str) -> None:
        if stream == "stdout":
            for _ in range(text.count("\n")):
                on_line()

    return receive


def _request(
    sandbox: Sandbox, canaries: Canaries, attempts: list[str], python: str
) -> ChildRequest:
    access = Access(
        read=(str(canaries.workspace / ".git"),),
        write=(str(canaries.workspace),),
        network="proxy",
        on_listening=canaries.serve_proxy,
        local_ports=(canaries.service,),
        limits=_LIMITS,
    )
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(canaries.home)}
    proxy_variables = [*_PROXY_VARIABLES, *(name.lower() for name in _PROXY_VARIABLES)]
    targets = {
        **canaries.targets(),
        **_flood_sizes(sandbox),
        "proxy": access.proxy_port,
        "variables": [*_GIVEN_VARIABLES, *proxy_variables],
    }
    task = json.dumps({"attempts": attempts, "targets": targets})
    source = (resources.files("infloop.sandbox.self_check") / "probes.py").read_text(
        encoding="utf-8"
    )
    return ChildRequest(
        argv=(python, "-I", "-S", "-c", source),
        cwd=str(canaries.workspace),
        env=env,
        stdin=task.encode(),
        timeout_ms=_TIMEOUT_MS,
        grace_ms=200,
        want_result=True,
        access=access,
    )


def _flood_sizes(sandbox: Sandbox) -> dict[str, int]:
    """Return amounts that are a little more than allowed."""
    others = _running_tasks() if sandbox.shared_process_limit else _INEXACT
    return {
        "processes": _LIMITS.processes + others + _EXCESS,
        "open_files": _LIMITS.open_files + _EXCESS,
        "file_bytes": _LIMITS.file_bytes + 1,
        "memory_bytes": 2 * _LIMITS.memory_bytes,
        "temp_bytes": 2 * _LIMITS.temp_bytes,
    }


def _running_tasks() -> int:
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])


def _python() -> str:
    """Return a Python that children see at every level."""
    import sys

    return next((path for path in _PYTHON_PATHS if Path(path).exists()), sys.executable)


def _findings(
    promises: frozenset[Promise], answers: bytes, touched: dict[str, str]
) -> tuple[Finding, ...]:
    promise_of = {name: promise for promise, names in ATTEMPTS.items() for name in names}
    found = []
    for line in answers.splitlines():
        answer: dict[str, Any] = json.loads(line)
        name = answer["attempt"]
        outside_evidence = touched.get(name, "")
        found.append(
            Finding(
                attempt=name,
                promise=promise_of[name],
                promised=promise_of[name] in promises,
                reached=bool(outside_evidence) or answer["reached"],
                detail=outside_evidence or answer["detail"],
            )
        )
    return tuple(found)


def _reason(result: ChildResult) -> str:
    how = "timed out" if result.timed_out else f"exit code {result.exit_code}"
    return result.error or f"{how}: {result.stderr.strip()[-500:]}"
