"""The command line of an agent: a manifest's `args` with the request's values in their places.

    {prompt}              the prompt, as it is; only where the prompt goes by argument
    {agent}, {model}      a value of the request; without one the argument goes, and so does the
                          option before it when the argument was nothing else
    {session}             the session to continue, in `resumeArgs`

`dangerousArgs` and `resumeArgs` are added when the request asks for them, in this order: before
the prompt and its option, or before `-` or `--`, or else at the end.

A value is put in once and never looked at again: a prompt that reads "{agent}" stays as it is. No
value can turn into an option of the program: one that begins with a dash is refused, unless the
manifest has `--` before it.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from infloop.errors import StepError
from infloop.providers.base import Notice
from infloop.providers.json_lines import as_session, one_line

if TYPE_CHECKING:
    from infloop.model.provider import CliProvider
    from infloop.providers.base import Request

# What Linux takes as one argument.
MOST_ARGUMENT_BYTES = 128 << 10

# Our own fixed pattern: no repeats.
_PLACE = re.compile(r"(\{(?:prompt|agent|model|session)\})")  # noqa: TID251


class Command(NamedTuple):
    """What to start, what to write to it, and what the manifest could not do for the request."""

    argv: tuple[str, ...]
    stdin: bytes | None
    notices: tuple[Notice, ...]


def command_for(manifest: CliProvider, request: Request, program: str = "") -> Command:
    """Return the command that asks the manifest's program, or `program` in its place.

    Raises StepError for a request that cannot be put as a command.
    """
    prompt = request.prompt.encode("utf-8", "replace")
    by_argument = manifest.prompt_via == "arg"
    values = {
        "{agent}": request.agent.strip(),
        "{model}": request.wanted_model,
        "{session}": _session(request.session_id),
    }
    if by_argument:
        values["{prompt}"] = prompt.decode()
        if not any("{prompt}" in argument for argument in manifest.args):
            raise StepError(
                f"the args of provider {manifest.id!r} hold no '{{prompt}}'; "
                "add it, or set promptVia to 'stdin'"
            )
    arguments = _fill(_with_extras(manifest, request), values)
    for argument in arguments:
        _check_fits(argument)
    return Command(
        (program_of(program or manifest.bin), *arguments),
        None if by_argument else prompt,
        _notices(manifest, request),
    )


def _session(given: str) -> str:
    if given and not as_session(given):
        raise StepError(
            f"{given[:80]!r} is not the id of a session: use letters, digits, '-' and '_'"
        )
    return given


def program_of(named: str) -> str:
    """Return the program that was named; raise StepError for a relative path."""
    if "/" in named and not named.startswith("/"):
        raise StepError(
            f"the program {named!r} would be looked for in the agent's directory; "
            "give its name on PATH or its whole path"
        )
    return named


def _with_extras(manifest: CliProvider, request: Request) -> tuple[str, ...]:
    extras: tuple[str, ...] = ()
    if request.skip_permissions:
        extras += manifest.dangerous_args
    if request.session_id:
        extras += manifest.resume_args
    at = _place_of_extras(manifest.args)
    return (*manifest.args[:at], *extras, *manifest.args[at:])


def _place_of_extras(arguments: tuple[str, ...]) -> int:
    for index, argument in enumerate(arguments):
        if argument in ("-", "--"):
            return index
        if "{prompt}" in argument:
            has_option = index > 0 and arguments[index - 1].startswith("-")
            return index - 1 if has_option else index
    return len(arguments)


def _fill(arguments: tuple[str, ...], values: dict[str, str]) -> list[str]:
    filled: list[str] = []
    literal = False
    removable = False
    for argument in arguments:
        places = {place for place in _PLACE.findall(argument) if place in values}
        if any(not values[place] and place != "{prompt}" for place in places):
            if argument in places and removable:
                filled.pop()
            removable = False
            continue
        value = "".join(values.get(piece, piece) for piece in _PLACE.split(argument))
        if places and value.startswith("-") and not argument.startswith("-") and not literal:
            raise StepError(
                f"{value[:80]!r} would be read as an option; begin it with something else, or "
                "change the manifest: promptVia 'stdin', or '--' before '{prompt}'"
            )
        literal = literal or argument == "--"
        removable = argument.startswith("-")
        filled.append(value)
    return filled


def _check_fits(argument: str) -> None:
    if "\0" in argument:
        raise StepError("the prompt holds a NUL character, which no argument can; remove it")
    if len(os.fsencode(argument)) >= MOST_ARGUMENT_BYTES:
        raise StepError(
            f"the prompt is longer than the {MOST_ARGUMENT_BYTES} bytes an argument can have; "
            "set promptVia to 'stdin' in the manifest"
        )


def _notices(manifest: CliProvider, request: Request) -> tuple[Notice, ...]:
    notices = []
    if request.skip_permissions and not manifest.dangerous_args:
        notices.append(
            Notice("[permissions] the manifest has no dangerousArgs: permission prompts stay on")
        )
    if request.session_id and not manifest.resume_args:
        notices.append(Notice("[session] the manifest has no resumeArgs: a new session begins"))
    for name, value in (("agent", request.agent.strip()), ("model", request.wanted_model)):
        if value and not any(f"{{{name}}}" in argument for argument in manifest.args):
            told = f"[{name}] the manifest has no {{{name}}}: {one_line(value, 80)!r} is not used"
            notices.append(Notice(told))
    return tuple(notices)
