"""The journal, the queue and approvals on SQLite.

    journal            the journal: each method hands a function to the writer or a reader
    queue              the run queue: an entry becomes a run in one transaction
    approvals          questions that wait for a person
    database           opens the file: private, migrated, shared by several processes
    migrations         the schema, as an ordered list of steps
    writer             one thread, one connection, group commit
    headroom           preallocates the write-ahead log
    readers            a few connections for reading, each in a thread
    errors             what an SQLite error means to a person
    append             the fenced writes of a run: events, output, checkpoints
    creation           a new run, or the fork of another
    ownership          owners, epochs, stop requests
    ledger             what provider calls cost
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

A row of the journal is a batch: the neighbouring events (or output deltas) of one append, encoded
together. Ten thousand steps without effects are a hundred rows. One row is one call into SQLite;
each call releases Python's interpreter lock, and getting it back takes milliseconds while the
event loop is busy. For the same reason nothing here uses `executemany`.
"""
