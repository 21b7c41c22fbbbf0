"""Drives runs: append an event, advance the machine, perform its commands.

    clock       what time it is; tests bring their own
    feed        what a live run says, for any number of listeners
    news        … what all of them say, and the queue
    auditing    … that they began and how they ended, in the audit log
    definitions what is found out about a definition once, however many runs it has
    record      stamps events, keeps them in order, makes them durable, then shows them
    effects     begun once durable, interrupted, and always answered for
    ledger      every call of a provider on the books, within what may be spent
    seen        … and what the broker saw of it, whatever the agent says
    loop        one run from its first command to its last event
    doors       what its steps are given: the sandbox, providers
    leaks       … known secrets taken out of what they tell
    ending      a process that stops: the runs that go on are settled
    recovery    runs whose process died: found, and recorded as what they are
    aside       questions to file systems that may not answer
    markers     which runs are under way, as files to look at
    fencing     the fence around a run's children: files, network, keys
    telling     … and what it decided: in the run, for the audit log, for who counts
    inplace     directories that are not a confined child's own, looked after
    reserve     room on the disks that no run takes
    programs    git and the like, run in the sandbox for the workspace
    homes       what a confined agent keeps from one round to the next
    workspaces  a worktree for a node, and every step's directory kept
    outside     what of a run is from outside, and where it may go
    timeline    how a run's directories came to be what they are
    approvals   what waits for a person: asked, listed, answered
    tidying     … and what is done behind those that ended
    workdirs    where they work, and that it is where they worked before
    parts       what runs are made of, given by the application
    service     the application's whole API: start, stop, resume, rewind, listen
    dispatch    lets queued runs begin when there is room

One run, top to bottom: `RunService.start` stores the run and begins its loop; the loop records an
event and calls `engine.advance`; a command becomes an event at once (Emit) or by way of a node
(Perform), until the run has finished.
"""
