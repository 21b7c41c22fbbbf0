"""Attacks a sandbox as a hostile child would, and says what was reached and what was promised.

One battery for every level: the same attempts (see probes), against the same canaries (see decoys).
Each attempt belongs to a promise; a level makes some promises and not others, and what it does not
promise is reported all the same. Some attempts must succeed: a sandbox in which nothing works keeps
every other promise too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infloop.sandbox.base import ChildRequest
from infloop.sandbox.fence import Fence, Limits
from infloop.sandbox.self_check import probes
from infloop.sandbox.self_check.canaries import decoys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.sandbox.base import ChildResult, Sandbox
    from infloop.sandbox.self_check.canaries import Decoys

PROMISES = {
    "environment": "It gets the variables and descriptors it was given, and no others.",
    "files": "It reads no file beyond the system's programs and what its fence names.",
    "writing": "It changes nothing beyond what its fence lets it write.",
    "processes": "It reads, traces and signals no process but its own.",
    "sight": "It sees no process but its own.",
    "sockets": "It reaches no Unix socket.",
    "network": "Its only peers are its proxy and the local ports of its fence.",
    "kernel": "It makes no namespace or mount and reaches no risky part of the kernel.",
    "privileges": "It has no capability and gains none.",
    "repository": "What its fence lets it only read stays as it is, inside its workspace too.",
    "workspace": "It leaves no settings in its workspace that other programs act on.",
    "lifetime": "Nothing of it lives on after it has ended.",
    "limits": "Its processes, open files, file sizes and memory are bounded.",
    "temp": "Its temporary files are bounded.",
    "work": "What it needs works: programs, its workspace, its home and temp.",
    "egress": "It reaches its proxy and the local ports of its fence.",
}

ATTEMPTS = {
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
_MUST_SUCCEED = ("work", "egress")

_ANYWHERE = frozenset({"environment", "lifetime", "work"})
_CONFINED = frozenset(
    {
        "files",
        "writing",
        "processes",
        "sockets",
        "network",
        "kernel",
        "privileges",
        "limits",
        "egress",
    }
)
PROMISED = {
    "host": _ANYWHERE,
    "guard": _ANYWHERE | _CONFINED,
    "container": _ANYWHERE | _CONFINED,
    "sandbox": _ANYWHERE | _CONFINED | {"sight", "repository", "temp"},
}
"""What each level promises. That a workspace holds no traps is promised by who brings work home."""

QUICK = (
    *("foreign_variables", "read_secret", "write_outside", "read_process_secrets"),
    *("connect_loopback", "connect_unix", "make_namespaces", "reach_kernel", "leave_daemon"),
    *("use_workspace", "use_programs", "use_proxy"),
)
"""A few attempts, one for each way out, for every start."""

_LIMITS = Limits(
    processes=64, open_files=128, file_bytes=8 << 20, memory_bytes=1 << 30, temp_bytes=16 << 20
)
_ROOM = 48
_OURS = ("HOME", "TMPDIR", "TMP", "TEMP", "USER", "LOGNAME", "PWD", "LC_CTYPE", "PATH")
_PROXY = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_PYTHONS = ("/usr/bin/python3", "/bin/python3", "/usr/local/bin/python3")
_TIMEOUT_MS = 120_000


@dataclass(frozen=True)
class Finding:
    """One attempt: to which promise it belongs, whether it got through, and what it saw."""

    attempt: str
    promise: str
    promised: bool
    reached: bool
    detail: str

    @property
    def holds(self) -> bool:
        """Whether this is as promised; what is not promised holds either way."""
        return not self.promised or self.reached == (self.promise in _MUST_SUCCEED)

    @property
    def what(self) -> str:
        """What was tried, as a sentence."""
        return str(getattr(probes, self.attempt).__doc__)


@dataclass(frozen=True)
class Check:
    """What a battery found; `error` says why there was none."""

    level: str
    findings: tuple[Finding, ...] = ()
    error: str = ""

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
) -> Check:
    """Run the battery, or some of its attempts, against a sandbox.

    Canaries are put up in `scratch`, which the children's user must be able to enter; they belong
    to `user`, as whom the sandbox runs children, else to our own.
    """
    wanted = [*(attempts or (name for names in ATTEMPTS.values() for name in names))]
    async with decoys(scratch, user) as bait:
        result = await sandbox.run(_request(sandbox.level, bait, wanted, python or _python()))
        if result.error or result.result is None:
            return Check(sandbox.level, error=_why(result))
        touched = await bait.touched()
    findings = _findings(sandbox.level, result.result, touched)
    missing = sorted(set(wanted) - {finding.attempt for finding in findings})
    error = f"no answer about {', '.join(missing)}: {_why(result)}" if missing else ""
    return Check(sandbox.level, findings, error)


def _request(level: str, bait: Decoys, attempts: list[str], python: str) -> ChildRequest:
    fence = Fence(
        read=(str(bait.workspace / ".git"),),
        write=(str(bait.workspace),),
        network="proxy",
        on_listening=bait.answer,
        local_ports=(bait.service,),
        limits=_LIMITS,
    )
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(bait.home)}
    canaries = {
        **bait.canaries(),
        **_floods(level),
        "proxy": fence.proxy_port,
        "variables": [*_OURS, *_PROXY, *(name.lower() for name in _PROXY)],
    }
    told = json.dumps({"attempts": attempts, "canaries": canaries})
    source = (resources.files("infloop.sandbox.self_check") / "probes.py").read_text(
        encoding="utf-8"
    )
    return ChildRequest(
        argv=(python, "-I", "-S", "-c", source),
        cwd=str(bait.workspace),
        env=env,
        stdin=told.encode(),
        timeout_ms=_TIMEOUT_MS,
        grace_ms=200,
        want_result=True,
        fence=fence,
    )


def _floods(level: str) -> dict[str, int]:
    """Return how much is a little more than allowed."""
    # Where there is no namespace the kernel counts the processes of all of a user's programs.
    others = _tasks() if level in ("guard", "container") else 0
    return {
        "processes": _LIMITS.processes + others + _ROOM,
        "open_files": _LIMITS.open_files + _ROOM,
        "file_bytes": _LIMITS.file_bytes + 1,
        "memory_bytes": 2 * _LIMITS.memory_bytes,
        "temp_bytes": 2 * _LIMITS.temp_bytes,
    }


def _tasks() -> int:
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])


def _python() -> str:
    """Return a Python that every level shows to its children."""
    import sys

    return next((place for place in _PYTHONS if Path(place).exists()), sys.executable)


def _findings(level: str, answers: bytes, touched: dict[str, str]) -> tuple[Finding, ...]:
    promise_of = {name: promise for promise, names in ATTEMPTS.items() for name in names}
    found = []
    for line in answers.splitlines():
        answer: dict[str, Any] = json.loads(line)
        name = answer["attempt"]
        seen = touched.get(name, "")
        found.append(
            Finding(
                attempt=name,
                promise=promise_of[name],
                promised=promise_of[name] in PROMISED[level],
                reached=bool(seen) or answer["reached"],
                detail=seen or answer["detail"],
            )
        )
    return tuple(found)


def _why(result: ChildResult) -> str:
    how = "timed out" if result.timed_out else f"exit code {result.exit_code}"
    return result.error or f"{how}: {result.stderr.strip()[-500:]}"
