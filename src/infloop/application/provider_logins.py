"""Whether a login of a provider is there, by variables and files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from infloop.application.models import Model
from infloop.model.provider import BuiltinProvider, HttpProvider, ProgramProvider

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infloop.model.agent_config import AgentConfig
    from infloop.model.provider import Provider


class LoginStatus(Model, kw_only=True):
    """Whether a login was found; nobody is asked whether it is still valid.

    `place` is the variable or the file that holds it. `command` is how a person logs in.
    """

    status: Literal["found", "missing", "not needed", "unknown"]
    place: str = ""
    command: str = ""


def login_status(
    provider: Provider, variables: Mapping[str, str], home: Path, config: AgentConfig
) -> LoginStatus:
    """Say whether a login is there, by variables and files; their content is not read."""
    if isinstance(provider, BuiltinProvider):
        return _agent_keys(config, variables)
    if isinstance(provider, HttpProvider):
        return _api_key(provider, variables)
    if not isinstance(provider, ProgramProvider):
        return LoginStatus(status="not needed")
    setup = provider.setup
    command = setup.login or ""
    variable = next((name for name in setup.login_variables if variables.get(name)), "")
    if variable:
        return LoginStatus(status="found", place=variable, command=command)
    folder = variables.get(setup.login_folder_variable or "", "")
    files = [Path(folder, Path(one).name) if folder else home / one for one in setup.login_files]
    file = next((one for one in files if _has_content(one)), None)
    if file is not None:
        return LoginStatus(status="found", place=str(file), command=command)
    is_known = bool(setup.login_variables or setup.login_files)
    return LoginStatus(status="missing" if is_known else "unknown", command=command)


def _agent_keys(config: AgentConfig, variables: Mapping[str, str]) -> LoginStatus:
    """Say whether the keys of all model providers of the settings are there."""
    if not config.providers:
        return LoginStatus(status="missing", command="add [providers.NAME] to infloop.toml")
    names = [each.api_key_env for each in config.providers.values() if each.api_key_env]
    missing = [name for name in names if not variables.get(name)]
    if missing:
        return LoginStatus(status="missing", command=f"export {missing[0]}=…")
    return LoginStatus(status="found" if names else "not needed", place=", ".join(names))


def _api_key(provider: HttpProvider, variables: Mapping[str, str]) -> LoginStatus:
    if provider.auth is None:
        return LoginStatus(status="not needed")
    if provider.auth.token:
        return LoginStatus(status="found", place="its manifest")
    variable = provider.auth.env_var or ""
    if variables.get(variable):
        return LoginStatus(status="found", place=variable)
    return LoginStatus(status="missing", command=f"export {variable}=…")


def _has_content(file: Path) -> bool:
    try:
        return file.stat().st_size > 0
    except OSError:
        return False
