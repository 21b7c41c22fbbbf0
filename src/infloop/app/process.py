"""The process itself: its settings, directory and users."""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.errors import SettingsError
from infloop.settings import (
    NO_HOME,
    Settings,
    home_directory,
    load_or_defaults,
    load_settings,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infloop.workspace.git.remote import Credentials

# The kernel's masks have a bit for each signal; SIGHUP is the first.
_HANGUP_BIT = 1


def settings() -> Settings:
    """Return the operator's settings."""
    return load_settings()


def settings_or_defaults() -> tuple[Settings, str]:
    """Return the settings; or the defaults, and why the settings cannot be read."""
    return load_or_defaults()


def collect_rarely() -> None:
    """Let the garbage collector run rarely.

    Runs hold plain data without cycles, in which it finds nothing.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


def started_in() -> str:
    """Return the working directory as the shell names it.

    The kernel's name for it has all links resolved.
    """
    named = os.environ.get("PWD", "")
    with suppress(OSError, ValueError):
        if Path(named).is_absolute() and Path(named).samefile("."):
            return named
    return str(Path.cwd())


def no_colour() -> bool:
    """Say whether the environment asks for output without colours (https://no-color.org)."""
    return bool(os.environ.get("NO_COLOR"))


def ignores_hangup() -> bool:
    """Say whether this process was started so that the end of its terminal does not end it."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    ignored = next(line for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(ignored.split()[1], 16) & _HANGUP_BIT)


def service_user(name: str) -> tuple[int, int] | None:
    import pwd

    if not name:
        return None
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise SettingsError(
            f"INFLOOP_SERVICE_USER is {name!r}, and there is no such user; create it "
            f"(`useradd --system {name}`) or name another"
        ) from None
    return user.pw_uid, user.pw_gid


def child_source_environment(user: tuple[int, int] | None) -> Mapping[str, str]:
    """Return the environment that children may inherit from, with the home of their user."""
    return {**os.environ, "HOME": str(home_of(user))} if user else os.environ


def git_environment() -> dict[str, str]:
    """Return the variables that say where the git settings of our user are."""
    named = ("HOME", "XDG_CONFIG_HOME")
    return {
        "HOME": str(home_directory()),
        **{k: v for k, v in os.environ.items() if k in named or k.startswith("GIT_CONFIG")},
    }


def git_credentials(chosen: Settings) -> Credentials:
    """Return what our git may authenticate with when it fetches repositories."""
    from infloop.workspace.git.remote import Credentials

    agent = os.environ.get("SSH_AUTH_SOCK", "")
    return Credentials(agent, chosen.repository_credential_helper, str(home_directory()))


def repository_prefixes(chosen: Settings) -> tuple[str, ...]:
    """Return the beginnings of addresses that workflows may name, or raise SettingsError."""
    from infloop.model.repository_address import is_prefix

    found = by_commas(chosen.repositories)
    for each in found:
        if not is_prefix(each):
            raise SettingsError(
                "INFLOOP_REPOSITORIES has an entry that begins no address of a repository: write "
                "https://host/path, ssh://user@host/path or the full path of a directory"
            )
    return found


def home_of(user: tuple[int, int] | None) -> Path:
    """Return the home of the user that children run as; ours if there is none."""
    import pwd

    theirs = Path(pwd.getpwuid(user[0]).pw_dir) if user else NO_HOME
    return theirs if theirs != NO_HOME and theirs.is_dir() else home_directory()


def by_commas(text: str) -> tuple[str, ...]:
    return tuple(entry for part in text.split(",") if (entry := part.strip()))
