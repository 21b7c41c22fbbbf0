"""Repositories that runs name by address: fetched here, worked on in a checkout of the run's own.

mirrors       a bare repository for each address, fetched incrementally
local_source  checks a repository on this machine before it is fetched from
packs         a run's snapshots as packs, for another machine
"""
