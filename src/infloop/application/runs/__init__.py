"""Everything about runs.

    control       start, cancel, resume, rewind
    history       list, search and read runs
    newest_events  the newest events of a run
    models        runs as every surface shows them
    live          what happens now: one run, or all runs of this process
    watched_run   a run of this process, followed to its end
    queue         runs that wait for their turn
    view          a run's state for display, folded from its events
    replay        rebuilds the view of a run that started earlier
    explain       why a run is in its state
    next_actions  what makes sense next
    labels        names that a workflow's author gave its nodes
    file_changes  changed files
    apply         applies an agent's changes
    worktrees     the worktrees of agents
    records       run records, out and in

Dependencies point to `models`; `control` is at the top.
"""
