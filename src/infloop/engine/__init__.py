"""The engine: a pure state machine. The events so far decide what happens next.

    graph       workflows compiled for execution: edges by handle, templates parsed
    state       the state of a run: open frames and steps, scopes, counters
    commands    what the machine asks the runtime to do
    scope       looks up the `{{references}}` of a step
    resolve     fills in the references of a node's configuration
    shellline   turns references in a shell line into variables, never into shell text
    decide      the outcome of nodes without effects: one function per type
    parallel    when a parallel is settled, and its outputs
    progress    detects rounds of a loop that change nothing
    past        whether another version of a workflow has the same past
    machine     advance(program, state, event, now) -> commands

Rules for every file here:

- The same events give the same state. There is no clock, no randomness and no I/O; the time comes
  with the event.
- `advance` takes ownership of the state and changes it in place.
- A step is identified by its path (`loop-1[3]/agent-1`), which is made from its position. A counter
  of earlier steps would depend on the order of parallel branches, and results could be swapped.
- A frame is a sequence of steps: the run, one round of a loop, one branch of a parallel, one called
  workflow. Loop signals (met, break, not_met, continue) apply to the frame in which they arise.
- Closed steps and frames are removed, so memory does not grow with the number of rounds.
- The engine reads the facts of a node type from its class (`infloop.model.nodes`). It does not
  compare type names.
"""
