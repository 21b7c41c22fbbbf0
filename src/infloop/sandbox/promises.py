"""What isolation levels can promise. Each level lists the promises that it keeps."""

from __future__ import annotations

from typing import Literal, TypeAlias

Promise: TypeAlias = Literal[
    "environment",
    "files",
    "writing",
    "processes",
    "sight",
    "sockets",
    "network",
    "kernel",
    "privileges",
    "repository",
    "workspace",
    "lifetime",
    "limits",
    "temp",
    "work",
    "egress",
]

PROMISES: dict[Promise, str] = {
    "environment": "It gets the variables and descriptors it was given, and no others.",
    "files": "It reads no file beyond the system's programs and the paths it was granted.",
    "writing": "It changes nothing beyond the paths it was granted for writing.",
    "processes": "It reads, traces and signals no process but its own.",
    "sight": "It sees no process but its own.",
    "sockets": "It reaches no Unix socket.",
    "network": "Its only peers are its proxy and the local ports it was granted.",
    "kernel": "It makes no namespace or mount and reaches no risky part of the kernel.",
    "privileges": "It has no capability and gains none.",
    "repository": "Paths it was granted for reading stay unchanged, inside its workspace too.",
    "workspace": "It leaves no settings in its workspace that other programs act on.",
    "lifetime": "Nothing of it lives on after it has ended.",
    "limits": "Its processes, open files, file sizes and memory are bounded.",
    "temp": "Its temporary files are bounded.",
    "work": "What it needs works: programs, its workspace, its home and temp.",
    "egress": "It reaches its proxy and the local ports it was granted.",
}
"""Every promise as a sentence about a child. No level promises `workspace`: that is checked when
an agent's changes are applied."""

AT_EVERY_LEVEL: frozenset[Promise] = frozenset({"environment", "lifetime", "work"})
WHERE_CONFINED: frozenset[Promise] = AT_EVERY_LEVEL | {
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
