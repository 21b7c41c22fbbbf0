"""Watching files: used by file triggers, and by anything else that reacts to changes.

    patterns     which files below a directory count
    debounce     collects changes until nothing has changed for a while
    own_writes   tells which changes a run made itself
    directories  watches directories and yields the paths that changed

Only `directories` touches the disk.
"""
