"""The configuration of a development loop (`devloop.toml`). Pure.

config      the tables and their defaults
reading     parsed TOML becomes a configuration; unknown keys become warnings
validation  the checks, in a fixed order; the first problem wins
graph       what a workflow reaches; recursion and overlap
template    `{{ key }}` in a message or a value
status      what is shown of a running loop
up          whether its processes are up
line_levels how important a line of output is
"""
