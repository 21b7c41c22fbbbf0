"""What survives a restart: the journal, the queue, approvals, the audit log.

    base            the journal's interface, and the records that cross it
    queue           the run queue's interface, and the records that cross it
    sqlite/         both on SQLite
    audit/          the audit log: plain files with a hash chain
    instances       processes that own runs: lock files and heartbeats
    run_records     a finished run as Infinite Loop's JSON, out and in
    files           private files, written atomically
    directory_lock  one process at a time in a directory

Times are integer milliseconds that the caller gives; nothing here reads a wall clock.
"""
