"""The use cases. Every surface (command line, HTTP API, MCP, daemon) calls this package.

    application  the object that surfaces are given: one attribute for each subject
    resources    what the use cases work with, wired by `app`
    caller       who asks, and through which surface
    models       the base of the typed results
    problems     what is wrong with a file, as every surface shows it

    runs         start, cancel, resume, rewind
    history      list, search and read runs
    run_models   runs as every surface shows them
    run_view     a run's steps, cost and outcome, folded from its events
    replay       rebuilds the view of a run from the store
    labels       the nodes of a run's workflow, and their labels
    explain      why a run is in its state
    next_actions what makes sense next
    live         what happens now: one run, or all runs of this process
    watched_run  a run of this process, for somebody who watches it to its end
    records      exports and imports runs
    file_changes changed files as every surface shows them
    apply        applies an agent's changes to the work tree or to a branch
    worktrees    worktrees in which agents work
    queue        runs that wait for their turn
    workflows    list, read, check, save, delete
    triggers     what starts workflows without a person
    trigger_models  triggers and plugins as every surface shows them
    trigger_firing  from a trigger that fires to a run in the queue
    lookup_cache files that are read once for many requests
    approvals    questions that wait for a person
    costs        what agents and judges have cost
    audit        the audit log
    providers    providers, their agents and models
    connections  machines with model servers
    catalog      node types, file formats and settings with their schemas
    schemas      the JSON Schemas of all file formats
    login        logging in with the token
    sessions     browser sessions
    health       whether runs can be stored and started
    folders      directories of this machine
    doctor       what this machine can confine
    demo         a small project with failing tests, and a loop that fixes them

A use case checks permission, writes the audit log before it changes something, and chooses the
error. Its result is a typed model; `--json`, the HTTP API and MCP print the same one. A surface
translates and decides nothing.
"""
