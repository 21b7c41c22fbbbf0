"""What starts a workflow by itself: a webhook, a time, a changed file.

    signatures  whether a request is what its sender signed
    payload     a request as templates see it
    predicates  what a trigger demands of a request, and what it makes of it
    firing      the run that a trigger asks for
    webhook     from a request to an answer, in one order of checks
    trial       a request as its sender would make it, for trying out

    schedule    when a schedule is due, and what was missed
    scheduler   … starts it, and remembers how far it has come
    questions   … what it missed, for a person to answer

    filewatch   which changes of files count, and when
    watcher     … heard of, and started

    checks      what is wrong with a trigger that its own file cannot show
    shipped/    the plugins that come with infloop

Nothing here speaks HTTP or knows a queue: whoever does calls `Webhooks.receive`, and is called to
queue what was asked for. Files of triggers and plugins are found by `catalog`.
"""

from pathlib import Path

SHIPPED_DIR = Path(__file__).parent / "shipped"
