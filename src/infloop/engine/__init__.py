"""Pure progress: what has happened decides what happens next.

    graph       workflows compiled for walking: edges by handle, templates parsed
    state       a run as data: open frames and steps, scopes, counters
    commands    what the machine asks the world to do
    scope       where a step's `{{references}}` are looked up
    resolve     a node's configuration with its references filled in
    shellline   references inside a shell line become variables, never shell text
    decide      nodes without effects: start, end, branch, sentinel condition
    parallel    when a parallel is settled, and what it returns
    progress    rounds of a loop that change nothing any more
    machine     advance(program, state, event, now) -> commands

Rules that every file here obeys:

- Same events, same state. No clock, no randomness, no I/O; time arrives with the event.
- A state is moved, not shared: `advance` takes it over and changes it in place.
- A step's identity is its path (`loop-1[3]/agent-1`), made from where it is, never from a counter
  of what happened before it elsewhere. Parallel branches cannot swap results.
- A frame is a sequence of steps: the run, one round of a loop, one branch of a parallel, one called
  workflow. Loop signals (met, break, not_met, continue) belong to the frame they arise in.
- Closed steps and frames are forgotten, so memory does not grow with the number of rounds.
"""
