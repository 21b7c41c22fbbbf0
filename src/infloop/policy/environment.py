"""Decides which environment variables a child gets.

Rules
  * A child inherits a base set of variables without secrets, and those that the operator or a
    provider manifest names: exact names, or a prefix that ends in `*`.
  * No variable whose name starts with `INFLOOP_` reaches a child.
  * A variable that tells a tool it runs inside another tool's session is never inherited.
  * A variable that makes programs load code is inherited only under its exact name. A workflow
    can never set it.

To pass another variable to all children, add it to `_BASE`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from infloop.errors import SettingsError, StepError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Our own fixed patterns: linear, no nested repeats.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)  # noqa: TID251
_PREFIX = re.compile(r"_*[A-Za-z][A-Za-z0-9_]*", re.ASCII)  # noqa: TID251

_OWN_NAMESPACE = "INFLOOP_"

_PROXY = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY")

_BASE = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"),
        *("LANG", "LANGUAGE", "TZ"),
        *("TERM", "COLORTERM", "NO_COLOR"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        *("NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"),
        *_PROXY,
        *(name.lower() for name in _PROXY),
    )
)
_BASE_PREFIX = "LC_"

_NESTING = frozenset(
    (
        *("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT", "CLAUDE_CODE_SESSION_ID"),
        *("CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED", "GEMINI_CLI", "CURSOR_AGENT"),
    )
)

_LOADS_CODE = frozenset(
    (
        *("BASH_ENV", "ENV", "IFS", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND", "ZDOTDIR"),
        *("PYTHONSTARTUP", "PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONPYCACHEPREFIX"),
        *("PYTHONWARNINGS", "PYTHONBREAKPOINT", "PYTHONINSPECT"),
        *("NODE_OPTIONS", "NODE_PATH", "PERL5LIB", "PERL5OPT", "PERL5DB", "RUBYOPT", "RUBYLIB"),
        *("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "GCONV_PATH"),
    )
)
_LOADS_CODE_PREFIXES = ("LD_", "DYLD_")

_STEERS_PROGRAMS = frozenset({"PATH", "HOME"})
_STEERS_PROGRAMS_PREFIXES = ("GIT_",)


class ChildEnvironment:
    """Makes the environments of children; the inherited variables are chosen once."""

    def __init__(self, server_env: Mapping[str, str], passthrough: Sequence[str]) -> None:
        """Choose the inherited variables; raise SettingsError for an invalid passthrough entry."""
        self._inherited = _inherited(server_env, passthrough)

    def __call__(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment of a child: the inherited variables, then those of the workflow.

        Raises StepError for a variable that a workflow must not set.
        """
        if not extra:
            return self._inherited.copy()
        for name, value in extra.items():
            _check_extra(name, value)
        return {**self._inherited, **extra}


def child_environment(
    server_env: Mapping[str, str], passthrough: Sequence[str], extra: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of one child; see `ChildEnvironment`."""
    return ChildEnvironment(server_env, passthrough)(extra)


def _inherited(server_env: Mapping[str, str], passthrough: Sequence[str]) -> dict[str, str]:
    for entry in passthrough:
        check_passthrough(entry)
    exact = {entry for entry in passthrough if not entry.endswith("*")}
    prefixes = tuple(entry[:-1] for entry in passthrough if entry.endswith("*"))
    inherited = {
        name: value
        for name, value in server_env.items()
        if not _never_inherited(name)
        and (
            name in _BASE
            or name in exact
            or name.startswith(_BASE_PREFIX)
            or (
                prefixes
                and name.startswith(prefixes)
                and not _loads_code(name)
                and not name.startswith(_STEERS_PROGRAMS_PREFIXES)
            )
        )
    }
    if "PATH" in inherited:
        inherited["PATH"] = _absolute(inherited["PATH"])
    return inherited


def _absolute(path: str) -> str:
    """Remove relative entries, so that no program in the working directory is found."""
    return ":".join(entry for entry in path.split(":") if entry.startswith("/"))


def parse_passthrough(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of entries; raise SettingsError for an invalid one."""
    entries = tuple(entry for part in text.split(",") if (entry := part.strip()))
    for entry in entries:
        check_passthrough(entry)
    return entries


def check_passthrough(entry: str) -> None:
    """Raise SettingsError unless `entry` is a variable name, or a prefix followed by `*`."""
    is_prefix = entry.endswith("*")
    name = entry.removesuffix("*")
    if not (_PREFIX if is_prefix else _NAME).fullmatch(name):
        raise SettingsError(
            f"{entry!r} cannot be passed to children: "
            "give a variable's name, or a prefix with letters followed by one '*' (AWS_*)"
        )
    own = name.upper()
    if own.startswith(_OWN_NAMESPACE) or (is_prefix and _OWN_NAMESPACE.startswith(own)):
        raise SettingsError(
            f"{entry!r} cannot be passed to children: "
            f"variables named {_OWN_NAMESPACE}* are infloop's own and never reach a child"
        )


def _never_inherited(name: str) -> bool:
    return name.upper().startswith(_OWN_NAMESPACE) or name in _NESTING


def _loads_code(name: str) -> bool:
    return name in _LOADS_CODE or name.startswith(_LOADS_CODE_PREFIXES)


def _check_extra(name: str, value: str) -> None:
    if not _NAME.fullmatch(name):
        raise StepError(f"{name!r} is not a variable name: use letters, digits and underscores")
    if (
        name.upper().startswith(_OWN_NAMESPACE)
        or _loads_code(name)
        or name in _STEERS_PROGRAMS
        or name.startswith(_STEERS_PROGRAMS_PREFIXES)
    ):
        raise StepError(
            f"{name!r} cannot be set by a workflow: it changes which code programs run; "
            "pass the value under another name"
        )
    if "\0" in value:
        raise StepError(f"the value of {name!r} contains a NUL character: remove it")
