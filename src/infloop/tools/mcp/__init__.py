"""Tools of MCP servers.

    family        opens the servers and has their tools
    tool          one tool of a server
    definitions   what a server says about its tools: checked, cleaned, named (pure)
    known_tools   which definitions were used before
    connection    a session with one server
    streams       how a session reads and writes messages
    stdio         messages of a program in the sandbox
    http          messages over HTTP

A server is not trusted. It gets no variables but those that its table names, and its network is
that of its sandbox, or the operator's rules. What it says is text from somebody else: bounded,
without control characters, and labelled. The protocol's library neither starts nor connects
anything.
"""
