"""Runs children. The only package that starts processes.

    base           the interface of a sandbox: a request in, a result out
    access         what a confined child may reach, and how much it may use
    promises       what isolation levels can promise
    spawn_request  what a level asks a keeper to start

    levels/        the isolation levels, and which of them hold on this machine
    keepers/       the small processes that own child trees, and the server's side of them
    kernel/        Landlock, seccomp, cgroups, resource limits, the connect broker
    view/          which files and directories a confined child sees
    self_check/    attacks a level and compares the result with its promises

A new level is one file in `levels` and one line in `levels/__init__`.
"""
