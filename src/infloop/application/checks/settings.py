"""What the settings and files of the operator say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.application.checks import ok, warn

if TYPE_CHECKING:
    from infloop.application.application import FileApplication
    from infloop.application.checks import Check


async def check_settings(application: FileApplication) -> list[Check]:
    """Check settings, triggers and development loops."""
    unknown = [
        warn("settings.unknown", each, "unset the variable, or correct its name")
        for each in application.configuration.all().unknown
    ]
    checks = unknown or [ok("settings.unknown", "all variables are known")]
    if application.settings["egress_enforce"]:
        checks.append(ok("egress.children", "children of runs reach listed hosts only"))
    else:
        checks.append(
            warn(
                "egress.children",
                "a run without `egress` in its workflow has an open network",
                "set INFLOOP_EGRESS_ENFORCE=true and INFLOOP_EGRESS_ALLOWLIST",
            )
        )
    if application.settings["api_token"] == "set":  # noqa: S105  (a word for a secret)
        checks.append(ok("server.token", "set"))
    else:
        checks.append(
            warn(
                "server.token",
                "the server has no token: all programs of your user may use it",
                "start it with `infloop serve --token auto`, or set INFLOOP_API_TOKEN",
            )
        )
    checks += [
        warn(
            "triggers.secrets",
            f"the secret of trigger {name!r} is short enough to be guessed",
            "set a longer one here and at the sender with `infloop triggers secret`",
        )
        for name in await application.triggers.short_secrets()
    ]
    checks += [
        warn(
            "dev.events",
            f"the development loop in {loop.root!r} takes events ({', '.join(loop.events)}): "
            "all programs of your user can read the token of its children and send them",
            "give each event a pattern, and `events = […]` to the children that need the token",
        )
        for loop in application.dev_loops.all().loops
        if loop.events
    ]
    return checks
