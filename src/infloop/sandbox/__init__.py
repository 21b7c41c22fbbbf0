"""Where children live: the only package that starts processes.

    base        what a level is asked for and what it answers
    host        level `host`: runs as the server's user, its tree owned and ended as a whole
    pool        as many keepers as there are children, reused
    child       one child's way from request to result
    keeper      the stand-alone process that owns one child tree at a time
    keeping     the server's side of a keeper
    pipes       the server's ends of a child's stdin, stdout, stderr and result
    capture     a stream's first and last bytes, in bounded memory
    readiness   all descriptors of all children, watched by the event loop as one
    strays      processes whose keeper died: adopted by the server, then ended
    hardening   what the server hides of itself

A new level is one file that answers `base.Sandbox`; the keepers carry it.
"""
