"""Node types with effects, one file each.

    base        what a step may use, and what it returns
    node_types  the list of all node types with effects
    agent       asks a provider to do something in a directory
    session     usage of an agent's session that earlier rounds have counted
    script      runs inline Python or TypeScript
    command     runs a shell command that must succeed
    condition   runs a command, asks a judge or the development loop: met or not met
    dev_check   asks the development loop whether the application is up
    page_check  opens a page in a browser and returns the errors on its console
    judge       asks a model which of several candidates is best
    approval    waits until a person allows or denies something

A new node type with effects is a class in `infloop.model.nodes`, a file here, and a line in
`node_types`.
"""
