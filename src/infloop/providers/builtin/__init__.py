"""Transport `builtin`: an agent whose tools are infloop's own.

    agent         the provider: opens the model, the gate and the session of a prompt
    conversation  the loop: ask the model, run its tool calls, give back the results
    routing       which model a request gets, and its key
    models        one model behind its API: a request, its reservation, its usage, its errors
    instructions  what the model is told, and the project's own files as untrusted text
    sessions      stored conversations
    subagent      the tool with which an agent starts another one

`pydantic_ai` is imported when the first model is opened: it takes seconds.
"""
