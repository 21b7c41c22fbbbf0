"""How the command line shows things.

run_view  a run's state for display, folded from its events
replay    rebuilds the run view of a run that started earlier
live      a run on a terminal, redrawn as it goes
plain     a run as plain lines
outline   a run's steps as an indented list
summary   how a run ended
explain   why a run is in its state
advice    which commands make sense next
labels    names that a workflow's author gave its nodes
changes   changed files as lines
triggers  a trigger in a few lines, without its secret
figures   durations, times, sizes and money
terminal  text that is safe to print
"""
