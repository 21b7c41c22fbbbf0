"""What answers a prompt.

    base            a request in; text, tools, usage, cost and a result out
    scripted        plays a file of turns: for the demo, the documentation and the tests
    cli             an agent that is a program, by a manifest
    arguments       its command line
    hearing         what it says while it runs, and for how long to wait for more
    lines, frames   its output cut into lines; a line read with suspicion
    claude_stream   output format `claude-stream-json`
    codex_json      output format `codex-json`
    plain           output format `plain`
    shipped/        the manifests that come with infloop

A new output format is one file and one line in `cli`.
"""
