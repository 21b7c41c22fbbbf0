"""The isolation levels.

choice              which levels hold on this machine, and which one is used
keeper_sandbox      what all levels share: children run under keepers
host                level `host`: no confinement, but the process tree is owned
guard               level `guard`: Landlock, seccomp and a connect broker
container           level `container`: whether the container around infloop is strict enough
bubblewrap          level `sandbox`: namespaces and a file view of its own
trusted_bubblewrap  finds a bubblewrap that only root can have installed
proxy_variables     the environment variables that name a child's proxy
service_relay       local services, forwarded into a child's network namespace
"""
