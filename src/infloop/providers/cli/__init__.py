"""Transport `cli`: an agent that is a program on this machine.

    agent          runs the program of a manifest
    arguments      its command line
    formats        the table of output formats
    claude_stream  output format `claude-stream-json`
    codex_json     output format `codex-json`
    plain          output format `plain`

A new output format is one file, one line in `formats`, and its name in
`infloop.model.provider.OutputFormatName`.
"""
