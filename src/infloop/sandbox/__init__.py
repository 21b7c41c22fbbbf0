"""Where children live: the only package that starts processes.

    base        what a level is asked for and what it answers
    kept        what all levels have in common: a program that is there, under a keeper
    host        level `host`: runs as the server's user, its tree owned and ended as a whole
    guard       level `guard`: Landlock, a filter of system calls and a connect broker
    container   level `container`: whether the container around infloop is what it must be
    bubblewrap  level `sandbox`: namespaces and a view of their own
    levels      which levels hold on this machine, and which is taken
    fence       what one confined child may reach
    launch      what a keeper is asked to start
    pool        as many keepers as there are children, reused
    child       one child's way from request to result
    keeper      the stand-alone process that owns one child tree at a time
    keeping     the server's side of a keeper
    pipes       the server's ends of a child's stdin, stdout, stderr and result
    feeding     stdin that comes in pieces
    capture     a stream's first and last bytes, in bounded memory
    readiness   all descriptors of all children, watched by the event loop as one
    strays      processes whose keeper died: adopted by the server, then ended
    records     children on record, for the start after a death of server and keeper together
    hardening   what the server hides of itself
    system      the parts of the system that every confined child may use
    landlock    rules for what a process may do with files, by where they are
    seccomp     the system calls that confined children may not make
    confine     a guarded child's last steps before it becomes its program
    connect_broker  answers a guarded child's connect() calls
    private     a child's own home and temp, made before it and removed after it
    scratch     the directory they lie in, gone with the server or at the next start
    finishing   work that must be finished although its task is cancelled
    view        what a sandboxed child sees, as arguments for bubblewrap
    root        what this machine's root directory looks like
    programs    what must be visible for a child's programs to run
    trusted     a bubblewrap that nobody but root can have put there
    bubble      what a keeper does with a process that bubblewrap holds
    listening   a held child's listeners on their way to their owner
    relay       the developer's local services, for a child with its own network
    proxying    the variables that name a child's proxy
    limits      a child's limits as resource limits
    cgroup      a bound on the memory of a child as a whole
    reach       where another user can go and write
    self_check  attacks a level and compares with what it promises
    probes      the attempts, as a program that runs where children run
    decoys      the canaries they are made on

A new level is one file that answers `base.Sandbox`; the keepers carry it.
"""
