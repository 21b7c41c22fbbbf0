"""What the tables of the settings say about the built-in agent. No value of a key is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.application.checks import error, ok, warn
from infloop.policy.credential_names import key_variables
from infloop.policy.egress_rules import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from infloop.application.checks import Check
    from infloop.model.agent_config import AgentConfig, EgressRule, Route

_KINDS = ("planning", "coding", "summary")
_ASKED = ("network-write", "private-network")


def check_agent(
    config: AgentConfig, leaks_mode: str, is_set: Callable[[str], bool]
) -> Iterator[Check]:
    """Check the tables; `is_set` tells whether a variable has a value."""
    yield ok("secrets.mode", f"{config.security.secrets.mode}: keys come from variables")
    yield _leaks(leaks_mode)
    yield from _egress(config.security.egress.rules)
    yield from _routes(config)
    yield from _keys(config, is_set)
    yield from _approvals(config)
    servers = ", ".join(config.mcp.servers) or "none"
    yield ok("mcp.servers", servers)


def _leaks(mode: str) -> Check:
    if mode in ("redact", "enforce"):
        return ok("leaks.mode", mode)
    return warn(
        "leaks.mode",
        f"the mode is {mode!r}: secrets in what tools return are stored and sent to models",
        "set INFLOOP_LEAKS_MODE=redact",
    )


def _egress(rules: tuple[EgressRule, ...]) -> Iterator[Check]:
    if not rules:
        yield warn(
            "egress.rules",
            "there are 0 egress rules: the agent's tools reach every public address",
            "add [[security.egress.rules]] to infloop.toml",
        )
        return
    yield ok("egress.rules", f"{len(rules)} egress rules")
    for rule in rules:
        missing = [
            name
            for name, value in (
                ("path_prefix", rule.path_prefix.strip("/")),
                ("methods", rule.methods),
            )
            if not value
        ]
        if missing:
            yield warn(
                "egress.wide",
                f"the rule for {describe(rule)} has no {' and no '.join(missing)}",
                f"add {' and '.join(missing)} to the rule of {rule.host!r} in infloop.toml",
            )


def _routes(config: AgentConfig) -> Iterator[Check]:
    if not config.providers:
        yield ok("routes", "no provider is configured, so the built-in agent is not used")
        return
    routes: dict[str, Route | None] = {kind: getattr(config.router, kind) for kind in _KINDS}
    if not any(routes.values()) and len(config.providers) > 1:
        yield warn(
            "routes",
            "there are several providers and no routes",
            "add [router.coding] with a provider to infloop.toml",
        )
    for kind, route in routes.items():
        if route is None:
            continue
        provider = config.providers.get(route.provider)
        if provider is None:
            yield error(
                "routes",
                f"[router.{kind}] names the provider {route.provider!r}, which does not exist",
                f"use one of {', '.join(config.providers)}, or add [providers.{route.provider}]",
            )
        elif not (route.model or provider.default_model):
            yield error(
                "routes",
                f"[router.{kind}] has no model, and {route.provider!r} has no default one",
                f"add model to [router.{kind}], or default_model to [providers.{route.provider}]",
            )
        else:
            model = route.model or provider.default_model
            yield ok("routes", f"{kind}: {route.provider} {model}")


def _keys(config: AgentConfig, is_set: Callable[[str], bool]) -> Iterator[Check]:
    for place, name in key_variables(config):
        if is_set(name):
            yield ok("providers.keys", f"{place}: {name} is set")
        else:
            yield warn("providers.keys", f"{place}: {name} is not set", f"export {name}=…")


def _approvals(config: AgentConfig) -> Iterator[Check]:
    rules = config.security.approvals.rules
    wide = [
        rule
        for rule in rules
        if rule.answer == "allow"
        and rule.pattern == "*"
        and (rule.capability in _ASKED or rule.trait is not None)
    ]
    for rule in wide:
        yield warn(
            "approvals",
            f"nobody is asked for {rule.trait or 'any'} {rule.capability}: rule {str(rule)!r}",
            "give the rule a pattern in [[security.approvals.rules]]",
        )
    if not wide:
        yield ok("approvals", f"{len(rules)} rules before the default ones")
