"""What survives: the journal, its search, its files, the queue, approvals, the audit log.

    base        the interface, and the records that cross it; one contract suite tests it
    sqlite      the journal on SQLite: each method hands a function to the writer or a reader
    database    opening the file: private, migrated once, safe for several processes
    migrations  the schema, as an ordered list of steps
    writer      one thread, one connection, everything queued in one transaction
    headroom    room ahead in the log, so that commits need not make it longer
    readers     a few connections for reading, each in a thread
    faults      what an SQLite error means to a person
    append      the fenced writes of a run: its events, output and checkpoints
    creation    a new run: from nothing, or from the beginning of another
    ledger      what every call of a provider cost, and how much is left to spend
    places      the paths that were directories themselves when a run worked there
    ownership   who may write to a run, who lives, who is asked to stop
    reading     events in order, a run as it was, pages of a long output
    listing     runs, newest first
    pruning     forgetting old runs and giving the disk back
    search      full-text search over inputs, outputs, errors and logs
    stretches   how events and output become rows, and rows events again
    outputs     how many small deltas become one compact text
    blobs       large texts, stored once by hash
    encoding    values as JSON bytes, whatever text they hold
    packing     bytes, compressed when that pays
    instances   processes that own runs: lock files and heartbeats
    record      a finished run as Infinite Loop's JSON, out and in
    files       private files, written whole or not at all
    alone       one process at a time in a directory

    queue         runs that wait for their turn: the interface, and the records that cross it
    queue_sqlite  … in the journal's database: out of the queue and a run in one transaction

    approvals     questions that wait for a person, and what became of them

    audit          what matters for trust, appended as it happens
    audit_files    … its files: locked, rotated, mended after a crash
    audit_reading  … its newest entries, what is added, and whether it is intact
    chain          … lines that hold the hash of the one before

A row of the journal is a *stretch*: the neighbouring events (or output deltas) of one append,
encoded together. Ten thousand steps without effects are a hundred rows, and one row is one
call into SQLite; each such call gives up Python's interpreter lock, and while the event loop
is busy getting it back takes milliseconds. For the same reason nothing here uses `executemany`.

Times are integer milliseconds that the caller gives; nothing here reads a wall clock.
"""
