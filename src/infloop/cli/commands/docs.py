"""Read the documentation that came with this version.

Without a topic, the topics are listed. On a terminal a page is rendered and shown by your pager
(PAGER, or `less`); in a pipe or a file it is printed as Markdown.

  infloop docs
  infloop docs workflow-format
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

MAX_WIDTH = 110

ALIASES = {"config": "dev-loop", "behavior": "dev-loop"}
"""Topics of devloop that are parts of a page here."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", nargs="?", help="what to read about")


def main(args: argparse.Namespace) -> int:
    found = topics()
    if args.topic is None:
        width = max((len(name) for name in found), default=0)
        for name, path in found.items():
            print(f"{name:<{width}}  {_title(path)}")
        return 0
    topic = ALIASES.get(args.topic, args.topic)
    if topic not in found:
        from difflib import get_close_matches

        from infloop.errors import UsageError

        near = get_close_matches(args.topic, found, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UsageError(f"there is no topic {args.topic!r}; {hint}known: {', '.join(found)}")
    show(found[topic].read_text(encoding="utf-8"))
    return 0


def show(page: str) -> None:
    """Print a page; on a terminal it is rendered, a screen at a time."""
    import sys

    if not sys.stdout.isatty():
        print(page, end="")
        return
    import pydoc
    import shutil

    from infloop.cli.view.markdown import render

    width = min(shutil.get_terminal_size().columns, MAX_WIDTH)
    pydoc.pager(render(page, width))


def topics() -> dict[str, Path]:
    """Return the pages by name, from the installed package or from the source tree around it."""
    import infloop
    from infloop.errors import MissingPart

    package = Path(infloop.__file__).parent
    for folder in (package / "docs", package.parent.parent / "docs"):
        pages = {path.stem: path for path in sorted(folder.glob("*.md"))}
        if pages:
            return pages
    raise MissingPart("the documentation is not part of this installation; install infloop again")


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as page:
        return next((line[2:].strip() for line in page if line.startswith("# ")), "")
