"""The command line: one file per subcommand, loaded when it is called.

Exit codes: 0 succeeded, 1 failed, 2 bad usage or workflow, 75 paused, 130 cancelled.

A command is a file in `commands`: `add_arguments(parser)`, `main(args) -> int`, and a docstring,
which is its help.
What they share:

    arguments  arguments that several commands take
    background runs a command that goes on after the terminal closes
    interrupts Ctrl+C, SIGTERM and a closed terminal
    watching   shows the runs of this process until they have settled
    recovery   settles what a crash left behind
    view/      how runs, changes and figures are shown

A command calls the application layer (`infloop.application`), which `infloop.app` opens, and prints
the result. It decides nothing.

Nothing is imported before it is needed: `infloop --help` answers at once.
"""

from __future__ import annotations

import argparse
import importlib
import keyword
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from infloop import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import ModuleType

COMMANDS: tuple[tuple[str, str], ...] = (
    ("loop", "let an agent work until a command succeeds"),
    ("agent", "let infloop's own agent work in a directory, or until a command succeeds"),
    ("new", "write a first workflow"),
    ("run", "run a workflow to its end"),
    ("attach", "watch a run that another process drives"),
    ("check", "find everything wrong with workflow files"),
    ("workflows", "list workflows, with their files, last runs and problems"),
    ("convert", "make a loop file of a JSON workflow, or the other way"),
    ("runs", "list runs, or search them"),
    ("show", "show a run: its steps, outputs and outcome"),
    ("logs", "print the output of a run's steps"),
    ("why", "explain why a run started, waits or stopped"),
    ("costs", "show what agents and judges have cost"),
    ("audit", "read the audit log, or verify that nobody changed it"),
    ("cancel", "stop a run, whichever process drives it"),
    ("approvals", "list the questions that wait for a person, or answer one"),
    ("approve", "allow what waits for a person"),
    ("deny", "deny what waits for a person"),
    ("resume", "continue runs whose process died"),
    ("rewind", "start a new run from a step of an earlier one, with the files as they were"),
    ("diff", "show what a run or a step changed"),
    ("apply", "apply an agent's changes to your work tree or to a branch"),
    ("worktrees", "list, prune or restore the worktrees of agents"),
    ("dev", "watch files, keep processes running and react, as `devloop.toml` says"),
    ("serve", "serve the HTTP API, and start the runs in the queue"),
    ("worker", "start the runs in the queue, without a server"),
    ("workers", "list servers, workers and other processes that drive runs"),
    ("queue", "list the runs that wait for their turn, and why"),
    ("mcp", "let an MCP client start workflows and follow them"),
    ("export", "write a run's record as JSON"),
    ("import", "import run records, or a whole installation"),
    ("migrate", "move an installation with its history to PostgreSQL"),
    ("providers", "list agents and models: installed, logged in, what they may do"),
    ("connections", "list, add or remove machines with model servers"),
    ("triggers", "list, add or try out triggers, which start workflows without a person"),
    ("doctor", "say what this machine can confine, and prove it by attack"),
    ("settings", "show the settings, and where each value is from"),
    ("schema", "print the JSON Schema of a file format"),
    ("docs", "read the documentation"),
    ("demo", "watch a loop turn failing tests green"),
)


FIRST = """\
first:
  infloop demo                                              shows a loop; no account needed
  infloop loop "Fix the failing tests" --check "pytest -q"  in a git repository of yours
  infloop docs quickstart                                   says how to get an agent"""


class _Parser(argparse.ArgumentParser):
    """Suggests the action, the choice or the option that was probably meant."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += _did_you_mean(str(value), action.choices or ())
            raise

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            options = [option for action in self._actions for option in action.option_strings]
            near = _did_you_mean(unknown[0].partition("=")[0], options)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{near}")
        return parsed


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command itself; a subcommand's own is made when it is called."""
    width = max(len(name) for name, _ in COMMANDS)
    listed = "\n".join(f"  {name:<{width}}  {text}" for name, text in COMMANDS)
    top = argparse.ArgumentParser(
        prog="infloop",
        description=("Runs agent loops on your own machine, durably, and can prove what they did."),
        epilog=f"{FIRST}\n\ncommands:\n{listed}\n\n`infloop COMMAND --help` explains one of them.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"infloop {__version__}")
    top.add_argument(
        "command",
        metavar="COMMAND",
        choices=[name for name, _ in COMMANDS],
        help="what to do; see the list below",
    )
    return top


def command_parser(name: str) -> argparse.ArgumentParser:
    """Return the parser of one subcommand."""
    module = _command_module(name)
    command = _Parser(
        prog=f"infloop {name}",
        description=module.__doc__,
        formatter_class=partial(argparse.RawDescriptionHelpFormatter, width=80),
        allow_abbrev=False,
    )
    module.add_arguments(command)
    # Only help needs the width of the terminal, for which argparse imports `shutil`: 4 ms.
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    return command


def run(argv: Sequence[str]) -> int:
    """Run the command line; return the exit code."""
    from infloop.cli.view.terminal import is_text, note, prepare_streams

    prepare_streams()
    if not all(map(is_text, argv)):
        note("infloop: an argument is not valid UTF-8 text")
        return 2
    if not argv:
        parser().print_help()
        return 2
    if argv[0] not in dict(COMMANDS):
        if not argv[0].startswith("-"):
            note(f"infloop: there is no command {argv[0]!r}{_suggestion(argv[0])}")
            return 2
        parser().parse_args(argv)  # handles --help and --version, and refuses everything else
        return 2
    args = command_parser(argv[0]).parse_args(argv[1:])
    _note_unknown_settings()
    return call(_command_module(argv[0]).main, args)


def _note_unknown_settings() -> None:
    """Say which variables are named like a setting and are none: a limit may be misspelt."""
    from infloop.cli.view.terminal import note
    from infloop.settings import unknown_variables

    for unknown in unknown_variables():
        note(f"infloop: warning: {unknown}")


def _suggestion(mistyped: str) -> str:
    known = [name for name, _ in COMMANDS]
    return _did_you_mean(mistyped, known) or "; `infloop --help` lists them"


def _did_you_mean(mistyped: str, known: Iterable[object]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(mistyped[:40], [str(one) for one in known], n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _command_module(name: str) -> ModuleType:
    file = f"{name}_" if keyword.iskeyword(name) else name
    return importlib.import_module(f"infloop.cli.commands.{file}")


def call(main: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    """Call a command; turn expected errors into a message and an exit code."""
    from infloop.cli.view.terminal import abandon_stdout, complain
    from infloop.errors import InfloopError, NotFound, StoreError

    try:
        code = main(args)
        sys.stdout.flush()  # here, so that a closed pipe is handled below
    except InfloopError as error:
        complain(error)
        is_usage = isinstance(error, NotFound) or not isinstance(error, StoreError)
        return 2 if is_usage else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        abandon_stdout()
        return 1
    return code
