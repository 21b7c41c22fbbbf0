"""Print the JSON Schema of a file format, for editors and other tools.

Name it in a workflow's `$schema` and an editor completes and checks the file as you type. For a
loop file, write this as its first line: `# yaml-language-server: $schema=loop.schema.json`.

  infloop schema workflow > workflow.schema.json
  infloop schema loop > loop.schema.json
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.application.schemas import SCHEMAS

if TYPE_CHECKING:
    import argparse

SETTINGS = "settings"
NAMES = (*SCHEMAS, SETTINGS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", choices=NAMES, help=", ".join(NAMES))


def main(args: argparse.Namespace) -> int:
    import json

    if args.name == SETTINGS:
        from infloop.model.json_schema import json_schema
        from infloop.settings import Settings

        schema = json_schema(Settings)
    else:
        schema = SCHEMAS[args.name]()
    print(json.dumps(schema, indent=2))
    return 0
