"""Outbound connections. The only package that opens them.

    client             the server's own HTTP client
    backend            how the client connects
    public_hosts       what tools may connect to
    health_checks      whether a server of a development loop is up

    proxy              one per run: accepts the connections of children
    child_connection   one connection of a child: parse, decide, report, act
    protocol           parses what a child sends, strictly (pure)
    client_hello       reads the server name in a TLS ClientHello, strictly (pure)
    peekable_stream    a connection whose received bytes can be examined before they are consumed
    relay              an open tunnel
    exchange           a plain HTTP request and its response
    broker             calls with a provider's key that children do not have
    key_redaction      removes that key from responses (pure)
    limits             how much a run may do through its proxy
    reports            what a proxy reports to its run
    loopback_listener  a listener for children that share this machine's network

    resolve            resolves a name once and checks all its addresses
    dial               connects to one of them

What may be reached is decided in `infloop.policy`: `hosts`, `addresses` and `routes`.
"""
