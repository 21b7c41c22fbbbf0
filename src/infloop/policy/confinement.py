"""Whether a run may start with the confinement that this machine gives its children."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from infloop.model.isolation import UNCONFINED, is_at_least

if TYPE_CHECKING:
    from infloop.model.values import JsonObject


class Confinement(msgspec.Struct, frozen=True):
    """The level at which children run; empty where none can be used, and `reason` says why."""

    level: str
    reason: str = ""

    @property
    def is_confined(self) -> bool:
        """Whether children are confined; at `host` they are not, whoever chose it."""
        return self.level not in ("", UNCONFINED)


def isolation_refusal(workflow: JsonObject, confinement: Confinement) -> str:
    """Return why a workflow may not run at this level; empty if it may."""
    if not confinement.level:
        return f"no run starts here: {confinement.reason}"
    wanted = workflow.get("isolation") or "auto"
    if wanted == "auto" or is_at_least(confinement.level, str(wanted)):
        return ""
    return (
        f"workflow {workflow['id']!r} asks for isolation {wanted!r}, and children run at "
        f"{confinement.level!r} here; see `infloop doctor`, or remove `isolation` from the "
        "workflow"
    )
