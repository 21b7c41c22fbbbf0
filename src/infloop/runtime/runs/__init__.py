"""One run from start to end, and the service that owns the runs of a process.

service       start, stop, resume, rewind, listen: all that the layers above use
dependencies  what the application gives to the service
shared        what the runs of one process share
admission     checks before a run starts or goes on, and its fence
starting      starts a run
resuming      continues a run from its journal
rewinding     starts a new run from a step of another
recovery      settles what dead processes left behind
live_runs     the runs that this process drives
relay         events of runs that other processes drive, for who follows all runs
upkeep        heartbeat, disk reserve, stop requests of other processes
following     follows a run that another process drives
shutdown      settles live runs when the process stops
dispatch      starts queued runs when there is capacity
definitions   facts about a definition that are worked out once
run_status    what is known of a run, by the journal and by lock files
replay        rebuilds a run from its journal
loop          drives one run from its first command to its last event
effects       performs steps: starts them once durable, interrupts them
step_powers   what a step may use: the sandbox, providers, its directory
joined_output joins what a step prints within a few milliseconds
redaction     removes known secrets from everything that steps say
recorder      stamps events, keeps their order, makes them durable, publishes them
feed          a run's events and output for any number of listeners
markers       active runs as files, for people and tools
retention     prunes old runs and indexes finished ones for search
taint_report  which values of a run come from outside, and where they may go
"""
