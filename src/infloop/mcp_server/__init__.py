"""What programs that speak the Model Context Protocol can do here: start workflows, follow them.

    parts       what the tools are made of, given by the application
    places      a number of places, and no more
    tools       a tool: its name, what it takes, what it does
    answers     what a tool returns, and which of it nobody vouches for
    naming      what the tool of a workflow is called
    workflows   one tool per workflow, which puts a run into the queue
    runs        how a run is, which there are, stopping one
    waiting     waiting for a run, and telling how it goes on
    results     what a run returned, and what it changed, page by page
    queue       what waits for its turn
    approvals   what waits for a person
    toolbox     all of them, in their order
    messages    bytes to one message of the protocol
    server      the tools, spoken in the protocol
    http        … at an address of the web server
    stdio       … on standard input and output

Only `server` and `stdio` import the protocol's library, which takes most of a second: nobody pays
for it before the first client comes.

Rules
  * Nothing is remembered between two requests: whatever a client wants to know, it asks for.
  * Calls answer at once; clients give up after about a minute.
  * What changes something is written into the audit log first.
  * What a client gives to a workflow is untrusted: a model wrote it, after reading who knows what.
"""
