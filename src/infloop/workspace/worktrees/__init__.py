"""Worktrees: a directory of its own for each agent, never removed before it is saved.

worktree     create, save, remove, restore
kinds        the interface of the two kinds:
linked       … a git worktree of the user's repository
clone        … a private clone, whose commits are checked before they are imported
pack_size    limits the unpacked size of a pack
tree_size    limits the number and size of files in commits
records      the record of each worktree on disk
naming       names for worktrees and refs
repository   the user's repository: where it is, what is checked out, our refs
checkout     reads and writes work trees with our own git configuration
uncommitted  copies uncommitted changes into a new worktree
saving       saves the whole state of a worktree
commits      finds the commits a worktree made
"""
