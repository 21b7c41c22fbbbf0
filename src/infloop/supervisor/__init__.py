"""The development loop: watches files, keeps processes running, reacts, lets declared events in.

    engine      runs the workflows of the queue; starts and stops everything
    queue       the workflows that wait
    frames      the order of steps: `run_workflow` and triggers. Pure.
    workflows   performs the steps
    lifecycle   when a process that ended is started again. Pure.
    processes   keeps processes running
    probes      finds out whether a process is ready
    hooks       runs hooks and captures their output
    session     the session state and its file
    events      external events: who may send what, and what follows. No HTTP.
    changes     turns changed files into workflows
    written     who changed a file while a workflow ran. Pure.
    lines       cuts output into lines
    children    how children are started: program, directory, environment
    reports     what the engine says to its surface
    mailbox     status, logs and requests as files, for other processes

Everything is started through `sandbox`, at level `host`: these are the person's own servers. The
keepers end them with infloop, however that ends.
"""
