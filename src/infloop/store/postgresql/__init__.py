"""The store on PostgreSQL: one database, shared by the processes of several machines.

The interfaces

    store              opens the database at an address as a `Store`
    run_log            runs, their events, listing and search
    ledger             what provider calls cost
    queue              the run queue: an entry becomes a run in one transaction
    taking             hands entries out
    jobs               jobs of Procrastinate: which entry is next, and for whom
    refusals           triggers that fired and were refused
    rate_limits        what happened in the last minute
    approvals          questions that wait for a person
    liveness           processes that own runs, stop requests
    outages            times in which nobody could reach the database
    results            what runs in fetched repositories changed
    changes            change notification

The database

    address            where it is: `postgresql://user@host:port/database`
    connections        opens connections, and opens them again after they were lost
    migrations         the schema, as an ordered list of migrations
    jobs_schema        the tables of Procrastinate, and which versions of it fit them
    writer             one task, one connection, group commit
    commit_marks       whether a transaction was committed whose answer was lost
    readers            a few connections for reading
    errors             translates errors of PostgreSQL into errors with advice

Parts of the run log

    append             the fenced writes of a run: events, output, checkpoints
    definitions        what runs and queue entries execute, stored once by hash
    creation           creates a run, or forks one
    ownership          taking over a run
    known_directories  directories in which runs have worked
    reading            events in order, what a state is rebuilt from, pages of a long output
    listing            runs, newest first
    search             full-text search
    words              texts as words, for the index and for a query
    pruning            deletes old runs
    blobs              large texts, stored once by hash

How rows are encoded is in `store/encoding`, for every database.

Rules

- Everything is in a schema of its own, so the database may be shared with others. Names are found
  in that schema only.
- Clocks of several machines differ. What is decided by time between processes (who is alive) is
  decided by the clock of PostgreSQL.
- A process needs one connection for writing, two for reading, one for change notification and one
  for each instance. Session locks and LISTEN need real sessions: a pooler in transaction mode
  cannot stand in between.
- A lost connection is opened again. Work whose outcome is unknown is never repeated blindly: see
  `writer`.
"""
