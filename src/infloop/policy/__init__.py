"""Pure decisions: data in, a decision out, no effects.

addresses             which IP addresses a connection may go to
budget                the limits of a run
command_time          the time limit of a command
confinement           whether a run may start with the confinement of this machine
destructive_commands  which commands delete, overwrite or publish
environment           which environment variables a child gets
hosts                 which hosts a connection may go to
leaks                 finds and redacts secrets in what children print
links                 which symbolic links lead out of a tree
permissions           whether an agent may use a tool
protected_paths       which files an agent may change only with a person's permission
rate                  rate limits
routes                which API calls a child may make with a key it does not have
secrets               compares secrets in constant time
shell_commands        reads a shell line into its commands
spending              whether more money may be spent
taint                 which fields an untrusted value can reach
tool_policy           whether a tool may be called
writable_roots        which directories are too much for a child to write to
"""
