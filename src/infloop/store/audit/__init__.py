"""The audit log: plain files, readable without infloop.

log         appends entries, several at once when they arrive together
files       the files: locked, rotated, repaired after a crash
reading     the newest entries, what is added, and whether the log is intact
hash_chain  each line holds the hash of the line before
"""
