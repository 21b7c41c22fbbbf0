"""The server: an HTTP API, event streams, and what keeps strangers out.

    posture      who can reach it at all: decided before it listens, and for each request
    credentials  the token, and the sessions that were opened with it
    connection   the bounds of one connection: slow heads, endless heads, readers that never read
    guards       what every request passes before a route sees it
    errors       what a refused or failed request is answered: one shape
    routing      how routes are declared: strict JSON, documented refusals
    routes       the API, one file per topic
    streams      server-sent events
    looks        looking things up once for many requests
    triggering   from what a trigger asks for to the queue
    state        runs as the API shows them
    pages        the few pages that the server itself has
    metrics      what it counts
    parts        what all of them are handed
    directly     what is answered without the API: webhooks, and whether the server lives
    api          the routes, in their order
    app          puts it together: guards in their order, and the API when it is needed
    listening    finds a port, serves until told to stop, and leaves nothing behind

A request passes the guards from the outside in (`app.GUARDS`); then one route answers it. Nothing
is imported from here unless `infloop serve` is called.
"""
