"""Draws the picture of the README: a real run of the demo on a terminal of 80 columns.

    picture.py

Runs `infloop demo` on a pseudo-terminal, keeps what its screen shows each time it is drawn, and
writes the last of the fullest live views, and below it how the demo ended, to `docs/demo.svg`.
Times and ids differ from run to run, so it is made by hand and looked at, not by `make docs`.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

COLUMNS, ROWS = 80, 50
TARGET = Path(__file__).resolve().parent.parent / "docs/demo.svg"
PIECES = re.compile(r"\r\n|\r|\n|\x1b\[[0-9;?]*[A-Za-z]|[^\x1b\r\n]+")
# The picture must not fetch fonts from anywhere.
FORMAT = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def record() -> str:
    """Return all that the demo writes to its terminal."""
    program = Path(sys.executable).parent / "infloop"
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LINES=str(ROWS))
        os.execv(program, [str(program), "demo"])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    written = bytearray()
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # how Linux says that the other side is closed
            break
        if not data:
            break
        written += data
    _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(written.decode())
    return written.decode()


def screens(written: str) -> Iterator[list[str]]:
    """Yield what the screen shows before each time something is erased, and at the end.

    A live view moves up line by line and erases each, so a screen is a list of lines and a row.
    """
    lines, row = [""], 0
    for piece in PIECES.findall(written):
        if piece in ("\n", "\r\n"):
            row += 1
            if row == len(lines):
                lines.append("")
        elif piece.endswith("A") and piece.startswith("\x1b["):
            row = max(0, row - int(piece[2:-1] or 1))
        elif piece.endswith("K"):
            yield list(lines)
            lines[row] = ""
        elif piece.endswith("m") or not piece.startswith(("\x1b", "\r")):
            lines[row] += piece
    yield lines


def draw(lines: list[str]) -> str:
    """Return the lines as SVG."""
    console = Console(width=COLUMNS, record=True, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi("\n".join(lines)))
    return console.export_svg(title="infloop demo", code_format=FORMAT, unique_id="demo")


def main() -> None:
    """Record the demo and write the picture."""
    *live, last = screens(record())
    fullest = max(enumerate(live), key=lambda each: (sum(map(bool, each[1])), each[0]))[1]
    ending = [line for line in last if line not in fullest]
    TARGET.write_text(draw([*filter(None, fullest), "", *ending]), encoding="utf-8")


if __name__ == "__main__":
    main()
