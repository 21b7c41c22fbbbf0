"""Which program an agent is, and what to do if it is not installed."""

from __future__ import annotations

import re

from infloop.errors import StepError

# Our own fixed pattern: one character class.
_NOT_A_NAME = re.compile(r"[^A-Z0-9]")  # noqa: TID251


def program_variable(provider_id: str) -> str:
    """Return the variable in which an operator names a provider's program."""
    return f"INFLOOP_PROVIDER_BIN_{_NOT_A_NAME.sub('_', provider_id.upper())}"


def install_hint(provider_id: str, program: str) -> str:
    """Return what an operator can do about a program that could not be started."""
    return f"install {program!r}, or name another program in {program_variable(provider_id)}"


def checked_program(named: str) -> str:
    """Return the program that was named; raise StepError for a relative path."""
    if "/" in named and not named.startswith("/"):
        raise StepError(
            f"the program {named!r} would be looked for in the agent's directory; "
            "give its name on PATH or its whole path"
        )
    return named
