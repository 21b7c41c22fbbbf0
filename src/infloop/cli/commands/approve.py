"""Allow what waits for a person; `infloop approvals` lists it.

infloop approve 1f3a9c2e --note "I looked at it"
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.cli.commands.approvals import add_answer_arguments as add_arguments
from infloop.cli.commands.approvals import answer

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "main"]


def main(args: argparse.Namespace) -> int:
    return answer(args, "allow")
