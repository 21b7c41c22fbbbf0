"""Fetch pages, search, and talk to other agents.

    family     the tools of this package
    fetch      `web_fetch`
    search     `web_search`
    a2a        `a2a_discover` and `a2a_send`
    bodies     reads a response: bounded, decompressed, decoded
    readable   turns HTML into text

The requests themselves are in `infloop.tools.http_requests`.
"""
