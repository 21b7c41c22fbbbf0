"""What answers a prompt.

    base            a request in; text, tools, usage, cost and a result out
    scripted        plays a file of turns: for the demo, the documentation and the tests
    cli             an agent that is a program, by a manifest
    arguments       its command line
    listening       a program from its start to its end
    hearing         what it says while it runs, and for how long to wait for more
    lines, frames   its output cut into lines; a line read with suspicion
    claude_stream   output format `claude-stream-json`
    codex_json      output format `codex-json`
    plain           output format `plain`
    acp             an agent that is a program and speaks the Agent Client Protocol
    acp_conversation  one prompt put to it, as its client
    acp_files       files that it reads and writes through us
    asking          what it wants a person to allow
    jsonrpc         messages, one a line
    outbox          what is to be written to a program
    http            a model behind an HTTP API, by a manifest
    api             its one address, and the token that opens it
    server_sent     its answer cut into events
    replies         what answers have in common, in whatever dialect
    chat_completions, openai_responses, anthropic_messages   the dialects
    refusals        an error instead of an answer, and what to do about it
    patience        for how long to wait for one that says nothing
    profiles        the models that it offers
    metering        what a child's own call of an API used, read as its answer goes by
    prices          tokens become money, or their cost stays unknown
    shipped/        the manifests that come with infloop

A new output format is one file and one line in `cli`, a new dialect one of each in `http`.
"""
