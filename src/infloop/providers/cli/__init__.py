"""Transport `cli`: an agent that is a program on this machine.

    agent          runs the program of a manifest
    arguments      its command line
    process        one program from start to end
    claude_stream  output format `claude-stream-json`
    codex_json     output format `codex-json`
    plain          output format `plain`

A new output format is one file and one line in `agent`.
"""
