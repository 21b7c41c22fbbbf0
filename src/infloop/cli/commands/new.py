"""Write a first workflow: an agent in a git worktree, and a check that must succeed there.

It can run as it is; then change it. An existing file is not overwritten.

  infloop new
  infloop new fix.workflow.json
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

DEFAULT = "loop.workflow.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE", nargs="?", default=DEFAULT, help=f"default: {DEFAULT}, here"
    )


def main(args: argparse.Namespace) -> int:
    import json
    import shlex
    from pathlib import Path

    from infloop.errors import UsageError
    from infloop.model.names import FILE_NAME_RULE, is_file_name
    from infloop.model.starter import starter_workflow

    path = Path(args.file)
    workflow_id = path.name.removesuffix(".json").removesuffix(".workflow")
    if not is_file_name(workflow_id):
        raise UsageError(f"{workflow_id!r} cannot be a workflow's id: {FILE_NAME_RULE}")
    text = json.dumps(starter_workflow(workflow_id), indent=2) + "\n"
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{str(path)!r} exists already; name another file") from None
    except OSError as error:
        raise UsageError(f"{str(path)!r} cannot be written: {error.strerror}") from None
    name = shlex.quote(args.file if "/" in args.file else f"./{args.file}")
    print(f"wrote {args.file}; in a git repository, try")
    print(f"  infloop run {name} --input check='make test'")
    return 0
