"""A long line that is not complete yet: its end is shown on a terminal as it grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from infloop.cli.view.terminal import end_of
from support.terminal import on_terminal
from support.user_machine import command, machine

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("line", "columns", "shown"),
    [
        ("short", 10, "short"),
        ("0123456789", 10, "0123456789"),
        ("0123456789a", 10, "…23456789a"),
        ("漢字漢字漢字", 6, "…漢字"),
        ("x" * 100_000 + "END", 5, "…xEND"),
        ("", 0, ""),
    ],
)
def test_the_end_of_a_line_fits(line: str, columns: int, shown: str) -> None:
    assert end_of(line, columns) == shown


def test_the_live_view_and_followed_logs_show_the_end_of_a_growing_line(tmp_path: Path) -> None:
    here = machine(tmp_path)
    until = "while [ ! -e {}/{} ]; do sleep 0.02; done; "
    line = (
        "printf '%0500d' 0; printf FIRST-END; "
        + until.format(tmp_path, "more")
        + "printf '%0500d' 0; printf SECOND-END; "
        + until.format(tmp_path, "go")
        + "echo"
    )
    file = here.file("w", [command("c", line)], "start next c")
    with on_terminal(("run", file), here.repo, here.env) as live:
        live.read_until("FIRST-END")
        follow = ("logs", "last", "--follow")
        with on_terminal(follow, here.repo, here.env) as logs:
            logs.read_until("FIRST-END")
            (tmp_path / "more").touch()
            live.read_until("SECOND-END")
            logs.read_until("SECOND-END")
            rows = logs.shown.split("\r")
            assert all(len(row.strip()) <= 80 + len("\x1b[K") for row in rows[-2:]), rows[-2:]
            (tmp_path / "go").touch()
            assert logs.end() == 0
        assert live.end() == 0
    whole = f"c | {'0' * 500}FIRST-END{'0' * 500}SECOND-END"
    assert whole in logs.shown.replace("\r\n", "\n"), "the complete line stays"
    assert "\x1b" not in here.infloop("logs", "last", "--follow").stdout, "a pipe gets lines only"
