"""infloop runs agent loops on your own machine, durably, and can prove what they did.

The map, from the top; imports point down and never up:

    __main__    the `infloop` command
    cli         one file per subcommand, and the terminal view
    app         builds the parts and hands each what it needs
    settings    the only reader of `INFLOOP_*` and `infloop.toml`
    catalog     finds workflow, provider and other definition files
    runtime     drives runs: append an event, advance the machine, perform its commands
    nodes       one file per node type that acts on the world
    providers   what answers a prompt
    sandbox     where children live: the only spawner
    store       what survives: the journal, its search, its files
    engine      pure progress: advance(state, event) -> commands
    policy      pure decisions
    model       pure data and its checks
    errors      one drawn tree of errors
"""

__version__ = "0.1.0"
