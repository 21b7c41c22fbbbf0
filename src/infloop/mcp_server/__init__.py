"""The MCP surface: workflows as tools, over HTTP and over standard input and output.

    toolbox       all tools, in order
    tools         a tool: its name, arguments, function
    workflows     one tool per workflow; it puts a run into the queue
    runs          the status of a run, a list of runs, cancelling
    waiting       waits for a run and reports progress
    results       what a run returned and changed, page by page
    queue         the queue
    workers       the processes that drive runs
    approvals     what waits for a person
    dev_loops     the processes of development loops
    answers       results as text, with untrusted fields marked
    naming        names for the tools of workflows
    slots         a non-blocking semaphore
    messages      reads one protocol message strictly
    server        the tools as an MCP server
    http          … over HTTP
    stdio         … over standard input and output
    dependencies  what the tools are given

Only `server` and `stdio` import the protocol's library: it takes most of a second, so it is loaded
when the first client connects.

Rules
  * Nothing is remembered between two requests.
  * Calls return at once; clients time out after about a minute.
  * What a client gives to a workflow is untrusted: a model wrote it.
"""
