"""The one way out: the only package that opens outbound connections.

    client        the server's own HTTP client
    backend       how it connects

    proxy         one per run: accepts what children send
    conversation  one connection: understand, decide, report, act
    protocol      reading what a child says, strictly (pure)
    client_hello  reading whom a TLS client asks for, strictly (pure)
    wire          a connection while it is being read
    relay         a tunnel that is open
    exchange      a plain HTTP request and its answer
    broker        calls with a key that children do not have
    scrubbing     … and do not find in an answer (pure)
    limits        how much a run may do through its proxy
    reports       what a proxy tells its run

    resolve       a name becomes the addresses to dial, once, all of them checked
    dial          a connection to one of them

What may be reached is decided in `infloop.policy`: `hosts`, `addresses` and `routes`.
"""
