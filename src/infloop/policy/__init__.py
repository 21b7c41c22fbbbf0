"""Pure decisions: data in, verdict out, nothing is done.

addresses     which addresses a connection may go to
budget        how much a run may use up
environment   which variables a child gets
hosts         which hosts a connection may go to
protected     which files need a person to be brought home
rate          how often something may happen
routes        which calls may be made with a key
permissions   whether an agent that asks may use a tool
secrets       whether somebody knows a secret
spending      whether more money may be spent
taint         what a value from outside may reach
"""
