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
    builder     what a workflow in Python imports: functions that make steps

`from infloop import agent, workflow` imports `builder` and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    # -- made: imports --
    from infloop.builder import Step as Step
    from infloop.builder import Workflow as Workflow
    from infloop.builder import agent as agent
    from infloop.builder import approval as approval
    from infloop.builder import call as call
    from infloop.builder import check as check
    from infloop.builder import command as command
    from infloop.builder import end as end
    from infloop.builder import if_ as if_
    from infloop.builder import judge as judge
    from infloop.builder import loop as loop
    from infloop.builder import note as note
    from infloop.builder import parallel as parallel
    from infloop.builder import script as script
    from infloop.builder import start as start
    from infloop.builder import workflow as workflow
    # -- end --
else:
    # -- made: exported --
    _EXPORTED = {
        "Step",
        "Workflow",
        "agent",
        "approval",
        "call",
        "check",
        "command",
        "end",
        "if_",
        "judge",
        "loop",
        "note",
        "parallel",
        "script",
        "start",
        "workflow",
    }
    # -- end --

    def __getattr__(name: str) -> object:
        if name not in _EXPORTED:
            raise AttributeError(f"module 'infloop' has no attribute {name!r}")
        import infloop.builder

        return getattr(infloop.builder, name)
