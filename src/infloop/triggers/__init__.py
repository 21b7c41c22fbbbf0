"""What starts a workflow without a person: a webhook, a schedule, a changed file.

    kinds/      one file for each kind of trigger; `KINDS` lists them
    services    what the source of a kind is given
    firing      the run that a trigger asks for
    predicates  the conditions of a trigger, and the inputs it maps
    checks      checks a trigger against its plugin and its workflow

    signatures  verifies the signatures of requests
    payload     a request as templates see it
    webhook     from a request to an answer, in one order of checks
    trial       a request as its sender would make it, for a test

    schedule    when a schedule is due, and which times were missed
    scheduler   starts due schedules, and stores how far it got
    questions   asks a person about missed times

    watcher     watches files (`infloop.watch`) and starts runs

    shipped/    the plugins that come with infloop

Nothing here uses HTTP or knows the queue. The server calls `Webhooks.receive`, and is called back
to queue runs. `catalog` finds the files of triggers and plugins.
"""

from pathlib import Path

from infloop.triggers.kinds.base import TriggerKind
from infloop.triggers.kinds.file import FileKind
from infloop.triggers.kinds.schedule import ScheduleKind
from infloop.triggers.kinds.webhook import WebhookKind

SHIPPED_DIR = Path(__file__).parent / "shipped"

KINDS: tuple[TriggerKind, ...] = (
    WebhookKind(),
    ScheduleKind(),
    FileKind(),
)
"""All kinds, in the order of their options in the help; the first is the default."""

_BY_NAME: dict[str, TriggerKind] = {kind.name: kind for kind in KINDS}


def kind_named(name: str) -> TriggerKind:
    """Return the kind of a trigger by its name, which must be the name of a kind."""
    return _BY_NAME[name]
