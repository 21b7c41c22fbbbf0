"""How the command line shows things.

live      a run on a terminal, redrawn as it goes
plain     a run as plain lines
outline   a run's steps as an indented list
summary   how a run ended
explain   why a run is in its state
advice    which commands make sense next
changes   changed files as lines
triggers  a trigger in a few lines, without its secret
dev_lines     the output of a development loop
dev_terminal  … its status line and keys
figures   durations, times, sizes and money
terminal  text that is safe to print
"""
