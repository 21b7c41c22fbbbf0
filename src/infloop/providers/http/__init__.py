"""Transport `http`: a model behind an HTTP API.

    agent               asks the API of a manifest
    api                 its address and its token
    server_sent         splits an answer into server-sent events
    replies             what answers have in common in all dialects
    chat_completions    dialect `openai`
    openai_responses    dialect `openai-responses`
    anthropic_messages  dialect `anthropic`
    refusals            an error answer, and what to do about it
    models              the models that an API offers
    usage_meter         usage in answers that pass through the credential broker

A new dialect is one file, one line in `agent` and one in `usage_meter`.
"""
