"""Watching files: used by file triggers and by development loops.

    content_watch  watches the files below a directory; what both use
    inotify        reports changes by kernel events
    polling        reports changes by looking at an interval
    contents       tells by a file's content whether it changed
    scanning       lists files
    targets        which directories have to be watched for patterns
    directories    finds a directory to watch

For file triggers:

    patterns       which files count
    debounce       collects changes until nothing has changed for a while
    own_writes     tells which changes a run made itself

For development loops:

    globs          the patterns of `devloop.toml`
    causes         which workflow wrote a file, and what that may start

`content_watch`, `directories`, `scanning`, `inotify`, `polling` and `contents` touch the disk; the
others are pure.
"""
