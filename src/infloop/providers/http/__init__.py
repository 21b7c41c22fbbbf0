"""Transport `http`: a model behind an HTTP API.

    agent               sends the prompt and reads the answer
    api                 the address and the token of an API
    dialects            the table of dialects
    chat_completions    dialect `openai`
    openai_responses    dialect `openai-responses`
    anthropic_messages  dialect `anthropic`
    answers             what answers have in common in all dialects
    server_sent         splits an answer into server-sent events
    error_responses     an error response, and what to do about it
    models              lists the models of an API
    usage_meter         reads the usage of answers that pass through the credential broker

A new dialect is one file, one line in `dialects`, and its name in
`infloop.model.provider.DialectName`.
"""
