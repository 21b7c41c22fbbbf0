"""Where agents work: snapshots of whole trees, git worktrees, applying changes.

    snapshots/     take, compare and restore whole trees
    repositories/  repositories that runs name by address: mirrors, and snapshots as packs
    worktrees/     a directory of its own for each agent
    applying/      merges an agent's changes into the user's branch, completely or not at all
    git/           our own git calls, and where a repository keeps its files
    planted_files  undoes changes of children to files that git executes
    beneath        opens files beneath a directory by descriptor
    durable_files  small files that survive a power failure
    threads        file work in threads, never abandoned

Nothing here starts a process or reads the environment.
"""
