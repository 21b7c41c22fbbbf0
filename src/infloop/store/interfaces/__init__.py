"""What a database must implement, one interface per file, each beside the records it exchanges.

    store        `Store`: the interfaces of one opened database
    run_log      runs, their events, output and checkpoints; listing, search and pruning
    ledger       what provider calls cost
    queue        runs that wait for their turn
    refusals     triggers that fired and were refused
    rate_limits  how much may happen in a minute, in all processes together
    approvals    questions that wait for a person
    liveness     processes that own runs: heartbeats and stop requests
    results      what runs in fetched repositories changed, for other machines
    changes      tells readers that something was committed

`tests/store/contracts` checks every implementation against these interfaces. Nothing here, and
nothing above `store`, depends on a particular database.

All implementations promise:

- When a coroutine returns or a future is done, the change is durable.
- All methods are called from the event loop that opened the store.
- Times are integer milliseconds.
"""
