"""What survives a restart: runs, costs, the queue, approvals, the audit log.

    interfaces/     what a database must implement, and the records it exchanges
    opening         opens the store: the one place that chooses a database
    encoding/       how events, output and texts are stored, the same in every database
    sqlite/         the interfaces on SQLite
    postgresql/     the interfaces on PostgreSQL
    this_process    describes this process as an owner of runs
    audit/          the audit log: plain files with a hash chain
    run_records     a finished run as Infinite Loop's JSON, out and in
    files           private files, written atomically
    dev_loops       running development loops: their status and logs as files
    secret_file     a random secret in a private file
    data_directory  whether other users could change the data directory

Times are integer milliseconds that the caller gives; nothing here reads a wall clock.
"""
