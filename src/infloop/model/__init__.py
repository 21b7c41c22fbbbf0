"""Pure data: what the files say, what a run records, and how text is made of values.

    values      JSON values, and how each is shown as text
    patterns    regular expressions from files: linear time or refused
    template    `{{path}}` references: parsed once, rendered in one pass

    problems    everything wrong with a file, in words that are safe to print
    reading     bytes to a JSON object, within bounds
    schema      what a file must look like: its model, what fits it, its JSON Schema
    names       names that are safe as the names of files

    workflow    the workflow file, every node and field
    parsing     … read as far as it can be read, older formats brought up to date
    walking     … every node of it in its place
    references  … what it refers to: earlier outputs, inputs, other workflows
    inputs      … what it declares it needs, and what it was given
    check       … everything wrong with it, all at once
    starter     … what a new node begins with, and a workflow to begin with

    definition  what the files beside a workflow have in common
    texts       … the rules for names, hosts and addresses in them
    provider    who answers a prompt
    trigger     what starts a workflow by itself: a webhook, a time, a changed file
    plugin      who sends webhooks, and how they are signed
    connection  machines with model servers

    isolation   how far children are kept apart, in order
    events      what a run records, and its limits
    messages    the same as outside readers see it (the event names of the HTTP API)
    approval    what waits for a person's answer
    audit       what the audit log records, who acted, and what never enters it

Nothing here reads a clock, a disk or the environment.
"""
