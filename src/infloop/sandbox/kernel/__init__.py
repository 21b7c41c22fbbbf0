"""Kernel mechanisms, each behind a few functions.

landlock        file access rules for a process and its children
ruleset_pool    such rules for one child after the other
seccomp         filters for system calls
connect_broker  makes the connections of children in place of their connect() calls
connect_policy  where a child may connect
cgroup          a memory limit for a child with all its processes
resource_limits a child's limits as setrlimit() values
hardening       protects the server process itself
written_bytes   how much a process tree has written
socket_owner    which user is at the other end of a connection
"""
