"""Transport `acp`: an agent that speaks the Agent Client Protocol on its standard streams.

agent         runs the program of a manifest
conversation  one prompt, from the client's side of the protocol
files         files that the agent reads and writes through infloop
jsonrpc       JSON-RPC messages, one per line
outbox        the queue of messages to the agent
"""
