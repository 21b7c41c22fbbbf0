"""The store on SQLite: one file, shared by all processes of a machine.

The six interfaces

    store              opens the database file as a `Store`
    run_log            runs, their events, listing and search
    ledger             what provider calls cost
    queue              the run queue: an entry becomes a run in one transaction
    approvals          questions that wait for a person
    liveness           processes that own runs, stop requests
    changes            change notification

The database

    database           opens the file: private, migrated, shared by several processes
    migrations         the schema, as an ordered list of steps
    writer             one thread, one connection, group commit
    headroom           preallocates the write-ahead log
    readers            a few connections for reading, each in a thread
    errors             what an SQLite error means to a person

Parts of the run log

    append             the fenced writes of a run: events, output, checkpoints
    creation           a new run, or the fork of another
    ownership          taking over a run
    known_directories  directories in which runs have worked
    reading            events in order, a run's state, pages of a long output
    listing            runs, newest first
    search             full-text search
    pruning            deletes old runs and returns disk space
    batches            events and output as rows, and back
    outputs            many small output deltas as one compact text
    blobs              large texts, stored once by hash
    encoding           values as JSON bytes
    compression        compresses bytes when that pays

A row of a run is a batch: the neighbouring events (or output deltas) of one append, encoded
together. Ten thousand steps without effects are a hundred rows. One row is one call into SQLite;
each call releases Python's interpreter lock, and getting it back takes milliseconds while the
event loop is busy. For the same reason nothing here uses `executemany`.
"""
