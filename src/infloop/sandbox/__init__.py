"""Where children run: the only package that starts processes.

    base        the interface of every isolation level: a request in, a result out
    fence       what one confined child may reach
    launch      what a level asks a keeper to start

    levels/     the isolation levels, and which of them hold on this machine
    keepers/    the small processes that own child trees, and the server's side of them
    kernel/     Landlock, seccomp, cgroups, resource limits, the connect broker
    view/       which files and directories a confined child sees
    self_check/ attacks a level and compares the result with what it promises


A new level is one file in `levels` that implements `base.Sandbox`.
"""
