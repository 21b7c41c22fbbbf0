"""A browser for a model: Chromium, whose connections are limited by the rules of the tools.

    family         the tools, and the browser that they share
    navigation     navigate, back, close
    interaction    scroll, click, type, press_key
    reading        wait_for, read_page, run_js, screenshot
    session        one open browser and its page; it ends with everything that belongs to it
    page           what can be done with a page
    request_guard  judges every request before the browser sends it
    devtools       commands and events of the DevTools protocol
    links          what the two ways to a browser share, such as its proxy:
    chromium         one that the sandbox starts, spoken to over a pipe
    endpoint         one that somebody else runs, spoken to over a WebSocket
    keys           the keys that can be pressed

Three guards hold at the same time. The sandbox leaves the browser no network but its proxy. The
proxy resolves each name once and connects only to allowed hosts. And the browser asks before each
request, also for redirects, frames, workers and prefetches, so that paths and methods are judged
inside of encrypted connections too.

The DevTools protocol is used directly, because a driver in between would be a second program
outside of the sandbox, and would let redirects pass without asking.
"""
