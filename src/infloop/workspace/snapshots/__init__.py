"""Snapshots of whole trees, in a private git object store.

store         take, diff, patch, restore, prune
objects       writes git objects
trees         reads trees and blobs through git
refs          keeps the objects of a snapshot alive
stat_cache    caches file stats, so that only changed files are read again
walk          reads a tree into the store
metadata      permissions, and the paths that were not read
changes       what changed between two trees, path by path
restore_plan  decides which changes a restore makes
restore       makes them
"""
