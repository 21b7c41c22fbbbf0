"""The headless service: what works without a request.

    service     starts queued runs, schedules and file triggers, and shuts down in order
    recovery    takes over from processes that died
    own_writes  keeps runs of file triggers from starting themselves again

`infloop serve` runs it beside the web server; `infloop worker` runs it alone.
"""
