"""Kernel mechanisms, each behind a few functions.

landlock        file access rules for a process and its children
seccomp         filters for system calls
connect_broker  decides the connect() calls of a `guard` child
cgroup          a memory limit for a child with all its processes
resource_limits a child's limits as setrlimit() values
hardening       protects the server process itself
"""
