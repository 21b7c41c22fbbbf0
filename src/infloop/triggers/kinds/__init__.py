"""The kinds of triggers: one file each. `infloop.triggers.KINDS` lists them.

base      what a kind declares
webhook   an HTTP request
schedule  a time
file      a changed file
"""
