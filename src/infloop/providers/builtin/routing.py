"""Decides which model a request gets, and finds its key."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import msgspec

from infloop.errors import StepError
from infloop.model.agent_config import ModelApi, ModelProvider, TaskKind
from infloop.providers.prices import PriceList

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infloop.model.agent_config import AgentConfig

KINDS: tuple[TaskKind, ...] = get_args(TaskKind)
DEFAULT_KIND: TaskKind = "coding"

_ADDRESSES: Mapping[ModelApi, str] = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "gemini": "https://generativelanguage.googleapis.com",
}
_PRICE_LISTS: Mapping[ModelApi, str] = {
    "openai": "openai",
    "anthropic": "anthropic",
    "gemini": "google",
}


class ChosenModel(msgspec.Struct, frozen=True):
    """A model, and where it is; `key` is empty for an API without one."""

    provider: str
    api: ModelApi
    base_url: str
    model: str
    key_variable: str
    key: str

    @property
    def price_list(self) -> PriceList:
        name = _PRICE_LISTS.get(self.api, "")
        return PriceList(name, "" if name else self.base_url)

    @property
    def key_headers(self) -> dict[str, str]:
        """The header that holds the key."""
        if not self.key:
            return {}
        match self.api:
            case "anthropic":
                return {"x-api-key": self.key}
            case "gemini":
                return {"x-goog-api-key": self.key}
            case "openai" | "openai-compatible":
                return {"authorization": f"Bearer {self.key}"}


def choose_model(config: AgentConfig, profile: str, variables: Mapping[str, str]) -> ChosenModel:
    """Return the model for a profile: a kind of task, `PROVIDER:MODEL`, or nothing for `coding`.

    Raises StepError if there is none, or if its key is not set.
    """
    name, model = _route(config, profile.strip())
    provider = config.providers[name]
    model = model or provider.default_model
    if not model or model == "default":
        raise StepError(
            f"no model is named for {name!r}: set 'model' of its route, or 'default_model' in "
            f"[providers.{name}]"
        )
    return ChosenModel(
        provider=name,
        api=provider.kind,
        base_url=(provider.base_url or _ADDRESSES.get(provider.kind, "")).rstrip("/"),
        model=model,
        key_variable=provider.api_key_env,
        key=_key(name, provider, variables),
    )


def _route(config: AgentConfig, profile: str) -> tuple[str, str]:
    if not config.providers:
        raise StepError(
            "the built-in agent has no model: add [providers.NAME] and [router.coding] to "
            "infloop.toml; `infloop docs agent` shows how"
        )
    name, separator, model = profile.partition(":")
    if separator:
        if name not in config.providers:
            known = ", ".join(config.providers)
            raise StepError(f"there is no model provider {name[:80]!r}; known are: {known}")
        return name, model.strip()
    if profile and profile not in KINDS:
        raise StepError(
            f"profile {profile[:80]!r} is no kind of task; use {', '.join(KINDS)}, or "
            "PROVIDER:MODEL"
        )
    kind = profile or DEFAULT_KIND
    route = getattr(config.router, kind) or config.router.coding
    if route is not None:
        return route.provider, route.model
    if len(config.providers) == 1:
        return next(iter(config.providers)), ""
    raise StepError(
        f"there is no route for {kind}: add [router.{kind}] to infloop.toml, with the provider "
        "that it uses"
    )


def _key(name: str, provider: ModelProvider, variables: Mapping[str, str]) -> str:
    variable = provider.api_key_env
    if not variable:
        return ""
    key = variables.get(variable, "").strip()
    if not key:
        raise StepError(
            f"missing credential: the model provider {name!r} needs the variable {variable}, which "
            "is not set"
        )
    if not (key.isascii() and key.isprintable()):
        raise StepError(f"the variable {variable} holds characters that no HTTP header can")
    return key
