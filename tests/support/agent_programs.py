"""The real agents: installed programs, a fake model, and no network but loopback.

`.agents/` (or `AGENTS_DIR`) holds the programs. `make test-parts` installs them, in the versions of
`tests/agents/package.json`.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import psutil

from infloop.model.provider import AcpProvider, CliProvider, parse_provider
from infloop.policy.environment import child_environment
from infloop.providers import SHIPPED_DIR
from infloop.providers.acp.agent import AcpAgent
from infloop.providers.cli.agent import CliAgent
from infloop.sandbox.levels.host import HostSandbox
from support import forkserver
from support.parts import missing
from support.paths import ROOT

AGENTS_DIR = Path(os.environ.get("AGENTS_DIR") or ROOT / ".agents")
PROGRAMS = AGENTS_DIR / "node_modules/.bin"
INSTALLED = ("claude", "codex", "claude-agent-acp", "codex-acp")

CODEX_CONFIG = """
model = "gpt-5-codex"
model_provider = "fake"

[model_providers.fake]
name = "fake"
base_url = "{url}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""

# What an agent must not see, or not see of us: sessions of another agent, secrets of another tool.
PLANTED = {
    "CLAUDECODE": "1",
    "CLAUDE_CODE_ENTRYPOINT": "cli",
    "CLAUDE_CODE_SSE_PORT": "1",
    "CODEX_SANDBOX": "seatbelt",
    "INFLOOP_API_TOKEN": "planted-own-token",
    "AWS_SECRET_ACCESS_KEY": "planted-cloud-key",
    "GH_TOKEN": "planted-forge-token",
}

_CLONE_NEWUSER, _CLONE_NEWNET = 0x1000_0000, 0x4000_0000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1


def need_agents() -> None:
    """Return where the programs are installed."""
    for program in INSTALLED:
        if not (PROGRAMS / program).exists():
            missing(f"{program} is not in {AGENTS_DIR}: run `make test-parts`")


def leave_the_network() -> None:
    """Move this process, and all it starts from now on, to where there is only loopback."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if libc.unshare(_CLONE_NEWNET if user == 0 else _CLONE_NEWNET | _CLONE_NEWUSER):
        raise OSError(ctypes.get_errno(), "no network namespace can be made here")
    if user != 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket() as any_socket:
        asked = struct.pack("16sh", b"lo", 0)
        (flags,) = struct.unpack("16xh", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, asked)[:18])
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh", b"lo", flags | _IFF_UP))
    assert [name for _, name in socket.if_nameindex()] == ["lo"]
    forkserver.forget()


def shipped(provider: str) -> CliProvider:
    """The manifest as it comes with infloop."""
    manifest, problems = parse_provider((SHIPPED_DIR / f"{provider}.json").read_bytes())
    assert isinstance(manifest, CliProvider)
    assert problems == []
    return manifest


class Stage:
    """A home, a directory to work in, and an environment, for agents that ask one fake model."""

    def __init__(self, folder: Path, model_url: str, **variables: str) -> None:
        self.home = folder / "home"
        self.cwd = folder / "workspace"
        codex_home = self.home / ".codex"
        for made in (self.home, self.cwd, codex_home):
            made.mkdir(parents=True, exist_ok=True)
        (codex_home / "config.toml").write_text(CODEX_CONFIG.format(url=model_url))
        self.server_env = {
            "PATH": f"{PROGRAMS}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.home),
            "TZ": "UTC",
            "ANTHROPIC_BASE_URL": model_url,
            "ANTHROPIC_API_KEY": "sk-of-the-agent",
            "OPENAI_API_KEY": "sk-of-the-agent",
            "CODEX_HOME": str(codex_home),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "IS_SANDBOX": "1",  # as root `claude` skips permissions only where this is said
            **PLANTED,
            **variables,
        }

    def environment(self, passthrough: Sequence[str]) -> dict[str, str]:
        return child_environment(self.server_env, passthrough, {})

    def agent(self, provider: str, sandbox: HostSandbox) -> CliAgent:
        # The agents tell times by the clock of TZ, which is set above.
        return CliAgent(shipped(provider), sandbox, self.environment, now=lambda: datetime.now(UTC))

    def acp_agent(
        self, program: str, sandbox: HostSandbox, permissions: dict[str, str]
    ) -> AcpAgent:
        """An agent that speaks ACP, with the variables of the program it stands for."""
        passthrough = shipped(program.partition("-")[0]).env_passthrough
        fields = {"id": program, "label": program, "description": program, "transport": "acp"}
        more = {"bin": program, "envPassthrough": passthrough, "permissions": permissions}
        manifest = AcpProvider.model_validate({**fields, **more})
        return AcpAgent(manifest, sandbox, self.environment)

    def processes(self) -> list[str]:
        """Everything that runs with our home."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("HOME") == str(self.home):
                    found.append(f"{process.pid} {process.name()}")
            except (psutil.Error, OSError):
                continue
        return found
