"""Drives runs: append an event, advance the machine, perform its commands.

    runs/         one run from start to end, and the service that owns all of them
    confinement/  what the children of a run may reach: files, network, keys
    spending/     the ledger of provider calls, and what the credential broker counted

    workspaces    a worktree for a node, and a snapshot around every step
    checkouts     the checkout of a run whose workspace is a repository
    stored_snapshots  the snapshots of such runs, for other machines
    timeline      which snapshots a run's directories went through
    approvals     questions to a person: asked, listed, answered
    event_bus     what happens in all runs of this process, for any number of listeners
    notifications a command or an address is told when a run ends or waits
    run_audit     starts and ends of runs in the audit log
    blocking_calls  calls to file systems that may hang
    clock         the time; tests bring their own

One run, top to bottom: `RunService.start` stores the run and starts its loop. The loop records an
event and calls `engine.advance`. A command becomes an event at once (Emit) or through a node
(Perform), until the run has finished.
"""
