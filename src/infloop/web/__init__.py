"""The server: an HTTP API, event streams, and what keeps strangers out.

    posture      who can reach it at all: decided before it listens, and for each request
    credentials  the token, and the sessions that were opened with it
    connection   the bounds of one connection: slow heads, endless heads, readers that never read
    guards       what every request passes before a route sees it
    errors       what a refused or failed request is answered: one shape
    routing      how routes are declared: strict JSON, documented refusals
    routes       the API, one file per topic
    streams      server-sent events
    triggering   from what a trigger asks for to the queue
    state        runs as the API shows them
    pages        the few pages that the server itself has
    metrics      what it counts
    parts        what all of them are handed
    app          puts it together: routes and guards, in their order
    listening    finds a port, serves until told to stop, and leaves nothing behind

A request passes the guards from the outside in (`app.GUARDS`); then one route answers it. Nothing
is imported from here unless `infloop serve` is called.
"""
