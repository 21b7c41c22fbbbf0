"""Names and writes new workflow files; an existing file is not overwritten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.errors import UsageError
from infloop.model.names import FILE_NAME_RULE, is_file_name

if TYPE_CHECKING:
    from infloop.model.values import JsonObject

LOOP_SUFFIXES = (".loop.yaml", ".loop.yml")
JSON_SUFFIX = ".workflow.json"


def file_named(name: str, *, as_json: bool) -> str:
    """Return the file for a name: `fix` means `fix.loop.yaml`, or `fix.workflow.json`."""
    if name.endswith((*LOOP_SUFFIXES, ".json")):
        if as_json and not name.endswith(".json"):
            raise UsageError(f"--json writes a JSON file, and {name!r} is named like a loop file")
        return name
    if name.endswith((".yaml", ".yml")):
        right = name.rpartition(".")[0] + LOOP_SUFFIXES[0]
        raise UsageError(f"{name!r} is not named like a loop file: use {right!r}")
    return name + (JSON_SUFFIX if as_json else LOOP_SUFFIXES[0])


def workflow_id_of(file: str) -> str:
    """Return the id of the workflow in a file: the file's name. Raises UsageError."""
    name = Path(file).name
    for suffix in (*LOOP_SUFFIXES, ".json", ".workflow"):
        name = name.removesuffix(suffix)
    workflow_id = name
    if not is_file_name(workflow_id):
        raise UsageError(f"{workflow_id!r} cannot be a workflow's id: {FILE_NAME_RULE}")
    return workflow_id


def write_workflow(file: str, workflow: JsonObject) -> None:
    """Write a workflow to a file that does not exist yet, as YAML or JSON. Raises UsageError."""
    write_new(file, _loop_text(workflow) if file.endswith(LOOP_SUFFIXES) else _json_text(workflow))


def write_new(file: str, text: str) -> None:
    """Write a text to a file that does not exist yet. Raises UsageError."""
    try:
        with Path(file).open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        raise UsageError(f"{file!r} exists already; name another file") from None
    except OSError as error:
        raise UsageError(f"{file!r} cannot be written: {error.strerror}") from None


def _json_text(workflow: JsonObject) -> str:
    return json.dumps(workflow, indent=2, ensure_ascii=False) + "\n"


def _loop_text(workflow: JsonObject) -> str:
    from infloop.model.loop_file.writing import write_loop_file
    from infloop.model.workflow import Workflow

    made = Workflow.model_validate(workflow)
    return write_loop_file(made, made.id)


def run_command_for(file: str) -> str:
    """Return the command that runs a file."""
    import shlex

    return f"infloop run {shlex.quote(file if '/' in file else f'./{file}')}"
