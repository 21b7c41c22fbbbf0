"""Loop files: a workflow as a short YAML file, `NAME.loop.yaml`.

    tree         reads YAML into a tree whose parts know their line and column
    keys         which key means which field, from the classes of the model
    quantities   durations and amounts of money
    values       values of the file become values of the model
    steps        a step after reading
    forms        … `check`, `until` and `if`
    compiling    reads the steps and links them into nodes and edges
    source       where a problem of the workflow is in the file, in the file's words
    reading      the whole way: bytes, tree, workflow
    built        the same for a workflow in Python, from what its file has built

    rendering    fields of the model become keys and values of the file
    arranging    puts the nodes of a workflow into written order
    writing      … and writes the file
    yaml_text    values as YAML

    schema       the JSON Schema of the language

A loop file and a JSON file are two ways to write the same `Workflow`. The check, the engine and the
journal do not know which one it was.
"""
