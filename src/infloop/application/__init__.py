"""The use cases. Every surface (command line, HTTP API, MCP, daemon) calls this package.

    application  the object that surfaces are given: one attribute for each subject
    resources    what the use cases work with, wired by `app`
    caller       who asks, and through which surface
    models       the base of the typed results
    problems     what is wrong with a file, as every surface shows it

    runs/        start, cancel, resume, rewind, list, read, follow, explain, apply
    workflows    list, read, check, save, delete
    workflow_drafts  a first workflow, and one from a file, before they are saved
    triggers     what starts workflows without a person
    trigger_models  triggers and plugins as every surface shows them
    trigger_deliveries  what became of firings
    trigger_firing  from a trigger that fires to a run in the queue
    lookup_cache files that are read once for many requests
    approvals    questions that wait for a person
    costs        what agents and judges have cost
    audit        the audit log
    providers    providers, their agents and models
    connections  machines with model servers
    dev_loops    development loops that run beside
    catalog      node types, file formats and settings
    schemas      the JSON Schemas of all file formats
    login        logging in with the token
    sessions     browser sessions
    health       whether runs can be stored and started
    folders      directories of this machine
    doctor       what this machine can confine
    attack_reports  what a hostile child reached at a level
    attacks      the battery of attempts in the background, for a server
    demo         the demonstration

A use case checks permission, writes the audit log before it changes something, and chooses the
error. Its result is a typed model; `--json`, the HTTP API and MCP print the same one. A surface
translates and decides nothing.
"""
