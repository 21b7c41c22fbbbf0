"""The command line of an agent: a manifest's `args` with the values of the request filled in.

    {prompt}              the prompt; only if the manifest passes it as an argument
    {agent}, {model}      a value of the request; if it is empty the argument is left out, and so is
                          the option before it if the argument is only the placeholder
    {session}             the session to continue, in `resumeArgs`

- `hostArgs` or `confinedArgs` are added, or `dangerousArgs` instead if the node skips permission
  prompts; then `resumeArgs` if a session is continued. They go before the prompt and its option, or
  before `-` or `--`, or else at the end.
- A judge has the manifest's `judgeArgs`, and nothing is added to them: it only answers. A manifest
  for claude that has none gets `CLAUDE_JUDGE_ARGS`; its own arguments may skip permission prompts.
  Another one's `args` stay, without those that give permissions.
- Placeholders are replaced in one pass: a prompt with the text "{agent}" stays as it is.
- No value becomes an option of the program. A value that begins with a dash is refused, unless the
  manifest has `--` before it.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from infloop.errors import StepError
from infloop.providers.base import ProviderNotice
from infloop.providers.json_lines import as_session_id, one_line
from infloop.providers.programs import checked_program

if TYPE_CHECKING:
    from infloop.model.provider import CliProvider
    from infloop.providers.base import Request

# The longest argument that Linux accepts.
MAX_ARGUMENT_BYTES = 128 << 10

CLAUDE_JUDGE_ARGS = (
    *("--print", "--output-format", "stream-json", "--verbose"),
    *("--model", "{model}", "{prompt}"),
)

# Our own fixed pattern: no repeats.
_PLACEHOLDER = re.compile(r"(\{(?:prompt|agent|model|session)\})")  # noqa: TID251


class CommandLine(NamedTuple):
    """The arguments, the standard input, and notices about what the manifest does not support."""

    argv: tuple[str, ...]
    stdin: bytes | None
    notices: tuple[ProviderNotice, ...]


def command_line(
    manifest: CliProvider, request: Request, program: str = "", *, confined: bool = False
) -> CommandLine:
    """Return the command that runs the manifest's program, or `program` instead.

    `confined` says whether the program runs in a sandbox of ours. Raises StepError for a request
    that cannot be passed as a command.
    """
    prompt = request.prompt.encode("utf-8", "replace")
    template = _template(manifest, request, confined=confined)
    by_argument = manifest.prompt_via == "arg"
    if request.kind == "judge" and not by_argument:
        by_argument = "{prompt}" in template and _is_plain_argument(prompt)
    values = {
        "{agent}": request.agent.strip(),
        "{model}": request.requested_model,
        "{session}": _session(request.session_id),
    }
    if by_argument:
        values["{prompt}"] = prompt.decode()
        if not any("{prompt}" in argument for argument in template):
            raise StepError(
                f"the args of provider {manifest.id!r} hold no '{{prompt}}'; "
                "add it, or set promptVia to 'stdin'"
            )
    elif request.kind == "judge":
        template = tuple(argument for argument in template if argument != "{prompt}")
    arguments = _fill(template, values)
    for argument in arguments:
        _check_fits(argument)
    return CommandLine(
        (checked_program(program or manifest.bin), *arguments),
        None if by_argument else prompt,
        _notices(manifest, request, template),
    )


def _session(given: str) -> str:
    if given and not as_session_id(given):
        raise StepError(
            f"{given[:80]!r} is not the id of a session: use letters, digits, '-' and '_'"
        )
    return given


def _template(manifest: CliProvider, request: Request, *, confined: bool) -> tuple[str, ...]:
    """Return the arguments with their placeholders."""
    if request.kind == "judge":
        is_claude = manifest.output_format == "claude-stream-json" and "--print" in manifest.args
        return manifest.judge_args or (CLAUDE_JUDGE_ARGS if is_claude else manifest.args)
    if request.skip_permissions and manifest.dangerous_args:
        extras = manifest.dangerous_args
    else:
        extras = manifest.confined_args if confined else manifest.host_args
    if request.session_id:
        extras += manifest.resume_args
    at = _index_of_extras(manifest.args)
    return (*manifest.args[:at], *extras, *manifest.args[at:])


def _index_of_extras(arguments: tuple[str, ...]) -> int:
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
        used = {name for name in _PLACEHOLDER.findall(argument) if name in values}
        if any(not values[name] and name != "{prompt}" for name in used):
            if argument in used and removable:
                filled.pop()
            removable = False
            continue
        value = "".join(values.get(piece, piece) for piece in _PLACEHOLDER.split(argument))
        if used and value.startswith("-") and not argument.startswith("-") and not literal:
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
    if len(os.fsencode(argument)) >= MAX_ARGUMENT_BYTES:
        raise StepError(
            f"the prompt is longer than the {MAX_ARGUMENT_BYTES} bytes an argument can have; "
            "set promptVia to 'stdin' in the manifest"
        )


def _is_plain_argument(prompt: bytes) -> bool:
    """Say whether a prompt can be an argument, for a program that reads its input as well."""
    return len(prompt) < MAX_ARGUMENT_BYTES and not prompt.startswith(b"-") and b"\0" not in prompt


def _notices(
    manifest: CliProvider, request: Request, template: tuple[str, ...]
) -> tuple[ProviderNotice, ...]:
    notices = []
    if request.skip_permissions and not manifest.dangerous_args:
        notices.append(
            ProviderNotice(
                "[permissions] the manifest has no dangerousArgs: permission prompts stay on"
            )
        )
    if request.session_id and not manifest.resume_args:
        notices.append(
            ProviderNotice("[session] the manifest has no resumeArgs: a new session begins")
        )
    for name, value in (("agent", request.agent.strip()), ("model", request.requested_model)):
        if value and not any(f"{{{name}}}" in argument for argument in template):
            unused = one_line(value, 80)
            notices.append(
                ProviderNotice(f"[{name}] the manifest has no {{{name}}}: {unused!r} is not used")
            )
    return tuple(notices)
