"""The headless service: what works without a request.

    service     starts queued runs, schedules and file triggers, and shuts down in order
    own_writes  keeps runs of file triggers from starting themselves again

`infloop serve` runs it beside the web server. A worker or a supervisor can run it alone.
"""
