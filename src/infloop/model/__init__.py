"""Pure data: files, the events of a run, and templates.

    values      JSON values, and their form as text
    patterns    regular expressions from files, in linear time
    template    `{{path}}` references: parsed once, rendered in one pass

    problems    collects everything that is wrong with a file
    reading     reads a JSON object from bytes, within limits
    schema      declares the fields of a file, validates it, publishes its JSON Schema
    names       ids that are safe as file names
    hosts       the canonical form of hosts and URLs
    clock       the interface of a clock
    hashes      SHA-256

    nodes       node types: one class each, with its configuration and its facts
    node_check  what the rules of a node type are given
    workflow    the workflow file
    parsing     … reads it, migrates older formats, keeps what is usable
    walk        … iterates over all its nodes
    references  … its references: templates, inputs, called workflows
    inputs      … its declared inputs, and the values for them
    check       … reports everything that is wrong with it
    starter     … the first workflow of a new user

    definition  reads the files that are not workflows
    texts       … validated texts in them: names, hosts, URLs
    provider    provider manifests: one class per transport
    trigger     trigger files: webhooks, schedules, file watches
    plugin      webhook plugins: events of a sender, and its signatures
    connection  machines with model servers
    dev/        the configuration of a development loop

    isolation   the isolation levels, in order
    events      the events of a run
    messages    … in the form of the HTTP API
    approval    questions that wait for a person's answer
    audit       the events and actors of the audit log, and what is never written to it

Nothing here reads a clock, a disk or the environment.
"""
