"""One run from start to end, and the service that owns the runs of a process.

service       start, stop, resume, rewind, listen
dependencies  what the service is given
dispatch      starts queued runs when there is room
definitions   facts about a workflow that are worked out once
loop          one run from its first command to its last event
effects       performs steps: starts them once durable, interrupts them
step_powers   what a step may use: the sandbox, providers, its directory
redaction     removes known secrets from everything that steps say
recorder      stamps events, keeps their order, makes them durable, publishes them
feed          a run's events and output for any number of listeners
markers       active runs as files, for people and tools
recovery      finds runs whose process died
retention     prunes old runs and indexes finished ones for search
shutdown      settles live runs when the process stops
taint_report  which values of a run come from outside, and where they may go
"""
