"""Where agents work: whole-tree snapshots, git worktrees, and bringing work home.

    program     how a program is run: by someone else, who is given
    git         our own git calls, which execute nothing that a tree or repository says
    beneath     files beneath a directory, reached by descriptor
    locks       taking turns with other processes
    threads     file work beside the event loop

    snapshot    the time machine: take, diff, patch, restore, prune
    objects     its store: git objects, written here
    index       what is remembered of a tree, so that only changed files are read again
    walk        reading a tree
    notes       what a snapshot keeps beside the files
    refs        what keeps objects in it
    trees       reading the store, through git
    changes     what changed, path by path
    plan        deciding what a restore has to do
    restore     doing it

    repository  the user's repository: where it is, what is checked out, our refs in it
    worktree    a tree of its own for each agent, never removed before it is saved
    kinds       what such a tree can be to git:
    linked      a worktree of the user's repository
    clone       a private clone, whose commits come home checked
    unpacked    how large the objects of a pack become
    unfolded    how many files commits are
    records     what is known of each worktree, on disk
    naming      names for worktrees and refs
    checkout    files of the user's repository, looked at by a git of our own
    carry       bringing along what is not committed
    saving      keeping the whole state of a worktree
    commits     which commits it has made
    planted     what may not be left in repositories that are not a child's own
    places      what of the repository around a directory a confined child may reach

    merge       three trees made into one, or the reasons why not
    apply       bringing an agent's work home, whole or not at all
    gate        which changes a person has to allow
    pending     taking back what was half applied

Nothing here starts a process or reads the environment.
"""
