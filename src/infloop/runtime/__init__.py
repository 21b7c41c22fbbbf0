"""Drives runs: append an event, advance the machine, perform its commands.

    clock       what time it is; tests bring their own
    feed        what a live run says, for any number of listeners
    news        … what all of them say, and the queue
    record      stamps events, keeps them in order, makes them durable, then shows them
    effects     begun once durable, interrupted, and always answered for
    ledger      every call of a provider on the books, within what may be spent
    loop        one run from its first command to its last event
    recovery    runs whose process died: found, and recorded as what they are
    fencing     the fence around a run's children: files, network, keys
    inplace     directories that are not a confined child's own, looked after
    programs    git and the like, run in the sandbox for the workspace
    homes       what a confined agent keeps from one round to the next
    workspaces  a worktree for a node, and every step's directory kept
    timeline    how a run's directories came to be what they are
    service     the application's whole API: start, stop, resume, rewind, listen
    dispatch    lets queued runs begin when there is room

One run, top to bottom: `RunService.start` stores the run and begins its loop; the loop records an
event and calls `engine.advance`; a command becomes an event at once (Emit) or by way of a node
(Perform), until the run has finished.
"""
