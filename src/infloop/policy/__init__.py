"""Pure decisions: data in, verdict out, nothing is done.

addresses     which addresses a connection may go to
budget        how much a run may use up
command_time  how long a command may run
environment   which variables a child gets
hosts         which hosts a connection may go to
leaks         known secrets, taken out of what children say
links         which links lead out of a tree
protected     which files need a person to be brought home
rate          how often something may happen
routes        which calls may be made with a key
permissions   whether an agent that asks may use a tool
secrets       whether somebody knows a secret
spending      whether more money may be spent
taint         what a value from outside may reach
variables     which variables hold secrets
"""
