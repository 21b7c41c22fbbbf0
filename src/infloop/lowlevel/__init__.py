"""Small parts that several packages need, each once.

    uncancelled     waits for work to finish although the task is cancelled
    worker_thread   runs functions in one thread for an event loop
    lock_file       lock files: proof that the process that made one is alive
    directory_lock  locks on directories: one process at a time
    link_free       opens paths without following symbolic links
    remove_tree     removes a directory tree of any depth and size without following links
    ring            a bounded ring of the newest items, with waiting readers
    own_ports       announces the ports of our servers, and knows those of others

Nothing here knows anything else about infloop except its errors.
"""
