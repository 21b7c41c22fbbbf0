"""The audit log: plain files, readable without infloop.

log         appends entries, several together when they arrive together
files       the files: locked, rotated, repaired after a crash
reading     the newest entries, following the log, verifying it
hash_chain  each line contains the hash of the line before it
"""
