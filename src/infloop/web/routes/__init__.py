"""The API, one file per topic.

    health        whether the server is well, for who watches it
    login         the page where a browser gives the token, and logging out
    console       the console's pages and assets
    workflows     list, read, check, save, delete
    run           start a run, look at the latest, stop it
    events        what happens, as it happens
    runs          list, search, read, cancel, resume, rewind, compare
    waiting       the queue
    approvals     what waits for a person
    triggers      what starts a workflow by itself
    webhook       where webhooks arrive
    connections   machines with model servers
    providers     who answers a prompt, and which models there are
    folders       directories of this machine, to choose one
    dev_loops     development loops that run beside: processes, logs, restarts
    costs         what agents and judges have cost
    demo          the demo, which needs no account
    catalog       node types, file formats and settings, with their JSON Schemas
    settings      the operator's settings, and where each is from
    doctor        what this machine can confine
    audit         what matters for trust
    measures      the figures that Prometheus reads

`web.app.ROUTERS` says in which order they are asked. A route that changes something writes it into
the audit log first; when that cannot be done, nothing is changed.
"""
