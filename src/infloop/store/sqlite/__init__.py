"""The store on SQLite: one file, shared by all processes of a machine.

The interfaces

    store              opens the database file as a `Store`
    read_only          opens it for a command that only reads, without an event loop
    assembly           puts the interfaces together
    run_log            runs, their events, listing and search
    ledger             what provider calls cost
    queue              the run queue: an entry becomes a run in one transaction
    refusals           triggers that fired and were refused
    rate_limits        what happened in the last minute
    approvals          questions that wait for a person
    liveness           processes that own runs, stop requests
    results            what runs in fetched repositories changed
    changes            change notification

The database

    database           opens the file: private, migrated, shared by several processes
    migrations         the schema, as an ordered list of migrations
    access             reads and writes, whichever thread they happen on
    writer             one thread, one connection, group commit
    headroom           keeps the write-ahead log file longer than its content
    readers            a pool of connections for reading
    errors             translates SQLite errors into errors with advice

Parts of the run log

    append             the fenced writes of a run: events, output, checkpoints
    creation           creates a run, or forks one
    definitions        what runs and queue entries execute, stored once by hash
    ownership          taking over a run
    known_directories  directories in which runs have worked
    reading            events in order, what a state is rebuilt from, pages of a long output
    listing            runs, newest first
    search             full-text search
    pruning            deletes old runs and returns disk space
    blobs              large texts, stored once by hash
    row_ids            the ids of rows of table `stretch`

Ten thousand steps without effects are a hundred rows, because the events of one append are encoded
together (see `encoding/batches`). One row is one call into SQLite. Each call releases Python's
interpreter lock, and while the event loop is busy it takes milliseconds to get it back.
"""
