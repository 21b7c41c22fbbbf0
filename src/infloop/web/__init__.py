"""The HTTP surface: API, event streams, pages.

    app           builds the ASGI application: guards around the API
    guards        middleware that every request passes, in order
    exposure      who can reach the server, and under which names
    credentials   bearer tokens and cookies
    connection    limits of one connection
    connections   limits of all connections together
    http_server   finds a port, answers until it is told to stop
    fast_path     webhooks and `/healthz`, answered without the framework
    api           the routes in matching order, and the OpenAPI document
    routing       how routes are declared: strict bodies, typed responses
    routes/       the API, one file per subject
    errors        error responses: one JSON shape
    streams       server-sent events
    metrics       Prometheus metrics
    pages         the server's own pages
    dev_events    the listeners of a development loop
    dependencies  what routes and guards are given

A route translates a request into a use case of `application` and returns its model. Nothing here
decides, audits or reads the store.
"""
