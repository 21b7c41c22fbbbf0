"""How a call of git reaches another repository: by one protocol, with what the machine allows.

A call without a `Remote` reaches none. A `Remote` opens exactly one protocol for one call:

- Redirects, submodules, bundles and packs from other addresses are not followed.
- Every object that arrives is checked.
- Nothing asks for a password. ssh uses the agent and the known hosts of the machine's user; https
  uses the credential helper that the operator names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from infloop.model.repository_address import Protocol

_CONFIGURATION = (
    "protocol.version=2",
    "fetch.fsckObjects=true",
    "transfer.fsckObjects=true",
    # Old commits of well-known repositories have these faults; nothing depends on them.
    "fetch.fsck.zeroPaddedFilemode=ignore",
    "fetch.fsck.badTimezone=ignore",
    "fetch.recurseSubmodules=false",
    "fetch.writeCommitGraph=false",
    "fetch.uriProtocols=",
    "transfer.bundleURI=false",
    "transfer.credentialsInUrl=die",
    "http.followRedirects=false",
    "http.sslVerify=true",
    "http.lowSpeedLimit=1",
    "http.lowSpeedTime=60",
    "core.bigFileThreshold=32m",
)
_SSH = (
    "ssh -oBatchMode=yes -oStrictHostKeyChecking=yes -oConnectTimeout=30 "
    "-oClearAllForwardings=yes -oPermitLocalCommand=no"
)


class Credentials(msgspec.Struct, frozen=True):
    """What the machine's user has: the socket of an ssh agent, a credential helper, a home."""

    ssh_agent: str = ""
    helper: str = ""
    home: str = ""


class Remote(msgspec.Struct, frozen=True):
    """The one protocol that a call may use, and what it may authenticate with."""

    protocol: Protocol
    credentials: Credentials = Credentials()

    def configuration(self) -> tuple[str, ...]:
        """Return the settings of the call, which override all others."""
        helper = self.credentials.helper if self.protocol == "https" else ""
        return (*_CONFIGURATION, *((f"credential.helper={helper}",) if helper else ()))

    def environment(self) -> dict[str, str]:
        """Return the variables of the call, which replace ours."""
        found: dict[str, str] = {"GIT_ALLOW_PROTOCOL": self.protocol}
        known = self.credentials
        if self.protocol == "ssh":
            found |= {"GIT_SSH_COMMAND": _SSH, "GIT_SSH_VARIANT": "ssh"}
            if known.ssh_agent:
                found["SSH_AUTH_SOCK"] = known.ssh_agent
        if self.protocol == "https" and known.helper and known.home:
            found["HOME"] = known.home
        return found
