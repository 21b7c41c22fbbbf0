"""A development loop on a terminal: labels, colours, the status line and its keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from infloop.cli.view.dev_lines import DevLines, keep_colours
from infloop.model.dev.line_levels import level_of
from infloop.supervisor.reports import Source
from support.dev_loop import pids_with
from support.server import environment
from support.terminal import on_terminal

CONFIG = """
root = "."
[watch.none]
paths = ["x"]
workflow = "w"
[process.web]
command = ["sh", "-c", "printf '\\\\033[35mpink\\\\033[0m \\\\033[2Jclear\\\\n'; exec sleep 77611"]
[process.worker]
command = ["sh", "-c", "while :; do echo working; echo WARN: tired; sleep 0.05; done"]
[workflow.w]
steps = [{ action = "log", message = "x" }]
"""


def test_keys_restart_mute_and_end_the_loop(tmp_path: Path) -> None:
    (tmp_path / "devloop.toml").write_text(CONFIG)
    env = {**environment(tmp_path), "TERM": "xterm"}
    with on_terminal(("dev",), tmp_path, env, columns=120) as terminal:
        terminal.read_until("1 web running")
        assert "1-9 choose, r restart, m mute, l level, f follow, q quit" in terminal.read_until(
            "q quit"
        )
        terminal.read_until("working")
        shown = terminal.read_until("clear")
        assert "\x1b[35mpink\x1b[0m clear" in shown
        assert "\x1b[2J" not in shown
        terminal.type("r")
        terminal.read_until("a restart of process web was requested")
        terminal.read_until("stopped process web")
        terminal.type("2m")
        terminal.read_until("2 worker running (muted)")
        terminal.type("mll")
        terminal.read_until("2 worker running (warn)")
        terminal.read_until("WARN: tired")
        terminal.type("f")
        terminal.read_until("(alone)")
        terminal.type("q")
        assert terminal.end() == 0


def test_a_closed_terminal_ends_the_loop_and_what_it_started(tmp_path: Path) -> None:
    (tmp_path / "devloop.toml").write_text(CONFIG.replace("77611", "77612"))
    env = {**environment(tmp_path), "TERM": "xterm"}
    with on_terminal(("dev",), tmp_path, env, columns=120) as terminal:
        terminal.read_until("1 web running")
        terminal.read_until("working")
        assert pids_with("sleep\0" + "77612")
        terminal.hang_up()
    assert pids_with("sleep\0" + "77612") == []


LINES = {
    ("stdout", "plain"): "info",
    ("stderr", "plain"): "warn",
    ("stderr", "2026-01-01 INFO started"): "info",
    ("stdout", "ERROR in x"): "error",
    ("stdout", "0 errors, no ErrorKind"): "info",
    ("stdout", '{"level":"warn","msg":"INFO"}'): "warn",
    ("stdout", "level=debug x"): "debug",
    ("stderr", "[info] x"): "info",
    ("stderr", "warning: unused x"): "warn",
    ("stderr", "  at line 7"): "error",
    ("stdout", "WARNING x"): "warn",
    ("stdout", "x" * 300 + " ERROR"): "info",
}


def test_the_level_of_a_line_is_what_it_says_or_that_of_its_stream() -> None:
    assert {line: level_of(line[1], line[0], "error") for line in LINES} == LINES  # type: ignore[arg-type]


def test_lines_below_the_level_of_their_source_are_not_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = DevLines(colours=False)
    source = Source("server", "web", level="warn")
    for text in ("INFO hidden", "\x1b[31mERROR\x1b[0m shown", "  shown too", "hidden"):
        lines.line(source, "stdout", text, complete=True)
    lines.levels["web"] = "debug"
    lines.line(source, "stdout", "DEBUG shown at last", complete=True)
    shown = [line.removeprefix("[server web] ") for line in capsys.readouterr().out.splitlines()]
    assert shown == ["ERROR shown", "  shown too", "DEBUG shown at last"]


def test_only_colours_of_a_child_reach_the_terminal() -> None:
    hostile = {
        "\x1b[1;31mred\x1b[0m": "\x1b[1;31mred\x1b[0m",
        "\x1b]0;title\x07x": "x",
        "\x1b]52;c;aGk=\x1b\\x": "x",
        "\x1b[2J\x1b[H\x1b[?25lx": "x",
        "\x1bPq#0\x1b\\x": "x",
        "\x1bcx\x1b(0": "x",
        "a\x08\x07b": "a\\x08\\x07b",
        "\u202eevil": "\\u202eevil",
        "\x9b31mx": "\\x9b31mx",
        "tab\there": "tab\there",
    }
    assert {text: keep_colours(text) for text in hostile} == hostile
