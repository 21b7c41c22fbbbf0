"""Watching files: used by file triggers, and by anything else that reacts to changes.

    patterns     which files below a directory count
    debounce     collects changes until nothing has changed for a while
    own_writes   tells which changes a run made itself
    directories  watches directories and yields the paths that changed

For development loops:

    globs        the patterns of `devloop.toml`
    targets      which directories have to be watched for them
    scanning     lists the files in these
    inotify      reports changes by kernel events
    polling      reports changes by looking at an interval
    contents     tells by a file's content whether it changed
    causes       which workflow wrote a file, and what that may start

`directories`, `scanning`, `inotify`, `polling` and `contents` touch the disk; the others are pure.
"""
