"""What survives a restart: runs, costs, the queue, approvals, the audit log.

    interfaces/     what a database must implement, and the records it exchanges
    opening         opens the store: the one place that chooses a database
    sqlite/         the interfaces on SQLite
    audit/          the audit log: plain files with a hash chain
    run_records     a finished run as Infinite Loop's JSON, out and in
    files           private files, written atomically

Times are integer milliseconds that the caller gives; nothing here reads a wall clock.
"""
